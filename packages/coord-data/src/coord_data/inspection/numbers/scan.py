"""Finds resized copies and shifts: tries hundreds of them on a few boxes, and evaluates the best one on all boxes.

Shapes: I images, N boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np

from coord_codec.box_transforms import LAYOUTS, TURNS
from coord_data.inspection.numbers.best_size import best_onset, finite_mean, in_best_size
from coord_data.inspection.numbers.edges import Sample, is_inside, is_inside_along, z_value
from coord_data.inspection.numbers.laid_out import (
    Axes,
    LaidOut,
    Rows,
    are_mostly_outside,
    are_possible,
    count_tiny,
    is_tiny,
    ranges,
)
from coord_data.inspection.numbers.meaning import (
    AS_GOOD,
    Meaning,
    Shift,
    corners_as,
    fitted,
    numbers_as,
    of_boxes,
    once,
    read_as,
    turned,
)
from coord_data.looking.engines import execution
from coord_data.looking.processes import in_processes
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import KINDS, OF_ONE_SIZE, Copy, CopyKind, inflate

SCAN_SIGNIFICANT = 4.0
"""z from which the best of hundreds of candidates counts: one of them reaches 3 by chance."""
_SCANNED = 300  # boxes on which candidates are tried
_SHARED, _PART = 100_000, 128  # boxes to lay out from which workers share them, and candidates of a part
_USUAL_SIZES = (300, 500, 600, 800, 1000, 1333)  # beside multiples of 32, and after these of 16
_USUAL_FACTORS = (1 / 3, 2 / 3, *(k / 20 for k in range(4, 20)), *(k / 4 for k in range(5, 17)))
_SCALES = np.geomspace(0.7, 2.5, 60)  # candidates, as multiples of the value in which boxes reach the image border
_ROUNDED = 0.002  # distance up to which boxes leave their image by rounding, as a fraction of it
_NEAR = 0.01  # change of a shift up to which boxes that stay inside matter more, as a fraction of the image
_CLOSE = np.linspace(0.95, 1.05, 41)  # refinement of the value, since contrast prefers boxes that are too small
_STRAY = 0.01  # share of boxes that may leave the image on each side after a shift, and how far
_STEP, _STEPS = 0.005, 40  # smallest step of shifts, as a fraction of the image, and largest number of steps
_NEARBY = np.linspace(-0.03, 0.03, 25)  # refinement of the best shift, as fractions of the image
_LEAST_SHIFT = 0.012  # as in `offsets`

_Candidate = TypeVar("_Candidate")


def read_as_copy(raw: RawBoxes, layout: str, copy: Copy, sizes_I2: np.ndarray, sample: Sample) -> Meaning:
    """Return the meaning of numbers in pixels of a copy of each image."""
    sizes_I2 = once(sizes_I2)
    divisor_I2, margin_I2 = copy.sizes(sizes_I2), copy.margins(sizes_I2)

    padded = corners_as(raw, layout, divisor_I2)

    def of(rows: Rows) -> np.ndarray:
        corners_n4: np.ndarray = padded.of(rows) - np.tile(of_boxes(margin_I2, raw.image_N, rows), 2)
        return corners_n4

    return read_as(sample, layout, "copy", LaidOut(of, len(raw)), copy)


def _fits(
    candidates: Sequence[_Candidate], boxes_of: Callable[[_Candidate], np.ndarray], sample: Sample
) -> list[float]:
    """Return how clearly the boxes of each candidate fit; many are tried by all workers."""

    def of_part(part: range) -> list[float]:
        contrasts = sample.several([candidates[k] for k in part], boxes_of, sample.contrast)
        return [z_value(contrast_I) for contrast_I in contrasts]

    workers = execution().workers if len(candidates) * len(sample.rows_n) >= _SHARED else 1
    parts = [range(len(candidates))[start : start + _PART] for start in range(0, len(candidates), _PART)]
    return [fit for _, fits in in_processes(of_part, parts, workers=workers) for fit in fits]


def copies_to_try(raw: RawBoxes, sizes_I2: np.ndarray) -> list[tuple[str, Copy]]:
    """Return the copies that `find_copy` tries, with the order of the numbers: of every kind, as far as possible."""
    median = float(np.median(sizes_I2))
    sizes_I2 = once(sizes_I2)
    kinds = KINDS[: OF_ONE_SIZE if len(sizes_I2) == 1 else None]

    def in_layout(layout: str) -> list[tuple[str, Copy]]:
        numbers = numbers_as(raw, layout)
        far = numbers.far
        if far <= 0 or not numbers.have_area:
            return []
        bases = {kind: (far / median if kind == "times" else far) for kind in kinds}
        copies = [Copy(kind, value) for kind in kinds for value in (bases[kind] * _SCALES).tolist()]
        possible = are_possible(len(copies), len(raw), partial(_of_copies, raw, layout, copies, sizes_I2))
        return [(layout, copy) for copy, is_possible in zip(copies, possible, strict=True) if is_possible]

    workers = execution().workers if len(raw) * len(LAYOUTS) >= _SHARED else 1
    return [tried for _, found in in_processes(in_layout, LAYOUTS, workers=workers) for tried in found]


def find_copy(
    raw: RawBoxes,
    sizes_I2: np.ndarray,
    sample: Sample,
    copies: Sequence[tuple[str, Copy]],
    turn: int,
    tightness: float = 1.0,
) -> Meaning | None:
    """Return the meaning with the resized copy whose boxes, with orientation `turn`, fit the pixels best.

    Boxes are compared in `tightness` times their size, since copies of boxes that are too large fit none of the pixels.
    """
    sizes_I2 = once(sizes_I2)
    subsample = sample.take(sample.spread(_SCANNED))
    sizes_n2 = of_boxes(sizes_I2, raw.image_N, subsample.rows_n)

    def boxes_of(layout: str, copy: Copy) -> np.ndarray:
        """Return the boxes of the sample as they are compared with the pixels of a copy."""
        corners_n4 = numbers_as(raw, layout).of(subsample.rows_n) / np.tile(copy.sizes(sizes_n2), 2)
        return TURNS[turn](corners_n4 - np.tile(copy.margins(sizes_n2), 2))

    fits = _fits(copies, lambda candidate: inflate(boxes_of(*candidate), tightness), subsample)
    ranked = [(fit, layout, copy.kind, copy.value) for fit, (layout, copy) in zip(fits, copies, strict=True)]
    if not ranked:
        return None
    _, layout, kind, near = max(ranked)

    values = [*(near * _CLOSE).tolist(), *(v for v in _usual_values(kind) if abs(v / near - 1) <= _CLOSE[-1] - 1)]
    close = _close_values(raw, layout, kind, values, sizes_I2)
    if not close:
        return None
    onsets = {}
    for near in close:
        _, onsets[near] = in_best_size(boxes_of(layout, Copy(kind, near)), subsample)
    value = max(close, key=lambda v: finite_mean(onsets[v]))

    def on_all_boxes(value: float) -> Meaning:
        meaning = read_as_copy(raw, layout, Copy(kind, value), sizes_I2, sample)
        return meaning if turn == 1 else turned(meaning, turn, sample)

    best = on_all_boxes(value)
    as_good = [v for v in close if z_value(onsets[value] - onsets[v]) < AS_GOOD]
    most_inside = max(close[v] for v in as_good)
    usual = [v for v in as_good if v in _usual_values(kind) and close[v] == most_inside]
    for rounded in map(on_all_boxes, sorted(usual, key=lambda v: (_rank(kind, v), abs(v / value - 1)))[:1]):
        if best.above(fitted(rounded, sample)) < AS_GOOD:
            return rounded if len(usual) == 1 else replace(rounded, as_good=(min(usual), max(usual)))
    all_inside = min((v for v in as_good if close[v] == most_inside), key=lambda v: abs(v / value - 1))
    best = best if all_inside == value else on_all_boxes(all_inside)
    return replace(best, as_good=(min(as_good), max(as_good)))


def _close_values(
    raw: RawBoxes, layout: str, kind: CopyKind, values: Sequence[float], sizes_I2: np.ndarray
) -> dict[float, int]:
    """Return the values of a copy that are possible, each with the number of boxes that lie inside their images."""
    axes_of = partial(_of_copies, raw, layout, [Copy(kind, value) for value in values], sizes_I2)
    close = {k: 0 for k, is_possible in enumerate(are_possible(len(values), len(raw), axes_of)) if is_possible}
    for rows in ranges(len(raw)) if close else ():
        axes_of_block = axes_of(rows)
        for k in close:
            inside_x, inside_y = (is_inside_along(low_n, high_n, _ROUNDED) for low_n, high_n in axes_of_block(k))
            close[k] += int(np.count_nonzero(inside_x & inside_y))
    return {values[k]: inside for k, inside in close.items()}


@lru_cache
def _usual_values(kind: CopyKind) -> frozenset[float]:
    """Return the values that copies usually have."""
    return frozenset(_USUAL_FACTORS if kind == "times" else map(float, (*_USUAL_SIZES, *range(64, 4097, 16))))


def _rank(kind: CopyKind, value: float) -> bool:
    """Return whether a value is less usual than others: no multiple of 32, and not in use with well-known models."""
    return kind != "times" and bool(value % 32) and value not in _USUAL_SIZES


def find_shift(own: Meaning, sizes_I2: np.ndarray, image_N: np.ndarray, sample: Sample) -> Meaning | None:
    """Return the meaning with the shift that fits best, of those that keep nearly all boxes inside their images."""
    subsample = sample.take(sample.spread(_SCANNED))
    own_n4, sizes_I2 = own.boxes.of(subsample.rows_n), once(sizes_I2)
    candidates = list[tuple[float, Meaning]]()
    for in_pixels in (True,) if len(sizes_I2) == 1 else (True, False):
        unit_I2 = sizes_I2 if in_pixels else np.ones((1, 2))
        unit_of = partial(of_boxes, unit_I2, image_N)
        room = _room(own.boxes, unit_of)
        low, high = -room[:2], room[2:]
        if (low > high).any():
            continue
        side = np.array([np.median(of_boxes(unit_I2[:, [axis]], image_N, slice(None))) for axis in range(2)])
        step = np.maximum(_STEP * side, (high - low) / _STEPS)
        steps_x, steps_y = (np.arange(low[k], high[k] + step[k], step[k]).tolist() for k in range(2))
        shifts = [Shift(x, y, in_pixels) for x in steps_x for y in steps_y]
        are_possible_steps = partial(_are_possible, own.boxes, unit_of)
        moved = partial(shift_boxes, own_n4, unit_n2=unit_of(subsample.rows_n))
        is_possible = are_possible_steps(steps_x, steps_y)
        possible = [shift for shift, is_one in zip(shifts, is_possible, strict=True) if is_one] or shifts[:1]
        best = possible[int(np.argmax(_fits(possible, moved, subsample)))]
        for axis, unit in zip("xyxy", np.tile(side, 2), strict=True):
            values = (getattr(best, axis) + unit * _NEARBY).tolist()
            near = [replace(best, **{axis: value}) for value in values]
            is_possible = are_possible_steps(values, [best.y]) if axis == "x" else are_possible_steps([best.x], values)
            onsets = [best_onset(moved(near[k]), subsample) if is_possible[k] else -np.inf for k in range(len(near))]
            best = near[int(np.argmax(onsets))]
        step = _kept_inside(np.array([best.x, best.y]), own.boxes, unit_of, side)
        x, y = (float(v) if abs(v) >= _LEAST_SHIFT * s else 0.0 for v, s in zip(step, side, strict=True))
        if not x and not y:
            continue
        best = Shift(x, y, in_pixels)
        boxes = LaidOut(partial(_of_shifted, own.boxes, best, unit_of), own.boxes.count)
        boxes_n4 = boxes.of(sample.rows_n)
        shifted = replace(own, boxes=boxes, inside=boxes.inside, evidence_I=sample.evidence(boxes_n4), shift=best)
        candidates.append((best_onset(boxes_n4, sample), shifted))
    return max(candidates, key=lambda pair: pair[0], default=(0.0, None))[1]


def _room(own: LaidOut, unit_of: Callable[[Rows], np.ndarray]) -> np.ndarray:
    """Return by how much nearly all boxes can move left, up, right and down, [4], in a unit of each box."""
    room = []
    for side in range(4):  # one at a time: those of all boxes are many
        parts = list[np.ndarray]()
        for rows in ranges(own.count):
            place_n = own.of(rows)[:, side]
            parts.append(((place_n if side < 2 else 1 - place_n) + _STRAY) * unit_of(rows)[:, side % 2])
        room.append(np.quantile(np.concatenate(parts), 2 * _STRAY, overwrite_input=True))
    return np.array(room)


def _kept_inside(step: np.ndarray, own: LaidOut, unit_of: Callable[[Rows], np.ndarray], side: np.ndarray) -> np.ndarray:
    """Return the step nearest to one that leaves boxes inside their images, if it differs by less than is measured."""
    low, high = np.full(2, -np.inf), np.full(2, np.inf)
    for rows in ranges(own.count):
        corners_n4, unit_n2 = own.of(rows), unit_of(rows)
        inside_n = is_inside(corners_n4, 0.0)
        before_n2, behind_n2 = -corners_n4[:, :2] * unit_n2, (1 - corners_n4[:, 2:]) * unit_n2
        low = np.maximum(low, before_n2[inside_n].max(axis=0, initial=-np.inf))
        high = np.minimum(high, behind_n2[inside_n].min(axis=0, initial=np.inf))
    if np.isinf(low).all():
        return step
    near: np.ndarray = np.minimum(np.maximum(step, low), high)
    return near if (np.abs(near - step) <= _NEAR * side).all() else step


def _shifted(corners_4n: np.ndarray, unit_2n: np.ndarray, axis: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return where boxes begin and end along one axis after a step of so many units, as `shift_boxes` has them."""
    move_n = step / unit_2n[axis]
    return corners_4n[axis] + move_n, corners_4n[axis + 2] + move_n


