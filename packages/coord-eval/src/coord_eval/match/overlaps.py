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
        """Return the chosen pairs."""
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
    ends_D2, ends_N2 = boxes_D4[:, :2] + boxes_D4[:, 2:], boxes_N4[:, :2] + boxes_N4[:, 2:]
    for det_P, object_P in _candidates(key_D, key_N):
        for axis in (0, 1):  # most candidates do not overlap in one of the axes, which is found cheaply
            ends_P = np.minimum(ends_D2[det_P, axis], ends_N2[object_P, axis])
            overlap = np.nonzero(ends_P > np.maximum(boxes_D4[det_P, axis], boxes_N4[object_P, axis]))[0]
            det_P, object_P = det_P[overlap], object_P[overlap]  # noqa: PLW2901
        iou_P = box_iou(boxes_D4[det_P], boxes_N4[object_P], crowd_N[object_P])
        keep = np.nonzero(iou_P)[0]
        parts.append(Pairs(det_P[keep], object_P[keep], iou_P[keep]))
    return Pairs(*(np.concatenate([getattr(p, key) for p in parts]) for key in ("det_P", "object_P", "iou_P")))


def _candidates(key_D: np.ndarray, key_N: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all pairs of a detection and an object of the same key, in chunks."""
    order_N, order_D = stable_order(key_N), stable_order(key_D)
    sorted_N, sorted_D = key_N[order_N], key_D[order_D]
    first_N = np.flatnonzero(np.diff(sorted_N, prepend=-1))  # no key is below 0
    objects = np.diff(first_N, append=len(key_N))
    keys = sorted_N[first_N]
    first_D = np.searchsorted(sorted_D, keys, side="left")
    boxes = np.searchsorted(sorted_D, keys, side="right") - first_D
    ends = np.cumsum(objects * boxes)
    start = 0
    while start < len(keys):
        pairs_before = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, pairs_before + _CHUNK, side="right")), start + 1)
        sizes = (objects * boxes)[start:stop]
        group = np.repeat(np.arange(start, stop), sizes)
        offset = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        row, column = offset // objects[group], offset % objects[group]
        yield order_D[first_D[group] + row], order_N[first_N[group] + column]
        start = stop
