"""Transforms of boxes: the order of four numbers, the EXIF orientation of the image, and its resized size.

Shapes: N boxes; corners are x1, y1, x2, y2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Boxes = np.ndarray
"""[N, 4] float64."""


def _from_size(b: Boxes) -> Boxes:
    return np.concatenate([b[:, :2], b[:, :2] + b[:, 2:]], axis=1)


def _from_centre(b: Boxes) -> Boxes:
    return np.concatenate([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], axis=1)


def swap_axes(b: Boxes) -> Boxes:
    """Return the boxes with x and y exchanged.

    Example:
        >>> swap_axes(np.array([[1, 2, 3, 4]])).tolist()
        [[2, 1, 4, 3]]
    """
    return b[:, [1, 0, 3, 2]]


LAYOUTS: dict[str, Callable[[Boxes], Boxes]] = {
    "xyxy": lambda b: b,
    "xywh": _from_size,
    "cxcywh": _from_centre,
    "yxyx": swap_axes,
    "yxhw": lambda b: _from_size(swap_axes(b)),
    "cycxhw": lambda b: _from_centre(swap_axes(b)),
}
"""Functions that convert four numbers in each order to corners."""

FIELDS = {
    "xyxy": "x1, y1, x2, y2",
    "xywh": "x, y, width, height",
    "cxcywh": "centre x, centre y, width, height",
    "yxyx": "y1, x1, y2, x2",
    "yxhw": "y, x, height, width",
    "cycxhw": "centre y, centre x, height, width",
}
"""What the four numbers in each order are, in words."""

TURNS: dict[int, Callable[[Boxes], Boxes]] = {
    1: lambda b: b,
    2: lambda b: np.stack([1 - b[:, 2], b[:, 1], 1 - b[:, 0], b[:, 3]], axis=1),
    3: lambda b: 1 - b[:, [2, 3, 0, 1]],
    4: lambda b: np.stack([b[:, 0], 1 - b[:, 3], b[:, 2], 1 - b[:, 1]], axis=1),
    5: swap_axes,
    6: lambda b: np.stack([1 - b[:, 3], b[:, 0], 1 - b[:, 1], b[:, 2]], axis=1),
    7: lambda b: 1 - b[:, [3, 2, 1, 0]],
    8: lambda b: np.stack([b[:, 1], 1 - b[:, 2], b[:, 3], 1 - b[:, 0]], axis=1),
}
"""Functions that convert corners in [0, 1] of a stored image to those of the upright image, by EXIF orientation."""

INVERSE_TURN = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}
"""The inverse of each orientation."""


def smart_resize(width: int, height: int, *, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Return the size to which a Qwen-VL image processor resizes an image.

    Both sides become multiples of `factor` (28 for Qwen2.5-VL, 32 for Qwen3-VL) whose product lies within the limits.
    Source: `smart_resize` of transformers' `Qwen2VLImageProcessor`.

    Args:
        width: width in pixels
        height: height in pixels
        factor: side in pixels of the square that becomes one token
        min_pixels: smaller images are enlarged
        max_pixels: larger images are reduced

    Example:
        >>> smart_resize(640, 480, factor=28, min_pixels=56 * 56, max_pixels=28 * 28 * 1280)
        (644, 476)
    """
    sides = [max(factor, round(side / factor) * factor) for side in (width, height)]
    if sides[0] * sides[1] > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        sides = [max(factor, math.floor(side / shrink / factor) * factor) for side in (width, height)]
    elif sides[0] * sides[1] < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        sides = [math.ceil(side * grow / factor) * factor for side in (width, height)]
    return sides[0], sides[1]


_LIMITS = {28: 56 * 56, 32: 256 * 256}
_SIDES = (256, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 2048)
_TOKENS = (256, 512, 768, 1024, 1280, 2048, 4096, 16384)
COMMON_INPUTS = tuple(
    (factor, low, high)
    for factor, low in _LIMITS.items()
    for high in sorted({*(side * side for side in _SIDES), *(tokens * factor * factor for tokens in _TOKENS)})
)
"""Common settings of Qwen-VL image processors: side of a token's square, minimum and maximum number of pixels."""

COMMON_SQUARES = (
    *(224, 256, 300, 320, 336, 384, 416, 448, 512, 560, 600),
    *(608, 640, 672, 736, 768, 800, 840, 896, 960, 1120, 1280),
)
"""Sides of the square copies that models are commonly given."""


def resized_sizes(size_B2: np.ndarray, factor: int, min_pixels: int, max_pixels: int) -> np.ndarray:
    """Return `smart_resize` of each row of widths and heights."""
    sizes, index_B = np.unique(size_B2, axis=0, return_inverse=True)
    limits = {"factor": factor, "min_pixels": min_pixels, "max_pixels": max_pixels}
    resized = [smart_resize(int(w), int(h), **limits) for w, h in sizes]
    return np.array(resized, np.float64).reshape(-1, 2)[index_B.reshape(-1)]
