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
        (-0.21, 0.83, -0.02, -1.48, -0.48, 0.00, 0.64, 0.42, 0.01),
        (0.07, -0.24, -0.07, 1.68, 0.34, 0.07, -0.05, -0.17, 0.59),
        (-0.13, -0.09, -0.15, -0.14, 3.12, -0.25, 2.79, 0.10, 0.48),
        (-0.07, -0.02, -0.01, -0.01, 1.52, 1.52, -0.27, 0.01, 0.05),
        (-0.14, 0.39, 0.76, 0.94, 1.10, -0.01, -0.46, 0.21, 0.41),
    ),
    bias=(-0.40, -6.24, -1.26, 2.45, -3.70),
    rates=(0.0120, 0.0120, 0.0116, 0.0113, 0.0113),
)
"""Fitted by `apps/trainer/benchmarks/label_review.py fit --seeds 0,1` to answers and likelihoods of a trained model:
6,016 labels of generated images that it had not seen, with 0, 2, 10 and 30 % of the records spoilt."""
MISSING = AnswerWeights(figures=(0.71, 0.91, 0.19, -0.58), bias=-1.4)
GOES_ON = (0.17, 0.44)
"""Weight and bias that are added to the odds of a missing label where a model says whether it expects another object;
fitted to 618 answers without a label of the same sets."""
