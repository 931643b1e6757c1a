"""Probabilities from faults that are planted into the reviewed labels themselves, of which it is known that they are.

How often a model contradicts right labels is not known in advance, and each detector does it in its own way. So the
images are divided into two halves. In each of them faults of every kind are made of its labels while the answers stay,
and logistic regressions tell them from the labels as they are: how many times more frequent the figures of a label are
among faults of a kind than in the set. The labels of the other half are judged by that. No constant of another model
takes part.

How many labels are wrong follows from the same comparison. Above any suspicion lie as many of the wrong labels as of
the planted ones, in share, and some right ones: so the share of the labels above it, divided by that of the planted
faults, is the rate of faults or more, and the least of these quotients is the estimate (Blanchard, Lee and Scott 2010,
"Semi-Supervised Novelty Detection", JMLR 11). An answer shows a missing label as probably as it looks like those to
labels that were removed; as many labels are taken to be missing as have a fault of any other kind.

Shapes: N labels, D answers, d those without a label, s known ones, p planted faults, n some labels, F figures, K kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from coord_codec.box_transforms import LAYOUTS
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.sorting import stable_order
from coord_eval.calibration.knots import fit_knots, interpolate
from coord_eval.review.confidence import Compared
from coord_eval.review.figures import SetFigures
from coord_eval.review.probability import LABEL_KINDS, Probabilities

LEAST_LABELS = 150
"""Number of labels below which half a set tells too little."""
_MOST_LABELS = 1000
"""Number of labels of which faults of every kind are made."""
_LEAST_SHARE = 0.2
"""Least share of the planted faults above the suspicions that are compared."""
_MOST_LOG_RATIO = 3.6
"""Logarithm of the ratio, one of 37, beyond which faults are not told apart: of those that the set has, the other half
has some as well, so that they seem less suspect than planted ones of which it has none."""
_MOST = 0.85
"""Highest probability: of the most suspect labels of real detectors .77 to .88 were faults, of simulated ones .66."""
_BEND = 8.0
"""How sharply probabilities end at the highest one: two labels of different log-odds have different probabilities."""
_STRICT = 0.02
"""Weight of the rank itself, by which of two labels with the same share of faults the more suspect one comes first."""
_PENALTY = 5.0
"""Penalty of the squared weights of standardised figures: of 1, 5, 25 and 60 that of least loss in held-out halves."""
_SETTLED = 0.03
"""Largest change of a weight at which the regression ends."""
_MOST_STEPS = 30
_KIND_WEIGHTS = {"moved": 3.0, "duplicate": 2.0}
"""How many times as often as others these kinds are expected, since their ratios are smaller: boxes drawn wrongly are
found by few figures, and of two labels of one object either may be the wrong one."""
_OF_A_PAIR = 0.8
"""How much a label with a twin counts in the share of faults, where both are suspect and one is wrong.