def _are_possible(
    own: LaidOut, unit_of: Callable[[Rows], np.ndarray], steps_x: Sequence[float], steps_y: Sequence[float]
) -> list[bool]:
    """Return what `is_impossible` denies of each step of x with each of y; boxes are inside if they are along both.

    The steps are in a unit of the image of each box.
    """
    inside_XY, both = np.zeros((len(steps_x), len(steps_y)), np.int64), (steps_x, steps_y)
    tiny = [np.zeros(len(steps), np.int64) for steps in both]
    for rows in ranges(own.count):
        corners_4n, unit_2n = np.ascontiguousarray(own.of(rows).T), unit_of(rows).T
        inside = [np.empty((len(steps), corners_4n.shape[1]), np.float32) for steps in both]
        for axis, steps in enumerate(both):
            for k, step in enumerate(steps):
                low_n, high_n = _shifted(corners_4n, unit_2n, axis, step)
                inside[axis][k] = is_inside_along(low_n, high_n)
                tiny[axis][k] += count_tiny(high_n)
        inside_XY += (inside[0] @ inside[1].T).astype(np.int64)  # counts, which are exact
    possible_XY = ~are_mostly_outside(inside_XY, own.count)
    for x, y in np.argwhere(possible_XY).tolist():

        def ends(steps: tuple[float, float] = (steps_x[x], steps_y[y])) -> Iterator[np.ndarray]:
            for rows in ranges(own.count):
                corners_4n, unit_2n = own.of(rows).T, unit_of(rows).T
                yield from (_shifted(corners_4n, unit_2n, axis, step)[1] for axis, step in enumerate(steps))

        possible_XY[x, y] = not is_tiny(int(tiny[0][x] + tiny[1][y]), 2 * own.count, ends)
    possible: list[bool] = possible_XY.ravel().tolist()
    return possible


