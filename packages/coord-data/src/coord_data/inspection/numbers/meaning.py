"""Finds the order and unit of the box numbers of a set, from the pixels of its images and the range of the numbers.

An alternative to the declared meaning is chosen if its boxes fit the pixels clearly, and clearly better. If none does,
the range of the numbers decides only where the declared meaning is impossible, with most boxes outside their images.

Shapes: I images, N boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from coord_codec.layouts import LAYOUTS, TURNS
from coord_data.inspection.numbers.copies import Copy
from coord_data.inspection.numbers.edges import SIGNIFICANT, Sample, is_inside, z_value
from coord_data.inspection.numbers.offsets import KINDS
from coord_data.inspection.numbers.raw import RawBoxes
from coord_data.inspection.numbers.reading import (
    AS_GOOD,
    PLAUSIBLE,
    Meaning,
    fitted,
    has_area,
    is_impossible,
    is_tiny,
    read_as,
    read_corners,
    turned,
)
from coord_data.inspection.numbers.scan import (
    SCAN_SIGNIFICANT,
    corners_of_copy,
    find_copy,
    find_shift,
    read_as_copy,
    shift_boxes,
)
from coord_data.inspection.numbers.shuffle import Placed

IMPOSSIBLE = 0.7
"""Share of boxes inside their images below which the range of the numbers alone may decide."""
_CLEAR = 5.0  # z from which no resized copy is tried; wrong boxes that overlap their objects a little reach 4
_TIGHT = 0.82  # share of their size in which boxes of copies are tried besides, for those that are too large
_HALF = 0.5  # share of boxes that must lie inside shuffled images of several sizes
_SQUARES = {"unit": 1.0, "norm1000": 1000.0}
"""Side of the padded square by unit, for numbers that may be fractions of a padded image."""


def declared_meaning(raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample) -> Meaning:
    """Return the meaning that the numbers have according to their format."""
    stated_I2 = np.where(np.isfinite(raw.stated_I2), raw.stated_I2, sizes_I2)
    same = raw.unit != "pixels" or np.array_equal(stated_I2, sizes_I2, equal_nan=True)
    unit = raw.unit if same else "stated"
    return read_as(sample, raw.layout, unit, read_corners(raw, raw.layout, _units(raw, sizes_I2)[unit]))


def find_meaning(own: Meaning, raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample) -> tuple[Meaning, bool]:
    """Return the most likely meaning of the numbers, and whether the pixels confirm it.

    Args:
        own: the declared meaning, which is returned itself unless another one fits better
        raw: the boxes as the annotation file states them
        sizes_I2: width and height of the image files, NaN where unknown
        sample: boxes to compare with pixels
    """
    units = _units(raw, sizes_I2)
    alternatives = [
        read_as(sample, layout, unit, corners_N4)
        for unit, divisor_I2 in units.items()
        for layout in LAYOUTS
        if (layout, unit) != (own.layout, own.unit)
        and not is_impossible(corners_N4 := read_corners(raw, layout, divisor_I2))
    ]
    square = read_as_copy(raw, raw.layout, Copy("padded", _SQUARES.get(raw.unit, 1.0)), sizes_I2, sample)
    padded = [square] if raw.unit in _SQUARES and not is_impossible(square.boxes_N4) else []
    turns = [turned(own, turn, sample) for turn in (2, 3, 4, 6, 8)] if own.inside >= PLAUSIBLE else []
    own_fitted = fitted(own, sample)
    best = max([own_fitted, *alternatives, *padded, *turns], key=lambda m: m.z)
    if best is not own_fitted and best.beats(own_fitted, SIGNIFICANT):
        if own.inside >= PLAUSIBLE:
            moved = fitted(own, sample, KINDS)
            if moved.z >= SIGNIFICANT and best.above(moved) < AS_GOOD:
                return own, True  # a small move explains it: a separate finding
        best = _simplest(best, [*alternatives, *padded, *turns], own, sample)
        if _changes(best, own) < 2:
            return best, True
        copy = find_copy(raw, units["pixels"], sample, 1)  # two changes may fit a little by chance
        is_copy = copy is not None and copy.beats(own, SCAN_SIGNIFICANT) and copy.above(best) >= SIGNIFICANT
        return (copy if copy is not None and is_copy else best), True
    fitted_pairs = [(fitted(m, sample), m) for m in padded]
    is_padded = any(m.beats(own_fitted, SIGNIFICANT) for m, _ in fitted_pairs)  # then `own` nearly fits too
    if own_fitted.inside >= PLAUSIBLE and max(own.z, own_fitted.z) >= SIGNIFICANT and not is_padded:
        copy = find_copy(raw, units["pixels"], sample, 1) if max(own.z, own_fitted.z) < _CLEAR else None
        if copy is None or min(copy.z, copy.above(fitted(own, sample, KINDS))) < SCAN_SIGNIFICANT:
            return own, True  # perhaps after a small move, which is a separate finding
        return copy, True
    fitted_pairs += [(fitted(m, sample), m) for m in alternatives]
    best, unfitted = max(fitted_pairs, key=lambda pair: pair[0].z, default=(own, own))
    if unfitted is not own and best.beats(own_fitted, SIGNIFICANT):
        return replace(unfitted, evidence_I=best.evidence_I), True  # the wrong size is a separate finding
    if found := _search(own, alternatives, raw, sizes_I2, sample):
        return found, True
    if own.inside < IMPOSSIBLE and alternatives:
        return min(alternatives, key=lambda m: _range_rank(m, own)), False
    return own, False


def _search(
    own: Meaning, alternatives: Sequence[Meaning], raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample
) -> Meaning | None:
    """Return the meaning of resized copies, of a shift or of two changes that fits the pixels clearly, if any."""

    def first_that_fits(*searches: Callable[[], Meaning | None]) -> tuple[Meaning, Meaning] | None:
        for search in searches:
            found = search()
            if found is not None and (best := fitted(found, sample)).beats(own, SCAN_SIGNIFICANT):
                return best, found
        return None

    def turned_alternative() -> Meaning | None:
        turns = [turned(meaning, turn, sample) for meaning in alternatives for turn in (2, 4)]
        return max(turns, key=lambda meaning: meaning.z, default=None)

    copy_of = partial(find_copy, raw, _units(raw, sizes_I2)["pixels"], sample)
    copy = first_that_fits(partial(copy_of, 1), partial(copy_of, 1, _TIGHT))
    shift = first_that_fits(partial(find_shift, own, sizes_I2, raw.image_N, sample))
    found = _clearer(copy, shift, sample) if copy and shift else copy or shift
    found = found or first_that_fits(turned_alternative, partial(copy_of, 2), partial(copy_of, 4))
    return replace(found[1], evidence_I=found[0].evidence_I) if found else None


def boxes_as(meaning: Meaning, raw: RawBoxes, sizes_I2: np.ndarray) -> np.ndarray:
    """Return corners in [0, 1] of other numbers under the same meaning."""
    if meaning.copy:
        boxes_N4 = corners_of_copy(raw, meaning.layout, meaning.copy, sizes_I2)
    else:
        boxes_N4 = read_corners(raw, meaning.layout, _units(raw, sizes_I2)[meaning.unit])
    if meaning.shift:
        boxes_N4 = shift_boxes(boxes_N4, meaning.shift, sizes_I2[raw.image_N])
    return TURNS[meaning.turn](boxes_N4)


def candidate_placements(raw: RawBoxes, sizes_I2: np.ndarray, own: Meaning) -> list[Placed]:
    """Return the boxes under the declared meaning, then under others that may match boxes to shuffled images."""
    placements = [Placed(own.boxes_N4, raw.unit == "pixels")]
    for unit, divisor_I2 in _units(raw, sizes_I2).items():
        for layout in LAYOUTS:
            corners_N4 = read_corners(raw, layout, divisor_I2)
            if (layout, unit) != (own.layout, own.unit) and not is_tiny(corners_N4) and _is_likely(corners_N4):
                placements.append(Placed(corners_N4, unit in ("pixels", "stated")))
    if not _is_likely(own.boxes_N4):
        return placements
    far = float(np.quantile(own.boxes_N4[:, 2:], 0.995))
    in_pixels = raw.unit == "pixels"
    placements += [Placed(own.boxes_N4, in_pixels, turn) for turn in (2, 4)]
    moved_boxes = [own.boxes_N4 / (far * value) for value in np.geomspace(0.45, 2.5, 80)] if far > 0 else []
    for kind in KINDS[1:]:
        along_one_axis = np.count_nonzero(kind.steps_KD - kind.neutral, axis=1) == 1
        moved_boxes += [kind.move(own.boxes_N4, step_D) for step_D in kind.steps_KD[along_one_axis][::2]]
    return placements + [Placed(boxes_N4, in_pixels) for boxes_N4 in moved_boxes]


def _clearer(copy: tuple[Meaning, Meaning], shift: tuple[Meaning, Meaning], sample: Sample) -> tuple[Meaning, Meaning]:
    """Return the copy, unless edges coincide more clearly with the sides of the shifted boxes; all fitted in size.

    If all images have one size, padding is the same for all of them, and the boxes are also shifted by one amount.
    """
    gain_I = sample.onset(shift[0].boxes_N4) - sample.onset(copy[0].boxes_N4)
    return shift if z_value(gain_I) >= AS_GOOD else copy


def _is_likely(corners_N4: np.ndarray) -> bool:
    """Return whether nearly all boxes have an area, and half of them lie inside the image they are assigned to."""
    return has_area(corners_N4) and float(is_inside(corners_N4).mean()) >= _HALF


def _simplest(best: Meaning, others: Sequence[Meaning], own: Meaning, sample: Sample) -> Meaning:
    """Return a meaning with fewer changes that fits as well as the best once its box size is fitted, else the best."""
    simpler = [(fitted(m, sample), m) for m in others if _changes(m, own) < _changes(best, own)]
    as_good = [(f.z, m) for f, m in simpler if f.z >= SIGNIFICANT and best.above(f) < AS_GOOD]
    return max(as_good, key=lambda pair: pair[0], default=(0.0, best))[1]


def _changes(meaning: Meaning, own: Meaning) -> int:
    return (meaning.layout != own.layout) + (meaning.unit != own.unit) + (meaning.turn != own.turn)


def _range_rank(meaning: Meaning, own: Meaning) -> tuple[int, float]:
    """Return the sort key by range alone: fewest changes of the declared meaning, then the tightest unit."""
    return _changes(meaning, own), 1 - float(np.quantile(meaning.boxes_N4[:, 2:], 0.995))


def _units(raw: RawBoxes, sizes_I2: np.ndarray) -> dict[str, np.ndarray]:
    """Return the divisors of the numbers of each image, by unit."""
    stated_I2 = np.where(np.isfinite(raw.stated_I2), raw.stated_I2, sizes_I2)
    actual_I2 = np.where(np.isfinite(sizes_I2), sizes_I2, stated_I2)
    units = {"pixels": actual_I2}
    if not np.array_equal(stated_I2, actual_I2, equal_nan=True):
        units["stated"] = stated_I2
    return units | {
        name: np.full_like(actual_I2, number) for name, number in (("unit", 1), ("norm1000", 1000), ("percent", 100))
    }
