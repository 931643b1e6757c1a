"""The constants of `probability`, fitted together by the trainer's benchmark `label_review.py`.

`WITHOUT` and `MISSING` rest on 20,481 labels and 8,297 answers without a label of 38 sets: of five simulated models at
three rates of faults (2, 10 and 30 %) with two seeds, which no measurement uses again, and of two sets of images that a
trained model had not seen, at these rates and without faults (`fit --seeds 0,1 --simulated 2`).

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
        (-0.51, 0.94, 0.70, -1.07, 1.54, -0.64, -0.11, 0.00, 0.00),
        (-0.20, -0.46, -0.54, 5.35, -0.94, -0.04, 1.46, 0.00, 0.00),
        (-0.81, -0.77, -0.29, 1.59, 2.23, -0.69, 1.19, 0.00, 0.00),
        (-0.36, -0.43, 0.34, 2.34, 0.89, 2.18, -0.25, 0.00, 0.00),
        (-0.55, 0.67, 0.58, 4.59, 1.39, -0.52, 1.72, 0.00, 0.00),
    ),
    bias=(-1.42, -0.60, -8.25, -1.37, 2.68),
    rates=(0.0201, 0.0201, 0.0195, 0.0201, 0.0187),
)
WITH_LIKELIHOODS = LabelWeights(
    figures=(
        (-0.16, 0.79, -0.01, -1.80, -0.26, 0.00, 0.78, 0.41, -0.01),
        (0.07, -0.29, -0.04, 2.25, -0.58, 0.08, -0.03, -0.16, 0.54),
        (-0.13, -0.11, -0.17, 0.05, 3.18, -0.27, 3.33, 0.06, 0.51),
        (-0.36, -0.43, 0.34, 2.34, 0.89, 2.18, -0.25, 0.00, 0.00),
        (-0.09, 0.41, 0.83, 1.31, 1.01, -0.01, -0.63, 0.23, 0.37),
    ),
    bias=(-0.65, -5.04, -0.17, -1.37, -3.13),
    rates=(0.0120, 0.0120, 0.0116, 0.0113, 0.0113),
)
"""Rests on answers and likelihoods of the trained model: 6,016 labels of its eight sets. The row of `duplicate` is that
of `WITHOUT`, since no two objects of these images overlap much: in crowds its own suspects many."""
MISSING = AnswerWeights(figures=(0.5, 0.98, -0.17, -0.55), bias=-2.79)
GOES_ON = (0.17, 0.51)
"""Weight and bias that are added to the odds of a missing label where a model says whether it expects another object;
fitted to 646 answers without a label of the trained model's sets."""
