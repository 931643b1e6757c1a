"""The constants of `probability`, as `benchmarks/label_review.py --fit --images 100 --seeds 2` fitted them.

They rest on 15,028 labels and 5,636 answers without a label, of 24 generated sets: four simulated models, three rates of
faults (2, 10 and 30 %) and two seeds, which no measurement uses again.

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
        (-0.88, 0.61, 0.81, -0.07, -0.20, 0.18, 0.00, 0.00),
        (-0.97, -1.02, -0.20, 6.83, -1.07, 1.07, 0.00, 0.00),
        (-1.14, -1.12, 0.59, 0.00, 0.54, 0.83, 0.00, 0.00),
        (-0.21, -0.32, -0.79, 0.04, 0.61, 2.90, 0.00, 0.00),
        (-1.27, 0.04, 0.81, 5.91, -0.09, 0.71, 0.00, 0.00),
    ),
    bias=(-0.44, -5.10, -4.29, 0.97, -1.56),
    rates=(0.0232, 0.0232, 0.0226, 0.0226, 0.0226),
)
WITH_LIKELIHOODS = LabelWeights(
    figures=(
        (-1.05, 0.55, 0.75, -0.45, -0.31, 0.71, 0.77, -0.03),
        (-1.03, -1.07, -0.41, 6.62, -1.13, 1.27, -0.14, 0.37),
        (-1.30, -1.31, 0.43, -0.56, -0.16, 1.18, 0.35, 0.68),
        (-0.25, -0.33, -1.15, 0.05, 0.41, 3.15, 0.03, 0.19),
        (-1.27, -0.01, 0.69, 5.13, -0.24, 1.13, 0.70, 0.27),
    ),
    bias=(-1.49, -5.19, -5.83, 1.02, -2.43),
    rates=(0.0232, 0.0232, 0.0226, 0.0226, 0.0226),
)
MISSING = AnswerWeights(figures=(0.72, 1.07, 0.06, -0.6), bias=-1.75)
