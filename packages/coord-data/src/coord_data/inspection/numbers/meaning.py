"""One interpretation of the box numbers of a data set: their order, their unit, and a shift or rotation.

Shapes: I images, N boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coord_codec.box_transforms import LAYOUTS, TURNS
from coord_data.inspection.numbers.edges import SIGNIFICANT, Sample, z_value
from coord_data.inspection.numbers.laid_out import LaidOut, Rows
from coord_data.inspection.numbers.offsets import TIGHTNESS, OffsetKind, find_offset
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import Change, Copy, ReadAs

PLAUSIBLE = 0.95
"""Share of boxes that must lie inside their images under the declared meaning; a few bad records are common."""
AS_GOOD = 2.0
"""z of the difference below which two meanings fit equally well."""
_TINY = 0.05  # some box must reach this far into its image, otherwise the unit is too large


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
        boxes: corners in [0, 1]
        inside: share of the boxes that have an area and lie inside their images; 0 if all are tiny
        evidence_I: evidence of each image of the sample, see `EdgeMaps.evidence`
        turn: orientation (numbered as in EXIF) by which the boxes are rotated against the images, 1 for none
        copy: resized copies of the images in whose pixels the numbers are
        shift: correction of the position of all boxes
        as_good: smallest and largest value of the copy that fit as well; None if it is the only usual one
    """

    layout: str
    unit: str
    boxes: LaidOut
    inside: float
    evidence_I: np.ndarray
    turn: int = 1
    copy: Copy | None = None
    shift: Shift | None = None
    as_good: tuple[float, float] | None = None

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


def read_as(sample: Sample, layout: str, unit: str, boxes: LaidOut, copy: Copy | None = None) -> Meaning:
    """Return the meaning of boxes, with their evidence."""
    inside = 0.0 if boxes.are_tiny(_TINY) else boxes.inside
    return Meaning(layout, unit, boxes, inside, sample.evidence(boxes.of(sample.rows_n)), copy=copy)


def turned(meaning: Meaning, turn: int, sample: Sample) -> Meaning:
    """Return the meaning with rotated or mirrored boxes."""
    boxes = meaning.boxes.moved(TURNS[turn])
    return replace(meaning, turn=turn, boxes=boxes, evidence_I=sample.evidence(boxes.of(sample.rows_n)))


def fitted(meaning: Meaning, sample: Sample, kinds: Sequence[OffsetKind] = (TIGHTNESS,)) -> Meaning:
    """Return the meaning with its boxes fitted, by their size alone unless told; a wrong size gives little evidence."""
    offset = find_offset(meaning.boxes.of(sample.rows_n), sample, kinds)
    if offset is None:
        return meaning
    boxes = meaning.boxes.moved(offset.move)
    if (inside := boxes.inside) < PLAUSIBLE:
        return meaning
    return replace(meaning, boxes=boxes, inside=inside, evidence_I=sample.evidence(boxes.of(sample.rows_n)))


def once(values_I2: np.ndarray) -> np.ndarray:
    """Return values of images as one row if they are the same for all."""
    return values_I2[:1] if (values_I2 == values_I2[:1]).all() else values_I2


def of_boxes(values_I2: np.ndarray, image_N: np.ndarray, rows: Rows) -> np.ndarray:
    """Return the values of the image of each box; one row if they are the same for all images."""
    return values_I2 if len(values_I2) == 1 else values_I2[image_N[rows]]


def numbers_as(raw: RawBoxes, layout: str) -> LaidOut:
    """Return corners of numbers in the order `layout`, in their unit."""
    return LaidOut(lambda rows: LAYOUTS[layout](raw.numbers_N4[rows]), len(raw))


def corners_as(raw: RawBoxes, layout: str, divisor_I2: np.ndarray) -> LaidOut:
    """Return corners in [0, 1] of numbers in the order `layout`, divided by the divisors of their image."""

    def of(rows: Rows) -> np.ndarray:
        divisor_n2 = of_boxes(divisor_I2, raw.image_N, rows)
        corners_n4: np.ndarray = LAYOUTS[layout](raw.numbers_N4[rows]) / np.tile(divisor_n2, 2)
        return corners_n4

    return LaidOut(of, len(raw))
