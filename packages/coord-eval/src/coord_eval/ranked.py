"""COCO's own matching as arrays, for what the twelve numbers do not tell: intervals, error kinds, thresholds.

Shape legend: T IoU thresholds, D detections, N objects, P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coord_eval.coco import MAX_DETECTIONS
from coord_eval.detections import Detections
from coord_eval.pairs import Pairs, overlapping_pairs
from coord_eval.truth import GroundTruth

RECALL_POINTS = np.linspace(0.0, 1.0, 101)
#: COCO's area ranges in pixels, both ends included: all, small, medium, large.
AREAS = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))


@dataclass(frozen=True, eq=False)
class RankedMatches:
    """Which detections find an object when the highest score chooses first, as COCO has it.

    Attributes:
        thresholds: The T IoU thresholds.
        hit_TD: The detection found a free object of its label.
        ignored_TD: It counts neither way: in a crowd region, on an object outside the area range or of such an area
            itself, or beyond the limit of its label and image.
        object_TD: Index of the object it found, -1 without one.
        order_D: Detections by falling score, ties in the order of image and answer.
        place_D: Place of the detection among those of its label and image by falling score, from 0.
        counted_N: Objects that count: no crowd regions, and of the area range.
    """

    thresholds: tuple[float, ...]
    hit_TD: np.ndarray
    ignored_TD: np.ndarray
    object_TD: np.ndarray
    order_D: np.ndarray
    place_D: np.ndarray
    counted_N: np.ndarray


def ranked_matches(
    truth: GroundTruth,
    detections: Detections,
    thresholds: Sequence[float],
    limit: int = MAX_DETECTIONS[-1],
) -> RankedMatches:
    """Match the way COCO does, objects of all areas.

    Args:
        truth: The objects.
        detections: The answers.
        thresholds: IoU thresholds.
        limit: Boxes of one label and image that are looked at.
    """
    return ranked_matches_by_area(truth, detections, thresholds, limit, AREAS[:1])[0]


def ranked_matches_by_area(
    truth: GroundTruth,
    detections: Detections,
    thresholds: Sequence[float],
    limit: int = MAX_DETECTIONS[-1],
    areas: Sequence[tuple[float, float]] = AREAS,
) -> list[RankedMatches]:
    """Match the way COCO does, once for each area range.

    Arguments as in :func:`ranked_matches`; ``areas`` are ranges in pixels, both ends included.
    """
    total = len(detections)
    by_image = np.lexsort((np.arange(total), detections.image_D))
    order_D = by_image[np.argsort(-detections.scores_D[by_image], kind="stable")]
    place_D = _places(detections)
    pairs = overlapping_pairs(truth, detections)
    pairs = pairs.take((pairs.iou_P >= min(thresholds)) & (place_D[pairs.det_P] < limit))
    area_D = detections.boxes_D4[:, 2:].prod(axis=1)
    found = []
    for low, high in areas:
        counted_N = ~truth.crowd_N & (truth.area_N >= low) & (truth.area_N <= high)
        outside_D = (area_D < low) | (area_D > high)
        ranked = _in_order_of_choice(pairs, place_D, counted_N)
        object_TD = np.stack([_choose(ranked, truth.crowd_N, total, t) for t in thresholds])
        hit_TD = np.append(counted_N, False)[object_TD]
        ignored_TD = np.where(object_TD >= 0, ~hit_TD, outside_D) | (place_D >= limit)
        found.append(
            RankedMatches(
                tuple(thresholds),
                hit_TD,
                ignored_TD,
                np.where(hit_TD, object_TD, -1),
                order_D,
                place_D,
                counted_N,
            )
        )
    return found


def _in_order_of_choice(pairs: Pairs, place_D: np.ndarray, counted_N: np.ndarray) -> Pairs:
    """Sort pairs so that the first one that is free is the one COCO takes.

    The best ranked detection chooses first; an object that counts goes before one that doesn't, then the larger
    overlap, and of equal overlaps the last object.
    """
    keys = (-pairs.object_P, -pairs.iou_P, ~counted_N[pairs.object_P], pairs.det_P, place_D[pairs.det_P])
    return pairs.take(np.lexsort(keys))


def _choose(pairs: Pairs, crowd_N: np.ndarray, total: int, threshold: float) -> np.ndarray:
    """Return the object that each detection finds, -1 without one; crowd regions can be found many times."""
    chosen_D = np.full(total, -1)
    near = pairs.take(pairs.iou_P >= min(threshold, 1 - 1e-10))
    taken, waiting = bytearray(len(crowd_N)), bytearray(b"\1") * total
    found = []
    crowd_P = crowd_N[near.object_P].tolist()
    rows = zip(near.det_P.tolist(), near.object_P.tolist(), crowd_P, strict=True)
    for p, (d, n, crowd) in enumerate(rows):
        if waiting[d] and (crowd or not taken[n]):
            taken[n], waiting[d] = True, False
            found.append(p)
    matched = near.take(np.array(found, np.int64))
    chosen_D[matched.det_P] = matched.object_P
    return chosen_D


def _places(detections: Detections) -> np.ndarray:
    """Return each detection's place by falling score among those of its label and image."""
    order = np.lexsort((-detections.scores_D, detections.category_D, detections.image_D))
    keys = np.stack([detections.image_D[order], detections.category_D[order]])
    fresh = np.ones(len(order), bool)
    fresh[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    starts = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    place_D = np.empty(len(order), np.int64)
    place_D[order] = np.arange(len(order)) - starts
    return place_D


def mean_present(values: np.ndarray) -> float:
    """Return the mean of what is not NaN, -1 when nothing is (COCO's sign for it)."""
    present = values[~np.isnan(values)]
    return float(present.mean()) if present.size else -1.0
