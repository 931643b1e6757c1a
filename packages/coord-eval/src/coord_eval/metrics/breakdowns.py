"""Localisation bias, errors of the object count, and metrics by object size, object count and position.

Shapes: B weightings, I images, N objects, D detections.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coord_codec.box_transforms import LAYOUTS
from coord_eval.match.matching import AREAS, Scored
from coord_eval.metrics.sums import Measure, rates, ratio, weighted

EDGES = ("x1", "y1", "x2", "y2")
OBJECT_COUNTS = ((1, 1), (2, 3), (4, 7), (8, 15), (16, None))
RANKS = ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, None))


def edge_errors(scored: Scored) -> tuple[np.ndarray, np.ndarray]:
    """Return the errors [d, 4] in pixels of the edges of boxes with an IoU of at least .5, and their images [d]."""
    truth, detections, matches = scored.truth, scored.detections, scored.matches
    hit_D = matches.at(0.5)[0]
    found_d4, true_d4 = map(LAYOUTS["xywh"], (detections.boxes_D4[hit_D], truth.boxes_N4[matches.object_D[hit_D]]))
    return found_d4 - true_d4, detections.image_D[hit_D]


def edge_bias(scored: Scored) -> Measure:
    """Prepare the mean signed error of each edge, prediction minus ground truth, over pairs with an IoU of at least .5.

    A pipeline that shifts boxes by a pixel, a bin or half of one gives four errors of equal sign before AP changes.

    Returns:
        A measure with `pixels` and `bins`, the mean error by edge, NaN without pairs, and `pairs`, their `count`;
        images of unknown size are left out of `bins`.
    """
    truth = scored.truth
    error, image_d = edge_errors(scored)
    units = {"pixels": error, "bins": error / np.tile(truth.sizes_I2[image_d], 2) * scored.bins}
    sums: dict[str, np.ndarray] = {}
    for unit, error_d4 in units.items():
        known_d = np.isfinite(error_d4).all(axis=1)
        sums[unit] = np.zeros((len(truth), 4))
        np.add.at(sums[unit], image_d[known_d], error_d4[known_d])
        sums[f"{unit} pairs"] = np.bincount(image_d[known_d], minlength=len(truth))

    def measure(weights_BI: np.ndarray) -> dict[str, Any]:
        s = weighted(weights_BI, sums)
        means = {unit: ratio(s[unit], s[f"{unit} pairs"][:, None]) for unit in units}
        rows = {unit: dict(zip(EDGES, mean_B4.T, strict=True)) for unit, mean_B4 in means.items()}
        return {"pairs": {"count": s["pixels pairs"]}, **rows}

    return measure


def count_errors(scored: Scored) -> Measure:
    """Prepare the error of the number of predicted objects per image, and the number of duplicates.

    A duplicate is an unmatched box with an IoU of at least .5 with an object of its label that is matched with another
    box. Boxes in crowd regions are left out unless they are hits.
    """
    matches = scored.matches
    hit_D, counted_D = matches.at(0.5)
    error_I = scored.sum_detections(counted_D) - scored.objects_per_image
    duplicate_D = ~hit_D & (matches.best_D >= 0.5) & counted_D
    sums = {
        "mean_error": error_I,
        "mean_absolute_error": np.abs(error_I),
        "exact_share": error_I == 0,
        "duplicates": scored.sum_detections(duplicate_D),
    }

    def measure(weights_BI: np.ndarray) -> dict[str, Any]:
        s = weighted(weights_BI, sums)
        duplicates_B = s.pop("duplicates")
        images_B = weights_BI.sum(axis=1)
        return {name: ratio(sum_B, images_B) for name, sum_B in s.items()} | {"duplicates": duplicates_B}

    return measure


def by_size(scored: Scored) -> Measure:
    """Prepare recall at IoU .5 and mean IoU of small, medium and large objects.

    The area ranges are COCO's without their upper ends, so that each object belongs to one range.
    """
    truth, iou_N = scored.truth, scored.matches.iou_N
    sums = {}
    for name, (low, high) in zip(("small", "medium", "large"), AREAS[1:], strict=True):
        below_N = (truth.area_N < high) | (name == "large")
        chosen_N = ~truth.crowd_N & (truth.area_N >= low) & below_N
        hit_N = chosen_N & (iou_N >= 0.5)
        columns = (scored.sum_objects(chosen_N), scored.sum_objects(hit_N), scored.sum_objects(chosen_N, iou_N))
        sums[name] = np.stack(columns, axis=1)

    def measure(weights_BI: np.ndarray) -> dict[str, Any]:
        return {
            name: {"objects": objects, "recall": ratio(hits, objects), "mean_iou": ratio(iou, objects)}
            for name, (objects, hits, iou) in _columns(weights_BI, sums if truth.sizes_known else {})
        }

    return measure


def by_object_count(scored: Scored) -> Measure:
    """Prepare precision, recall and F1 at IoU .5 by the number of objects in the image, NaN without such images."""
    hits_I, counted_I = (scored.sum_detections(chosen_D) for chosen_D in scored.matches.at(0.5))
    columns = (np.ones(len(scored.truth)), hits_I, counted_I, scored.objects_per_image)
    chosen = _buckets(OBJECT_COUNTS, scored.objects_per_image)
    sums = {name: np.stack(columns, axis=1) * chosen_I[:, None] for name, chosen_I in chosen}

    def measure(weights_BI: np.ndarray) -> dict[str, Any]:
        return {
            name: {"images": images, **rates(hits, counted, objects, empty=np.nan)}
            for name, (images, hits, counted, objects) in _columns(weights_BI, sums)
        }

    return measure


def by_rank(scored: Scored) -> Measure:
    """Prepare precision at IoU .5 by position of the object in the answer, NaN without such objects."""
    hit_D, counted_D = scored.matches.at(0.5)
    sums = {
        name: np.stack([scored.sum_detections(chosen_D & hit_D), scored.sum_detections(chosen_D & counted_D)], axis=1)
        for name, chosen_D in _buckets(RANKS, scored.detections.rank_D)
    }

    def measure(weights_BI: np.ndarray) -> dict[str, Any]:
        return {
            name: {"detections": counted, "precision": ratio(hits, counted)}
            for name, (hits, counted) in _columns(weights_BI, sums)
        }

    return measure


def _columns(weights_BI: np.ndarray, sums: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    return ((name, sums_BX.T) for name, sums_BX in weighted(weights_BI, sums).items())


def _buckets(ranges: Sequence[tuple[int, int | None]], values: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name (`2-3`, `16+`) of each range, ends included, and a mask of the values in it."""
    for low, high in ranges:
        name = f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"
        yield name, (values >= low) & (values <= (np.inf if high is None else high))
