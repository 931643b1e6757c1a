"""From the figures of a label to the probability that it is wrong, and how.

A multinomial logistic regression tells how many times more probable the figures of a label are under every kind of
fault than if it is right; times the odds of that kind these are the odds of the fault (Bayes). A logistic regression
gives each answer without a label those of a missing label. Their weights are constants, which the trainer's
`benchmarks/label_review.py fit` fits to sets with planted faults and `benchmarks/RESULTS.md` measures on others. How
many faults a set has is not known in advance: the rates of the kinds are re-estimated from the set itself by
expectation maximisation (Saerens, Latinne and Decaestecker 2002, https://doi.org/10.1162/089976602753284446). The
rate of spurious labels is not, unless there are likelihoods: answers alone do not tell a label without an object from
an object that the model misses.

Shapes: N labels, K kinds, F figures, d answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coord_eval.review.weights import GOES_ON, MISSING, WITH_LIKELIHOODS, WITHOUT, LabelWeights

LABEL_KINDS = ("renamed", "moved", "spurious", "duplicate", "mixed")
"""Kinds of faults of a label that is there, in the order of the columns."""
_ROUNDS = 50
MOST_RATE = 0.05
"""Largest share of labels that one kind of fault is taken to have: beyond that the model is as likely to blame."""
_PRIOR_LABELS = 20.0
"""Weight in labels of the rates to which the weights were fitted."""


@dataclass(frozen=True, eq=False)
class Probabilities:
    """The probability of each kind of fault of each label, whose sum is that of any, and the rates of the kinds.

    `missing_d` is the probability that each answer without a label shows a missing one.
    """

    kind_NK: np.ndarray
    missing_d: np.ndarray
    rates: dict[str, float]


def likelihood_ratios(figures_NF: np.ndarray, weights: LabelWeights) -> np.ndarray:
    """Return how many times more probable the figures are under each kind of fault than for a right label, [N, K]."""
    scores_NK = figures_NF @ np.array(weights.figures).T + np.array(weights.bias)
    return np.asarray(np.exp(np.clip(scores_NK, -30, 30)))


def probabilities(
    figures_NF: np.ndarray,
    figures_dF: np.ndarray,
    judged_N: np.ndarray,
    with_likelihoods: bool,
    goes_on_d: np.ndarray | None = None,
) -> Probabilities:
    """Return the probabilities of all faults: 0 for labels that are not judged.

    The figures have the orders of `LABEL_FIGURES` and `ANSWER_FIGURES`; `goes_on_d` says how much the model expects
    another object in the image of each answer, see `likelihood.goes_on`, NaN or None where that is unknown.
    """
    weights = WITH_LIKELIHOODS if with_likelihoods else WITHOUT
    ratio_nK = likelihood_ratios(figures_NF[judged_N], weights)
    kind_nK, rate_K = _adapted(ratio_nK, np.array(weights.rates), with_likelihoods)
    kind_NK = np.zeros((len(figures_NF), len(LABEL_KINDS)))
    kind_NK[judged_N] = kind_nK
    score_d = figures_dF @ np.array(MISSING.figures) + MISSING.bias
    if goes_on_d is not None:
        score_d = score_d + np.where(np.isfinite(goes_on_d), GOES_ON[0] * goes_on_d + GOES_ON[1], 0.0)
    missing_d = 1 / (1 + np.exp(-np.clip(score_d, -30, 30)))
    rates = dict(zip(LABEL_KINDS, rate_K.tolist(), strict=True))
    expected = float(missing_d.sum())
    rates["missing"] = expected / max(expected + float(judged_N.sum()), 1.0)
    return Probabilities(kind_NK, missing_d, rates)


def with_possible_kinds(found: Probabilities, possible_NK: np.ndarray) -> Probabilities:
    """Return probabilities of the kinds of which something tells; those of the others go to them, else to `spurious`.

    Example:
        >>> found = Probabilities(np.array([[0.1, 0.3, 0.0, 0.0, 0.0]] * 2), np.zeros(0), {})
        >>> possible = np.array([[True, False, True, True, True], [False, False, False, False, False]])
        >>> with_possible_kinds(found, possible).kind_NK.round(2).tolist()
        [[0.4, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.4, 0.0, 0.0]]
    """
    total_N1 = found.kind_NK.sum(axis=1, keepdims=True)
    left_NK = np.where(possible_NK, found.kind_NK, 0.0)
    left_N1 = left_NK.sum(axis=1, keepdims=True)
    none_NK = (np.array(LABEL_KINDS) == "spurious") * total_N1
    kind_NK = np.where(left_N1 > 0, left_NK * (total_N1 / np.where(left_N1 > 0, left_N1, 1.0)), none_NK)
    return replace(found, kind_NK=kind_NK)


def _adapted(ratio_nK: np.ndarray, fitted_K: np.ndarray, with_likelihoods: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities [n, K] at the rates of this set, and these rates."""
    rate_K = fitted_K
    is_known_K = np.array([kind != "spurious" or with_likelihoods for kind in LABEL_KINDS])
    kind_nK = np.zeros_like(ratio_nK)
    for _ in range(_ROUNDS):
        shifted_nK = ratio_nK * rate_K / (1 - rate_K.sum())
        kind_nK = shifted_nK / (1 + shifted_nK.sum(axis=1, keepdims=True))
        estimate_K = (kind_nK.sum(axis=0) + _PRIOR_LABELS * fitted_K) / (len(ratio_nK) + _PRIOR_LABELS)
        rate_K = np.where(is_known_K, np.minimum(estimate_K, MOST_RATE), fitted_K)
    return kind_nK, rate_K
