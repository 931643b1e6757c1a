"""One interpretation of the box numbers of a data set: their order, their unit, and a shift or rotation.

Shapes: I images, N boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coord_codec.layouts import LAYOUTS, TURNS
from coord_data.inspection.numbers.edges import SIGNIFICANT, Sample, is_inside, z_value
from coord_data.inspection.numbers.offsets import TIGHTNESS, Kind, find_offset
from coord_data.raw_boxes import RawBoxes
from coord_data.read_as import Change, Copy, ReadAs

PLAUSIBLE = 0.95
"""Share of boxes that must lie inside their images under the declared meaning; a few bad records are common."""
AS_GOOD = 2.0
"""z of the difference below which two meanings fit equally well."""
_INSIDE = 0.98  # share of boxes that must lie inside their images under an alternative meaning
_REACH, _TINY = 0.35, 0.05  # some box must reach this far into its image, otherwise the unit is too large


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
        boxes_N4: corners in [0, 1]
        inside: share of the boxes that have an area and lie inside their images; 0 if all are tiny
        evidence_I: evidence of each image of the sample, see `EdgeMaps.evidence`
        turn: orientation (numbered as in EXIF) by which the boxes are rotated against the images, 1 for none
        copy: resized copies of the images in whose pixels the numbers are
        shift: correction of the position of all boxes
    """

    layout: str
    unit: str
    boxes_N4: np.ndarray
    inside: float
    evidence_I: np.ndarray
    turn: int = 1
    copy: Copy | None = None
    shift: Shift | None = None

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


def read_as(sample: Sample, layout: str, unit: str, corners_N4: np.ndarray, copy: Copy | None = None) -> Meaning:
    """Return the meaning of corners, with their evidence."""
    inside = 0.0 if is_tiny(corners_N4, _TINY) else float(is_inside(corners_N4).mean())
    return Meaning(layout, unit, corners_N4, inside, sample.evidence(corners_N4), copy=copy)


def turned(meaning: Meaning, turn: int, sample: Sample) -> Meaning:
    """Return the meaning with rotated or mirrored boxes."""
    boxes_N4 = TURNS[turn](meaning.boxes_N4)
    return replace(meaning, turn=turn, boxes_N4=boxes_N4, evidence_I=sample.evidence(boxes_N4))


def fitted(meaning: Meaning, sample: Sample, kinds: Sequence[Kind] = (TIGHTNESS,)) -> Meaning:
    """Return the meaning with its boxes fitted, by their size alone unless told; a wrong size gives little evidence."""
    offset = find_offset(meaning.boxes_N4, sample, kinds)
    if offset is None or (inside := float(is_inside(offset.boxes_N4).mean())) < PLAUSIBLE:
        return meaning
    return replace(meaning, boxes_N4=offset.boxes_N4, inside=inside, evidence_I=sample.evidence(offset.boxes_N4))


def read_corners(raw: RawBoxes, layout: str, divisor_I2: np.ndarray) -> np.ndarray:
    """Return corners in [0, 1] of numbers in the order `layout`, divided by the divisors of their image."""
    corners_N4: np.ndarray = LAYOUTS[layout](raw.numbers_N4) / np.tile(divisor_I2, 2)[raw.image_N]
    return corners_N4


def is_impossible(corners_N4: np.ndarray) -> bool:
    """Return whether too many boxes leave their images, or all of them lie in one corner."""
    return float(is_inside(corners_N4).mean()) < _INSIDE or is_tiny(corners_N4, _REACH)


def is_tiny(corners_N4: np.ndarray, reach: float = _REACH) -> bool:
    """Return whether hardly any box extends beyond the fraction `reach` of its image."""
    return float(np.quantile(corners_N4[:, 2:], 0.99)) < reach


def has_area(corners_N4: np.ndarray) -> bool:
    """Return whether nearly all boxes have a positive area."""
    return float((corners_N4[:, :2] < corners_N4[:, 2:]).all(axis=1).mean()) >= _INSIDE
