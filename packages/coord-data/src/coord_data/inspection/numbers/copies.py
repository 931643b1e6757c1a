"""Resized copies of the images on which boxes may have been annotated.

Shapes: I images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["times", "square", "padded", "longer", "area"]
KINDS: tuple[Kind, ...] = ("times", "square", "padded", "longer", "area")
OF_ONE_SIZE = 3
"""Number of these kinds, from the first, that differ if all images have the same size."""
_FRACTIONS = 10
"""Side below which numbers are fractions of an image instead of pixels."""


@dataclass(frozen=True)
class Copy:
    """Size of resized copies of all images.

    Attributes:
        kind: meaning of `value`: factor `times` the size of the files; side of a `square` that each image fills; side
            of a `padded` square with the image at its centre; `longer` side; or side of a square of the same `area`
        value: the factor, or the side in pixels
    """

    kind: Kind
    value: float

    @property
    def words(self) -> str:
        """Description of the copies for messages.

        Example:
            >>> Copy("square", 640).words, Copy("square", 1.25).words
            ('640 x 640 pixels', '1.25 times the fractions of the images')
        """
        if self.kind == "padded" and self.value == 1:
            return "a square with the image at its centre"
        if self.kind == "times":
            return f"{self.value:.3g} times the size of the files"
        if self.value < _FRACTIONS:
            return f"{self.value:.3g} times the fractions of the images"
        side = f"{self.value:.0f}"
        return {
            "square": f"{side} x {side} pixels",
            "padded": f"a square of {side} pixels with the image at its centre",
            "longer": f"a longer side of {side} pixels",
            "area": f"an area of {side} x {side} pixels",
        }[self.kind]

    def sizes(self, sizes_I2: np.ndarray) -> np.ndarray:
        """Return width and height of the images inside the copies, without padding.

        Example:
            >>> Copy("longer", 320).sizes(np.array([[640.0, 480.0]])).tolist()
            [[320.0, 240.0]]
        """
        if self.kind == "square":
            return np.full_like(sizes_I2, self.value)
        divisor = {
            "times": 1.0,
            "padded": sizes_I2.max(axis=1, keepdims=True),
            "longer": sizes_I2.max(axis=1, keepdims=True),
            "area": np.sqrt(sizes_I2.prod(axis=1, keepdims=True)),
        }[self.kind]
        sizes: np.ndarray = sizes_I2 * self.value / divisor
        return sizes
