"""Small faults of boxes that fit on the whole: a few per cent too far from the origin, or a few pixels to one side.

Boxes that are too large cannot be told: the sides of a smaller box cut through round objects and find edges as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coord_trainer.inspection.edges import z_value
from coord_trainer.inspection.meaning import Sample

_STANDS_OUT = 4.0  # of a hundred small moves


def _inflate(b: np.ndarray, value: float) -> np.ndarray:
    centre = np.tile((b[:, :2] + b[:, 2:]) / 2, 2)
    return centre + (b - centre) * value


@dataclass(frozen=True)
class Kind:
    """A family of small moves.

    Attributes:
        code: of the finding
        steps: factors, or shifts as fractions of the image
        move: how boxes are moved by one of them
        neutral: the step that moves nothing
        least: smallest difference from it that is worth telling
        gain: factor by which the mean contrast must rise: annotators are off by a pixel everywhere
    """

    code: str
    steps: np.ndarray
    move: Callable[[np.ndarray, float], np.ndarray]
    neutral: float
    least: float
    gain: float


_SHIFTS = np.round(np.arange(-0.08, 0.0801, 0.01), 4)
KINDS = (
    Kind("resized", np.round(np.arange(0.76, 1.3001, 0.02), 4), lambda b, v: b * v, 1.0, 0.03, 1.5),
    Kind("shifted_x", _SHIFTS, lambda b, v: np.add(b, (v, 0, v, 0)), 0.0, 0.012, 1.4),
    Kind("shifted_y", _SHIFTS, lambda b, v: np.add(b, (0, v, 0, v)), 0.0, 0.012, 1.4),
    Kind("too_small", np.round(np.arange(1.04, 1.2501, 0.03), 4), _inflate, 1.0, 0.03, 1.3),
)


@dataclass(frozen=True)
class Offset:
    """A move of all boxes that makes them fit.

    Attributes:
        code: which of `KINDS`
        value: the factor, or the shift as a fraction of the image
        before: mean contrast of the boxes as they are
        after: mean contrast of the moved boxes
        z: of the difference, over images
    """

    code: str
    value: float
    before: float
    after: float
    z: float


def find_offsets(boxes_N4: np.ndarray, sample: Sample) -> list[Offset]:
    """Return the moves by which the boxes fit better, the one that gains most first; at most two."""
    found: list[Offset] = []
    sample = sample.few(1500)
    for _ in range(2):
        before_I = sample.contrast(boxes_N4)
        if not (before := float(np.nanmean(before_I))) > 0:
            break
        tried = []
        for kind in (k for k in KINDS if k.code not in {offset.code for offset in found}):
            for value in kind.steps[np.abs(kind.steps - kind.neutral) >= kind.least].tolist():
                after_I = sample.contrast(kind.move(boxes_N4, value))
                tried.append((float(np.nanmean(after_I)), kind, value, z_value(after_I - before_I)))
        good = [t for t in tried if t[0] >= t[1].gain * before and t[3] >= _STANDS_OUT]
        if not good:
            break
        after, kind, value, z = max(good, key=lambda t: t[0])
        found.append(Offset(kind.code, value, before, after, z))
        boxes_N4 = kind.move(boxes_N4, value)
    return found
