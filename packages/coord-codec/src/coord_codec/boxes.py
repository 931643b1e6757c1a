"""Where a box may lie in its image: one rule for every format of annotations."""

from __future__ import annotations

import numbers
from typing import Any, Literal

from coord_codec.files import InputError
from coord_codec.grid import CoordGrid
from coord_codec.tokens import tokens_to_ints

CLIP_PIXELS = 1.0
"""Annotators' boxes overshoot the image by rounding: within this many pixels they are clipped and counted."""

OnBadBox = Literal["drop_image", "drop_box", "error"]
"""What happens to an object that is refused.

`drop_image`: an object that is wrong takes its image along, so that no answer teaches to leave it out; a box that is
too small for the grid is left out alone. `drop_box`: each is left out alone. `error`: each is an error.
"""

_GRID = CoordGrid()


class SmallBoxError(InputError):
    """A box without area, or one whose sides fall into one bin: no answer can show it."""


def place_box(
    corners_xyxy: tuple[float, ...],
    width: float,
    height: float,
    *,
    grid: CoordGrid | None = None,
    slack: tuple[float, float] = (CLIP_PIXELS, CLIP_PIXELS),
) -> tuple[tuple[float, float, float, float], bool]:
    """Return a box as fractions of its image, and whether it was clipped.

    Args:
        corners_xyxy: x1, y1, x2, y2 in pixels, or in any other unit.
        width: of the image in that unit.
        height: of the image in that unit.
        grid: refuse boxes that are thinner than a bin of this grid.
        slack: how far a box may reach out horizontally and vertically to be clipped, in that unit.

    Raises:
        InputError: if corners are swapped, or the box reaches out of its image by more than `slack`.
        SmallBoxError: if it has no area inside its image, or is thinner than a bin.

    Example:
        >>> place_box((20, 10, 100.5, 50), 100, 50)
        ((0.2, 0.2, 1.0, 1.0), True)
    """
    x1, y1, x2, y2 = corners_xyxy
    found = f"({x1:g}, {y1:g}) to ({x2:g}, {y2:g})"
    if x1 > x2 or y1 > y2:
        raise InputError(f"expected x1 < x2 and y1 < y2, found {found}: swapped corners")
    if x1 < -slack[0] or y1 < -slack[1] or x2 > width + slack[0] or y2 > height + slack[1]:
        unit = "pixels" if width > 1 or height > 1 else "in these fractions"
        raise InputError(f"{found} lies outside its image, which is {width:g} x {height:g} {unit}")
    inside = (max(x1, 0.0), max(y1, 0.0), min(x2, width), min(y2, height))
    if inside[0] >= inside[2] or inside[1] >= inside[3]:
        raise SmallBoxError(f"the box has no area: {found}")
    box = (inside[0] / width, inside[1] / height, inside[2] / width, inside[3] / height)
    if grid is not None:
        check_shown(box, grid)
    return box, inside != corners_xyxy


def check_shown(bbox: tuple[float, float, float, float], grid: CoordGrid = _GRID) -> None:
    """Check that the bins of a box have an area.

    Args:
        bbox: x1, y1, x2, y2 in [0, 1].
        grid: the grid of the coordinate tokens.

    Raises:
        SmallBoxError: if two opposite sides fall into one bin.
    """
    x1, y1, x2, y2 = bbox
    if x2 - x1 > 2 / grid.scale and y2 - y1 > 2 / grid.scale:
        return
    x1, y1, x2, y2 = map(grid.quantize, bbox)
    if x1 == x2 or y1 == y2:
        raise SmallBoxError(f"the box is thinner than a bin, which no answer can show: {list(bbox)}")


class Bins(tuple[Any, ...]):
    """A box whose numbers the record calls bins; the box's own check reads it and can name the field."""


def read_box(bbox: Any) -> tuple[float, ...]:
    """Return x1, y1, x2, y2 in [0, 1] of what a record states: numbers, coordinate tokens or `Bins`.

    Raises:
        InputError: corners are swapped.
        SmallBoxError: the box has no area.
        ValueError: anything else is wrong.
    """
    if hasattr(bbox, "tolist"):
        bbox = bbox.tolist()
    if not isinstance(bbox, (list, tuple)) or len(bbox) != 4:
        raise ValueError(f"expected four values x1, y1, x2, y2, found {bbox!r}")
    if all(type(v) is float for v in bbox) and 0 <= bbox[0] < bbox[2] <= 1 and 0 <= bbox[1] < bbox[3] <= 1:
        return tuple(bbox)  # the usual case, which large files have millions of times
    if any(isinstance(v, str) for v in bbox):
        box = tuple(_GRID.dequantize(k) for k in tokens_to_ints(bbox, _GRID))
    elif not all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in bbox):
        raise ValueError(f"expected four numbers or four coordinate tokens, found {list(bbox)!r}")
    elif isinstance(bbox, Bins):
        if any(v % 1 != 0 for v in bbox):  # true for infinity and NaN
            raise ValueError(f"expected whole numbers (coord_space is 'bins'), found {list(bbox)!r}")
        box = tuple(_GRID.dequantize(int(v)) for v in bbox)
    else:
        for value in bbox:
            _GRID.quantize(value)  # raises for what the grid cannot hold
        box = tuple(float(v) for v in bbox)
    x1, y1, x2, y2 = box
    if not (x1 < x2 and y1 < y2):
        kind = InputError if x1 > x2 or y1 > y2 else SmallBoxError
        raise kind(f"expected x1 < x2 and y1 < y2, found {list(bbox)!r}: the box has no area or swapped corners")
    return box


def widened(bbox: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Return a box with an area: a side of length 0 becomes half a bin to either side, within the image."""
    x1, y1, x2, y2 = bbox
    half = 0.5 / _GRID.scale
    if x1 == x2:
        x1, x2 = max(x1 - half, 0.0), min(x2 + half, 1.0)
    if y1 == y2:
        y1, y2 = max(y1 - half, 0.0), min(y2 + half, 1.0)
    return x1, y1, x2, y2
