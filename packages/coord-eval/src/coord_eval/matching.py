"""One-to-one matching of boxes, free of scores.

Shape legend: N objects, D detections, n and d those of one image and category.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coord_eval.detections import Detections
from coord_eval.truth import GroundTruth


@dataclass(frozen=True, eq=False)
class Matches:
    """Who found whom.

    Pairs are taken in order of falling IoU, each object and each detection once. A pair of the matching at a
    threshold t is therefore simply a pair here whose IoU is at least t, and no order of detections enters.

    Attributes:
        iou_D: IoU of each detection with its object, 0 without one.
        object_D: Index of that object, -1 without one.
        iou_N: IoU of each object with its detection, 0 without one.
        best_D: Highest IoU of each detection with any object of its label, found by another or not.
        crowd_D: Highest share of an unmatched detection that lies in a crowd region of its label.
    """

    iou_D: np.ndarray
    object_D: np.ndarray
    iou_N: np.ndarray
    best_D: np.ndarray
    crowd_D: np.ndarray


def iou_xywh(boxes_d4: np.ndarray, objects_n4: np.ndarray, crowd_n: np.ndarray | None = None) -> np.ndarray:
    """Return IoU [d, n] of ``xywh`` boxes; with a crowd, intersection over the detection's own area.

    The crowd rule is COCO's: a box inside a crowd region is right however large the region.
    """
    a, b = boxes_d4[:, None, :], objects_n4[None, :, :]
    sides = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    inter = np.clip(sides, 0, None).prod(-1)
    area_d1, area_1n = a[..., 2:].prod(-1), b[..., 2:].prod(-1)
    union = area_d1 + area_1n - inter
    if crowd_n is not None:
        union = np.where(crowd_n, area_d1, union)
    return np.divide(inter, union, out=np.zeros_like(inter), where=union > 0)


def match(truth: GroundTruth, detections: Detections, use_categories: bool = True) -> Matches:
    """Match detections with objects, image by image.

    Args:
        truth: The objects.
        detections: The answers.
        use_categories: False lets any label find any object (localisation alone).
    """
    result = Matches(
        np.zeros(len(detections)),
        np.full(len(detections), -1),
        np.zeros(len(truth.image_N)),
        np.zeros(len(detections)),
        np.zeros(len(detections)),
    )
    for objects_n, rows_d in groups(truth, detections, use_categories):
        _match_group(truth, detections, objects_n, rows_d, result)
    return result


def groups(
    truth: GroundTruth, detections: Detections, use_categories: bool = True
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows of objects and of detections of each image and category that has both."""
    width = len(truth.categories) + len(detections.unknown) + 1
    key_N = truth.image_N * width + (truth.category_N if use_categories else 0)
    key_D = detections.image_D * width + (detections.category_D if use_categories else 0)
    order_N, order_D = np.argsort(key_N, kind="stable"), np.argsort(key_D, kind="stable")
    keys, starts = np.unique(key_N[order_N], return_index=True)
    ends = np.append(starts[1:], len(key_N))[: len(starts)]
    left = np.searchsorted(key_D[order_D], keys, side="left")
    right = np.searchsorted(key_D[order_D], keys, side="right")
    for start, end, low, high in zip(starts, ends, left, right, strict=True):
        if high > low:
            yield order_N[start:end], order_D[low:high]


def _match_group(truth: GroundTruth, detections: Detections, objects_n, rows_d, result: Matches) -> None:
    """Match one image and category, writing into ``result``."""
    crowd_n = truth.crowd_N[objects_n]
    iou_dn = iou_xywh(detections.boxes_D4[rows_d], truth.boxes_N4[objects_n], crowd_n)
    if crowd_n.any():
        result.crowd_D[rows_d] = iou_dn[:, crowd_n].max(axis=1)
        objects_n, iou_dn = objects_n[~crowd_n], iou_dn[:, ~crowd_n]
    if not len(objects_n):
        return
    result.best_D[rows_d] = iou_dn.max(axis=1)
    d, n = np.nonzero(iou_dn)
    order = np.argsort(-iou_dn[d, n], kind="stable")
    free_d, free_n = np.ones(len(rows_d), bool), np.ones(len(objects_n), bool)
    for i in order:
        row, column = d[i], n[i]
        if free_d[row] and free_n[column]:
            free_d[row] = free_n[column] = False
            iou = iou_dn[row, column]
            result.iou_D[rows_d[row]] = iou
            result.object_D[rows_d[row]] = objects_n[column]
            result.iou_N[objects_n[column]] = iou
