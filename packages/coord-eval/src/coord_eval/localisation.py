"""How found objects are placed, how many were answered, and which kinds of objects and answers do well.

Shape legend: N objects, D detections, I images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from coord_eval.detection_metrics import IOU_THRESHOLDS
from coord_eval.detections import Detections
from coord_eval.matching import Matches
from coord_eval.truth import GroundTruth

EDGES = ("x1", "y1", "x2", "y2")
SIZES = (("small", 0.0, 32.0**2), ("medium", 32.0**2, 96.0**2), ("large", 96.0**2, np.inf))
CROWDING = ((1, 1), (2, 3), (4, 7), (8, 15), (16, None))
RANKS = ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, None))


def macro_table(truth: GroundTruth, detections: Detections, matches: Matches) -> dict[str, dict[str, float]]:
    """Return macro precision, recall and F1: the plain mean over labels.

    The row ``0.5:0.95`` of F1 is what Rex-Omni (Jiang et al. 2025) calls F1@mIoU. Zero-class rule: the mean is over
    labels that have at least one object; of those, one without a hit scores 0 and one without an answer has
    precision 0. Labels without objects take no part, unknown labels neither: both are in the micro figures.
    """
    names = len(truth.categories)
    objects_K = np.bincount(truth.category_N[~truth.crowd_N], minlength=names)
    present = objects_K > 0
    known_D = detections.category_D < names
    label_D = detections.category_D[known_D]
    rows = []
    for t in IOU_THRESHOLDS:
        hit_D = matches.iou_D[known_D] >= t
        counted_D = hit_D | (matches.crowd_D[known_D] < t)
        hits_K = np.bincount(label_D[hit_D], minlength=names)[present]
        answered_K = np.bincount(label_D[counted_D], minlength=names)[present]
        of_K = objects_K[present]
        rows.append(
            {
                "precision": _mean(_ratio(hits_K, answered_K)),
                "recall": _mean(_ratio(hits_K, of_K)),
                "f1": _mean(_ratio(2 * hits_K, answered_K + of_K)),
            }
        )
    mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    return {"0.5": rows[0], "0.75": rows[5], "0.5:0.95": mean}


def edge_bias(
    truth: GroundTruth, detections: Detections, matches: Matches, bins: int
) -> dict[str, dict[str, float]]:
    """Return the signed mean error of each edge over pairs with IoU of at least .5, answer minus truth.

    A path that is off by a pixel, a bin or half of one shows here as four equal signs long before AP moves.

    Args:
        truth: The objects.
        detections: The answers.
        matches: Who found whom.
        bins: Units per picture side in which ``bins`` are given.

    Returns:
        ``pixels`` and ``bins``: mean error by edge; ``pairs``: how many; all 0 without pairs.
    """
    found_d, pixels_d4, bins_d4 = edge_errors(truth, detections, matches, bins)
    result: dict[str, dict[str, float]] = {"pairs": {"count": len(found_d)}}
    for name, values in (("pixels", pixels_d4), ("bins", bins_d4[np.isfinite(bins_d4).all(axis=1)])):
        means = values.mean(axis=0) if len(values) else np.zeros(4)
        result[name] = dict(zip(EDGES, means.tolist(), strict=True))
    return result


def edge_errors(
    truth: GroundTruth, detections: Detections, matches: Matches, bins: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the detections with a partner (IoU of at least .5) and the errors of their edges.

    Returns:
        Indices [d]; answer minus truth [d, 4] in pixels; the same in bins, NaN where the picture's size is unknown.
    """
    found_d = np.nonzero(matches.iou_D >= 0.5)[0]
    a, b = detections.boxes_D4[found_d], truth.boxes_N4[matches.object_D[found_d]]
    error = np.concatenate([a[:, :2] - b[:, :2], (a[:, :2] + a[:, 2:]) - (b[:, :2] + b[:, 2:])], axis=1)
    return found_d, error, error / np.tile(truth.sizes_I2[detections.image_D[found_d]], 2) * bins


