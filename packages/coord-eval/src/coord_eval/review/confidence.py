"""How sure the answers are, on one scale whatever their scores mean, and which label each of them speaks about.

Scores of different models cannot be compared: a score of .3 may be right nine times of ten. So an answer's confidence
is the share of answers with similar scores that a label supports, in the reviewed set itself, unless a calibration
says what the scores mean. Faults of the labels lower it for all answers alike, and keep their order.

Shapes: N labels, D answers, P pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.iou import box_iou
from coord_eval.calibration.knots import fit_knots, interpolate
from coord_eval.match.overlaps import Pairs, overlapping_pairs

LEAST_IOU = 0.2
"""IoU below which an answer says nothing about a label."""
SURE_IOU = 0.5
"""IoU from which on an answer supports a label."""
_LEAST, _MOST = 0.005, 0.995


@dataclass(frozen=True, eq=False)
class Compared:
    """Answers beside labels.

    Attributes:
        confidence_D: probability that the answer is right, in (0, 1)
        partner_N: the answer of the same name that is paired with each label, -1 without one
        partner_D: the label that is paired with each answer, -1 without one
        rival_N: the answer of another name that is paired with each label, -1 without one; it supports no label
        partner_iou_N: IoU of each label with its partner, 0 without one
        rival_iou_N: IoU of each label with its rival, 0 without one
        beside_D: largest IoU of each answer with a label of another name
        crowd_D: largest share of an answer that lies in a crowd region of its name
        pairs: all answers and labels that overlap, crowd regions excluded, whatever their names
        unmatched: share of the most confident quarter of the answers that no label supports
    """

    confidence_D: np.ndarray
    partner_N: np.ndarray
    partner_D: np.ndarray
    rival_N: np.ndarray
    partner_iou_N: np.ndarray
    rival_iou_N: np.ndarray
    beside_D: np.ndarray
    crowd_D: np.ndarray
    pairs: Pairs
    unmatched: float


def compare(truth: GroundTruth, detections: Detections, calibrated: bool) -> Compared:
    """Pair answers with labels; the scores of `calibrated` answers are probabilities already."""
    pairs = overlapping_pairs(truth, detections, use_categories=False)
    same_P = detections.category_D[pairs.det_P] == truth.category_N[pairs.object_P]
    in_crowd_P = truth.crowd_N[pairs.object_P]
    crowd_D = np.zeros(len(detections))
    np.maximum.at(crowd_D, pairs.det_P[in_crowd_P & same_P], pairs.iou_P[in_crowd_P & same_P])
    every, same_P = pairs.take(~in_crowd_P), same_P[~in_crowd_P]
    near = np.flatnonzero(every.iou_P >= LEAST_IOU)
    pairs, same_P = every.take(near), same_P[near]
    beside_D = np.zeros(len(detections))
    np.maximum.at(beside_D, pairs.det_P[~same_P], pairs.iou_P[~same_P])
    shape = (len(truth.image_N), len(detections))

    # Confidence: the share of answers of similar score with a label of their name
    sure = pairs.take(same_P & (pairs.iou_P >= SURE_IOU))
    hit_D = _one_to_one(sure, detections.scores_D, shape)[1] >= 0
    counted_D = (crowd_D < SURE_IOU) | hit_D
    confidence_D = detections.scores_D
    if not calibrated and counted_D.any():
        share = float(hit_D[counted_D].mean())
        # By rank, so that the scale of the scores does not matter; equal scores share one.
        _, level_D, count_L = np.unique(detections.scores_D, return_inverse=True, return_counts=True)
        rank_D = ((np.cumsum(count_L) - count_L / 2) / len(detections))[level_D]
        knots = fit_knots(rank_D[counted_D], hit_D[counted_D], share, 2.0)
        confidence_D = interpolate(knots, rank_D)
    confidence_D = np.clip(confidence_D, _LEAST, _MOST)
    unmatched = 0.02
    if counted_D.any():
        top_D = counted_D & (confidence_D >= np.quantile(confidence_D[counted_D], 0.75))
        unmatched = (float((top_D & ~hit_D).sum()) + 1) / (float(top_D.sum()) + 50)

    # Partners of the same name, then rivals of another name among the answers that support no label
    partner_N, partner_D = _one_to_one(pairs.take(same_P), confidence_D, shape)
    rivals = pairs.take(~same_P & (partner_D[pairs.det_P] < 0))
    rival_N, _ = _one_to_one(rivals, confidence_D, shape)
    return Compared(
        confidence_D=confidence_D,
        partner_N=partner_N,
        partner_D=partner_D,
        rival_N=rival_N,
        partner_iou_N=_iou(partner_N, truth, detections),
        rival_iou_N=_iou(rival_N, truth, detections),
        beside_D=beside_D,
        crowd_D=crowd_D,
        pairs=every,
        unmatched=unmatched,
    )


def _one_to_one(pairs: Pairs, value_D: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Pair greedily by descending value times IoU; return the answer of each label and the label of each answer."""
    answer_N, label_D = np.full(shape[0], -1), np.full(shape[1], -1)
    order = np.argsort(-(value_D[pairs.det_P] * pairs.iou_P), kind="stable")
    for d, n in zip(pairs.det_P[order].tolist(), pairs.object_P[order].tolist(), strict=True):
        if label_D[d] < 0 and answer_N[n] < 0:
            label_D[d], answer_N[n] = n, d
    return answer_N, label_D


def _iou(answer_N: np.ndarray, truth: GroundTruth, detections: Detections) -> np.ndarray:
    found = np.nonzero(answer_N >= 0)[0]
    iou_N = np.zeros(len(answer_N))
    iou_N[found] = box_iou(detections.boxes_D4[answer_N[found]], truth.boxes_N4[found])
    return iou_N
