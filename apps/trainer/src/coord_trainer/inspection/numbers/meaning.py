"""What the numbers of a whole set mean: every order and unit is tried, and range and pixels choose.

A rival of the reader's own meaning must stand out on the pixels, and stand out above it. Where nothing does, only
numbers that cannot be meant as they are read (most of them outside their images) let the range alone decide.

Shapes: I images, N boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from coord_eval.diagnosis import LAYOUTS, TURNS
from coord_trainer.inspection.numbers.copies import Copy
from coord_trainer.inspection.numbers.edges import STANDS_OUT, Sample, is_inside, z_value
from coord_trainer.inspection.numbers.offsets import KINDS
from coord_trainer.inspection.numbers.raw import RawBoxes
from coord_trainer.inspection.numbers.reading import (
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
from coord_trainer.inspection.numbers.scan import (
    SCAN_STANDS_OUT,
    corners_of_copy,
    find_copy,
    find_shift,
    read_as_copy,
    shift_boxes,
)
from coord_trainer.inspection.numbers.shuffle import Placed

IMPOSSIBLE = 0.7
"""Share of boxes inside their images below which the range alone may decide."""
_HALF = 0.5  # share of boxes inside their images where images of several sizes are shuffled
_SQUARES = {"unit": 1.0, "norm1000": 1000.0}
"""Side of a padded square whose fractions look like those of the image."""


def declared_meaning(raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample) -> Meaning:
    """Return the meaning that the reader gives the numbers."""
    stated_I2 = np.where(np.isfinite(raw.stated_I2), raw.stated_I2, sizes_I2)
    same = raw.unit != "pixels" or np.array_equal(stated_I2, sizes_I2, equal_nan=True)
    unit = raw.unit if same else "stated"
    return read_as(sample, raw.layout, unit, read_corners(raw, raw.layout, _units(raw, sizes_I2)[unit]))


def find_meaning(own: Meaning, raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample) -> tuple[Meaning, bool]:
    """Return what the numbers mean, by pixels or else by their range, and whether pixels speak for it.

    Args:
        own: the declared meaning, which is returned itself where nothing beats it
        raw: the numbers
        sizes_I2: width and height of the image files, NaN where unknown
        sample: what is compared with pixels
    """
    units = _units(raw, sizes_I2)
    rivals = [
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
    best = max([own_fitted, *rivals, *padded, *turns], key=lambda m: m.z)
    if best is not own_fitted and best.beats(own_fitted, STANDS_OUT):
        best = _simplest(best, [*rivals, *padded, *turns], own, sample)
        if _changes(best, own) < 2:
            return best, True
        copy = find_copy(raw, units["pixels"], sample, 1)  # may fit by far, where two changes fit a little by chance
        is_copy = copy is not None and copy.beats(own, SCAN_STANDS_OUT) and copy.above(best) >= STANDS_OUT
        return (copy if copy is not None and is_copy else best), True
    sized = [(fitted(m, sample), m) for m in padded]
    is_padded = any(m.beats(own_fitted, STANDS_OUT) for m, _ in sized)  # its boxes still lie near what they show
    if own_fitted.inside >= PLAUSIBLE and max(own.z, own_fitted.z) >= STANDS_OUT and not is_padded:
        return own, True
    sized += [(fitted(m, sample), m) for m in rivals]
    best, rival = max(sized, key=lambda pair: pair[0].z, default=(own, own))
    if rival is not own and best.beats(own_fitted, STANDS_OUT):
        return replace(rival, evidence_I=best.evidence_I), True  # what is wrong with their size is told besides
    pixels_I2 = units["pixels"]
    turns = [turned(m, turn, sample) for m in rivals for turn in (2, 4)]
    unusual: list[Callable[[], list[Meaning | None]]] = [
        lambda: [find_copy(raw, pixels_I2, sample, 1), find_shift(own, sizes_I2, raw.image_N, sample)],
        lambda: [max(turns, key=lambda m: m.z, default=None)],
        lambda: [find_copy(raw, pixels_I2, sample, 2)],
        lambda: [find_copy(raw, pixels_I2, sample, 4)],
    ]
    for find in unusual:
        found = [meaning for meaning in find() if meaning is not None and meaning.beats(own, SCAN_STANDS_OUT)]
        if found:
            return _clearer(found[0], found[-1], sample), True
    if own.inside < IMPOSSIBLE and rivals:
        return min(rivals, key=lambda m: _strangeness(m, own)), False
    return own, False


def boxes_as(found: Meaning, raw: RawBoxes, sizes_I2: np.ndarray) -> np.ndarray:
    """Return corners in [0, 1] of other numbers that mean the same."""
    if found.copy:
        boxes_N4 = corners_of_copy(raw, found.layout, found.copy, sizes_I2)
    else:
        boxes_N4 = read_corners(raw, found.layout, _units(raw, sizes_I2)[found.unit])
    if found.shift:
        boxes_N4 = shift_boxes(boxes_N4, found.shift, sizes_I2[raw.image_N])
    return TURNS[found.turn](boxes_N4)


def rough_ways(raw: RawBoxes, sizes_I2: np.ndarray, own: Meaning) -> list[Placed]:
    """Return the reader's own way to take the numbers, then others that are near enough to recognise images by."""
    ways = [Placed(own.boxes_N4, raw.unit == "pixels")]
    for unit, divisor_I2 in _units(raw, sizes_I2).items():
        for layout in LAYOUTS:
            corners_N4 = read_corners(raw, layout, divisor_I2)
            if (layout, unit) != (own.layout, own.unit) and not is_tiny(corners_N4) and _is_likely(corners_N4):
                ways.append(Placed(corners_N4, unit in ("pixels", "stated")))
    if not _is_likely(own.boxes_N4):
        return ways
    far = float(np.quantile(own.boxes_N4[:, 2:], 0.995))
    in_pixels = raw.unit == "pixels"
    ways += [Placed(own.boxes_N4, in_pixels, turn) for turn in (2, 4)]
    moved = [own.boxes_N4 / (far * value) for value in np.geomspace(0.45, 2.5, 80)] if far > 0 else []
    moved += [kind.move(own.boxes_N4, value) for kind in KINDS[1:] for value in kind.steps[::2].tolist()]
    return ways + [Placed(boxes_N4, in_pixels) for boxes_N4 in moved]


