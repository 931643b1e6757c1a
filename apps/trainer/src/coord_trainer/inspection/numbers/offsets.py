"""Finds small systematic errors of boxes: coordinates some per cent too large or small, shifts, wrong box sizes.

The statistic is `Sample.onset`: the edges of an object start at the sides of its box, with none outside. Contrast with
other positions would favour boxes that are too small, whose sides cut through the object and lie on edges as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from coord_trainer.inspection.numbers.edges import SIGNIFICANT, Sample, inflate, z_value

_SIGNIFICANT = 3.5  # z from which a gain counts; about a hundred small moves are tried
_AS_GOOD = 2.0  # z of the difference below which a smaller move fits equally well
_APART = 8  # pixels of the thumbnail between two sides from which their edges can be separated
_ROUNDS = 3
_TRIED_SIZES = (0.76, 0.82, 0.88, 0.94, 1.06, 1.12)
_LEAST_ONSET = 0.02  # smallest onset of the moved boxes, in ranks


@dataclass(frozen=True)
class Kind:
    """A family of small moves.

    Attributes:
        code: code of the finding
        steps: factors, or shifts as fractions of the image
        move: function that moves boxes by a step
        neutral: the step that leaves boxes unchanged
        least: smallest difference from `neutral` that is reported
        gain: factor by which the mean onset must rise, since annotations are rarely exact to the pixel
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
"""Resizing of boxes about their own centres."""
KINDS = (
    Kind("resized", np.round(np.arange(0.76, 1.3001, 0.02), 4), lambda b, v: b * v, 1.0, 0.03, 1.5),
    Kind("shifted_x", _SHIFTS, lambda b, v: np.add(b, (v, 0, v, 0)), 0.0, 0.012, 1.4),
    Kind("shifted_y", _SHIFTS, lambda b, v: np.add(b, (0, v, 0, v)), 0.0, 0.012, 1.4),
    TIGHTNESS,
)


@dataclass(frozen=True)
class Offset:
    """A move of all boxes after which they fit better.

    Attributes:
        code: code of one of `KINDS`
        value: the factor, or the shift as a fraction of the image
        least: the smallest move of this kind that fits equally well
        before: mean onset of the unchanged boxes
        after: mean onset of the moved boxes
        z: significance of the difference, over images
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
    """Return the move that increases the onset at the sides of the boxes most; None if no increase is significant."""
    before_I = sample.onset(boxes_N4)
    before = _mean(before_I)
    offsets = []
    sides_n2 = (boxes_N4[sample.rows_n, 2:] - boxes_N4[sample.rows_n, :2]) * sample.size_n2
    shorter_side = float(np.median(sides_n2.min(axis=1))) if len(sides_n2) else 0.0

    def fits_enlarged(factor: float) -> bool:
        """Return whether larger boxes fit better away from blurred edges too, and their sides can be separated."""
        if shorter_side < _APART:
            return False
        own_I, enlarged_I = (sample.onset(b, clear=True) for b in (boxes_N4, inflate(boxes_N4, factor)))
        return z_value(enlarged_I - own_I) >= _AS_GOOD

    for kind in kinds:
        onsets = {value: sample.onset(kind.move(boxes_N4, value)) for value in kind.steps.tolist()}
        z = {value: z_value(onset_I - before_I) for value, onset_I in onsets.items()}
        better = [v for v in onsets if z[v] >= _SIGNIFICANT and (kind is not TIGHTNESS or v < 1 or fits_enlarged(v))]
        value = max(better, key=lambda v: _mean(onsets[v]), default=kind.neutral)
        if abs(value - kind.neutral) < kind.least:
            continue
        after = _mean(onsets[value])
        if after < max(kind.gain * before, _LEAST_ONSET):
            continue
        refined = _refined(kind, value, boxes_N4, sample)
        if abs(refined - kind.neutral) < kind.least:
            continue
        low, high = sorted((kind.neutral, value))
        as_good = [v for v in onsets if low < v < high and z_value(onsets[value] - onsets[v]) < _AS_GOOD]
        least = min([*as_good, value], key=lambda v: abs(v - kind.neutral))
        offsets.append(Offset(kind.code, refined, least, before, after, z[value], kind.move(boxes_N4, refined)))
    offsets = [offset for offset in offsets if z_value(sample.evidence(offset.boxes_N4)) >= SIGNIFICANT]
    return max(offsets, key=lambda offset: offset.after, default=None)


def find_offsets(boxes_N4: np.ndarray, sample: Sample, excluded: Sequence[str] = ()) -> list[Offset]:
    """Return the moves after which the boxes fit better, largest gain first; at most one of each kind not excluded."""
    offsets: list[Offset] = []
    sample = sample.subsample(1500)
    for _ in range(_ROUNDS):
        kinds = [kind for kind in KINDS if kind.code not in {*excluded, *(offset.code for offset in offsets)}]
        offset = find_offset(boxes_N4, sample, kinds)
        if offset is None:
            break
        offsets.append(offset)
        boxes_N4 = offset.boxes_N4
    return offsets


def best_onset(boxes_N4: np.ndarray, sample: Sample) -> float:
    """Return the largest mean onset of the boxes over several box sizes.

    Otherwise a wrong move that places some sides of too large or too small boxes on edges would seem to fit better
    than the right one.
    """
    return max(_mean(sample.onset(inflate(boxes_N4, size))) for size in (1.0, *_TRIED_SIZES))


def _refined(kind: Kind, value: float, boxes_N4: np.ndarray, sample: Sample) -> float:
    """Return the step near `value` with the largest onset."""
    if kind is TIGHTNESS:
        return value
    reach = 1.5 * float(kind.steps[1] - kind.steps[0])
    nearby = (value + np.linspace(-reach, reach, 13)).tolist()
    return max(nearby, key=lambda v: best_onset(kind.move(boxes_N4, v), sample))


def _mean(values_I: np.ndarray) -> float:
    finite = values_I[np.isfinite(values_I)]
    return float(finite.mean()) if len(finite) else -1.0
