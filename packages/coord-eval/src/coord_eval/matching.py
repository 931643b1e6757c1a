"""One-to-one matching of boxes, free of scores.

Shape legend: N objects, D detections, n and d those of one image and category.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coord_eval.detections import Detections
from coord_eval.pairs import overlapping_pairs
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


def iou_xywh(boxes_d4: np.ndarray, objects_n4: np.ndarray) -> np.ndarray:
    """Return IoU [d, n] of ``xywh`` boxes, every one with every one."""
    a, b = boxes_d4[:, None, :], objects_n4[None, :, :]
    sides = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    inter = np.clip(sides, 0, None).prod(-1)
    union = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - inter
    iou_dn: np.ndarray = np.divide(inter, union, out=np.zeros_like(inter), where=union > 0)
    return iou_dn


def match(truth: GroundTruth, detections: Detections, use_categories: bool = True) -> Matches:
    """Match detections with objects, image by image.

    Args:
        truth: The objects.
        detections: The answers.
        use_categories: False lets any label find any object (localisation alone).
    """
    pairs = overlapping_pairs(truth, detections, use_categories)
    crowd_P = truth.crowd_N[pairs.object_P]
    in_crowd, regular = pairs.take(crowd_P), pairs.take(~crowd_P)
    crowd_D, best_D = np.zeros(len(detections)), np.zeros(len(detections))
    np.maximum.at(crowd_D, in_crowd.det_P, in_crowd.iou_P)
    np.maximum.at(best_D, regular.det_P, regular.iou_P)
    ranked = regular.take(np.argsort(-regular.iou_P, kind="stable"))
    free_d, free_n = bytearray(b"\1") * len(detections), bytearray(b"\1") * len(truth.image_N)
    chosen = []
    for p, (d, n) in enumerate(zip(ranked.det_P.tolist(), ranked.object_P.tolist(), strict=True)):
        if free_d[d] and free_n[n]:
            free_d[d] = free_n[n] = False
            chosen.append(p)
    partners = ranked.take(np.array(chosen, np.int64))
    iou_D, object_D = np.zeros(len(detections)), np.full(len(detections), -1)
    iou_N = np.zeros(len(truth.image_N))
    iou_D[partners.det_P] = iou_N[partners.object_P] = partners.iou_P
    object_D[partners.det_P] = partners.object_P
    return Matches(iou_D, object_D, iou_N, best_D, crowd_D)
