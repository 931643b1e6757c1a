"""COCO's own matching as arrays, for what the twelve numbers do not tell: intervals, error kinds, thresholds.

Shape legend: T IoU thresholds, D detections, N objects, I images, K categories; d and n those of one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coord_eval.coco import MAX_DETECTIONS
from coord_eval.detections import Detections
from coord_eval.matching import groups, iou_xywh
from coord_eval.truth import GroundTruth

_RECALL_POINTS = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True, eq=False)
class RankedMatches:
    """Which detections find an object when the highest score chooses first, as COCO has it.

    Attributes:
        thresholds: The T IoU thresholds.
        hit_TD: The detection found a free object of its label.
        ignored_TD: It counts neither way: in a crowd region, or beyond the limit of its label and image.
        object_TD: Index of the object it found, -1 without one.
        order_D: Detections by falling score, ties in the order of image and answer.
    """

    thresholds: tuple[float, ...]
    hit_TD: np.ndarray
    ignored_TD: np.ndarray
    object_TD: np.ndarray
    order_D: np.ndarray


def ranked_matches(
    truth: GroundTruth,
    detections: Detections,
    thresholds: Sequence[float],
    limit: int = MAX_DETECTIONS[-1],
) -> RankedMatches:
    """Match the way COCO does, without area ranges.

    Args:
        truth: The objects.
        detections: The answers.
        thresholds: IoU thresholds.
        limit: Boxes of one label and image that are looked at.
    """
    total, levels = len(detections), np.minimum(np.array(thresholds), 1 - 1e-10)
    hit_TD = np.zeros((len(levels), total), bool)
    ignored_TD = np.zeros_like(hit_TD)
    object_TD = np.full(hit_TD.shape, -1)
    _ignore_beyond_limit(detections, limit, ignored_TD)
    for objects_n, group_d in groups(truth, detections):
        rows_d = group_d[np.argsort(-detections.scores_D[group_d], kind="stable")][:limit]
        crowd_n = truth.crowd_N[objects_n]
        iou_dn = iou_xywh(detections.boxes_D4[rows_d], truth.boxes_N4[objects_n], crowd_n)
        # Of equal overlaps the last object wins in COCO: reversed, the first maximum is that one.
        regular_n = objects_n[~crowd_n][::-1]
        regular_dn = iou_dn[:, ~crowd_n][:, ::-1]
        crowd_d = iou_dn[:, crowd_n].max(axis=1) if crowd_n.any() else np.zeros(len(rows_d))
        for t, level in enumerate(levels):
            free_n = np.ones(len(regular_n), bool)
            for i in np.nonzero((regular_dn >= level).any(axis=1))[0]:
                overlap_n = np.where(free_n, regular_dn[i], -1.0)
                best = int(overlap_n.argmax())
                if overlap_n[best] >= level:
                    free_n[best] = False
                    hit_TD[t, rows_d[i]] = True
                    object_TD[t, rows_d[i]] = regular_n[best]
            ignored_TD[t, rows_d] = ~hit_TD[t, rows_d] & (crowd_d >= level)
    by_image = np.lexsort((np.arange(total), detections.image_D))
    order_D = by_image[np.argsort(-detections.scores_D[by_image], kind="stable")]
    return RankedMatches(tuple(thresholds), hit_TD, ignored_TD, object_TD, order_D)


def _ignore_beyond_limit(detections: Detections, limit: int, ignored_TD: np.ndarray) -> None:
    """Mark what is never looked at: beyond the best of a label in an image."""
    order = np.lexsort((-detections.scores_D, detections.category_D, detections.image_D))
    keys = np.stack([detections.image_D[order], detections.category_D[order]])
    fresh = np.ones(len(order), bool)
    fresh[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    starts = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    ignored_TD[:, order[np.arange(len(order)) - starts >= limit]] = True


def interpolated_ap(hit_d: np.ndarray, false_d: np.ndarray, objects: float) -> float:
    """Return COCO's average precision: the mean over 101 recalls of the best precision at that recall or beyond.

    Args:
        hit_d: Weight of each hit in order of falling score, 0 for others.
        false_d: Weight of each false detection, likewise.
        objects: Weight of all objects, above 0.
    """
    if not len(hit_d):
        return 0.0
    hits_d = np.cumsum(hit_d)
    precision_d = hits_d / np.maximum(hits_d + np.cumsum(false_d), np.finfo(float).tiny)
    best_d = np.maximum.accumulate(precision_d[::-1])[::-1]
    at = np.searchsorted(hits_d / objects, _RECALL_POINTS, side="left")
    return float(best_d[at[at < len(best_d)]].sum() / len(_RECALL_POINTS))


class ApTable:
    """Average precision of every category and threshold, recomputed for any weighting of the images."""

    def __init__(self, truth: GroundTruth, detections: Detections, matches: RankedMatches) -> None:
        names = len(truth.categories)
        order = matches.order_D[detections.category_D[matches.order_D] < names]
        order = order[np.argsort(detections.category_D[order], kind="stable")]
        bounds = np.searchsorted(detections.category_D[order], np.arange(names + 1))
        counted_N = ~truth.crowd_N
        self.objects_KI = np.zeros((names, len(truth)))
        np.add.at(self.objects_KI, (truth.category_N[counted_N], truth.image_N[counted_N]), 1)
        self.thresholds = matches.thresholds
        self._rows = [order[bounds[k] : bounds[k + 1]] for k in range(names)]
        self._image = [detections.image_D[rows] for rows in self._rows]
        self._hit = [matches.hit_TD[:, rows] for rows in self._rows]
        self._false = [~matches.hit_TD[:, rows] & ~matches.ignored_TD[:, rows] for rows in self._rows]

    def average_precision(self, weights_I: np.ndarray | None = None) -> np.ndarray:
        """Return AP [T, K], NaN for categories without objects.

        Args:
            weights_I: How often each image counts; None counts each once.
        """
        weights_I = np.ones(self.objects_KI.shape[1]) if weights_I is None else weights_I
        objects_K = self.objects_KI @ weights_I
        ap_TK = np.full((len(self.thresholds), len(objects_K)), np.nan)
        for k in np.nonzero(objects_K)[0]:
            weight_d = weights_I[self._image[k]]
            for t in range(len(self.thresholds)):
                hit_d, false_d = self._hit[k][t] * weight_d, self._false[k][t] * weight_d
                ap_TK[t, k] = interpolated_ap(hit_d, false_d, objects_K[k])
        return ap_TK


def mean_present(values: np.ndarray) -> float:
    """Return the mean of what is not NaN, -1 when nothing is (COCO's sign for it)."""
    present = values[~np.isnan(values)]
    return float(present.mean()) if present.size else -1.0
