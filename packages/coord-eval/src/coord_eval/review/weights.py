"""The constants of `probability`, as `benchmarks/label_review.py --fit --images 80 --seeds 2` fitted them.

They rest on 14,465 labels and 4,865 answers without a label, of 30 generated sets: five simulated models, three rates
of faults (2, 10 and 30 %) and two seeds, which no measurement uses again.

Rows are the kinds of `LABEL_KINDS`, columns the figures of `LABEL_FIGURES` and of `ANSWER_FIGURES`. `rates` are the
shares of labels with which the estimation of the rates of a set begins.
"""

from __future__ import annotations

from typing import NamedTuple


class LabelWeights(NamedTuple):
    """Weights of the figures of a label: a row for each kind, its bias, and its mean rate in the sets of the fit."""

    figures: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]
    rates: tuple[float, ...]


class AnswerWeights(NamedTuple):
    """Weights of the figures of an answer without a label, and the bias."""

    figures: tuple[float, ...]
    bias: float


WITHOUT = LabelWeights(
    figures=(
        (-0.71, 0.67, 0.65, 0.06, 0.66, -0.67, -0.32, 0.00, 0.00),
        (-0.64, -0.81, -0.27, 6.00, -0.56, -0.07, 0.21, 0.00, 0.00),
        (-1.00, -0.83, 0.45, 1.59, 1.99, -0.70, 1.10, 0.00, 0.00),
        (-0.44, -0.46, 0.28, 0.76, 0.83, 1.89, -0.07, 0.00, 0.00),
        (-1.25, 0.04, 0.35, 5.89, 0.48, -0.49, 0.18, 0.00, 0.00),
    ),
    bias=(-2.48, -6.18, -6.49, -1.46, -5.84),
    rates=(0.0235, 0.0235, 0.0228, 0.0243, 0.0218),
)
WITH_LIKELIHOODS = LabelWeights(
    figures=(
        (-0.81, 0.53, 0.52, -0.01, 0.48, -0.77, -0.49, 0.69, -0.03),
        (-0.68, -0.83, -0.45, 5.47, -0.70, -0.06, 0.30, -0.10, 0.35),
        (-1.17, -1.16, 0.07, 0.63, 0.85, -0.77, 0.71, 0.30, 0.75),
        (-0.46, -0.48, 0.28, 0.69, 0.74, 1.89, -0.08, 0.03, 0.11),
        (-1.27, -0.07, 0.21, 5.31, 0.26, -0.53, 0.08, 0.73, 0.29),
    ),
    bias=(-7.03, -6.64, -12.21, -1.48, -9.98),
    rates=(0.0235, 0.0235, 0.0228, 0.0243, 0.0218),
)
MISSING = AnswerWeights(figures=(0.71, 0.91, 0.19, -0.58), bias=-1.4)
GOES_ON = (0.5, -1.0)
"""Weight and bias that are added to the odds of a missing label where a model says whether it expects another object.

They are fitted by `apps/trainer/benchmarks/label_review.py fit` to answers and likelihoods of a trained model.
"""
