"""Sizes that images may have had when they were annotated.

Shapes: I images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["times", "square", "padded", "longer", "area"]
KINDS: tuple[Kind, ...] = ("times", "square", "padded", "longer", "area")
OF_ONE_SIZE = 3
"""How many of these differ where all images have the same size."""
_FRACTIONS = 10
"""Sides below which numbers are no pixels, but fractions of an image."""


@dataclass(frozen=True)
class Copy:
    """Copies of all images.

    Attributes:
        kind: `times` the size of the files; a `square` that each image fills; a square that is `padded`, with the image
            in its middle; a `longer` side; or the side of a square of the same `area`
        value: the factor, or the side in pixels
    """

    kind: Kind
    value: float

    @property
    def words(self) -> str:
        """The copies in words.

        Example:
            >>> Copy("square", 640).words, Copy("square", 1.25).words
            ('640 x 640 pixels', '1.25 times the fractions of the images')
        """
        if self.kind == "padded" and self.value == 1:
            return "a square with the image in its middle"
        if self.kind == "times":
            return f"{self.value:.3g} times the size of the files"
        if self.value < _FRACTIONS:
            return f"{self.value:.3g} times the fractions of the images"
        side = f"{self.value:.0f}"
        return {
            "square": f"{side} x {side} pixels",
            "padded": f"a square of {side} pixels with the image in its middle",
            "longer": f"a longer side of {side} pixels",
            "area": f"an area of {side} x {side} pixels",
        }[self.kind]

    def sizes(self, sizes_I2: np.ndarray) -> np.ndarray:
        """Return width and height that the images have in the copies, without padding.

        Example:
            >>> Copy("longer", 320).sizes(np.array([[640.0, 480.0]])).tolist()
            [[320.0, 240.0]]
        """
        if self.kind == "square":
            return np.full_like(sizes_I2, self.value)
        whole = {
            "times": 1.0,
            "padded": sizes_I2.max(axis=1, keepdims=True),
            "longer": sizes_I2.max(axis=1, keepdims=True),
            "area": np.sqrt(sizes_I2.prod(axis=1, keepdims=True)),
        }[self.kind]
        sizes: np.ndarray = sizes_I2 * self.value / whole
        return sizes
