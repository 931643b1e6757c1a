"""What speaks for each kind of fault of each label: a few figures, each a logarithm of a ratio.

Shapes: N labels, D answers, F figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from coord_codec.box_transforms import LAYOUTS
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.match.overlaps import pairs_within
from coord_eval.review.confidence import LEAST_IOU, SURE_IOU, Compared

NO_ANSWER = 0.02
"""Confidence in place of that of an answer that is not there."""
LEAST_DEVIATION = 0.01
"""Least deviation that counts as usual, in sizes of the box: a set of exact answers would make every pixel a fault."""
_GROUPS = 5
_LEAST_OF_GROUP = 30
LABEL_FIGURES = (
    "support",
    "rival",
    "rival_beside",
    "deviation",
    "missed",
    "twin",
    "contradicted",
    "name_surprise",
    "box_surprise",
)
"""Names of the figures of a label:

- `support`: log-odds of the confidence of the answer of its name
- `rival`: log-odds of the confidence of an answer of another name at its place
- `rival_beside`: likewise of an answer of another name that overlaps it less
- `deviation`: how far the sides of the answer lie from those of the label, in units of what is usual at this size, as a
  logarithm, times the confidence of the answer; 0 where nothing lies there
- `missed`: how seldom labels of this size are left without an answer, as a logarithm; 0 where there is one
- `twin`: how far it coincides with another label of its name that has a better answer, as log-odds of their IoU
- `contradicted`: the share of the labels of the set that an answer of another name contradicts, as a logarithm; where
  this is often so, the model rather than the labels is to blame
- `name_surprise`, `box_surprise`: how improbable the model finds its name and its coordinates, see `likelihood_figures`
"""
ANSWER_FIGURES = ("confidence", "unmatched", "repeat", "contradicts")
"""Names of the figures of an answer without a label: log-odds of its confidence, the logarithm of the share of
confident answers without a label, and the log-odds of its IoU with a better answer of its name and with a label of
another name."""


@dataclass(frozen=True, eq=False)
class LabelEvidence:
    """The figures of all labels, and of the answers `answers_d`, which no label supports, that may show a missing one.

    They have the orders of `LABEL_FIGURES` and `ANSWER_FIGURES`; `named_N` are figures for the reader, by name, NaN
    where there is none, and `twin_N` is the other label of the same object, -1 without one.
    """

    figures_NF: np.ndarray
    named_N: Mapping[str, np.ndarray]
    answers_d: np.ndarray
    twin_N: np.ndarray
    detections: Detections
    compared: Compared

    @cached_property
    def figures_dF(self) -> np.ndarray:  # noqa: N802
        """The figures of the answers `answers_d`, in the order of `ANSWER_FIGURES`."""
        return _answer_figures(self.answers_d, self.detections, self.compared)


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return the logarithm of the odds of probabilities, which are kept .005 away from 0 and 1.

    Example:
        >>> log_odds(np.array([0.5, 0.9])).round(2).tolist()
        [0.0, 2.2]
    """
    kept = np.clip(probability, 0.005, 0.995)
    return np.asarray(np.log(kept / (1 - kept)))


