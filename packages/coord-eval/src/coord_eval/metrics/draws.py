"""Resamples of the images, and the interval that they give; see `bootstrap`.

Shapes: B resamples, I images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

CONFIDENCE = 0.95
_CHUNK = 16
"""Number of resamples that are computed together."""
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
"""Two-sided 95 % quantiles of Student's t by degrees of freedom; the last is used for more than it lists."""


def half_width(values: Sequence[float]) -> float | None:
    """Return the half width of the 95 % interval of the mean of values (Student's t), None for a single one.

    Example:
        >>> round(half_width([0.1, 0.2, 0.3]), 4)
        0.2484
    """
    n = len(values)
    return _T95[min(n - 1, len(_T95)) - 1] * float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else None


def interval(value: float, draws_B: np.ndarray, share: bool = False) -> dict[str, float]:
    """Return a value and the central 95 % of its resamples, shifted so that their mean is the value.

    Args:
        value: the metric on the data set
        draws_B: the metric on the resamples; NaN where it is undefined
        share: whether values lie in [0, 1]
    """
    tail = 100 * (1 - CONFIDENCE) / 2
    present_B = draws_B[~np.isnan(draws_B)]
    shifted_B = present_B + (value - present_B.mean()) if len(present_B) else np.array([value])
    low, high = (
        min(float(v), value) if i == 0 else max(float(v), value)
        for i, v in enumerate(np.percentile(shifted_B, [tail, 100 - tail]))
    )
    return {"value": value, "low": max(low, 0.0) if share else low, "high": min(high, 1.0) if share else high}


def sum_interval(gap_X: np.ndarray, draws_BX: np.ndarray, weight_X: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the true sum of absolute gaps, of which that of a sample is too large.

    The sum of a sample contains the noise of every gap, so that resamples around it miss a small true sum. The interval
    has the true sums with which samples exceed this one's sum, and fall below it, in more than 2.5 % of cases, if the
    true gaps are proportional to `weight_X` and their noise is that of the resamples. The sum of the sample may lie
    above it.

    Args:
        gap_X: the gaps of the sample
        draws_BX: those of its resamples
        weight_X: number of boxes of each gap
    """
    noise_BX, share_X = draws_BX - gap_X, weight_X / weight_X.sum()
    found = float(np.abs(gap_X).sum())

    def fitting(quantile: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(12):
            middle = (low + high) / 2
            is_below = np.quantile(np.abs(middle * share_X + noise_BX).sum(axis=1), quantile) < found
            low, high = (middle, high) if is_below else (low, middle)
        return low if low else 0.0

    return fitting((1 + CONFIDENCE) / 2), fitting((1 - CONFIDENCE) / 2)


def draw_weights(images: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the number of times [B, I] that each image is drawn in some resamples, until there are enough."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, _CHUNK):
        drawn = (rng.integers(0, images, images) for _ in range(min(_CHUNK, resamples - start)))
        yield np.stack([np.bincount(chosen, minlength=images) for chosen in drawn])
