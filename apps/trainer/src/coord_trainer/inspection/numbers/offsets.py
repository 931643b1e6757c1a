"""Small faults of boxes that fit on the whole: a few per cent too far from the origin, shifted, too large, too small.

The statistic is `Sample.onset`: the edges of an object begin at the sides of its box and not outside of them. Contrast
with other places would favour boxes that are too small, whose sides cut through the object and find edges as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from coord_trainer.inspection.numbers.edges import STANDS_OUT, Sample, inflate, z_value

_STANDS_OUT = 3.5  # z of a gain, of a hundred small moves
_AS_GOOD = 2.0  # z below which a smaller move explains as much
_APART = 8  # pixels between two sides, as looked at, from which their edges are not one
_ROUNDS = 3
_TRIED_SIZES = (0.76, 0.82, 0.88, 0.94, 1.06, 1.12)
_LEAST_ONSET = 0.02  # that the moved boxes must reach, in ranks


@dataclass(frozen=True)
class Kind:
    """A family of small moves.

    Attributes:
        code: of the finding
        steps: factors, or shifts as fractions of the image
        move: how boxes are moved by one of them
        neutral: the step that moves nothing
        least: smallest difference from it that is worth telling
        gain: factor by which the mean onset must rise: annotators are off by a pixel everywhere
    """

    code: str
    steps: np.ndarray
    move: Callable[[np.ndarray, float], np.ndarray]
    neutral: float
    least: float
    gain: float


_SHIFTS = np.round(np.arange(-0.08, 0.0801, 0.01), 4)
_SMALLER = np.round(np.arange(0.7, 0.98, 0.03), 4)
_SIZES = np.concatenate([_SMALLER, np.round(1 / _SMALLER[::-1], 4)])
TIGHTNESS = Kind("tightness", _SIZES, inflate, 1.0, 0.02, 1.2)
"""Boxes that are too large or too small, about their own centres."""
KINDS = (
    Kind("resized", np.round(np.arange(0.76, 1.3001, 0.02), 4), lambda b, v: b * v, 1.0, 0.03, 1.5),
    Kind("shifted_x", _SHIFTS, lambda b, v: np.add(b, (v, 0, v, 0)), 0.0, 0.012, 1.4),
    Kind("shifted_y", _SHIFTS, lambda b, v: np.add(b, (0, v, 0, v)), 0.0, 0.012, 1.4),
    TIGHTNESS,
)


@dataclass(frozen=True)
class Offset:
    """A move of all boxes that makes them fit.

    Attributes:
        code: which of `KINDS`
        value: the factor, or the shift as a fraction of the image
        least: the smallest move of its kind that explains as much
        before: mean onset of the boxes as they are
        after: mean onset of the moved boxes
        z: of the difference, over images
        boxes_N4: the moved boxes
    """

    code: str
    value: float
    least: float
    before: float
    after: float
    z: float
    boxes_N4: np.ndarray = field(repr=False)


def find_offset(boxes_N4: np.ndarray, sample: Sample, kinds: Sequence[Kind]) -> Offset | None:
    """Return the move after which the edges begin most clearly at the sides of the boxes; None if none is clear."""
    before_I = sample.onset(boxes_N4)
    before = _mean(before_I)
    good = []
    sides_n2 = (boxes_N4[sample.rows_n, 2:] - boxes_N4[sample.rows_n, :2]) * sample.size_n2
    shorter = float(np.median(sides_n2.min(axis=1))) if len(sides_n2) else 0.0

    def grows(factor: float) -> bool:
        """Whether larger boxes fit better beyond the reach of an edge too, and their sides can be told apart."""
        if shorter < _APART:
            return False
        first_I, then_I = (sample.onset(b, clear=True) for b in (boxes_N4, inflate(boxes_N4, factor)))
        return z_value(then_I - first_I) >= _AS_GOOD

    for kind in kinds:
        tried = {value: sample.onset(kind.move(boxes_N4, value)) for value in kind.steps.tolist()}
        z = {value: z_value(onset_I - before_I) for value, onset_I in tried.items()}
        better = [v for v in tried if z[v] >= _STANDS_OUT and (kind is not TIGHTNESS or v < 1 or grows(v))]
        value = max(better, key=lambda v: _mean(tried[v]), default=kind.neutral)
        if abs(value - kind.neutral) < kind.least:
            continue
        after = _mean(tried[value])
        if after < max(kind.gain * before, _LEAST_ONSET):
            continue
        close = _closely(kind, value, boxes_N4, sample)
        if abs(close - kind.neutral) < kind.least:
            continue
        near, far = sorted((kind.neutral, value))
        as_good = [v for v in tried if near < v < far and z_value(tried[value] - tried[v]) < _AS_GOOD]
        least = min([*as_good, value], key=lambda v: abs(v - kind.neutral))
        good.append(Offset(kind.code, close, least, before, after, z[value], kind.move(boxes_N4, close)))
    good = [offset for offset in good if z_value(sample.evidence(offset.boxes_N4)) >= STANDS_OUT]
    return max(good, key=lambda offset: offset.after, default=None)


def find_offsets(boxes_N4: np.ndarray, sample: Sample, known: Sequence[str] = ()) -> list[Offset]:
    """Return the moves by which the boxes fit better, the one that gains most first; each kind once, but the known."""
    found: list[Offset] = []
    sample = sample.few(1500)
    for _ in range(_ROUNDS):
        left = [kind for kind in KINDS if kind.code not in {*known, *(offset.code for offset in found)}]
        offset = find_offset(boxes_N4, sample, left)
        if offset is None:
            break
        found.append(offset)
        boxes_N4 = offset.boxes_N4
    return found


def begins(boxes_N4: np.ndarray, sample: Sample) -> float:
    """Return how clearly edges begin at the sides of boxes, in the size in which they do most.

    Where boxes are too large or too small, a move that brings some of their sides to edges would seem to fit better
    than the right one.
    """
    return max(_mean(sample.onset(inflate(boxes_N4, size))) for size in (1.0, *_TRIED_SIZES))


def _closely(kind: Kind, value: float, boxes_N4: np.ndarray, sample: Sample) -> float:
    """Return the move near that one at whose boxes edges begin most clearly."""
    if kind is TIGHTNESS:
        return value
    reach = 1.5 * float(kind.steps[1] - kind.steps[0])
    near = (value + np.linspace(-reach, reach, 13)).tolist()
    return max(near, key=lambda v: begins(kind.move(boxes_N4, v), sample))


def _mean(values_I: np.ndarray) -> float:
    known = values_I[np.isfinite(values_I)]
    return float(known.mean()) if len(known) else -1.0
