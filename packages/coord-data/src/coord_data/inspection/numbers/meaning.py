"""One interpretation of the box numbers of a data set: their order, their unit, and a shift or rotation.

Shapes: I images, N boxes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from coord_codec.layouts import LAYOUTS, TURNS
from coord_data.inspection.numbers.edges import SIGNIFICANT, Sample, is_inside, is_inside_along, z_value
from coord_data.inspection.numbers.offsets import TIGHTNESS, Kind, find_offset
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import Change, Copy, ReadAs

PLAUSIBLE = 0.95
"""Share of boxes that must lie inside their images under the declared meaning; a few bad records are common."""
AS_GOOD = 2.0
"""z of the difference below which two meanings fit equally well."""
_INSIDE = 0.98  # share of boxes that must lie inside their images under an alternative meaning
_REACH, _TINY = 0.35, 0.05  # some box must reach this far into its image, otherwise the unit is too large
_AT_ONCE = 1 << 16  # boxes that are laid out together: copies of all of them would take the most memory
_TINY_SHARE = 0.99  # share of the ends of boxes that lie nearer

Rows = slice | np.ndarray
"""Some boxes of a set: a range, or indices."""
LayOut = Callable[[Rows], np.ndarray]
"""Returns the corners in [0, 1] of some boxes."""
Axes = Iterable[tuple[np.ndarray, np.ndarray]]
"""Where boxes begin and end along each axis."""


@dataclass(frozen=True)
class Shift:
    """A correction that is added to all boxes.

    Attributes:
        x: offset of x, in pixels or as a fraction of the width
        y: offset of y, in pixels or as a fraction of the height
        in_pixels: whether the offsets are in pixels, the same in every image
    """

    x: float
    y: float
    in_pixels: bool

    @property
    def changes(self) -> tuple[Change, ...]:
        """What has been done to boxes that this shift corrects."""
        directions = (
            # A positive correction of x means that boxes lie too far left.
            (self.x, "moved-left" if self.x > 0 else "moved-right"),
            (self.y, "moved-up" if self.y > 0 else "moved-down"),
        )
        return tuple(Change(name, abs(value), self.in_pixels) for value, name in directions if value)


TURNED = {
    2: Change("mirrored"),
    3: Change("rotated", 180),
    4: Change("upside-down"),
    6: Change("rotated", 90),
    8: Change("rotated", 270),
}
"""What has been done to boxes that an orientation, numbered as in EXIF, corrects."""


@dataclass(frozen=True)
class Meaning:
    """One interpretation of the box numbers.

    Attributes:
        layout: order of the four numbers, a key of `LAYOUTS`
        unit: `pixels` of the files, `stated` pixels, `unit`, `percent`, `norm1000`, or `copy`
        lay_out: computes some of the boxes; all those of a meaning, or of several, would fill the memory
        inside: share of the boxes that have an area and lie inside their images; 0 if all are tiny
        evidence_I: evidence of each image of the sample, see `EdgeMaps.evidence`
        turn: orientation (numbered as in EXIF) by which the boxes are rotated against the images, 1 for none
        copy: resized copies of the images in whose pixels the numbers are
        shift: correction of the position of all boxes
        as_good: smallest and largest value of the copy that fit as well; None if it is the only usual one
    """

    layout: str
    unit: str
    lay_out: LayOut
    inside: float
    evidence_I: np.ndarray
    turn: int = 1
    copy: Copy | None = None
    shift: Shift | None = None
    as_good: tuple[float, float] | None = None

    @property
    def boxes_N4(self) -> np.ndarray:  # noqa: N802
        """Corners in [0, 1] of all boxes."""
        return self.lay_out(slice(None))

    @property
    def read_as(self) -> ReadAs:
        """The reading that gives these boxes."""
        changes = self.shift.changes if self.shift else ()
        turn = (TURNED[self.turn],) if self.turn != 1 else ()
        return ReadAs(self.layout, self.copy or self.unit, (*changes, *turn))

    @property
    def z(self) -> float:
        """Significance of the evidence that the boxes fit the pixels."""
        return z_value(self.evidence_I)

    def above(self, other: Meaning) -> float:
        """Return z of the evidence for this meaning over another one, paired by image."""
        return z_value(self.evidence_I - other.evidence_I)

    def beats(self, other: Meaning, threshold: float) -> bool:
        """Return whether the boxes of this meaning fit the pixels clearly, and better than those of another one.

        Boxes outside their images give no evidence. If the other meaning has many of them, it is enough that its
        remaining boxes show no clear evidence, or that this meaning fits better on their images.
        """
        if self.z < threshold:
            return False
        if other.inside >= PLAUSIBLE:
            return self.above(other) >= SIGNIFICANT
        return other.z < SIGNIFICANT or self.above(other) >= AS_GOOD


def read_as(sample: Sample, layout: str, unit: str, lay_out: LayOut, count: int, copy: Copy | None = None) -> Meaning:
    """Return the meaning of the corners of so many boxes, with their evidence."""
    inside = float(is_inside_of(lay_out, count).mean())
    if inside and is_tiny(partial(ends_of, lay_out, count), _TINY):
        inside = 0.0
    return Meaning(layout, unit, lay_out, inside, sample.evidence(lay_out(sample.rows_n)), copy=copy)


def turned(meaning: Meaning, turn: int, sample: Sample) -> Meaning:
    """Return the meaning with rotated or mirrored boxes."""

    def lay_out(rows: Rows) -> np.ndarray:
        return TURNS[turn](meaning.lay_out(rows))

    return replace(meaning, turn=turn, lay_out=lay_out, evidence_I=sample.evidence(lay_out(sample.rows_n)))


def fitted(meaning: Meaning, sample: Sample, count: int, kinds: Sequence[Kind] = (TIGHTNESS,)) -> Meaning:
    """Return the meaning with its boxes fitted, by their size alone unless told; a wrong size gives little evidence."""
    offset = find_offset(meaning.lay_out(sample.rows_n), sample, kinds)
    if offset is None:
        return meaning

    def lay_out(rows: Rows) -> np.ndarray:
        return offset.move(meaning.lay_out(rows))

    inside = float(is_inside_of(lay_out, count).mean())
    if inside < PLAUSIBLE:
        return meaning
    return replace(meaning, lay_out=lay_out, inside=inside, evidence_I=sample.evidence(lay_out(sample.rows_n)))


def blocks(count: int) -> Iterator[slice]:
    """Yield ranges of boxes that are laid out together."""
    return (slice(start, min(start + _AT_ONCE, count)) for start in range(0, count, _AT_ONCE))


def is_inside_of(lay_out: LayOut, count: int, margin: float = 0.01) -> np.ndarray:
    """Return which of so many boxes have a positive area and lie inside the image."""
    return np.concatenate([np.zeros(0, bool), *(is_inside(lay_out(rows), margin) for rows in blocks(count))])


def once(values_I2: np.ndarray) -> np.ndarray:
    """Return values of images as one row if they are the same for all."""
    return values_I2[:1] if (values_I2 == values_I2[:1]).all() else values_I2


def of_boxes(values_I2: np.ndarray, image_N: np.ndarray, rows: Rows) -> np.ndarray:
    """Return the values of the image of each box; one row if they are the same for all images."""
    return values_I2 if len(values_I2) == 1 else values_I2[image_N[rows]]


def laid_out(raw: RawBoxes, layout: str, rows: Rows) -> np.ndarray:
    """Return corners of numbers in the order `layout`, in their unit."""
    return LAYOUTS[layout](raw.numbers_N4[rows])


def read_corners(raw: RawBoxes, layout: str, divisor_I2: np.ndarray, rows: Rows) -> np.ndarray:
    """Return corners in [0, 1] of numbers in the order `layout`, divided by the divisors of their image."""
    corners_n4: np.ndarray = laid_out(raw, layout, rows) / np.tile(of_boxes(divisor_I2, raw.image_N, rows), 2)
    return corners_n4


def is_impossible(lay_out: LayOut, count: int) -> bool:
    """Return whether too many boxes leave their images, or all of them lie in one corner."""

    def axes_of(rows: slice) -> Callable[[int], Axes]:
        corners_4n = np.ascontiguousarray(lay_out(rows).T)
        return lambda _: ((corners_4n[axis], corners_4n[axis + 2]) for axis in range(2))

    return not are_possible(1, count, axes_of)[0]


def are_possible(candidates: int, count: int, lay_out: Callable[[slice], Callable[[int], Axes]]) -> list[bool]:
    """Return under which candidates nearly all boxes lie inside their images, and not all in one corner.

    Args:
        candidates: their number
        count: number of boxes
        lay_out: returns, for a range of boxes, a function of where they begin and end along each axis under a candidate
    """
    inside_K, tiny_K = np.full(candidates, count), np.zeros(candidates, np.int64)
    for rows in blocks(count):
        axes_of = lay_out(rows)
        for k in np.flatnonzero(~is_mostly_outside(inside_K, count)).tolist():
            (left_n, right_n), (upper_n, lower_n) = axes_of(k)
            inside_n = is_inside_along(left_n, right_n) & is_inside_along(upper_n, lower_n)
            inside_K[k] -= len(inside_n) - np.count_nonzero(inside_n)
            tiny_K[k] += count_tiny(right_n) + count_tiny(lower_n)
    possible = list[bool]()
    for k, mostly_outside in enumerate(is_mostly_outside(inside_K, count).tolist()):

        def ends(k: int = k) -> Iterator[np.ndarray]:
            return (high_n for rows in blocks(count) for _, high_n in lay_out(rows)(k))

        possible.append(not mostly_outside and not is_tiny_share(int(tiny_K[k]), 2 * count, ends))
    return possible


def is_mostly_outside(inside_K: np.ndarray, count: int) -> np.ndarray:
    """Return whether so few of all boxes lie inside their images under a candidate that it is impossible."""
    outside_K: np.ndarray = inside_K / count < _INSIDE
    return outside_K


def is_tiny(ends: Callable[[], Iterable[np.ndarray]], reach: float = _REACH) -> bool:
    """Return whether hardly any box, of those that end at these fractions of the image, extends beyond `reach`."""
    counts = [(count_tiny(end, reach), end.size) for end in ends()]
    return is_tiny_share(sum(tiny for tiny, _ in counts), sum(size for _, size in counts), ends, reach)


def is_tiny_share(tiny: int, count: int, ends: Callable[[], Iterable[np.ndarray]], reach: float = _REACH) -> bool:
    """Return what `is_tiny` does if `tiny` of `count` ends lie before `reach`; few counts take the ends to tell."""
    place = _TINY_SHARE * (count - 1)
    if not math.floor(place) <= tiny <= math.ceil(place) + 1:
        return tiny > place
    ends_n = np.concatenate([end.ravel() for end in ends()])
    return float(np.quantile(ends_n, _TINY_SHARE, overwrite_input=True)) < reach


def count_tiny(ends: np.ndarray, reach: float = _REACH) -> int:
    """Return how many boxes end before `reach`."""
    return int(np.count_nonzero(ends < reach))


def has_area(lay_out: LayOut, count: int) -> bool:
    """Return whether nearly all boxes have a positive area."""
    corners = (lay_out(rows) for rows in blocks(count))
    return sum(int((c_n4[:, :2] < c_n4[:, 2:]).all(axis=1).sum()) for c_n4 in corners) / count >= _INSIDE


def ends_of(lay_out: LayOut, count: int) -> Iterator[np.ndarray]:
    """Yield where boxes end."""
    return (lay_out(rows)[:, 2:] for rows in blocks(count))


def reach_of(lay_out: LayOut, count: int) -> float:
    """Return up to where nearly all boxes reach."""
    return float(np.quantile(np.concatenate([*ends_of(lay_out, count)]).ravel(), 0.995, overwrite_input=True))
