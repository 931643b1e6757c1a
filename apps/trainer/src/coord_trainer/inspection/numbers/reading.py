"""One reading of the numbers of a set: their order, their unit, and what moves their boxes.

Shapes: I images, N boxes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coord_eval.diagnosis import LAYOUTS, TURNS
from coord_trainer.inspection.numbers.copies import Copy
from coord_trainer.inspection.numbers.edges import STANDS_OUT, Sample, is_inside, z_value
from coord_trainer.inspection.numbers.offsets import TIGHTNESS, find_offset
from coord_trainer.inspection.numbers.raw import RawBoxes

PLAUSIBLE = 0.95
"""Share of boxes inside their images under the declared meaning, where a few bad records are ordinary."""
AS_GOOD = 2.0
"""z below which a meaning with more changes fits no better."""
_INSIDE = 0.98  # share of boxes that must lie inside their images under a rival meaning
_REACH, _TINY = 0.35, 0.05  # some box must reach so far into its image, else the unit is too large


@dataclass(frozen=True)
class Shift:
    """A shift of all boxes that is to be undone.

    Attributes:
        x: what is to be added to x, in pixels or as a fraction of the width
        y: likewise
        in_pixels: whether it is the same number of pixels in every image
    """

    x: float
    y: float
    in_pixels: bool


@dataclass(frozen=True)
class Meaning:
    """One way to take the numbers.

    Attributes:
        layout: order of the four numbers, a key of `LAYOUTS`
        unit: `pixels` of the files, `stated` pixels, `unit`, `percent`, `norm1000`, or `copy`
        boxes_N4: corners in [0, 1]
        inside: share of the boxes that have an area and lie inside their images; 0 where all are tiny
        evidence_I: for each image of the sample, see `EdgeMaps.evidence`
        turn: EXIF-like orientation by which the boxes are turned against the images, 1 for none
        copy: whose pixels the numbers are
        shift: by which the boxes are moved against the images
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
    def z(self) -> float:
        """How clearly the boxes stand out on the pixels."""
        return z_value(self.evidence_I)

    def above(self, other: Meaning) -> float:
        """How clearly this meaning fits better than another, image by image."""
        return z_value(self.evidence_I - other.evidence_I)

    def beats(self, other: Meaning, threshold: float) -> bool:
        """Whether this meaning stands out on the pixels, and above another one.

        Boxes that leave their images say nothing on the pixels. Where another meaning has many of them it must not
        stand out with those that are left; or this one must fit these better.
        """
        if self.z < threshold:
            return False
        if other.inside >= PLAUSIBLE:
            return self.above(other) >= STANDS_OUT
        return other.z < STANDS_OUT or self.above(other) >= AS_GOOD


def read_as(sample: Sample, layout: str, unit: str, corners_N4: np.ndarray, copy: Copy | None = None) -> Meaning:
    """Return the meaning with its evidence."""
    inside = 0.0 if is_tiny(corners_N4, _TINY) else float(is_inside(corners_N4).mean())
    return Meaning(layout, unit, corners_N4, inside, sample.evidence(corners_N4), copy=copy)


def turned(found: Meaning, turn: int, sample: Sample) -> Meaning:
    """Return the same of boxes that are turned."""
    boxes_N4 = TURNS[turn](found.boxes_N4)
    return replace(found, turn=turn, boxes_N4=boxes_N4, evidence_I=sample.evidence(boxes_N4))


def fitted(found: Meaning, sample: Sample) -> Meaning:
    """Return the same with the size of its boxes fitted: boxes of the wrong size show little."""
    offset = find_offset(found.boxes_N4, sample, (TIGHTNESS,))
    if offset is None or (inside := float(is_inside(offset.boxes_N4).mean())) < PLAUSIBLE:
        return found
    return replace(found, boxes_N4=offset.boxes_N4, inside=inside, evidence_I=sample.evidence(offset.boxes_N4))


def read_corners(raw: RawBoxes, layout: str, divisor_I2: np.ndarray) -> np.ndarray:
    """Return corners in [0, 1] of the numbers in that order, divided by that of their image."""
    corners_N4: np.ndarray = LAYOUTS[layout](raw.numbers_N4) / np.tile(divisor_I2, 2)[raw.image_N]
    return corners_N4


def is_impossible(corners_N4: np.ndarray) -> bool:
    """Whether boxes leave their images, or all of them lie in one corner."""
    return float(is_inside(corners_N4).mean()) < _INSIDE or is_tiny(corners_N4, _REACH)


def is_tiny(corners_N4: np.ndarray, reach: float = _REACH) -> bool:
    """Whether nearly no box reaches so far into its image."""
    return float(np.quantile(corners_N4[:, 2:], 0.99)) < reach


def has_area(corners_N4: np.ndarray) -> bool:
    """Whether nearly all boxes have an area."""
    return float((corners_N4[:, :2] < corners_N4[:, 2:]).all(axis=1).mean()) >= _INSIDE
