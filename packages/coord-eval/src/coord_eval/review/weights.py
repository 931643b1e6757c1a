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
        (-0.5, 1.0, 0.0, -0.5, 0.0, 0.0, 0.0, 0.0),
        (0.5, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0),
        (-0.5, -0.5, -0.5, 0.0, 1.0, -0.5, 0.0, 0.0),
        (-0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
        (-0.5, 0.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0),
    ),
    bias=(-3.0, -5.0, -6.0, -3.0, -3.0),
    rates=(0.02, 0.02, 0.02, 0.02, 0.02),
)
WITH_LIKELIHOODS = WITHOUT._replace(
    figures=tuple(
        (*row[:6], name, box)
        for row, (name, box) in zip(
            WITHOUT.figures, ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.0, 0.0), (0.5, 0.5)), strict=True
        )
    )
)
MISSING = AnswerWeights(figures=(1.0, 1.0, -0.5), bias=-2.0)
