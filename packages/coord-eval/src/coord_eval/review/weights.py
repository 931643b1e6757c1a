"""The constants of `probability`, fitted by `benchmarks/label_review.py --fit`; which sets they rest on stands there.

Rows are the kinds of `LABEL_KINDS`, columns the figures of `LABEL_FIGURES` and of `ANSWER_FIGURES`.
"""

from __future__ import annotations

from typing import NamedTuple


class LabelWeights(NamedTuple):
    """Weights of the figures of a label: a row for each kind, its bias, and its rate in the sets of the fit."""

    figures: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]
    rates: tuple[float, ...]


class AnswerWeights(NamedTuple):
    """Weights of the figures of an answer without a label, and the bias."""

    figures: tuple[float, ...]
    bias: float


WITHOUT = LabelWeights(
    figures=(
        (-0.84, 0.60, 0.68, 0.01, -0.23, 0.24, 0.00, 0.00),
        (-0.42, -0.67, -0.26, 4.85, 0.60, 0.91, 0.00, 0.00),
        (-1.12, -1.08, 0.38, 0.41, 0.58, 0.92, 0.00, 0.00),
        (-0.25, -0.34, -0.91, 1.62, 0.42, 2.99, 0.00, 0.00),
        (-1.04, 0.29, 0.66, 4.02, 0.71, 0.70, 0.00, 0.00),
    ),
    bias=(-0.53, -4.97, -4.45, 0.87, -1.52),
    rates=(0.0232, 0.0232, 0.0226, 0.0226, 0.0226),
)
WITH_LIKELIHOODS = LabelWeights(
    figures=(
        (-0.98, 0.53, 0.61, -0.23, -0.32, 0.74, 0.76, -0.03),
        (-0.47, -0.70, -0.34, 4.41, 0.35, 1.03, -0.10, 0.32),
        (-1.28, -1.23, 0.16, 0.09, -0.16, 1.26, 0.35, 0.70),
        (-0.26, -0.36, -1.14, 1.43, 0.47, 3.18, 0.03, 0.18),
        (-1.15, 0.14, 0.58, 3.54, 0.35, 1.14, 0.71, 0.22),
    ),
    bias=(-1.54, -4.63, -6.10, 0.97, -2.48),
    rates=(0.0232, 0.0232, 0.0226, 0.0226, 0.0226),
)
MISSING = AnswerWeights(figures=(0.72, 1.07, 0.06, -0.6), bias=-1.75)
