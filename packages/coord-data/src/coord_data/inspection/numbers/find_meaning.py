"""Finds the order and unit of the box numbers of a set, from the pixels of its images and the range of the numbers.

An alternative to the declared meaning is chosen if its boxes fit the pixels clearly, and clearly better. If none does,
the range of the numbers decides only where the declared meaning is impossible, with most boxes outside their images.

`TRIES` is the algorithm: what is tried, in this order, until one of them decides.

Shapes: I images, N boxes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from tqdm import tqdm

from coord_codec.box_transforms import COMMON_INPUTS, LAYOUTS
from coord_data.inspection.numbers.edges import SIGNIFICANT, Sample, z_value
from coord_data.inspection.numbers.laid_out import LaidOut
from coord_data.inspection.numbers.meaning import AS_GOOD, PLAUSIBLE, Meaning, corners_as, fitted, read_as, turned
from coord_data.inspection.numbers.offsets import KINDS
from coord_data.inspection.numbers.scan import SCAN_SIGNIFICANT, copies_to_try, find_copy, find_shift, read_as_copy
from coord_data.inspection.numbers.shuffle import Placement
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import INPUTS, Copy

IMPOSSIBLE = 0.7
"""Share of boxes inside their images below which the range of the numbers alone may decide."""
_CLEAR = 5.0  # z from which no resized copy is tried; wrong boxes that overlap their objects a little reach 4
_TIGHT = 0.82  # share of their size in which boxes of copies are tried besides, for those that are too large
_HALF = 0.5  # share of boxes that must lie inside shuffled images of several sizes
_SQUARES = {"unit": 1.0, "norm1000": 1000.0}
"""Side of the padded square by unit, for numbers that may be fractions of a padded image."""


Fit = tuple[Meaning, Meaning]
"""A meaning with boxes fitted in size, and as it was found."""
Decision = tuple[Meaning, bool]
"""A meaning, and whether the pixels confirm it."""


def declared_meaning(raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample) -> Meaning:
    """Return the meaning that the numbers have according to their format."""
    units = _units(raw, sizes_I2)
    unit = "stated" if raw.unit == "pixels" and "stated" in units else raw.unit
    return read_as(sample, raw.layout, unit, corners_as(raw, raw.layout, units[unit]))


@dataclass(frozen=True)
class Search:
    """What is known while the meaning is searched; each candidate is computed when it is first needed.

    The sizes are those of the image files, NaN where unknown.
    """

    own: Meaning
    raw: RawBoxes
    sizes_I2: np.ndarray
    sample: Sample

    @cached_property
    def units(self) -> dict[str, np.ndarray]:
        """Divisors of the numbers of each image, by unit."""
        return _units(self.raw, self.sizes_I2)

    @cached_property
    def own_fitted(self) -> Meaning:
        """The declared meaning with boxes fitted in size."""
        return fitted(self.own, self.sample)

    def fits(self, meanings: Sequence[Meaning]) -> list[Fit]:
        """Return meanings with boxes fitted in size, and as they are."""
        return [(fitted(meaning, self.sample), meaning) for meaning in meanings]

    @cached_property
    def own_moved(self) -> Meaning:
        """The declared meaning after the small move that fits best."""
        return fitted(self.own, self.sample, KINDS)

    @cached_property
    def alternatives(self) -> list[Meaning]:
        """The numbers in every other order and unit that is possible."""
        readings = [
            (layout, unit, corners_as(self.raw, layout, divisor_I2))
            for unit, divisor_I2 in self.units.items()
            for layout in LAYOUTS
            if (layout, unit) != (self.own.layout, self.own.unit)
        ]
        return [read_as(self.sample, *reading) for reading in readings if not reading[2].is_impossible]

    @cached_property
    def padded(self) -> list[Meaning]:
        """The numbers as fractions of a copy that is padded to a square, if they can be."""
        if self.raw.unit not in _SQUARES:
            return []
        square = Copy("padded", _SQUARES[self.raw.unit])
        meaning = read_as_copy(self.raw, self.raw.layout, square, self.sizes_I2, self.sample)
        return [] if meaning.boxes.is_impossible else [meaning]

    @cached_property
    def turns(self) -> list[Meaning]:
        """The declared meaning on mirrored and rotated images."""
        if self.own.inside < PLAUSIBLE:
            return []
        return [turned(self.own, turn, self.sample) for turn in (2, 3, 4, 6, 8)]

    @cached_property
    def inputs(self) -> list[Meaning]:
        """The numbers in pixels of images as models receive them, for limits that some images alone exceed.

        Where all images exceed a limit, the scan finds copies of its area.
        """
        area_I = self.sizes_I2[np.isfinite(self.sizes_I2).all(axis=1)].prod(axis=1)
        if self.raw.unit != "pixels" or not len(area_I):
            return []
        copies = (
            Copy(kind, high)
            for kind, limits in INPUTS.items()
            for *own, high in COMMON_INPUTS
            if tuple(own) == limits and area_I.min() <= high < area_I.max()
        )
        read = (read_as_copy(self.raw, self.own.layout, copy, self.sizes_I2, self.sample) for copy in copies)
        return [meaning for meaning in read if not meaning.boxes.is_impossible]

    @property
    def known(self) -> list[Meaning]:
        """All meanings that need no scan."""
        return [*self.alternatives, *self.padded, *self.inputs, *self.turns]

    @cached_property
    def copies(self) -> list[tuple[str, Copy]]:
        """The resized copies that are tried, with the order of the numbers."""
        return copies_to_try(self.raw, self.units["pixels"])

    @cached_property
    def copy(self) -> Meaning | None:
        """The resized copy that fits best."""
        return self.copy_of(1)

    def copy_of(self, turn: int, tightness: float = 1.0) -> Meaning | None:
        """Return the resized copy that fits best if boxes are turned; see `find_copy`."""
        return find_copy(self.raw, self.units["pixels"], self.sample, self.copies, turn, tightness)


def _known_that_fits_better(search: Search) -> Decision | None:
    """Decide for another order, unit or orientation whose boxes fit the pixels clearly better."""
    own = search.own
    best = max([search.own_fitted, *search.known], key=lambda meaning: meaning.z)
    if best is search.own_fitted or not best.beats(search.own_fitted, SIGNIFICANT):
        return None
    if own.inside >= PLAUSIBLE and search.own_moved.z >= SIGNIFICANT and best.above(search.own_moved) < AS_GOOD:
        return own, True  # a small move explains it: a separate finding
    simpler = search.fits([m for m in search.known if _changes(m, own) < _changes(best, own)])
    as_good = [(fit.z, m) for fit, m in simpler if fit.z >= SIGNIFICANT and best.above(fit) < AS_GOOD]
    best = max(as_good, key=lambda pair: pair[0], default=(0.0, best))[1]  # of fewer changes, fitted in size
    loses_boxes = best.copy is not None and best.inside < 1
    if _changes(best, own) < 2 and not loses_boxes:
        return best, True
    copy = search.copy  # two changes may fit a little by chance
    if copy is None or not copy.beats(own, SCAN_SIGNIFICANT):
        return best, True
    keeps_more = loses_boxes and copy.inside > best.inside
    return (copy if copy.above(best) >= (-AS_GOOD if keeps_more else SIGNIFICANT) else best), True


def _declared_that_fits(search: Search) -> Decision | None:
    """Decide for the declared meaning if it fits, unless a resized copy fits clearly better."""
    own_fitted = search.own_fitted
    z = max(search.own.z, own_fitted.z)
    if own_fitted.inside < PLAUSIBLE or z < SIGNIFICANT:
        return None
    if any(padded.beats(own_fitted, SIGNIFICANT) for padded, _ in search.fits(search.padded)):
        return None  # the numbers are fractions of a padded copy, which the declared meaning nearly fits too
    copy = search.copy if z < _CLEAR else None
    if copy is None or min(copy.z, copy.above(search.own_moved)) < SCAN_SIGNIFICANT:
        return search.own, True  # perhaps after a small move, which is a separate finding
    return copy, True


def _known_with_boxes_of_wrong_size(search: Search) -> Decision | None:
    """Decide for another order or unit that fits clearly once the size of its boxes is corrected."""
    own = search.own
    fits = search.fits([*search.padded, *search.alternatives])
    best, unfitted = max(fits, key=lambda pair: pair[0].z, default=(own, own))
    if unfitted is own or not best.beats(search.own_fitted, SIGNIFICANT):
        return None
    return replace(unfitted, evidence_I=best.evidence_I), True  # the wrong size is a separate finding


def _copy_or_shift(search: Search) -> Decision | None:
    """Decide for resized copies, unless edges coincide more clearly with the sides of boxes after one shift of all."""
    sample = search.sample
    copy = _first_that_fits(search, lambda: search.copy, partial(search.copy_of, 1, _TIGHT))
    shift = _first_that_fits(search, lambda: find_shift(search.own, search.sizes_I2, search.raw.image_N, sample))
    if not copy or not shift:
        return _confirmed(copy or shift)
    # Where all images have one size, padding is the same for all of them, and shifts the boxes by one amount.
    of_shift, of_copy = (sample.onset(fit.boxes.of(sample.rows_n)) for fit, _ in (shift, copy))
    return _confirmed(shift if z_value(of_shift - of_copy) >= AS_GOOD else copy)


def _mirrored_and_other_order_unit_or_size(search: Search) -> Decision | None:
    """Decide for two changes: mirrored boxes in another order or unit, or of a resized copy."""

    def turned_alternative() -> Meaning | None:
        turns = [turned(meaning, turn, search.sample) for meaning in search.alternatives for turn in (2, 4)]
        return max(turns, key=lambda meaning: meaning.z, default=None)

    copies = (partial(search.copy_of, turn) for turn in (2, 4))
    return _confirmed(_first_that_fits(search, turned_alternative, *copies))


def _only_possible_range(search: Search) -> Decision | None:
    """Decide by the range of the numbers, without the pixels, where the declared meaning is impossible.

    Of a few boxes some that are wrong make no meaning impossible: the share inside has to be low beyond its own error.
    """
    error = 0.5 / math.sqrt(max(len(search.raw), 1))
    if search.own.inside + error >= IMPOSSIBLE or not search.alternatives:
        return None

    def rank(meaning: Meaning) -> tuple[int, float]:
        """Fewest changes of the declared meaning, then the tightest unit."""
        return _changes(meaning, search.own), 1 - meaning.boxes.far

    return min(search.alternatives, key=rank), False


TRIES: tuple[Callable[[Search], Decision | None], ...] = (
    _known_that_fits_better,
    _declared_that_fits,
    _known_with_boxes_of_wrong_size,
    _copy_or_shift,
    _mirrored_and_other_order_unit_or_size,
    _only_possible_range,
)
"""What is tried, in this order; the first that decides gives the meaning."""


def find_meaning(own: Meaning, raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample) -> Decision:
    """Return the most likely meaning of the numbers, the declared one itself unless another fits better.

    With it comes whether the pixels confirm it.
    """
    search = Search(own, raw, sizes_I2, sample)
    tries: Iterable[Callable[[Search], Decision | None]] = TRIES
    for decide in tqdm(tries, "comparing boxes with edges", leave=False, disable=None, unit="reading"):
        decision: Decision | None = decide(search)
        if decision is not None:
            return decision
    return own, False


def _first_that_fits(search: Search, *finders: Callable[[], Meaning | None]) -> Fit | None:
    """Return the first meaning that fits the pixels clearly once its boxes are fitted in size."""
    for find in () if search.sample.says_nothing else finders:
        found = find()
        if found is not None and (best := fitted(found, search.sample)).beats(search.own, SCAN_SIGNIFICANT):
            return best, found
    return None


def _confirmed(fit: Fit | None) -> Decision | None:
    return None if fit is None else (replace(fit[1], evidence_I=fit[0].evidence_I), True)


def _changes(meaning: Meaning, own: Meaning) -> int:
    return (meaning.layout != own.layout) + (meaning.unit != own.unit) + (meaning.turn != own.turn)


def candidate_placements(raw: RawBoxes, sizes_I2: np.ndarray, own: Meaning, rows_n: np.ndarray) -> list[Placement]:
    """Return boxes under the declared meaning, then under others that may match boxes to shuffled images.

    What all boxes of the set would be under a meaning decides whether it is possible; those of `rows_n` are returned.
    """
    in_pixels, own_n4 = raw.unit == "pixels", own.boxes.of(rows_n)
    placements = [Placement(own_n4, in_pixels)]
    for unit, divisor_I2 in _units(raw, sizes_I2).items():
        for layout in LAYOUTS:
            if (layout, unit) == (own.layout, own.unit):
                continue
            boxes = corners_as(raw, layout, divisor_I2)
            if not boxes.are_tiny() and _is_likely(boxes):
                placements.append(Placement(boxes.of(rows_n), unit in ("pixels", "stated")))
    if not _is_likely(own.boxes):
        return placements
    far = own.boxes.far
    placements += [Placement(own_n4, in_pixels, turn) for turn in (2, 4)]
    moved_boxes = [own_n4 / (far * value) for value in np.geomspace(0.45, 2.5, 80)] if far > 0 else []
    for kind in KINDS[1:]:
        along_one_axis = np.count_nonzero(kind.steps_KD - kind.neutral, axis=1) == 1
        moved_boxes += [kind.move(own_n4, step_D) for step_D in kind.steps_KD[along_one_axis][::2]]
    return placements + [Placement(boxes_n4, in_pixels) for boxes_n4 in moved_boxes]


def _is_likely(boxes: LaidOut) -> bool:
    """Return whether nearly all boxes have an area, and half of them lie inside the image they are assigned to."""
    return boxes.have_area and boxes.inside >= _HALF


def boxes_as(meaning: Meaning, raw: RawBoxes, sizes_I2: np.ndarray) -> np.ndarray:
    """Return corners in [0, 1] of other numbers under the same meaning."""
    stated_I2, actual_I2 = _stated_and_actual(raw, sizes_I2)
    return meaning.read_as.corners(raw.numbers_N4, actual_I2[raw.image_N], stated_I2[raw.image_N])


def _stated_and_actual(raw: RawBoxes, sizes_I2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sizes that the annotations state and those of the files, each in place of the other where unknown."""
    stated_I2 = np.where(np.isfinite(raw.stated_I2), raw.stated_I2, sizes_I2)
    return stated_I2, np.where(np.isfinite(sizes_I2), sizes_I2, stated_I2)


def _units(raw: RawBoxes, sizes_I2: np.ndarray) -> dict[str, np.ndarray]:
    """Return the divisors of the numbers of each image, by unit."""
    stated_I2, actual_I2 = _stated_and_actual(raw, sizes_I2)
    units = {"pixels": actual_I2}
    if not np.array_equal(stated_I2, actual_I2, equal_nan=True):
        units["stated"] = stated_I2
    return units | {
        name: np.full((1, 2), number) for name, number in (("unit", 1.0), ("norm1000", 1000.0), ("percent", 100.0))
    }
