"""Finds resized copies and shifts: tries hundreds of them on a few boxes, and evaluates the best one on all boxes.

Shapes: I images, N boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from coord_codec.layouts import LAYOUTS, TURNS
from coord_data.inspection.numbers.best_size import best_onset, finite_mean, in_best_size
from coord_data.inspection.numbers.edges import Sample, is_inside, is_inside_along, z_value
from coord_data.inspection.numbers.meaning import (
    AS_GOOD,
    Meaning,
    Shift,
    count_tiny,
    fitted,
    has_area,
    is_impossible_along,
    is_mostly_outside,
    is_surely_tiny,
    is_tiny,
    laid_out,
    read_as,
    read_corners,
    turned,
)
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import KINDS, OF_ONE_SIZE, Copy, Kind, inflate

SCAN_SIGNIFICANT = 4.0
"""z from which the best of hundreds of candidates counts: one of them reaches 3 by chance."""
_SCANNED = 300  # boxes on which candidates are tried
_USUAL_SIZES = (300, 500, 600, 800, 1000, 1333)  # beside multiples of 32, and after these of 16
_USUAL_FACTORS = (1 / 3, 2 / 3, *(k / 20 for k in range(4, 20)), *(k / 4 for k in range(5, 17)))
_ROUNDED = 0.002  # distance up to which boxes leave their image by rounding, as a fraction of it
_NEAR = 0.01  # change of a shift up to which boxes that stay inside matter more, as a fraction of the image
_CLOSE = np.linspace(0.95, 1.05, 41)  # refinement of the value, since contrast prefers boxes that are too small
_STRAY = 0.01  # share of boxes that may leave the image on each side after a shift, and how far
_STEP, _STEPS = 0.005, 40  # smallest step of shifts, as a fraction of the image, and largest number of steps
_NEARBY = np.linspace(-0.03, 0.03, 25)  # refinement of the best shift, as fractions of the image
_LEAST_SHIFT = 0.012  # as in `offsets`


def read_as_copy(raw: RawBoxes, layout: str, copy: Copy, sizes_I2: np.ndarray, sample: Sample) -> Meaning:
    """Return the meaning of numbers in pixels of a copy of each image."""
    return read_as(sample, layout, "copy", partial(corners_of_copy, raw, layout, copy, sizes_I2), copy)


def _fits(is_possible: Sequence[bool], boxes_of: Callable[[int], np.ndarray], sample: Sample) -> list[float]:
    """Return how clearly the boxes of each candidate fit; minus infinity if impossible.

    Args:
        is_possible: whether nearly all boxes of the set lie inside their images under each candidate
        boxes_of: returns the boxes of the sample under a candidate
        sample: these boxes alone
    """
    possible = np.flatnonzero(is_possible).tolist()
    fits = [-np.inf] * len(is_possible)
    for k, contrast_I in zip(possible, sample.several(possible, boxes_of, sample.contrast), strict=True):
        fits[k] = z_value(contrast_I)
    return fits


@dataclass(frozen=True)
class Copies:
    """Resized copies of one kind, in whose pixels numbers in one order may be.

    Attributes:
        layout: order of the numbers
        kind: kind of the copies
        values: their values
        is_possible: whether nearly all boxes lie inside their images under each
    """

    layout: str
    kind: Kind
    values: list[float]
    is_possible: list[bool]


def by_size(raw: RawBoxes, sizes_I2: np.ndarray) -> tuple[RawBoxes, np.ndarray]:
    """Return the boxes as of one image of each size, and these sizes: copies depend on nothing else of an image."""
    distinct_U2, place_I = np.unique(sizes_I2, axis=0, return_inverse=True)
    if len(distinct_U2) == 1:
        return raw.in_images(np.broadcast_to(np.int64(0), len(raw))), distinct_U2
    return raw.in_images(place_I.reshape(-1)[raw.image_N]), distinct_U2


def copies_to_try(raw: RawBoxes, sizes_I2: np.ndarray) -> list[Copies]:
    """Return the copies that `find_copy` tries: every kind, in every order of the numbers."""
    median = float(np.median(sizes_I2))
    raw, sizes_U2 = by_size(raw, sizes_I2)
    return [tried for layout in LAYOUTS for tried in _copies_in(layout, raw, sizes_U2, median)]


def _copies_in(layout: str, raw: RawBoxes, sizes_U2: np.ndarray, median: float) -> list[Copies]:
    """Return the copies of every kind in one order of the numbers, whose boxes are laid out here alone."""
    corners_4N = laid_out(raw, layout)
    far = float(np.quantile(corners_4N[2:], 0.995))
    if far <= 0 or not has_area(corners_4N.T):
        return []
    tried = []
    for kind in KINDS[: OF_ONE_SIZE if len(sizes_U2) == 1 else None]:
        base = far / median if kind == "times" else far
        values = (base * np.geomspace(0.7, 2.5, 60)).tolist()
        copies = [Copy(kind, value) for value in values]
        is_possible = [not is_impossible_along(_of_copy(raw, corners_4N, copy, sizes_U2)) for copy in copies]
        tried.append(Copies(layout, kind, values, is_possible))
    return tried


def find_copy(
    raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample, copies: Sequence[Copies], turn: int, tightness: float = 1.0
) -> Meaning | None:
    """Return the meaning with the resized copy whose boxes, with orientation `turn`, fit the pixels best.

    Boxes are compared in `tightness` times their size, since copies of boxes that are too large fit none of the pixels.
    """
    raw, sizes_I2 = by_size(raw, sizes_I2)
    subsample = sample.subsample(_SCANNED)
    compared, subsample = raw.of_boxes(subsample.rows_n), subsample.alone

    candidates: list[tuple[float, str, Kind, float]] = []
    for tried in copies:

        def compared_boxes(k: int, tried: Copies = tried) -> np.ndarray:
            """Return the boxes of the sample as they are compared with the pixels of a copy."""
            copy = Copy(tried.kind, tried.values[k])
            return inflate(TURNS[turn](corners_of_copy(compared, tried.layout, copy, sizes_I2)), tightness)

        fits = _fits(tried.is_possible, compared_boxes, subsample)
        candidates += [(fit, tried.layout, tried.kind, value) for fit, value in zip(fits, tried.values, strict=True)]
    if not candidates or max(candidates)[0] == -np.inf:
        return None
    _, layout, kind, near = max(candidates)

    values = [*(near * _CLOSE).tolist(), *(v for v in _usual_values(kind) if abs(v / near - 1) <= _CLOSE[-1] - 1)]
    close = _close_values(raw, layout, kind, values, sizes_I2)
    if not close:
        return None
    onsets = {}
    for near in close:
        compared_n4 = corners_of_copy(compared, layout, Copy(kind, near), sizes_I2)
        _, onsets[near] = in_best_size(TURNS[turn](compared_n4), subsample)
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
    raw: RawBoxes, layout: str, kind: Kind, values: Sequence[float], sizes_I2: np.ndarray
) -> dict[float, int]:
    """Return the values of a copy that are possible, each with the number of boxes that lie inside their images."""
    close = {}
    corners_4N = laid_out(raw, layout)
    for value in values:
        axes = tuple(_of_copy(raw, corners_4N, Copy(kind, value), sizes_I2))
        if not is_impossible_along(axes):
            inside_x, inside_y = (is_inside_along(low_N, high_N, _ROUNDED) for low_N, high_N in axes)
            close[value] = int(np.count_nonzero(inside_x & inside_y))
        del axes  # before those of the next value
    return close


@lru_cache
def _usual_values(kind: Kind) -> frozenset[float]:
    """Return the values that copies usually have."""
    return frozenset(_USUAL_FACTORS if kind == "times" else map(float, (*_USUAL_SIZES, *range(64, 4097, 16))))


def _rank(kind: Kind, value: float) -> bool:
    """Return whether a value is less usual than others: no multiple of 32, and not in use with well-known models."""
    return kind != "times" and bool(value % 32) and value not in _USUAL_SIZES


def find_shift(own: Meaning, sizes_I2: np.ndarray, image_N: np.ndarray, sample: Sample) -> Meaning | None:
    """Return the meaning with the shift that fits best, of those that keep nearly all boxes inside their images."""
    subsample, own_N4 = sample.subsample(_SCANNED), own.boxes_N4
    one_size = bool((sizes_I2 == sizes_I2[0]).all())
    # One row for all boxes where it is the same: arrays of all of them take the most memory of an inspection.
    size_N2 = sizes_I2[:1] if one_size else sizes_I2.T[:, image_N].T
    size_n2 = size_N2 if one_size else size_N2[subsample.rows_n]
    own_n4, subsample = own_N4[subsample.rows_n], subsample.alone
    own_4N, candidates = np.ascontiguousarray(own_N4.T), list[tuple[float, Meaning]]()
    for in_pixels in (True,) if one_size else (True, False):
        unit_N2 = size_N2 if in_pixels else np.ones((1, 2))

        def fit_closely(shift: Shift, unit_2N: np.ndarray = unit_N2.T) -> float:
            if is_impossible_along(_shifted(own_4N, unit_2N, k, step) for k, step in enumerate((shift.x, shift.y))):
                return -np.inf
            return best_onset(shift_boxes(own_n4, shift, size_n2), subsample)

        # A column at a time: all of them at once would take the most memory of an inspection.
        before = ((own_N4[:, k] + _STRAY) * unit_N2[:, k] for k in range(2))
        low = -np.array([np.quantile(room_N, 2 * _STRAY) for room_N in before])
        behind = ((1 - own_N4[:, k + 2] + _STRAY) * unit_N2[:, k] for k in range(2))
        high = np.array([np.quantile(room_N, 2 * _STRAY) for room_N in behind])
        if (low > high).any():
            continue
        step = np.maximum(_STEP * np.median(unit_N2, axis=0), (high - low) / _STEPS)
        steps_x, steps_y = (np.arange(low[k], high[k] + step[k], step[k]).tolist() for k in range(2))
        shifts = [Shift(x, y, in_pixels) for x in steps_x for y in steps_y]

        def shifted_boxes(k: int, shifts: Sequence[Shift] = shifts) -> np.ndarray:
            """Return the boxes of the sample after a shift."""
            return shift_boxes(own_n4, shifts[k], size_n2)

        is_possible = _are_possible(own_4N, steps_x, steps_y, unit_N2.T)
        best = shifts[int(np.argmax(_fits(is_possible, shifted_boxes, subsample)))]
        side = np.median(unit_N2, axis=0)
        for k, axis in enumerate("xyxy"):
            near = getattr(best, axis) + side[k % 2] * _NEARBY
            best = max((replace(best, **{axis: value}) for value in near.tolist()), key=fit_closely)
        step = _kept_inside(np.array([best.x, best.y]), own_N4, unit_N2, side)
        x, y = (float(v) if abs(v) >= _LEAST_SHIFT * s else 0.0 for v, s in zip(step, side, strict=True))
        if not x and not y:
            continue
        best = Shift(x, y, in_pixels)
        lay_out = partial(shift_boxes, own_N4, best, size_N2)
        boxes_N4 = lay_out()
        inside, evidence_I = float(is_inside(boxes_N4).mean()), sample.evidence(boxes_N4)
        shifted = replace(own, lay_out=lay_out, inside=inside, evidence_I=evidence_I, shift=best)
        candidates.append((best_onset(boxes_N4, sample), shifted))
    return max(candidates, key=lambda pair: pair[0], default=(0.0, None))[1]


def _kept_inside(step: np.ndarray, boxes_N4: np.ndarray, unit_N2: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Return the step nearest to one that leaves boxes inside their images, if it differs by less than is measured.

    Args:
        step: shift of x and y
        boxes_N4: corners in [0, 1], of which those count that are inside
        unit_N2: what the shifts are fractions of in the image of each box
        side: width and height of a typical image in the unit of the step
    """
    inside_N = is_inside(boxes_N4, 0.0)
    if not inside_N.any():
        return step
    low = ((-boxes_N4[:, k] * unit_N2[:, k]).max(where=inside_N, initial=-np.inf) for k in range(2))
    high = (((1 - boxes_N4[:, k + 2]) * unit_N2[:, k]).min(where=inside_N, initial=np.inf) for k in range(2))
    near: np.ndarray = np.minimum(np.maximum(step, [*low]), [*high])
    return near if (np.abs(near - step) <= _NEAR * side).all() else step


