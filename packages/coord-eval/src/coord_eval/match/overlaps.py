"""All overlapping pairs of a detection and an object.

Shapes: N objects, D detections, P pairs; boxes are `xywh`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.iou import box_iou
from coord_eval.boxes.sorting import stable_order

_CHUNK = 1 << 20
"""Number of pairs whose IoU is computed at a time: 60 MB of boxes."""


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
    starts_2D, starts_2N = boxes_D4[:, :2].T.copy(), boxes_N4[:, :2].T.copy()
    ends_2D, ends_2N = starts_2D + boxes_D4[:, 2:].T, starts_2N + boxes_N4[:, 2:].T
    for det_P, object_P in _candidates(key_D, key_N):
        for axis in (0, 1):  # most candidates do not overlap in one of the axes, which is found cheaply
            ends_P = np.minimum(ends_2D[axis][det_P], ends_2N[axis][object_P])
            overlap = np.flatnonzero(ends_P > np.maximum(starts_2D[axis][det_P], starts_2N[axis][object_P]))
            det_P, object_P = det_P[overlap], object_P[overlap]  # noqa: PLW2901
        iou_P = box_iou(boxes_D4[det_P], boxes_N4[object_P], crowd_N[object_P])
        parts.append(Pairs(det_P, object_P, iou_P).take(iou_P > 0))
    return Pairs(*(np.concatenate([getattr(p, key) for p in parts]) for key in ("det_P", "object_P", "iou_P")))


def _candidates(key_D: np.ndarray, key_N: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all pairs of a detection and an object of the same key, in chunks."""
    order_N, order_D = stable_order(key_N), stable_order(key_D)
    sorted_N, sorted_D = key_N[order_N], key_D[order_D]
    first_D = np.searchsorted(sorted_N, sorted_D, side="left")
    objects_D = np.searchsorted(sorted_N, sorted_D, side="right") - first_D
    ends_D = np.cumsum(objects_D)
    start = before = 0
    while start < len(order_D):
        stop = max(int(np.searchsorted(ends_D, before + _CHUNK, side="right")), start + 1)
        own, objects = slice(start, stop), objects_D[start:stop]
        shift_P = np.repeat(first_D[own] + objects - ends_D[own], objects)
        yield np.repeat(order_D[own], objects), order_N[np.arange(before, ends_D[stop - 1]) + shift_P]
        start, before = stop, ends_D[stop - 1]
