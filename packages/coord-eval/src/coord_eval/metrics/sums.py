"""Weighted sums over images, and ratios of such sums.

Shapes: B weightings, I images, K categories, X counted items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coord_eval.boxes.sorting import stable_order

Measure = Callable[[np.ndarray], Any]
"""Function of integer image weights [B, I]; it returns arrays [B], in dictionaries nested as in `evaluation.json`."""


def weighted(weights_BI: np.ndarray, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the sums over images of named values, [I] or [I, ...], as [B] or [B, ...]."""
    weights = weights_BI.astype(np.float64)
    return {name: np.tensordot(weights, values_I, axes=1) for name, values_I in values.items()}


def ratio(numerator: np.ndarray, denominator: np.ndarray, empty: float = np.nan) -> np.ndarray:
    """Return numerator over denominator, `empty` where the denominator is 0."""
    out = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), empty, np.float64)
    quotient: np.ndarray = np.divide(numerator, denominator, out=out, where=denominator > 0)
    return quotient


def rates(hits: np.ndarray, detections: np.ndarray, objects: np.ndarray, empty: float = 0.0) -> dict[str, np.ndarray]:
    """Return precision, recall and F1 (van Rijsbergen 1979) from counts; `empty` where the denominator is 0."""
    return {
        "precision": ratio(hits, detections, empty),
        "recall": ratio(hits, objects, empty),
        "f1": ratio(2 * hits, detections + objects, empty),
    }


class LabelSums:
    """Number of items, for example objects or hits, of each category under image weights."""

    def __init__(self, category_X: np.ndarray, image_X: np.ndarray, names: int, images: int) -> None:
        cell_X = category_X * images + image_X
        cell_X = cell_X[stable_order(cell_X)]  # faster than `np.unique`
        first = np.flatnonzero(np.diff(cell_X, prepend=-1))
        self._count = np.diff(first, append=len(cell_X))
        category, self._image = np.divmod(cell_X[first], max(images, 1))
        self._start = np.flatnonzero(np.diff(category, prepend=-1))
        self._names, self._present = names, category[self._start]

    def __call__(self, weights_BI: np.ndarray) -> np.ndarray:
        """Return sums [B, K]."""
        sums_BK = np.zeros((len(weights_BI), self._names))
        if len(self._start):
            cells = weights_BI[:, self._image] * self._count
            sums_BK[:, self._present] = np.add.reduceat(cells, self._start, axis=1)
        return sums_BK


def mean_of_present(values_BX: np.ndarray) -> np.ndarray:
    """Return the mean [B] of the values other than NaN; NaN if there are none."""
    flat_BX = values_BX.reshape(len(values_BX), -1)
    is_present_BX = ~np.isnan(flat_BX)
    return ratio(np.where(is_present_BX, flat_BX, 0.0).sum(axis=1), is_present_BX.sum(axis=1))