def _shifted(corners_4N: np.ndarray, unit_2N: np.ndarray, axis: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return where boxes begin and end along one axis after a step of so many units, as `shift_boxes` has them."""
    move_N = step / unit_2N[axis]
    return corners_4N[axis] + move_N, corners_4N[axis + 2] + move_N


def _are_possible(
    corners_4N: np.ndarray, steps_x: Sequence[float], steps_y: Sequence[float], unit_2N: np.ndarray
) -> list[bool]:
    """Return what `is_impossible` denies of each step of x with each of y; boxes are inside if they are along both.

    Args:
        corners_4N: columns of corners in [0, 1]
        steps_x: shifts of x
        steps_y: shifts of y
        unit_2N: what the shifts are fractions of in the image of each box
    """
    along = partial(_shifted, corners_4N, unit_2N)
    inside_X = [np.packbits(is_inside_along(*along(0, x))) for x in steps_x]
    tiny_X = [count_tiny(along(0, x)[1]) for x in steps_x]
    possible_YX = np.zeros((len(steps_y), len(steps_x)), bool)
    for row, y in enumerate(steps_y):
        inside_N, tiny = is_inside_along(*along(1, y)), count_tiny(along(1, y)[1])
        for column, x in enumerate(steps_x):
            if is_mostly_outside(np.unpackbits(inside_X[column], count=len(inside_N)).view(bool) & inside_N):
                continue
            surely = is_surely_tiny(tiny_X[column] + tiny, 2 * len(inside_N))
            if surely is None:
                surely = is_tiny(along(0, x)[1], along(1, y)[1])
            possible_YX[row, column] = not surely
    possible: list[bool] = possible_YX.T.ravel().tolist()
    return possible


def _of_copy(
    raw: RawBoxes, corners_4N: np.ndarray, copy: Copy, sizes_I2: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield where boxes begin and end along each axis, as `corners_of_copy` has them, from columns of their corners."""
    size_I2, margin_I2 = copy.sizes(sizes_I2), copy.margins(sizes_I2)
    image_N = raw.image_N if len(sizes_I2) > 1 else 0
    for axis in range(2):
        divisor_N, margin_N = size_I2[:, axis][image_N], margin_I2[:, axis][image_N]
        yield corners_4N[axis] / divisor_N - margin_N, corners_4N[axis + 2] / divisor_N - margin_N


def corners_of_copy(raw: RawBoxes, layout: str, copy: Copy, sizes_I2: np.ndarray) -> np.ndarray:
    """Return corners in [0, 1] of the images from numbers in pixels of a copy."""
    corners_N4, margins_I2 = read_corners(raw, layout, copy.sizes(sizes_I2)), copy.margins(sizes_I2)
    for k in range(4):
        corners_N4[:, k] -= margins_I2[:, k % 2][raw.image_N]
    return corners_N4


def shift_boxes(boxes_N4: np.ndarray, shift: Shift, size_N2: np.ndarray) -> np.ndarray:
    """Return shifted corners in [0, 1] of boxes in images of these sizes in pixels."""
    step_N2 = np.array([shift.x, shift.y]) / (size_N2 if shift.in_pixels else 1)
    shifted_N4: np.ndarray = boxes_N4 + np.broadcast_to(np.tile(step_N2, 2), boxes_N4.shape)
    return shifted_N4