def _clearer(copy: Meaning, shift: Meaning, sample: Sample) -> Meaning:
    """Return the copy, unless edges begin more clearly at the sides of the shifted boxes.

    Where all images have one size they have one margin in a padded copy, so that both are true.
    """
    gain_I = sample.onset(shift.boxes_N4) - sample.onset(copy.boxes_N4)
    return shift if z_value(gain_I) >= AS_GOOD else copy


def _is_likely(corners_N4: np.ndarray) -> bool:
    """Whether nearly all boxes have an area, and half of them lie in the image that they are given to."""
    return has_area(corners_N4) and float(is_inside(corners_N4).mean()) >= _HALF


def _simplest(best: Meaning, others: Sequence[Meaning], own: Meaning, sample: Sample) -> Meaning:
    """Return the meaning that differs least from what is declared, of those as good as the best but for their size."""
    simpler = [(fitted(m, sample), m) for m in others if _changes(m, own) < _changes(best, own)]
    as_good = [(f.z, m) for f, m in simpler if f.z >= STANDS_OUT and best.above(f) < AS_GOOD]
    return max(as_good, key=lambda pair: pair[0], default=(0.0, best))[1]


def _changes(found: Meaning, own: Meaning) -> int:
    return (found.layout != own.layout) + (found.unit != own.unit) + (found.turn != own.turn)


def _strangeness(found: Meaning, own: Meaning) -> tuple[int, float]:
    """Sort by range alone: as few differences from what is declared as possible, then the tightest unit."""
    return _changes(found, own), 1 - float(np.quantile(found.boxes_N4[:, 2:], 0.995))


def _units(raw: RawBoxes, sizes_I2: np.ndarray) -> dict[str, np.ndarray]:
    """Return what the numbers of each image are divided by."""
    stated_I2 = np.where(np.isfinite(raw.stated_I2), raw.stated_I2, sizes_I2)
    known_I2 = np.where(np.isfinite(sizes_I2), sizes_I2, stated_I2)
    units = {"pixels": known_I2}
    if not np.array_equal(stated_I2, known_I2, equal_nan=True):
        units["stated"] = stated_I2
    return units | {
        name: np.full_like(known_I2, number) for name, number in (("unit", 1), ("norm1000", 1000), ("percent", 100))
    }