def gather(
    truth: GroundTruth,
    detections: Detections,
    compared: Compared,
    spread_D4: np.ndarray | None,
    likelihoods: tuple[np.ndarray, np.ndarray] | None,
) -> LabelEvidence:
    """Return the evidence of all labels and answers.

    `spread_D4` is the standard deviation of each side of each answer in pixels, NaN where unknown; `likelihoods` are
    `name_surprise` and `box_surprise` of each label; both None without any.
    """
    count = len(truth.image_N)
    partner_N, rival_N = compared.partner_N, compared.rival_N
    size_N = np.sqrt(np.prod(truth.boxes_N4[:, 2:], axis=1))
    regular_N = ~truth.crowd_N
    # The answer -1, which is none, is the appended one.
    said_D = np.append(compared.confidence_D, NO_ANSWER)
    support_N, rival_said_N = said_D[partner_N], said_D[rival_N]
    rival_at_N = np.where(compared.rival_iou_N >= SURE_IOU, rival_said_N, NO_ANSWER)
    rival_beside_N = np.where(compared.rival_iou_N < SURE_IOU, rival_said_N, NO_ANSWER)

    near_N = np.where(partner_N >= 0, partner_N, rival_N)
    deviation_N = _unusual(_deviation(truth, detections, near_N, spread_D4), size_N, near_N, compared, regular_N)
    near_confidence_N = np.append(compared.confidence_D, 0.0)[near_N]
    supported_N = compared.partner_iou_N >= SURE_IOU
    miss_N = 1 - _by_size(supported_N.astype(np.float64), size_N, regular_N)
    missed_N = np.where(near_N < 0, -np.log(np.clip(miss_N, 0.005, 1)), 0.0)
    twin_N, twin_iou_N = _twins(truth, compared)
    name_N, box_N = likelihoods if likelihoods is not None else (np.zeros(count), np.zeros(count))
    figures_NF = np.stack(
        [
            log_odds(support_N),
            log_odds(rival_at_N),
            log_odds(rival_beside_N),
            deviation_N * near_confidence_N,
            missed_N,
            log_odds(twin_iou_N),
            np.full(count, _contradicted(compared, regular_N)),
            name_N,
            box_N,
        ],
        axis=1,
    )
    for_readers: dict[str, tuple[Any, np.ndarray]] = {
        "support": (partner_N >= 0, support_N),
        "support_iou": (partner_N >= 0, compared.partner_iou_N),
        "rival": (rival_N >= 0, rival_said_N),
        "rival_iou": (rival_N >= 0, compared.rival_iou_N),
        "deviation": (near_N >= 0, np.exp(deviation_N)),
        "miss_rate": (near_N < 0, miss_N),
        "twin_iou": (twin_N >= 0, twin_iou_N),
        "name_surprise": (likelihoods is not None, name_N),
        "box_surprise": (likelihoods is not None, box_N),
    }
    named = {name: np.where(is_there_N, value_N, np.nan) for name, (is_there_N, value_N) in for_readers.items()}
    answers_d = np.nonzero((compared.partner_D < 0) & (compared.crowd_D < SURE_IOU))[0]
    return LabelEvidence(figures_NF, named, answers_d, twin_N, detections, compared)


def _answer_figures(answers_d: np.ndarray, detections: Detections, compared: Compared) -> np.ndarray:
    """Return the figures of answers without a label, in the order of `ANSWER_FIGURES`."""
    columns_D = (compared.confidence_D, _repeats(detections, compared), compared.beside_D)
    confidence_d, repeat_d, beside_d = (log_odds(column_D[answers_d]) for column_D in columns_D)
    return np.stack([confidence_d, np.full(len(answers_d), np.log(compared.unmatched)), repeat_d, beside_d], axis=1)


def _unusual(
    off_N: np.ndarray, size_N: np.ndarray, near_N: np.ndarray, compared: Compared, regular_N: np.ndarray
) -> np.ndarray:
    """Return the logarithm of deviations in units of what is usual for confident pairs of similar size."""
    pair_N = regular_N & (compared.partner_N >= 0) & (compared.partner_iou_N >= SURE_IOU)
    usual_N = _by_size(off_N, size_N, pair_N, median=True)
    deviation_N = np.log(np.maximum(off_N, 1e-6) / np.maximum(usual_N, LEAST_DEVIATION))
    return np.where(near_N >= 0, np.clip(deviation_N, -1, 4), 0.0)


def _contradicted(compared: Compared, regular_N: np.ndarray) -> float:
    """Return the logarithm of the share of labels for which the answer of another name is the more confident one."""
    confidence = np.append(compared.confidence_D, 0.0)  # -1 is the appended one
    rival_N, partner_N = confidence[compared.rival_N], confidence[compared.partner_N]
    against_N = (rival_N > partner_N) & (compared.rival_iou_N >= SURE_IOU) & regular_N
    return float(np.log((against_N.sum() + 1) / (regular_N.sum() + 50)))


