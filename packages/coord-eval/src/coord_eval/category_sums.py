"""Sums by category of what is counted in pictures, for any weighting of the pictures.

Shape legend: B weightings, I images, K categories, X things that are counted.
"""

from __future__ import annotations

import numpy as np


class CategorySums:
    """How many of some things, objects or hits, each category has."""

    def __init__(self, category_X: np.ndarray, image_X: np.ndarray, names: int, images: int) -> None:
        """Count things once, by category and picture.

        Args:
            category_X: Category of each thing.
            image_X: Its picture.
            names: Number of categories.
            images: Number of pictures.
        """
        cells, self._count = np.unique(category_X * images + image_X, return_counts=True)
        self._names, self._image = names, cells % max(images, 1)
        self._present, self._start = np.unique(cells // max(images, 1), return_index=True)

    def __call__(self, weights_BI: np.ndarray) -> np.ndarray:
        """Return sums [B, K] where each picture counts as often as its weight says."""
        sums_BK = np.zeros((len(weights_BI), self._names))
        if len(self._start):
            cells = weights_BI[:, self._image] * self._count
            sums_BK[:, self._present] = np.add.reduceat(cells, self._start, axis=1)
        return sums_BK
