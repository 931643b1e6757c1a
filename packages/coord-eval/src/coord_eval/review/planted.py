"""Probabilities from faults that are planted into the reviewed labels themselves, of which it is known that they are.

How often a model contradicts right labels is not known in advance. So the images are divided into two halves, and
faults are planted into labels of one half while the answers stay. How suspect the planted ones look beside all labels
of that half tells how many times more frequent a suspicion is among faults; the labels of the other half, which was
held out, get their probabilities from that, and the reverse.

How many labels are wrong follows from the same comparison. Above any suspicion lie as many of the wrong labels as of
the planted ones, in share, and some right ones: so the share of the labels above it, divided by that of the planted
faults, is the rate of faults or more, and the least of these quotients is the estimate (Blanchard, Lee and Scott 2010,
"Semi-Supervised Novelty Detection", JMLR 11). Missing labels are not estimated so: there are too few answers without a
label above any suspicion.

Shapes: N labels, s labels of a half, p planted faults, n some labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.calibration.knots import fit_knots, interpolate

LEAST_LABELS = 200
"""Number of labels below which half a set tells too little."""
_PLANTED = 0.25
"""Share of the labels of a half that become faults."""
_LEAST_SHARE = 0.15
"""Least share of the planted faults above the suspicions that are compared."""
_MOST = 0.99
_STRICT = 0.02
"""Weight of the rank itself, by which of two labels with the same share of faults the more suspect one comes first."""


def calibrated_on_planted_faults(
    truth: GroundTruth, log_odds_N: np.ndarray, log_odds_of: Callable[[GroundTruth], np.ndarray], seed: int = 0
) -> tuple[np.ndarray, int] | None:
    """Return the probability [N] that each label is wrong, and the number of planted faults; None for too few labels.

    `log_odds_N` says how suspect each label is, on any scale that grows with the probability of a fault, and
    `log_odds_of` the same of other labels beside the same answers.
    """
    regular_N = ~truth.crowd_N
    if regular_N.sum() < LEAST_LABELS:
        return None
    draw = np.random.default_rng(seed)
    is_second_I = draw.permutation(len(truth)) % 2 == 1
    probability_N, planted = np.zeros(len(truth.image_N)), 0
    for half in (False, True):
        here_N = is_second_I[truth.image_N] == half
        spoilt, is_fault_N = plant(truth, here_N & regular_N, draw)
        faults_p = log_odds_of(spoilt)[is_fault_N]
        held_out_N = ~here_N & regular_N
        if not len(faults_p) or not held_out_N.any():
            return None
        planted += len(faults_p)
        probability_N[held_out_N] = _probabilities(log_odds_N[here_N & regular_N], faults_p, log_odds_N[held_out_N])
    return probability_N, planted


def _probabilities(known_s: np.ndarray, faults_p: np.ndarray, judged_n: np.ndarray) -> np.ndarray:
    """Return the probabilities of some labels, given the log-odds of others and those of faults planted there."""
    both = np.concatenate([known_s, faults_p])
    sorted_b = np.sort(both)

    def rank_of(value: np.ndarray) -> np.ndarray:
        """Return the place among all log-odds in [0, 1], between two of them by their distances."""
        place_b = np.linspace(0, 1, len(sorted_b))
        return np.asarray(np.interp(value, sorted_b, place_b))

    is_fault_b = np.arange(len(both)) >= len(known_s)
    share = len(faults_p) / len(both)
    knots = fit_knots(rank_of(both), is_fault_b, share, 1.0)

    def times_of(value: np.ndarray) -> np.ndarray:
        """Return how many times more frequent log-odds are among faults than in the set; it grows with them."""
        rank = rank_of(value)
        fitted = np.clip((1 - _STRICT) * interpolate(knots, rank) + _STRICT * rank, 0, 1 - 1e-3)
        return np.asarray(fitted / (1 - fitted) * (1 - share) / share)

    expected_n = _rate(known_s, faults_p) * times_of(judged_n) / times_of(known_s).mean()
    return np.asarray(np.minimum(expected_n, _MOST))


def _rate(known_s: np.ndarray, faults_p: np.ndarray) -> float:
    """Return the least share of faults that explains how suspect the labels are, one label more counted than found."""
    levels = np.unique(np.quantile(faults_p, np.linspace(0, 1 - _LEAST_SHARE, 30)))
    above_set = np.array([((known_s >= level).sum() + 1) / len(known_s) for level in levels])
    above_planted = np.array([(faults_p >= level).mean() for level in levels])
    return float(min((above_set / above_planted).min(), 1.0))


def plant(truth: GroundTruth, where_N: np.ndarray, draw: np.random.Generator) -> tuple[GroundTruth, np.ndarray]:
    """Return labels of which some are wrong, and which: renamed, moved, spurious, duplicate or both of the first two.

    Of the labels `where_N` some are changed, or get another one beside them.

    Example:
        >>> from coord_codec import Instance
        >>> from coord_eval.intake.ground_truth import load_ground_truth
        >>> cats = [{"desc": name, "bbox": [0.1, 0.1, 0.5, 0.5]} for name in ("cat", "dog")]
        >>> truth = load_ground_truth([Instance(image="a.jpg", width=10, height=10, objects=cats * 20)])
        >>> spoilt, is_fault_N = plant(truth, np.ones(40, bool), np.random.default_rng(0))
        >>> len(spoilt.image_N), int(is_fault_N.sum())
        (44, 10)
    """
    rows = draw.permutation(np.flatnonzero(where_N))
    rows = rows[: round(_PLANTED * len(rows))]
    names = np.unique(truth.category_N[~truth.crowd_N])
    kinds = 5 if len(names) > 1 else 3  # with one name no label can have another
    moved, spurious, duplicate, renamed, mixed = (rows[n::kinds] if n < kinds else rows[:0] for n in range(5))
    given = len(truth.image_N)
    labels = truth.take(np.concatenate([np.arange(given), spurious, duplicate]))
    category_N, boxes_N4 = labels.category_N.copy(), labels.boxes_N4.copy()
    if len(names) > 1:
        others = np.concatenate([renamed, mixed])
        place_n = np.searchsorted(names, category_N[others]) + draw.integers(1, len(names), len(others))
        category_N[others] = names[place_n % len(names)]

    # A box is shifted by 30 % of a side, or gets a side that is a third longer or shorter
    elsewhere = np.concatenate([moved, mixed])
    axis_n, sign_n = draw.integers(0, 2, len(elsewhere)), draw.choice([-1.0, 1.0], len(elsewhere))
    is_shifted_n = draw.random(len(elsewhere)) < 0.5
    side_n = boxes_N4[elsewhere, 2 + axis_n]
    boxes_N4[elsewhere, axis_n] += np.where(is_shifted_n, 0.3 * sign_n * side_n, 0.0)
    boxes_N4[elsewhere, 2 + axis_n] *= np.where(is_shifted_n, 1.0, 1 + sign_n / 3)

    # A spurious box lies anywhere in its image; one of unknown size keeps the place of the label it was made of
    strays, twins = slice(given, given + len(spurious)), slice(given + len(spurious), None)
    room_n2 = np.maximum(truth.sizes_I2[labels.image_N[strays]] - boxes_N4[strays, 2:], 0.0)
    anywhere_n2 = draw.random(room_n2.shape) * room_n2
    boxes_N4[strays, :2] = np.where(np.isnan(room_n2), boxes_N4[strays, :2], anywhere_n2)
    boxes_N4[twins] += draw.normal(0, 0.05, boxes_N4[twins].shape) * np.tile(boxes_N4[twins, 2:], 2)
    is_fault_N = np.arange(len(category_N)) >= given
    is_fault_N[np.concatenate([moved, renamed, mixed])] = True
    return replace(labels, category_N=category_N, boxes_N4=boxes_N4), is_fault_N