def _deviation(
    truth: GroundTruth, detections: Detections, answer_N: np.ndarray, spread_D4: np.ndarray | None
) -> np.ndarray:
    """Return the root mean square of the distances of the four sides: in sizes of the label, or in their spreads."""
    off_N = np.zeros(len(answer_N))
    rows = np.nonzero(answer_N >= 0)[0]
    label_n4, answer_n4 = map(LAYOUTS["xywh"], (truth.boxes_N4[rows], detections.boxes_D4[answer_N[rows]]))
    unit_n4 = np.maximum(np.tile(truth.boxes_N4[rows, 2:], 2), 1e-9)
    if spread_D4 is not None:
        known_n4 = spread_D4[answer_N[rows]]
        # A spread of nothing would make every distance large: it counts as at least a hundredth of the side.
        unit_n4 = np.where(np.isfinite(known_n4), np.maximum(known_n4, 0.01 * unit_n4), unit_n4)
    off_N[rows] = np.sqrt((((label_n4 - answer_n4) / unit_n4) ** 2).mean(axis=1))
    return off_N


def _twins(truth: GroundTruth, compared: Compared) -> tuple[np.ndarray, np.ndarray]:
    """Return for each label the other label of its name that it coincides with and that has a better answer."""
    twin_N, iou_N = np.full(len(truth.image_N), -1), np.zeros(len(truth.image_N))
    pairs = pairs_within(truth.image_N, truth.category_N, truth.boxes_N4)
    keep = (pairs.iou_P >= SURE_IOU) & ~truth.crowd_N[pairs.object_P] & ~truth.crowd_N[pairs.det_P]
    value_N = compared.partner_iou_N
    kept = (column_P[keep].tolist() for column_P in (pairs.det_P, pairs.object_P, pairs.iou_P))
    for a, b, iou in zip(*kept, strict=True):
        # Of two alike the later one is the second.
        is_second = a != b and ((value_N[a], -a) < (value_N[b], -b))
        if is_second and iou > iou_N[a]:
            twin_N[a], iou_N[a] = b, iou
    return twin_N, iou_N


def _repeats(detections: Detections, compared: Compared) -> np.ndarray:
    """Return the largest IoU of each answer with a better one of its name: with a label, or else more confident."""
    pairs = pairs_within(detections.image_D, detections.category_D, detections.boxes_D4)
    rank_D = np.lexsort((-detections.scores_D, compared.partner_D < 0)).argsort()
    better_P = (rank_D[pairs.object_P] < rank_D[pairs.det_P]) & (pairs.iou_P >= LEAST_IOU)
    repeat_D = np.zeros(len(detections))
    np.maximum.at(repeat_D, pairs.det_P[better_P], pairs.iou_P[better_P])
    return repeat_D


def _by_size(value_N: np.ndarray, size_N: np.ndarray, used_N: np.ndarray, median: bool = False) -> np.ndarray:
    """Return for each label the share, or the median, of the values of labels of similar size."""
    rows = np.nonzero(used_N & (size_N > 0))[0]
    if not len(rows):
        return np.full(len(value_N), 0.5)
    rows = rows[np.argsort(size_N[rows], kind="stable")]
    parts = np.array_split(rows, int(np.clip(len(rows) // _LEAST_OF_GROUP, 1, _GROUPS)))
    if median:
        level = [float(np.median(value_N[part])) for part in parts]
    else:
        level = [(float(value_N[part].sum()) + 1) / (len(part) + 2) for part in parts]
    at = [float(np.log(size_N[part]).mean()) for part in parts]
    return np.asarray(np.interp(np.log(np.maximum(size_N, 1e-9)), at, level))
