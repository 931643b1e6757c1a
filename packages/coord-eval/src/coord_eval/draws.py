"""Resamples of the images, and the interval that they give; see `bootstrap`.

Shapes: B resamples, I images.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

CONFIDENCE = 0.95
_CHUNK = 16
"""Number of resamples that are computed together."""


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


def draw_weights(images: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the number of times [B, I] that each image is drawn in some resamples, until there are enough."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, _CHUNK):
        drawn = (rng.integers(0, images, images) for _ in range(min(_CHUNK, resamples - start)))
        yield np.stack([np.bincount(chosen, minlength=images) for chosen in drawn])