Without that a set with labels drawn twice seems to have too many faults of every kind, with less too few in others."""
_Learnt = tuple[np.ndarray, np.ndarray | None]
"""Weights of a regression, and the inverse of the curvature near them."""


@dataclass(frozen=True, eq=False)
class Planted:
    """Faults made of labels of a set: the faulty labels, the label that each one replaces (-1 for none), their kinds.

    Kinds are indices into `LABEL_KINDS`; `like_p` is the first fault with the same box in the same image.
    """

    labels: GroundTruth
    source_p: np.ndarray
    kind_p: np.ndarray
    like_p: np.ndarray


def judged_by_planted_faults(
    truth: GroundTruth, detections: Detections, compared: Compared, answers_d: np.ndarray, seed: int = 0
) -> tuple[Probabilities, int] | None:
    """Return the probabilities of all faults and the number of planted ones; None for too few labels.

    `answers_d` are the answers that may show a missing label. Crowd regions have probabilities of 0.
    """
    regular_N = ~truth.crowd_N
    if regular_N.sum() < LEAST_LABELS or not len(detections):
        return None
    draw = np.random.default_rng(seed)
    is_second_I = draw.permutation(len(truth)) % 2 == 1
    figures, planted = SetFigures(truth, detections, compared), plant(truth, draw)
    rows = np.flatnonzero(regular_N)
    own_NF = figures.of_own_labels()
    faults_pF = figures.of_labels(planted.labels, planted.source_p, planted.like_p)
    removed_r, shown_r = figures.removals()
    candidates_dF = figures.of_answers(answers_d, np.full(len(answers_d), -1))
    shown_rF = figures.of_answers(shown_r, removed_r)
    half_N, half_p = is_second_I[truth.image_N[rows]], is_second_I[planted.labels.image_N]
    half_d, half_r = is_second_I[detections.image_D[answers_d]], is_second_I[detections.image_D[shown_r]]
    name_N, name_p = truth.category_N[rows], planted.labels.category_N
    name_d, name_r = detections.category_D[answers_d], detections.category_D[shown_r]
    rates = [figures.rates(is_second_I == half) for half in (False, True)]
    labels = _Taught(
        [_with_rate(own_NF, found_K[name_N]) for found_K, _ in rates],
        [_with_rate(faults_pF, found_K[name_p]) for found_K, _ in rates],
        (half_N, half_p),
        planted.kind_p,
        np.where(figures.has_twin_N, _OF_A_PAIR, 1.0),
    )
    # Labels that are probably wrong do not tell what right ones look like: they count less the second time.
    every_n, every_d = np.ones(len(rows)), np.ones(len(answers_d))
    wrong_n, _, _ = labels.judged(every_n)
    wrong_n, rate, kind_nK = labels.judged(1 - wrong_n)
    answers = _Taught(
        [_with_rate(candidates_dF, right_K[name_d]) for _, right_K in rates],
        [_with_rate(shown_rF, right_K[name_r]) for _, right_K in rates],
        (half_d, half_r),
        np.zeros(len(shown_r), np.int64),
        every_d,
    )
    kinds = len(np.unique(planted.kind_p))
    share = rate / kinds * len(shown_r) / max(len(answers_d), 1)
    missing_d, _, _ = answers.judged(every_d, share)
    missing_d, _, _ = answers.judged(1 - missing_d, share)
    kind_NK = np.zeros((len(regular_N), len(LABEL_KINDS)))
    kind_NK[rows] = kind_nK * wrong_n[:, None]
    rate_by_kind = dict(zip(LABEL_KINDS, (kind_NK.sum(axis=0) / len(rows)).tolist(), strict=True))
    rate_by_kind["missing"] = float(missing_d.sum()) / len(rows)
    return Probabilities(kind_NK, missing_d, rate_by_kind), len(planted.kind_p)


def _with_rate(figures_MF: np.ndarray, rate_M: np.ndarray) -> np.ndarray:
    """Return figures with a rate of its name, and with its product with the last figure."""
    return np.concatenate([figures_MF, rate_M[:, None], (figures_MF[:, -1] * rate_M)[:, None]], axis=1)


@dataclass(frozen=True, eq=False)
class _Taught:
    """A set and the faults planted into it, by halves: figures with the rates of each half, half and kind of each.

    `counted_n` is how much each row of the set counts in the share of faults.
    """

    set_hnF: list[np.ndarray]
    faults_hpF: list[np.ndarray]
    halves: tuple[np.ndarray, np.ndarray]
    kind_p: np.ndarray
    counted_n: np.ndarray

    @cached_property
    def _learnt(self) -> dict[tuple[int, int], _Learnt]:
        """What a half has learnt for a kind, from which the next round begins."""
        return {}

    @cached_property
    def _standardised(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Figures by their mean and deviation in the half that teaches, and 1; beyond those seen nothing is known."""
        half_n, half_p = self.halves
        both = []
        for half, (set_nF, faults_pF) in enumerate(zip(self.set_hnF, self.faults_hpF, strict=True)):
            x_F = np.concatenate([set_nF[half_n == half], faults_pF[half_p == half]])
            if not len(x_F):
                x_F = np.zeros((1, set_nF.shape[1]))
            cut = int(0.005 * len(x_F))
            sorted_F = np.partition(x_F, (cut, len(x_F) - 1 - cut), axis=0)
            low_F, high_F, mean_F, deviation_F = sorted_F[cut], sorted_F[-1 - cut], x_F.mean(axis=0), x_F.std(axis=0)
            both.append(
                [
                    np.append(
                        (np.clip(x_MF, low_F, high_F) - mean_F) / (deviation_F + 1e-6), np.ones((len(x_MF), 1)), 1
                    )
                    for x_MF in (set_nF, faults_pF)
                ]
            )
        return [set_nF for set_nF, _ in both], [faults_pF for _, faults_pF in both]

    def judged(self, weight_n: np.ndarray, rate: float | None = None) -> tuple[np.ndarray, float, np.ndarray]:
        """Return the probability [n] of a fault, the rate of faults, and the share [n, K] of each kind if it is one.

        `weight_n` is the weight of each row of the set as a right one. Each half is judged by what the other one
        teaches: the ratios, and what they mean. The rate is estimated where it is not given.
        """
        half_n, half_p = self.halves
        ratio_nK, ratio_pK = np.zeros((len(half_n), len(LABEL_KINDS))), np.zeros((len(half_p), len(LABEL_KINDS)))
        kinds = np.unique(self.kind_p)
        for half, (set_nF, faults_pF) in enumerate(zip(*self._standardised, strict=True)):
            teaches_n, teaches_p = half_n == half, half_p == half
            set_sF, weight_s = set_nF[teaches_n], weight_n[teaches_n]
            for kind in kinds.tolist():
                of_kind_pF = faults_pF[teaches_p & (self.kind_p == kind)]
                learnt = _regression(set_sF, weight_s, of_kind_pF, self._learnt.get((half, kind)))
                self._learnt[half, kind], weights_F = learnt, learnt[0]
                ratio_nK[~teaches_n, kind] = _ratio(set_nF[~teaches_n], weights_F)
                ratio_pK[~teaches_p, kind] = _ratio(faults_pF[~teaches_p], weights_F)
        expected_K = np.array([_KIND_WEIGHTS.get(kind, 1.0) for kind in LABEL_KINDS])
        expected_K = np.where(np.isin(np.arange(len(LABEL_KINDS)), kinds), expected_K, 0.0)
        expected_K /= max(expected_K.sum(), 1.0)
        score_n, score_p = (np.log(ratio @ expected_K + 1e-9) for ratio in (ratio_nK, ratio_pK))
        wrong_n, rates = np.zeros(len(half_n)), []
        for half in (False, True):
            known_s, planted_s = score_n[half_n == half], score_p[half_p == half]
            if len(known_s) and len(planted_s):
                rates.append(_rate(known_s, planted_s, self.counted_n[half_n == half]) if rate is None else rate)
                wrong_n[half_n != half] = _probabilities(known_s, planted_s, score_n[half_n != half], rates[-1])
        shares_nK = ratio_nK / np.maximum(ratio_nK.sum(axis=1, keepdims=True), 1e-300)
        return wrong_n, float(np.mean(rates)) if rates else 0.0, shares_nK


