"""All overlapping pairs of a detection and an object.

Shapes: N objects, D detections, P pairs; boxes are `xywh`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.iou import BoxColumns
from coord_eval.boxes.sorting import stable_order

_CHUNK = 1 << 15
"""Number of pairs whose IoU is computed at a time: their columns stay in a processor's cache."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Detections and objects of one image and label that overlap.

    Attributes:
        det_P: index of the detection
        object_P: index of the object
        iou_P: their IoU, above 0; for a crowd region the share of the detection's area that lies in it
    """

    det_P: np.ndarray
    object_P: np.ndarray
    iou_P: np.ndarray

    def take(self, rows: np.ndarray) -> Pairs:
        """Return the chosen pairs; `rows` is an index array or a mask."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows  # three times as fast as by a mask
        return Pairs(self.det_P[rows], self.object_P[rows], self.iou_P[rows])


def overlapping_pairs(truth: GroundTruth, detections: Detections, use_categories: bool = True) -> Pairs:
    """Return all overlapping pairs of a detection and an object of the same image and label.

    Pairs are sorted by image, label, detection and object. With `use_categories=False` labels are not compared.
    """
    width = len(truth.categories) + len(detections.unknown) + 1
    key_N = truth.image_N * width + (truth.category_N if use_categories else 0)
    key_D = detections.image_D * width + (detections.category_D if use_categories else 0)
    return _pairs(key_D, detections.boxes_D4, key_N, truth.boxes_N4, truth.crowd_N)


def pairs_within(image_N: np.ndarray, category_N: np.ndarray, boxes_N4: np.ndarray) -> Pairs:
    """Return all overlapping pairs of two boxes, or of one and itself, of the same image and label."""
    key_N = image_N * (category_N.max(initial=0) + 1) + category_N
    return _pairs(key_N, boxes_N4, key_N, boxes_N4, np.zeros(len(key_N), bool))


def _pairs(
    key_D: np.ndarray, boxes_D4: np.ndarray, key_N: np.ndarray, boxes_N4: np.ndarray, crowd_N: np.ndarray
) -> Pairs:
    parts = [Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    # Boxes of one key next to each other, so that reading those of many pairs is fast.
    order_D, order_N = stable_order(key_D), stable_order(key_N)
    boxes_d, boxes_n = BoxColumns.of(boxes_D4[order_D]), BoxColumns.of(boxes_N4[order_N])
    for det_p, object_p in _candidates(key_D[order_D], key_N[order_N]):
        # Most candidates do not overlap in one of the axes, which is found cheaply.
        for low, high in ((0, 2), (1, 3)):
            end_p = np.minimum(boxes_d[high][det_p], boxes_n[high][object_p])
            overlap = np.flatnonzero(end_p > np.maximum(boxes_d[low][det_p], boxes_n[low][object_p]))
            det_p, object_p = det_p[overlap], object_p[overlap]  # noqa: PLW2901
        det_P, object_P = order_D[det_p], order_N[object_p]
        iou_P = boxes_d.take(det_p).iou(boxes_n.take(object_p), crowd_N[object_P])
        parts.append(Pairs(det_P, object_P, iou_P).take(iou_P > 0))
    return Pairs(*(np.concatenate([getattr(p, key) for p in parts]) for key in ("det_P", "object_P", "iou_P")))


def _candidates(sorted_D: np.ndarray, sorted_N: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all pairs of a detection and an object of the same key, in chunks, of two ascending columns of keys."""
    first_D = np.searchsorted(sorted_N, sorted_D, side="left")
    objects_D = np.searchsorted(sorted_N, sorted_D, side="right") - first_D
    ends_D = np.cumsum(objects_D)
    start = before = 0
    while start < len(sorted_D):
        stop = max(int(np.searchsorted(ends_D, before + _CHUNK, side="right")), start + 1)
        own, objects = slice(start, stop), objects_D[start:stop]
        shift_P = np.repeat(first_D[own] + objects - ends_D[own], objects)
        yield np.repeat(np.arange(start, stop), objects), np.arange(before, ends_D[stop - 1]) + shift_P
        start, before = stop, ends_D[stop - 1]
