"""Validation and clipping of boxes, shared by all annotation formats."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, Literal

from coord_codec.arguments import plain
from coord_codec.files import InputError
from coord_codec.grid import CoordGrid
from coord_codec.tokens import tokens_to_ints

CLIP_PIXELS = 1.0
"""Boxes that extend beyond their image by at most this many pixels, as rounding causes, are clipped and counted."""

OnBadBox = Literal["drop_image", "drop_box", "error"]
"""How to treat objects that are refused.

`drop_image`: leave out the whole image of an invalid object, so that no target teaches the model to skip an object; of
a box that is too small for the grid leave out the object only. `drop_box`: leave out the object only. `error`: raise.
"""

_GRID = CoordGrid()


class SmallBoxError(InputError):
    """A box of zero area, or with two opposite sides in one bin, which no answer can represent."""


def check_shown(bbox: tuple[float, float, float, float], grid: CoordGrid = _GRID) -> None:
    """Check that a box still has an area after quantisation."""
    x1, y1, x2, y2 = bbox
    if surely_shown(x1, y1, x2, y2, grid):
        return
    x1, y1, x2, y2 = map(grid.quantize, bbox)
    if x1 == x2 or y1 == y2:
        raise SmallBoxError(f"the box is thinner than a bin, which no answer can show: {list(bbox)}")


def surely_shown(x1: Any, y1: Any, x2: Any, y2: Any, grid: CoordGrid = _GRID) -> Any:
    """Return whether opposite sides are more than two bins apart, so that no two of them fall into one bin.

    The sides may be numbers or arrays of them.
    """
    return (x2 - x1 > 2 / grid.scale) & (y2 - y1 > 2 / grid.scale)


class Bins(tuple[Any, ...]):
    """A box in bins; marking it lets the validator of `Object.bbox` convert it and name the field in errors."""


def read_box(bbox: Any) -> tuple[float, ...]:
    """Return x1, y1, x2, y2 in [0, 1] for the box of a record: numbers, coordinate tokens or `Bins`.

    Raises:
        InputError: if corners are swapped
        SmallBoxError: if the box has no area
        ValueError: if the box is invalid for another reason
    """
    if type(bbox) is list and len(bbox) == 4:  # fast path for the usual case: large files have millions of boxes
        x1, y1, x2, y2 = bbox
        if type(x1) is type(y1) is type(x2) is type(y2) is float and 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1:
            return x1, y1, x2, y2
    bbox = plain(bbox)
    if not isinstance(bbox, (list, tuple)) or len(bbox) != 4:
        raise ValueError(f"expected four values x1, y1, x2, y2, found {bbox!r:.200}")
    if any(isinstance(v, str) for v in bbox):
        box = tuple(_GRID.dequantize(k) for k in tokens_to_ints(bbox, _GRID))
    elif not all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in bbox):
        raise ValueError(f"expected four numbers or four coordinate tokens, found {list(bbox)!r:.200}")
    elif isinstance(bbox, Bins):
        if any(v % 1 != 0 for v in bbox):  # true for infinity and NaN
            raise ValueError(f"expected whole numbers (coord_space is 'bins'), found {list(bbox)!r}")
        box = tuple(_GRID.dequantize(int(v)) for v in bbox)
    else:
        for value in bbox:
            _GRID.quantize(value)  # raises an error for values outside [0, 1]
        box = tuple(float(v) for v in bbox)
    check_corners(box, bbox)
    return box


def check_corners(box: Sequence[float], stated: Sequence[Any]) -> None:
    """Check that x1 < x2 and y1 < y2."""
    x1, y1, x2, y2 = box
    if not (x1 < x2 and y1 < y2):
        message = f"expected x1 < x2 and y1 < y2, found {list(stated)!r}: the box has no area or swapped corners"
        raise InputError(message) if x1 > x2 or y1 > y2 else SmallBoxError(message)


def widened(bbox: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Return a box with an area: sides of length 0 are widened by half a bin in both directions, within the image."""
    x1, y1, x2, y2 = bbox
    x, y = (0.5 / _GRID.scale if low == high else 0.0 for low, high in ((x1, x2), (y1, y2)))
    return max(x1 - x, 0.0), max(y1 - y, 0.0), min(x2 + x, 1.0), min(y2 + y, 1.0)