def _regression(set_sF: np.ndarray, weight_s: np.ndarray, faults_pF: np.ndarray, start: _Learnt | None) -> _Learnt:
    """Return the weights of a logistic regression, the last one of 1, by which faults are told from the set.

    The logarithm of the share of the faults is taken off. Without rows to learn from all weights are 0.
    """
    weights_F, inverse_FF = (np.zeros(set_sF.shape[1]), None) if start is None else start
    if not len(set_sF) or not len(faults_pF):
        return weights_F, inverse_FF
    log_share = np.log(len(faults_pF) / weight_s.sum())
    last_F = np.eye(len(weights_F))[-1]
    weights_F = weights_F if start is None else weights_F + log_share * last_F
    x_F = np.concatenate([set_sF, faults_pF])
    fault, counted = np.arange(len(x_F)) >= len(set_sF), np.append(weight_s, np.ones(len(faults_pF)))
    penalty_F = np.append(np.full(x_F.shape[1] - 1, _PENALTY), 1e-3)
    before = np.inf
    for _ in range(_MOST_STEPS):
        probability = 1 / (1 + np.exp(-np.clip(x_F @ weights_F, -30, 30)))
        gradient_F = x_F.T @ (counted * (probability - fault)) + penalty_F * weights_F
        # Newton's method; the curvature is taken anew only where the last one no longer brings the steps down.
        if inverse_FF is None:
            scaled_F = x_F * np.sqrt(counted * probability * (1 - probability))[:, None]
            inverse_FF = np.linalg.inv(scaled_F.T @ scaled_F + np.diag(penalty_F))
        step_F = inverse_FF @ gradient_F
        farthest = np.abs(step_F).max()
        weights_F = weights_F - step_F / max(farthest, 1.0)
        if farthest < _SETTLED:
            break
        if farthest > 0.5 * before:
            inverse_FF = None
        before = farthest
    return weights_F - log_share * last_F, inverse_FF


