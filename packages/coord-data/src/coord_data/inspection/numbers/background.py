"""Asks whether the background explains why corrected boxes fit better: whether boxes beside objects gain as much.

A regular pattern behind the objects, at about the pitch of their boxes, has edges one step from each of them: squares
of a board, bricks, keys, places of a car park. There the same step makes boxes of nothing fit better as well.

Shapes: n boxes of a sample, P pairs of boxes of one image, I images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coord_data.inspection.numbers.best_size import in_best_size
from coord_data.inspection.numbers.edges import Sample, is_inside, z_value
from coord_data.sources.read_as import inflate

_COMPARED = 300  # boxes at most
_FAR, _EVERY = 2.0, 0.25  # displacements up to this many sides of a box, and their distance
_EXPLAINS, _MAY_EXPLAIN = 3.5, 2.0
"""z from which boxes beside the objects gain more than half as much, the largest of hundreds of displacements. Between
the two it takes a person to decide: patterns behind right boxes give 3.1 to 13, boxes of photographs that are all wrong
up to 3."""


@dataclass(frozen=True)
class Background:
    """What boxes gain in onset by a correction, and what boxes beside them gain by the same one.

    Attributes:
        gain: mean gain of the boxes themselves over images
        beside: mean gain of boxes beside them, of the displacement with the largest z; NaN without room beside them
        z: significance of gaining more than half as much beside the objects; minus infinity without room
    """

    gain: float
    beside: float
    z: float

    @property
    def explains(self) -> bool:
        """Whether the correction only moves boxes onto a pattern of the background."""
        return self.z >= _EXPLAINS

    @property
    def is_ruled_out(self) -> bool:
        """Whether there is room beside the objects, and boxes there gain less."""
        return np.isfinite(self.z) and self.z < _MAY_EXPLAIN

    @property
    def words(self) -> str:
        """The comparison as evidence of a finding."""
        if not np.isfinite(self.z):
            return "no room beside the objects to compare with"
        return f"boxes beside the objects gain {self.beside:.3f} by the same step, these {self.gain:.3f}"


def gain_beside(
    stated_n4: np.ndarray, corrected_n4: np.ndarray, sample: Sample, *, in_stated_size: bool = False
) -> Background:
    """Return the gain in onset of corrected boxes, and that of boxes beside the objects.

    All are compared in the size that fits them best, or `in_stated_size` where it is their size that is corrected.
    """
    kept = sample.spread(_COMPARED)
    sample, both = sample.take(kept), (stated_n4[kept], corrected_n4[kept])
    if not in_stated_size:
        sizes = [in_best_size(boxes_n4, sample)[0] for boxes_n4 in both]
        both = inflate(both[0], sizes[0]), inflate(both[1], sizes[1])
    boxes_2n4 = np.stack(both)
    own_I = _gain(boxes_2n4, np.ones(len(sample.rows_n), bool), sample)
    gain = float(np.nanmean(own_I)) if np.isfinite(own_I).any() else 0.0
    # Neither what is stated nor what is corrected may be in the way: one of them is an object.
    first_P, second_P = np.nonzero(sample.image_n[:, None] == sample.image_n)
    best = Background(gain, np.nan, -np.inf)
    for step_n2 in _displacements(boxes_2n4[1, :, 2:] - boxes_2n4[1, :, :2]):
        beside_2n4 = boxes_2n4 + np.tile(step_n2, 2)
        hits_P = np.zeros(len(first_P), bool)
        for box_n4 in beside_2n4:
            for object_n4 in boxes_2n4:
                hits_P |= overlap(box_n4[first_P], object_n4[second_P])
        inside_2n = is_inside(beside_2n4, 0.0)
        is_free_n = inside_2n[0] & inside_2n[1]
        is_free_n &= np.bincount(first_P[hits_P], minlength=len(is_free_n)) == 0
        beside_I = _gain(beside_2n4, is_free_n, sample)
        z = z_value(beside_I - max(gain, 0.0) / 2)  # 0 for too few images
        if z and z > best.z:
            best = Background(gain, float(np.nanmean(beside_I)), z)
    return best


def _displacements(sides_n2: np.ndarray) -> Iterator[np.ndarray]:
    """Yield displacements of the boxes: of each by its own sides, then of all by the same."""
    steps = np.arange(-_FAR, _FAR + _EVERY / 2, _EVERY).tolist()
    for unit_n2 in (sides_n2, np.broadcast_to(np.median(sides_n2, axis=0), sides_n2.shape)):
        for x in steps:
            for y in steps:
                if max(abs(x), abs(y)) >= 1:
                    yield unit_n2 * (x, y)


def _gain(boxes_2n4: np.ndarray, is_chosen_n: np.ndarray, sample: Sample) -> np.ndarray:
    """Return the gain in onset [I] of the chosen boxes; NaN where an image has none."""
    stated_I, corrected_I = sample.take(is_chosen_n).onset(boxes_2n4[:, is_chosen_n])
    gain_I: np.ndarray = corrected_I - stated_I
    return gain_I


def overlap(one_P4: np.ndarray, other_P4: np.ndarray) -> np.ndarray:
    """Return which pairs of boxes overlap."""
    overlap_P: np.ndarray = (one_P4[:, 0] < other_P4[:, 2]) & (other_P4[:, 0] < one_P4[:, 2])
    return overlap_P & (one_P4[:, 1] < other_P4[:, 3]) & (other_P4[:, 1] < one_P4[:, 3])
