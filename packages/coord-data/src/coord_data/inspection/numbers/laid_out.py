"""Boxes of a set under a reading of their numbers, laid out a range at a time: all at once they would fill the memory.

Shapes: N boxes, n boxes of a range, K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from coord_data.inspection.numbers.edges import is_inside, is_inside_along

Rows = slice | np.ndarray
"""Some boxes of a set: a range, or indices."""
Axes = Iterable[tuple[np.ndarray, np.ndarray]]
"""Where boxes begin and end along each axis."""
_AT_ONCE = 1 << 16  # boxes of a range
_INSIDE = 0.98  # share of boxes that must lie inside their images under an alternative meaning
_REACH = 0.35  # some box must reach this far into its image, otherwise the unit is too large
_TINY_SHARE = 0.99  # share of the ends of boxes that lie nearer
_FAR = 0.995  # share of the ends of boxes that do not count as strays


@dataclass(frozen=True)
class LaidOut:
    """Corners of the boxes of a set.

    Attributes:
        of: returns the corners of some boxes, [n, 4]
        count: number of all boxes
    """

    of: Callable[[Rows], np.ndarray]
    count: int

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> LaidOut:
        """Return the boxes after a move."""
        return LaidOut(lambda rows: move(self.of(rows)), self.count)

    def ranges(self) -> Iterator[np.ndarray]:
        """Yield the corners of all boxes, a range at a time."""
        return map(self.of, ranges(self.count))

    def ends(self) -> Iterator[np.ndarray]:
        """Yield where all boxes end, a range at a time."""
        return (corners_n4[:, 2:] for corners_n4 in self.ranges())

    def are_inside(self, margin: float = 0.01) -> np.ndarray:
        """Return which boxes have a positive area and lie inside the image."""
        return np.concatenate([np.zeros(0, bool), *(is_inside(corners_n4, margin) for corners_n4 in self.ranges())])

    @property
    def inside(self) -> float:
        """Share of the boxes that have a positive area and lie inside the image."""
        return float(self.are_inside().mean())

    @property
    def far(self) -> float:
        """Up to where nearly all boxes reach."""
        ends_N2 = np.empty((self.count, 2))
        for rows in ranges(self.count):
            ends_N2[rows] = self.of(rows)[:, 2:]
        return float(np.quantile(ends_N2.ravel(), _FAR, overwrite_input=True))

    @property
    def have_area(self) -> bool:
        """Whether nearly all boxes have a positive area."""
        counts = [int((low_high[:, :2] < low_high[:, 2:]).all(axis=1).sum()) for low_high in self.ranges()]
        return sum(counts) / self.count >= _INSIDE

    @property
    def is_impossible(self) -> bool:
        """Whether too many boxes leave their images, or all of them lie in one corner."""

        def axes_of(rows: slice) -> Callable[[int], Axes]:
            corners_4n = np.ascontiguousarray(self.of(rows).T)
            return lambda _: ((corners_4n[axis], corners_4n[axis + 2]) for axis in range(2))

        return not are_possible(1, self.count, axes_of)[0]

    def are_tiny(self, reach: float = _REACH) -> bool:
        """Return whether hardly any box extends beyond `reach`, as a fraction of its image."""
        tiny = sum(count_tiny(ends_n2, reach) for ends_n2 in self.ends())
        return is_tiny(tiny, 2 * self.count, self.ends, reach)


def ranges(count: int) -> Iterator[slice]:
    """Yield the ranges of so many boxes that are laid out at a time."""
    return (slice(start, min(start + _AT_ONCE, count)) for start in range(0, count, _AT_ONCE))


def are_possible(candidates: int, count: int, lay_out: Callable[[slice], Callable[[int], Axes]]) -> list[bool]:
    """Return under which candidates nearly all boxes lie inside their images, and not all in one corner.

    Args:
        candidates: their number
        count: number of boxes
        lay_out: returns, for a range of boxes, a function of where they begin and end along each axis under a candidate
    """
    inside_K, tiny_K = np.full(candidates, count), np.zeros(candidates, np.int64)
    for rows in ranges(count):
        axes_of = lay_out(rows)
        for k in np.flatnonzero(~are_mostly_outside(inside_K, count)).tolist():
            (left_n, right_n), (upper_n, lower_n) = axes_of(k)
            inside_n = is_inside_along(left_n, right_n) & is_inside_along(upper_n, lower_n)
            inside_K[k] -= len(inside_n) - np.count_nonzero(inside_n)
            tiny_K[k] += count_tiny(right_n) + count_tiny(lower_n)

    def ends(k: int) -> Iterator[np.ndarray]:
        return (high_n for rows in ranges(count) for _, high_n in lay_out(rows)(k))

    possible_K = ~are_mostly_outside(inside_K, count)
    return [bool(possible_K[k]) and not is_tiny(int(tiny_K[k]), 2 * count, partial(ends, k)) for k in range(candidates)]


def are_mostly_outside(inside_K: np.ndarray, count: int) -> np.ndarray:
    """Return whether so few of all boxes lie inside their images under a candidate that it is impossible."""
    outside_K: np.ndarray = inside_K / count < _INSIDE
    return outside_K


def count_tiny(ends_n: np.ndarray, reach: float = _REACH) -> int:
    """Return how many boxes end before `reach`."""
    return int(np.count_nonzero(ends_n < reach))


def is_tiny(tiny: int, count: int, ends: Callable[[], Iterable[np.ndarray]], reach: float = _REACH) -> bool:
    """Return whether nearly all of `count` ends of boxes, of which `tiny` do, lie before `reach`.

    Only where that is close it takes the ends themselves, to interpolate between them.
    """
    place = _TINY_SHARE * (count - 1)
    if not math.floor(place) <= tiny <= math.ceil(place) + 1:
        return tiny > place
    ends_n = np.concatenate([end.ravel() for end in ends()])
    return float(np.quantile(ends_n, _TINY_SHARE, overwrite_input=True)) < reach
