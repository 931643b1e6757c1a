"""The constants of `probability`, which `fit` of the trainer's benchmark `label_review.py` has fitted.

`WITHOUT` and `MISSING` rest on 14,465 labels and 7,651 answers without a label, of 30 generated sets: five simulated
models, three rates of faults (2, 10 and 30 %) and two seeds, which no measurement uses again (`--seeds '' --simulated
2`). What `WITH_LIKELIHOODS` and `GOES_ON` rest on stands below them.

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
        (-0.54, 0.94, 0.70, 0.08, 1.23, -0.66, -0.24, 0.00, 0.00),
        (-0.86, -0.90, -0.92, 6.64, -0.92, -0.12, 0.62, 0.00, 0.00),
        (-1.01, -0.89, 0.00, 0.28, 1.90, -0.68, 1.04, 0.00, 0.00),
        (-0.60, -0.61, 0.33, 2.30, 0.60, 2.08, -0.33, 0.00, 0.00),
        (-1.16, 0.10, -0.03, 5.99, 0.75, -0.58, 0.68, 0.00, 0.00),
    ),
    bias=(-1.35, -8.58, -8.45, -3.06, -6.36),
    rates=(0.0235, 0.0235, 0.0228, 0.0237, 0.0218),
)
WITH_LIKELIHOODS = LabelWeights(
    figures=(
        (-0.21, 0.83, -0.02, -1.48, -0.48, 0.00, 0.64, 0.42, 0.01),
        (0.07, -0.24, -0.07, 1.68, 0.34, 0.07, -0.05, -0.17, 0.59),
        (-0.13, -0.09, -0.15, -0.14, 3.12, -0.25, 2.79, 0.10, 0.48),
        (-0.60, -0.61, 0.33, 2.30, 0.60, 2.08, -0.33, 0.00, 0.00),
        (-0.14, 0.39, 0.76, 0.94, 1.10, -0.01, -0.46, 0.21, 0.41),
    ),
    bias=(-0.40, -6.24, -1.26, -3.06, -3.70),
    rates=(0.0120, 0.0120, 0.0116, 0.0113, 0.0113),
)
"""Fitted by `fit --seeds 0,1 --simulated 0` to answers and likelihoods of a trained model:
6,016 labels of generated images that it had not seen, with 0, 2, 10 and 30 % of the records spoilt. The row of
`duplicate` is that of `WITHOUT`, since no two objects of these images overlap much: in crowds its own suspects many."""
MISSING = AnswerWeights(figures=(0.44, 1.09, -0.15, -0.5), bias=-2.32)
GOES_ON = (0.17, 0.44)
"""Weight and bias that are added to the odds of a missing label where a model says whether it expects another object;
fitted to 618 answers without a label of the same sets."""