def _ratio(x_MF: np.ndarray, weights_F: np.ndarray) -> np.ndarray:
    """Return how many times more frequent figures are among faults than in the set."""
    return np.asarray(np.exp(np.clip(x_MF @ weights_F, -12, 12)))


def _probabilities(known_s: np.ndarray, faults_p: np.ndarray, judged_n: np.ndarray, rate: float) -> np.ndarray:
    """Return the probabilities of some labels, given the log-odds of others, of planted faults, and the rate."""
    both = np.concatenate([known_s, faults_p])
    sorted_b, place_b = np.sort(both), np.linspace(0, 1, len(both))
    share = len(faults_p) / len(both)

    def rank_of(value: np.ndarray) -> np.ndarray:
        return np.asarray(np.interp(value, sorted_b, place_b))

    rank_b = rank_of(np.minimum(both, _MOST_LOG_RATIO))
    knots = fit_knots(rank_b, np.arange(len(both)) >= len(known_s), share, 1.0)

    def times_of(value: np.ndarray) -> np.ndarray:
        """Return how many times more frequent log-odds are among faults than in the set; it grows with them."""
        fitted = interpolate(knots, rank_of(np.minimum(value, _MOST_LOG_RATIO)))
        fitted = np.clip((1 - _STRICT) * fitted + _STRICT * rank_of(value), 0, 1 - 1e-3)
        return np.asarray(fitted / (1 - fitted) * (1 - share) / share)

    expected_n = rate * times_of(judged_n) / times_of(known_s).mean()
    return np.asarray(expected_n / (1 + (expected_n / _MOST) ** _BEND) ** (1 / _BEND))


def _rate(known_s: np.ndarray, faults_p: np.ndarray, counted_s: np.ndarray) -> float:
    """Return the least share of faults that explains how suspect the labels are, counted with half an error more."""
    levels = np.quantile(faults_p, np.linspace(0, 1 - _LEAST_SHARE, 40))
    levels = np.unique(np.minimum(levels, _MOST_LOG_RATIO))
    order = np.argsort(-known_s, kind="stable")
    labels_s = np.append(0.0, np.cumsum(counted_s[order]))
    above_set = labels_s[np.searchsorted(-known_s[order], -levels, side="right")]
    above_planted = len(faults_p) - np.searchsorted(np.sort(faults_p), levels)
    return float(min(((above_set + 1) / len(known_s) / (above_planted / len(faults_p))).min(), 1.0))


