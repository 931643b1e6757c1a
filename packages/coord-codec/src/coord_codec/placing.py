"""Places boxes in their images: which boxes are refused, which are clipped, and what they are as fractions.

All formats ask this module, for a few boxes as for millions. Shapes: N boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coord_codec.boxes import CLIP_PIXELS, SmallBoxError, check_shown, surely_shown
from coord_codec.files import InputError
from coord_codec.grid import CoordGrid

CLIPPED = f"boxes clipped by at most {CLIP_PIXELS:g} pixel"
"""Note that counts clipped boxes."""


@dataclass(frozen=True, eq=False)
class Placed:
    """Boxes as fractions of their images.

    Attributes:
        fractions_N4: x1, y1, x2, y2 in [0, 1]; without meaning for a refused box
        clipped_N: whether a box was clipped; False for a refused one
        faults: why a box is refused, by its row, ascending; a `SmallBoxError` if it is only too small
    """

    fractions_N4: np.ndarray
    clipped_N: np.ndarray
    faults: Mapping[int, InputError]


def place(
    boxes_N4: np.ndarray, extent_N2: np.ndarray, slack: Any = CLIP_PIXELS, grid: CoordGrid | None = None
) -> Placed:
    r"""Return boxes as fractions of their images.

    Corners must not be swapped, and a box may extend beyond its image by at most `slack`, and is clipped then. A box
    must have an area inside its image and, with a grid, be no thinner than a bin.

    Args:
        boxes_N4: x1, y1, x2, y2, finite, in pixels or in any other unit
        extent_N2: width and height of each box's image in that unit, above 0
        slack: how far a box may extend beyond its image, in that unit; [N, 2] if it differs
        grid: the grid on which the boxes are written; None if that does not matter

    Example:
        >>> boxes_N4 = np.array([[20, 10, 100.5, 50], [20, 10, 20, 50], [90, 10, 120, 50]])
        >>> placed = place(boxes_N4, np.array([[100, 50]] * 3))
        >>> placed.fractions_N4[0].tolist(), placed.clipped_N.tolist()
        ([0.2, 0.2, 1.0, 1.0], [True, False, False])
        >>> print(*placed.faults.values(), sep="\n")
        the box has no area: (20, 10) to (20, 50)
        (90, 10) to (120, 50) lies outside its image, which is 100 x 50 pixels
    """
    with np.errstate(over="ignore"):  # numbers near the largest one lie outside
        return _placed(boxes_N4, extent_N2, slack, grid)


def _placed(boxes_N4: np.ndarray, extent_N2: np.ndarray, slack: Any, grid: CoordGrid | None) -> Placed:
    low_N2, high_N2 = boxes_N4[:, :2], boxes_N4[:, 2:]
    swapped_N = np.any(low_N2 > high_N2, axis=1)
    outside_N = np.any((low_N2 < -slack) | (high_N2 > extent_N2 + slack), axis=1)
    inside_N4 = np.concatenate([np.maximum(low_N2, 0.0), np.minimum(high_N2, extent_N2)], axis=1)
    empty_N = np.any(inside_N4[:, :2] >= inside_N4[:, 2:], axis=1)
    fractions_N4 = inside_N4 / np.tile(extent_N2, 2)
    refused_N = swapped_N | outside_N | empty_N
    x1_N, y1_N, x2_N, y2_N = fractions_N4.T
    may_be_thin_N = refused_N if grid is None else refused_N | ~surely_shown(x1_N, y1_N, x2_N, y2_N, grid)
    faults: dict[int, InputError] = {}
    for n in np.flatnonzero(may_be_thin_N).tolist():
        x1, y1, x2, y2 = boxes_N4[n].tolist()
        stated = f"({x1:g}, {y1:g}) to ({x2:g}, {y2:g})"
        if swapped_N[n]:
            faults[n] = InputError(f"expected x1 < x2 and y1 < y2, found {stated}: swapped corners")
        elif outside_N[n]:
            width, height = extent_N2[n].tolist()
            unit = "pixels" if width > 1 or height > 1 else "in these fractions"
            faults[n] = InputError(f"{stated} lies outside its image, which is {width:g} x {height:g} {unit}")
        elif empty_N[n]:
            faults[n] = SmallBoxError(f"the box has no area: {stated}")
        elif grid is not None:
            try:
                check_shown(tuple(fractions_N4[n].tolist()), grid)
            except SmallBoxError as error:
                faults[n] = error
    clipped_N = (inside_N4 != boxes_N4).any(axis=1)
    clipped_N[list(faults)] = False
    return Placed(fractions_N4, clipped_N, faults)