def count_errors(truth: GroundTruth, detections: Detections, matches: Matches) -> dict[str, float]:
    """Return how the number of answered objects differs from the true one, image by image, and duplicates.

    A duplicate is a box without a partner that overlaps, with IoU of at least .5, an object of its label that
    another box found.
    """
    error_I, duplicates_I = count_by_image(truth, detections, matches)
    return {
        "mean_error": _mean(error_I),
        "mean_absolute_error": _mean(np.abs(error_I)),
        "exact_share": _mean(error_I == 0),
        "duplicates": int(duplicates_I.sum()),
    }


def count_by_image(
    truth: GroundTruth, detections: Detections, matches: Matches
) -> tuple[np.ndarray, np.ndarray]:
    """Return answered minus true objects, and duplicates, of each image."""
    images = len(truth)
    objects_I = np.bincount(truth.image_N[~truth.crowd_N], minlength=images)
    outside_crowds_D = matches.crowd_D < 0.5
    answered_I = np.bincount(detections.image_D[outside_crowds_D], minlength=images)
    duplicate_D = (matches.iou_D < 0.5) & (matches.best_D >= 0.5) & outside_crowds_D
    return answered_I - objects_I, np.bincount(detections.image_D[duplicate_D], minlength=images)


def by_size(truth: GroundTruth, matches: Matches) -> dict[str, dict[str, float]]:
    """Return recall at IoU .5 and mean IoU of small, medium and large objects (COCO's areas)."""
    regular_N = ~truth.crowd_N
    rows = {}
    for name, low, high in SIZES:
        chosen = regular_N & (truth.area_N >= low) & (truth.area_N < high)
        rows[name] = {
            "objects": int(chosen.sum()),
            "recall": _mean(matches.iou_N[chosen] >= 0.5),
            "mean_iou": _mean(matches.iou_N[chosen]),
        }
    return rows


def by_object_count(
    truth: GroundTruth, detections: Detections, matches: Matches
) -> dict[str, dict[str, float]]:
    """Return precision, recall and F1 at IoU .5 of pictures with so many objects."""
    images = len(truth)
    objects_I = np.bincount(truth.image_N[~truth.crowd_N], minlength=images)
    hits_I = np.bincount(detections.image_D[matches.iou_D >= 0.5], minlength=images)
    counted_D = (matches.iou_D >= 0.5) | (matches.crowd_D < 0.5)
    answered_I = np.bincount(detections.image_D[counted_D], minlength=images)

    def row(chosen: np.ndarray) -> dict[str, float]:
        hits, answered, of = (int(v[chosen].sum()) for v in (hits_I, answered_I, objects_I))
        return {
            "images": int(chosen.sum()),
            "precision": hits / answered if answered else 0.0,
            "recall": hits / of if of else 0.0,
            "f1": 2 * hits / (answered + of) if answered + of else 0.0,
        }

    return _bucketed(CROWDING, objects_I, row)


def by_rank(detections: Detections, matches: Matches) -> dict[str, dict[str, float]]:
    """Return precision at IoU .5 of the first, second, … object of the answers."""
    counted_D = (matches.iou_D >= 0.5) | (matches.crowd_D < 0.5)

    def row(chosen: np.ndarray) -> dict[str, float]:
        rows = chosen & counted_D
        return {"detections": int(rows.sum()), "precision": _mean(matches.iou_D[rows] >= 0.5)}

    return _bucketed(RANKS, detections.rank_D, row)


def _bucketed(
    buckets: tuple[tuple[int, int | None], ...],
    values: np.ndarray,
    row: Callable[[np.ndarray], dict[str, float]],
) -> dict[str, dict[str, float]]:
    rows = {}
    for name, chosen in chosen_by(buckets, values):
        if chosen.any():
            rows[name] = row(chosen)
    return rows


def chosen_by(
    buckets: Sequence[tuple[int, int | None]], values: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name (``2-3``, ``16+``) and members of each bucket; both ends belong to it."""
    for low, high in buckets:
        name = f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"
        yield name, (values >= low) & (values <= (np.inf if high is None else high))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
    return ratio


def _mean(values: np.ndarray) -> float:
    """Mean, 0 of nothing."""
    return float(np.mean(values)) if len(values) else 0.0