def plant(truth: GroundTruth, draw: np.random.Generator) -> Planted:
    """Return faults of each kind, made of labels of a set one at a time: every label is beside the others as they are.

    Example:
        >>> from coord_codec import Instance
        >>> from coord_eval.intake.ground_truth import load_ground_truth
        >>> cats = [{"desc": name, "bbox": [0.1, 0.1, 0.5, 0.5]} for name in ("cat", "dog")]
        >>> truth = load_ground_truth([Instance(image="a.jpg", width=10, height=10, objects=cats * 20)])
        >>> np.bincount(plant(truth, np.random.default_rng(0)).kind_p).tolist()
        [40, 40, 40, 40, 40]
    """
    regular = np.flatnonzero(~truth.crowd_N)
    names = np.unique(truth.category_N[regular])
    rows = draw.permutation(regular)[:_MOST_LABELS]
    boxes_p4, name_p, count = truth.boxes_N4[rows], truth.category_N[rows], len(rows)
    size_p2 = truth.sizes_I2[truth.image_N[rows]]

    def renamed() -> np.ndarray:
        steps_p = draw.integers(1, max(len(names), 2), count)
        return np.asarray(names[(np.searchsorted(names, name_p) + steps_p) % len(names)])

    def moved() -> np.ndarray:
        """Return boxes shifted by 20 to 40 % of a side, or cut, stretched or scaled, or joined with another label's."""
        all_p, other_p = np.arange(count), _another_of_image(truth, rows, draw)
        how_p, axis_p = draw.choice(4, count, p=(0.4, 0.5, 0.05, 0.05)), draw.integers(0, 2, count)
        how_p[(how_p == 3) & (other_p == rows)] = 0
        shift_p2, times_p2 = np.zeros((count, 2)), np.ones((count, 2))
        shift_p2[all_p, axis_p] = (how_p == 0) * draw.choice([-1.0, 1.0], count) * draw.uniform(0.2, 0.4, count)
        times_p = draw.choice([0.5, 0.5, 0.5, 2 / 3, 4 / 3, 2.0], count)
        times_p2[all_p, axis_p] = np.where(how_p == 1, times_p, 1.0)
        times_p2[how_p == 2] = np.sqrt(times_p[how_p == 2, None])
        shift_p2 += draw.integers(0, 3, (count, 2)) / 2 * (1 - times_p2)  # either end stays, or the middle
        corners_p4, other_p4 = LAYOUTS["xywh"](boxes_p4), LAYOUTS["xywh"](truth.boxes_N4[other_p])
        low_p2 = np.minimum(corners_p4[:, :2], other_p4[:, :2])
        joined_p4 = np.concatenate([low_p2, np.maximum(corners_p4[:, 2:], other_p4[:, 2:]) - low_p2], axis=1)
        low_p2 = boxes_p4[:, :2] + shift_p2 * boxes_p4[:, 2:]
        moved_p4 = np.concatenate([low_p2, boxes_p4[:, 2:] * times_p2], axis=1)
        moved_p4[how_p == 3] = joined_p4[how_p == 3]
        return _within(moved_p4, size_p2)

    def stray() -> np.ndarray:
        """Return boxes of the size of other labels, anywhere; in an image of unknown size where that label is."""
        sides_p2 = truth.boxes_N4[draw.choice(regular, count), 2:]
        room_p2 = np.maximum(size_p2 - sides_p2, 0.0)
        place_p2 = np.where(np.isnan(room_p2), boxes_p4[:, :2], draw.random((count, 2)) * room_p2)
        return _within(np.concatenate([place_p2, sides_p2], axis=1), size_p2)

    twins_p4 = _within(boxes_p4 + draw.normal(0, 0.05, boxes_p4.shape) * np.tile(boxes_p4[:, 2:], 2), size_p2)
    anything_p = np.where(draw.random(count) < 0.1, name_p, names[draw.integers(0, len(names), count)])
    none_p = np.full(count, -1)
    moved_p4 = moved()
    made = {
        "renamed": (renamed(), boxes_p4, rows),
        "moved": (name_p, moved_p4, rows),
        "spurious": (anything_p, stray(), none_p),
        "duplicate": (name_p, twins_p4, none_p),
        "mixed": (renamed(), moved_p4, rows),
    }
    if len(names) == 1:  # no label can have another name
        made = {kind: made[kind] for kind in ("moved", "spurious", "duplicate")}
    name, box, source = (np.concatenate(column) for column in zip(*made.values(), strict=True))
    labels = truth.take(np.tile(rows, len(made)))
    kind_p = np.repeat([LABEL_KINDS.index(kind) for kind in made], count)
    like_p = np.arange(len(kind_p))
    if "mixed" in made:
        like_p[kind_p == LABEL_KINDS.index("mixed")] = np.flatnonzero(kind_p == LABEL_KINDS.index("moved"))
    return Planted(replace(labels, category_N=name, boxes_N4=box), source, kind_p, like_p)


def _another_of_image(truth: GroundTruth, rows: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return another label of the image of each row, any of them; the row itself if it is alone."""
    order = stable_order(truth.image_N)
    place_N = np.empty_like(order)
    place_N[order] = np.arange(len(order))
    sorted_N, image_p = truth.image_N[order], truth.image_N[rows]
    first_p = np.searchsorted(sorted_N, image_p)
    count_p = np.searchsorted(sorted_N, image_p, side="right") - first_p
    steps_p = np.where(count_p > 1, draw.integers(1, np.maximum(count_p, 2)), 0)
    return np.asarray(order[first_p + (place_N[rows] - first_p + steps_p) % count_p])


def _within(boxes_p4: np.ndarray, size_p2: np.ndarray) -> np.ndarray:
    """Return boxes cut at the borders of their images, at least a pixel wide; of unknown size as they are."""
    low_p2 = np.fmax(boxes_p4[:, :2], np.where(np.isnan(size_p2), -np.inf, 0.0))
    high_p2 = np.fmin(boxes_p4[:, :2] + boxes_p4[:, 2:], size_p2)
    least_p2 = np.minimum(1.0, boxes_p4[:, 2:])
    return np.concatenate([low_p2, np.maximum(high_p2 - low_p2, least_p2)], axis=1)