def _of_copies(
    raw: RawBoxes, layout: str, copies: Sequence[Copy], sizes_I2: np.ndarray, rows: slice
) -> Callable[[int], Axes]:
    """Return a function of where boxes begin and end along each axis in a copy, as `read_as_copy` has them."""
    corners_4n = np.ascontiguousarray(numbers_as(raw, layout).of(rows).T)
    sizes_n2 = of_boxes(sizes_I2, raw.image_N, rows)

    def axes_of(k: int) -> Axes:
        divisor_2n, margin_2n = copies[k].sizes(sizes_n2).T, copies[k].margins(sizes_n2).T
        for axis in range(2):
            low_n, high_n = (corners_4n[end] / divisor_2n[axis] - margin_2n[axis] for end in (axis, axis + 2))
            yield low_n, high_n

    return axes_of


def shift_boxes(boxes_n4: np.ndarray, shift: Shift, unit_n2: np.ndarray) -> np.ndarray:
    """Return shifted corners in [0, 1] of boxes; the shift is in this unit of each box."""
    shifted_n4: np.ndarray = boxes_n4 + np.tile(np.array([shift.x, shift.y]) / unit_n2, 2)
    return shifted_n4


def _of_shifted(own: LaidOut, shift: Shift, unit_of: Callable[[Rows], np.ndarray], rows: Rows) -> np.ndarray:
    return shift_boxes(own.of(rows), shift, unit_of(rows))
