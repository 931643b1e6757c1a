"""Boxes and objects that overlap, as flat arrays.

Shape legend: N objects, D detections, P pairs, d and n those of one image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coord_eval.detections import Detections
from coord_eval.truth import GroundTruth

#: So many pairs are measured at a time: 60 MB of boxes.
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class Pairs:
    """Detections and objects of one image and label that overlap.

    Attributes:
        det_P: Index of the detection.
        object_P: Index of the object.
        iou_P: Their IoU, above 0; with a crowd region the share of the detection that lies in it.
    """

    det_P: np.ndarray
    object_P: np.ndarray
    iou_P: np.ndarray

    def take(self, rows: np.ndarray) -> Pairs:
        """Return the chosen pairs."""
        return Pairs(self.det_P[rows], self.object_P[rows], self.iou_P[rows])


def overlapping_pairs(truth: GroundTruth, detections: Detections, use_categories: bool = True) -> Pairs:
    """Return every pair of a detection and an object of its image and label that overlap.

    Pairs come image by image and label by label, in the order of the detections, then of the objects.

    Args:
        truth: The objects.
        detections: The answers.
        use_categories: False pairs any label with any object.
    """
    found = []
    for det_P, object_P in _candidates(truth, detections, use_categories):
        crowd_P = truth.crowd_N[object_P]
        iou_P = _iou(detections.boxes_D4[det_P], truth.boxes_N4[object_P], crowd_P)
        keep = np.nonzero(iou_P)[0]
        found.append(Pairs(det_P[keep], object_P[keep], iou_P[keep]))
    if not found:
        return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    return Pairs(
        *(np.concatenate([getattr(p, key) for p in found]) for key in ("det_P", "object_P", "iou_P"))
    )


def _candidates(
    truth: GroundTruth, detections: Detections, use_categories: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield detections and objects of the same image and label, every one with every one, in chunks."""
    width = len(truth.categories) + len(detections.unknown) + 1
    key_N = truth.image_N * width + (truth.category_N if use_categories else 0)
    key_D = detections.image_D * width + (detections.category_D if use_categories else 0)
    order_N, order_D = np.argsort(key_N, kind="stable"), np.argsort(key_D, kind="stable")
    keys, first_N, objects = np.unique(key_N[order_N], return_index=True, return_counts=True)
    first_D = np.searchsorted(key_D[order_D], keys, side="left")
    boxes = np.searchsorted(key_D[order_D], keys, side="right") - first_D
    ends = np.cumsum(objects * boxes)
    start = 0
    while start < len(keys):
        done = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, done + _CHUNK, side="right")), start + 1)
        sizes = (objects * boxes)[start:stop]
        group = np.repeat(np.arange(start, stop), sizes)
        place = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        row, column = place // objects[group], place % objects[group]
        yield order_D[first_D[group] + row], order_N[first_N[group] + column]
        start = stop


def _iou(boxes_P4: np.ndarray, objects_P4: np.ndarray, crowd_P: np.ndarray) -> np.ndarray:
    """Return IoU [P] of ``xywh`` boxes; with a crowd, intersection over the detection's own area.

    The crowd rule is COCO's: a box inside a crowd region is right however large the region.
    """
    ends = np.minimum(boxes_P4[:, :2] + boxes_P4[:, 2:], objects_P4[:, :2] + objects_P4[:, 2:])
    inter = np.clip(ends - np.maximum(boxes_P4[:, :2], objects_P4[:, :2]), 0, None).prod(axis=1)
    area_P = boxes_P4[:, 2:].prod(axis=1)
    union = np.where(crowd_P, area_P, area_P + objects_P4[:, 2:].prod(axis=1) - inter)
    iou_P: np.ndarray = np.divide(inter, union, out=np.zeros_like(inter), where=union > 0)
    return iou_P
