"""One interpretation of the box numbers of a data set: their order, their unit, and a shift or rotation.

Shapes: I images, N boxes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

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
        lay_out: computes the boxes; those of many meanings at a time would fill the memory
        inside: share of the boxes that have an area and lie inside their images; 0 if all are tiny
        evidence_I: evidence of each image of the sample, see `EdgeMaps.evidence`
        turn: orientation (numbered as in EXIF) by which the boxes are rotated against the images, 1 for none
        copy: resized copies of the images in whose pixels the numbers are
        shift: correction of the position of all boxes
        as_good: smallest and largest value of the copy that fit as well; None if it is the only usual one
    """

    layout: str
    unit: str
    lay_out: Callable[[], np.ndarray]
    inside: float
    evidence_I: np.ndarray
    turn: int = 1
    copy: Copy | None = None
    shift: Shift | None = None
    as_good: tuple[float, float] | None = None

    @property
    def boxes_N4(self) -> np.ndarray:  # noqa: N802
        """Corners in [0, 1]."""
        return self.lay_out()

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


def read_as(
    sample: Sample, layout: str, unit: str, lay_out: Callable[[], np.ndarray], copy: Copy | None = None
) -> Meaning:
    """Return the meaning of corners, with their evidence."""
    corners_N4 = lay_out()
    inside = 0.0 if is_tiny(corners_N4[:, 2:], reach=_TINY) else float(is_inside(corners_N4).mean())
    return Meaning(layout, unit, lay_out, inside, sample.evidence(corners_N4), copy=copy)


def turned(meaning: Meaning, turn: int, sample: Sample) -> Meaning:
    """Return the meaning with rotated or mirrored boxes."""

    def lay_out() -> np.ndarray:
        return TURNS[turn](meaning.boxes_N4)

    return replace(meaning, turn=turn, lay_out=lay_out, evidence_I=sample.evidence(lay_out()))


def fitted(meaning: Meaning, sample: Sample, kinds: Sequence[Kind] = (TIGHTNESS,)) -> Meaning:
    """Return the meaning with its boxes fitted, by their size alone unless told; a wrong size gives little evidence."""
    boxes_N4 = meaning.boxes_N4
    own_n4 = boxes_N4[sample.rows_n]
    offset = find_offset(own_n4, sample.alone, kinds)
    if offset is None:
        return meaning
    starts = range(0, len(boxes_N4), _AT_ONCE)
    count = sum(int(is_inside(offset.move(boxes_N4[start : start + _AT_ONCE])).sum()) for start in starts)
    if (inside := count / len(boxes_N4)) < PLAUSIBLE:
        return meaning
    evidence_I = sample.alone.evidence(offset.move(own_n4))
    return replace(meaning, lay_out=lambda: offset.move(meaning.boxes_N4), inside=inside, evidence_I=evidence_I)


def laid_out(raw: RawBoxes, layout: str) -> np.ndarray:
    """Return columns of the corners, [4, N], of numbers in the order `layout`, in their unit."""
    corners_4N = np.empty(raw.numbers_N4.T.shape)
    for start in range(0, len(raw), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        corners_4N[:, rows] = LAYOUTS[layout](raw.numbers_N4[rows]).T
    return corners_4N


def read_corners(raw: RawBoxes, layout: str, divisor_I2: np.ndarray) -> np.ndarray:
    """Return corners in [0, 1] of numbers in the order `layout`, divided by the divisors of their image."""
    corners_4N = laid_out(raw, layout)
    for k in range(4):
        corners_4N[k] /= divisor_I2[:, k % 2][raw.image_N]
    return corners_4N.T


def is_impossible(corners_N4: np.ndarray) -> bool:
    """Return whether too many boxes leave their images, or all of them lie in one corner."""
    return is_impossible_along((corners_N4[:, axis], corners_N4[:, axis + 2]) for axis in range(2))


def is_impossible_along(axes: Iterable[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Return what `is_impossible` does, from where the boxes begin and end along each axis."""
    inside: np.ndarray | bool = True
    ends = []
    for low_N, high_N in axes:
        inside = inside & is_inside_along(low_N, high_N)
        if is_mostly_outside(np.asarray(inside)):
            return True
        ends.append(high_N)
    return is_tiny(*ends)


def is_mostly_outside(inside_N: np.ndarray) -> bool:
    """Return whether so many boxes leave their images that the reading is impossible."""
    return float(inside_N.mean()) < _INSIDE


def is_tiny(*ends: np.ndarray, reach: float = _REACH) -> bool:
    """Return whether hardly any box, of those that end at these fractions of the image, extends beyond `reach`."""
    surely = is_surely_tiny(sum(count_tiny(end, reach) for end in ends), sum(end.size for end in ends))
    return float(np.quantile(np.concatenate(ends), _TINY_SHARE)) < reach if surely is None else surely


def count_tiny(ends: np.ndarray, reach: float = _REACH) -> int:
    """Return how many boxes end before `reach`."""
    return int(np.count_nonzero(ends < reach))


def is_surely_tiny(tiny: int, count: int) -> bool | None:
    """Return what `is_tiny` does if `tiny` of `count` ends lie before the bound; None if it takes the ends to tell."""
    place = _TINY_SHARE * (count - 1)
    if tiny > math.ceil(place) + 1:
        return True
    return False if tiny < math.floor(place) else None


def has_area(corners_N4: np.ndarray) -> bool:
    """Return whether nearly all boxes have a positive area."""
    return float((corners_N4[:, :2] < corners_N4[:, 2:]).all(axis=1).mean()) >= _INSIDE
