"""Boxes of answers in pixels, from the numbers as they are written.

A number of pixels stays as it stands. A bin, a thousandth or a fraction becomes pixels by one step,
`coord_codec.box_table.to_pixels`; through a share of the image a pixel would come back as 41.00000000000002, and a box
whose IoU is exactly a threshold would miss it.

Shapes: D boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from coord_codec.box_table import PIXEL_DECIMALS, to_pixels

_NOISE = 1e-9
"""Difference in pixels below which a side is one of a few decimals with the noise of a subtraction."""
_CORNERS, _SIDES, _CENTRE = range(3)
"""What the numbers of a box are after x and y: the other corner, or its sides, from the corner or from the centre."""


class WrittenBox(Protocol):
    """A box with its numbers as written, such as `ParsedObject`."""

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The corners in [0, 1]."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers as written, in `order`."""

    @property
    def scale(self) -> tuple[float, float] | None:
        """What they are divided by along x and y to lie in [0, 1]; None if only `box` is known."""

    @property
    def order(self) -> str:
        """An order of `coord_codec.box_transforms`."""

    @property
    def is_box(self) -> bool:
        """Whether the numbers are the four of a box."""


def boxes_in_pixels(items: Sequence[WrittenBox], sides_D2: np.ndarray) -> np.ndarray:
    """Return `x, y, width, height` [D, 4] in pixels.

    Args:
        items: the boxes; swapped corners are sorted, and what lies outside the image is clipped
        sides_D2: width and height in pixels of what each box's numbers refer to

    Example:
        >>> from coord_eval import parse_answer
        >>> answer = parse_answer('[{"bbox_2d": [557, 133, 588, 286], "label": "cup"}]', scale=1000)
        >>> boxes_in_pixels(answer.objects, np.array([[1000.0, 1000.0]])).tolist()
        [[557.0, 133.0, 31.0, 153.0]]
    """
    table = np.array([_row(item) for item in items], np.float64).reshape(-1, 7)
    numbers_D4, scale_D2, form_D = table[:, :4], table[:, 4:6], table[:, 6]
    sides_D4 = np.tile(sides_D2, 2)
    scale_D4: Any = np.tile(scale_D2, 2)
    converted_D4 = to_pixels(numbers_D4, sides_D4, scale_D4)
    # A side of 1 is that of an image of unknown size, of which a millionth is coarse.
    converted_D4 = np.where(sides_D4 == 1, numbers_D4 / scale_D4, converted_D4)
    numbers_D4 = np.where(scale_D4 == sides_D4, numbers_D4, converted_D4)
    low_D2, last_D2 = numbers_D4[:, :2], numbers_D4[:, 2:]
    is_sized_D1 = (form_D != _CORNERS)[:, None]
    if is_sized_D1.any():
        low_D2 = np.where((form_D == _CENTRE)[:, None], np.round(low_D2 - last_D2 / 2, PIXEL_DECIMALS), low_D2)
        last_D2 = np.where(is_sized_D1, low_D2 + last_D2, last_D2)
    inner_D2 = np.clip(np.minimum(low_D2, last_D2), 0, sides_D2)
    length_D2 = without_noise(np.clip(np.maximum(low_D2, last_D2), 0, sides_D2) - inner_D2)
    is_as_written_D2 = is_sized_D1 & (inner_D2 == low_D2) & (last_D2 <= sides_D2)
    return np.concatenate([inner_D2, np.where(is_as_written_D2, numbers_D4[:, 2:], length_D2)], axis=1)


def from_corners(corners_N4: np.ndarray) -> np.ndarray:
    """Return `x, y, width, height` [N, 4] of corners, the sides without the noise of the subtraction."""
    return np.concatenate([corners_N4[:, :2], without_noise(corners_N4[:, 2:] - corners_N4[:, :2])], axis=1)


def without_noise(sides: np.ndarray) -> np.ndarray:
    """Return differences of coordinates without the noise of the subtraction: 50.3 - 10.1 is 40.2."""
    rounded: np.ndarray = np.round(sides, PIXEL_DECIMALS)
    return np.where(np.abs(rounded - sides) < _NOISE, rounded, sides)


def _row(item: WrittenBox) -> tuple[float, ...]:
    """Return four numbers, their scale, and their form."""
    scale = item.scale
    if scale is None or not item.is_box:
        return *item.box, 1.0, 1.0, _CORNERS
    order = item.order
    a, b, c, d = item.numbers
    if order == "xyxy":
        return a, b, c, d, *scale, _CORNERS
    if order == "yxyx":
        return b, a, d, c, *scale, _CORNERS
    if order in ("xywh", "cxcywh"):
        return a, b, c, d, *scale, _SIDES if order == "xywh" else _CENTRE
    return *item.box, 1.0, 1.0, _CORNERS
