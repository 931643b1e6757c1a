"""Finds small systematic errors of boxes: coordinates some per cent too large or small, shifts, wrong box sizes.

The statistic is `Sample.onset`: the edges of an object start at the sides of its box, with none outside. Contrast with
other positions would favour boxes that are too small, whose sides cut through the object and lie on edges as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from coord_data.inspection.numbers.background import Background, gain_beside, overlap
from coord_data.inspection.numbers.best_size import best_onset, finite_mean, in_best_size
from coord_data.inspection.numbers.edges import SIGNIFICANT, Sample, z_value
from coord_data.sources.read_as import inflate

_SIGNIFICANT = 3.5  # z from which a gain counts; about a hundred small moves are tried
_AS_GOOD = 2.0  # z of the difference below which a smaller move fits equally well
_APART = 8  # pixels of the thumbnail between two sides from which their edges can be separated
_ROUNDS = 3
_LEAST_ONSET = 0.02  # smallest onset of the moved boxes, in ranks


@dataclass(frozen=True)
class OffsetKind:
    """A family of small moves.

    Attributes:
        code: code of the finding
        steps_KD: factors [K, 1], or shifts of x and y [K, 2] as fractions of the image
        move: function that moves boxes [N, 4] by a step [D]
        neutral: the step that leaves boxes unchanged
        least: smallest difference from `neutral` that is reported
        reach: distance from the best step within which it is refined; 0 for none
        gain: factor by which the mean onset must rise, since annotations are rarely exact to the pixel
    """

    code: str
    steps_KD: np.ndarray
    move: Callable[[np.ndarray, Any], np.ndarray]
    neutral: float
    least: float
    reach: float
    gain: float

    def is_reported(self, step_D: np.ndarray) -> bool:
        """Return whether a step is large enough to be reported."""
        return bool((abs(step_D - self.neutral) >= self.least).any())


_GRID = np.stack(np.meshgrid(*[np.arange(-8, 9)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)  # per cent
_SHIFTS = _GRID[(_GRID == 0).any(axis=1) | (_GRID % 2 == 0).all(axis=1)] / 100
_SMALLER = np.round(np.arange(0.7, 0.98, 0.03), 4)
_SIZES = np.concatenate([_SMALLER, np.round(1 / _SMALLER[::-1], 4)])
TIGHTNESS = OffsetKind("tightness", _SIZES[:, None], inflate, 1.0, 0.02, 0.0, 1.2)
"""Resizing of boxes about their own centres."""
KINDS = (
    OffsetKind("resized", np.round(np.arange(0.76, 1.3001, 0.02), 4)[:, None], np.multiply, 1.0, 0.03, 0.03, 1.5),
    OffsetKind("shifted", _SHIFTS, lambda b, v: b + np.tile(v, 2), 0.0, 0.012, 0.015, 1.4),
    TIGHTNESS,
)


@dataclass(frozen=True)
class Offset:
    """A move of all boxes after which they fit better.

    Attributes:
        kind: the kind of move
        step: the factor, or the shifts of x and y as fractions of the image; see `Kind.steps_KD`
        least: the smallest factor that fits equally well, for the kinds that have one
        before: mean onset of the unchanged boxes
        after: mean onset of the moved boxes
        z: significance of the difference, over images
        z_of_groups: the same, with each group of look-alikes counted once; for enlarged boxes, the lesser of
            this and that of the boxes apart
        background: what boxes beside the objects gain by this move; None if that was not asked
    """

    kind: OffsetKind
    step: tuple[float, ...]
    least: float
    before: float
    after: float
    z: float
    z_of_groups: float = 0.0
    background: Background | None = None

    @property
    def code(self) -> str:
        """Code of the kind."""
        return self.kind.code

    def move(self, boxes_N4: np.ndarray) -> np.ndarray:
        """Return boxes after the move."""
        return self.kind.move(boxes_N4, np.array(self.step))


def find_offset(boxes_n4: np.ndarray, sample: Sample, kinds: Sequence[OffsetKind]) -> Offset | None:
    """Return the move that increases the onset at the sides of the boxes most; None if no increase is significant."""
    if sample.says_nothing:
        return None
    before_I = sample.onset(boxes_n4)
    before = finite_mean(before_I)
    offsets = []
    sides_n2 = (boxes_n4[:, 2:] - boxes_n4[:, :2]) * sample.size_n2
    shorter_side = float(np.median(sides_n2.min(axis=1))) if len(sides_n2) else 0.0

    def fits_enlarged(step_D: np.ndarray) -> bool:
        """Return whether larger boxes fit better away from blurred edges too, and their sides can be separated."""
        if shorter_side < _APART:
            return False
        own_I, enlarged_I = (sample.onset(b, clear=True) for b in (boxes_n4, TIGHTNESS.move(boxes_n4, step_D)))
        return z_value(enlarged_I - own_I) >= _AS_GOOD

    for kind in kinds:
        steps_KD = kind.steps_KD
        onset_KI = sample.several(list(steps_KD), partial(kind.move, boxes_n4), sample.onset)
        z_K = np.array([z_value(onset_I - before_I) for onset_I in onset_KI])
        better = [
            k
            for k in np.flatnonzero(z_K >= _SIGNIFICANT).tolist()
            if kind is not TIGHTNESS or steps_KD[k, 0] < 1 or fits_enlarged(steps_KD[k])
        ]
        best = max(better, key=lambda k: finite_mean(onset_KI[k]), default=None)
        if best is None or not kind.is_reported(steps_KD[best]):
            continue
        if _lies_on_weaker_edges(kind.move(boxes_n4, steps_KD[best]), boxes_n4, sample):
            continue
        after = finite_mean(onset_KI[best])
        if after < max(kind.gain * before, _LEAST_ONSET):
            continue
        step_D = _refined(kind, steps_KD[best], boxes_n4, sample)
        if not kind.is_reported(step_D) or not _is_better_at_any_size(kind, step_D, boxes_n4, sample):
            continue
        factors_K = steps_KD[:, 0]
        low, high = sorted((kind.neutral, float(factors_K[best])))
        between = np.flatnonzero((low < factors_K) & (factors_K < high)).tolist()
        as_good = [k for k in between if z_value(onset_KI[best] - onset_KI[k]) < _AS_GOOD]
        least = min(factors_K[[*as_good, best]].tolist(), key=lambda v: abs(v - kind.neutral))
        z_of_groups = sample.z_of_groups(onset_KI[best] - before_I)
        if kind is TIGHTNESS and factors_K[best] > 1:
            apart_I = _gain_apart(kind.move(boxes_n4, steps_KD[best]), boxes_n4, sample)
            z_of_groups = min(z_of_groups, sample.z_of_groups(apart_I))
        offsets.append(Offset(kind, tuple(step_D.tolist()), least, before, after, float(z_K[best]), z_of_groups))
    offsets = [offset for offset in offsets if z_value(sample.evidence(offset.move(boxes_n4))) >= SIGNIFICANT]
    return max(offsets, key=lambda offset: offset.after, default=None)


def find_offsets(boxes_n4: np.ndarray, sample: Sample, excluded: Sequence[str] = ()) -> list[Offset]:
    """Return the moves after which the boxes fit better, largest gain first; at most one of each kind not excluded.

    Moves by which boxes beside the objects gain as much are left out.
    """
    offsets: list[Offset] = []
    tried = set(excluded)
    kept = sample.spread(1500)
    boxes_n4, sample = boxes_n4[kept], sample.take(kept)
    while len(offsets) < _ROUNDS:
        offset = find_offset(boxes_n4, sample, [kind for kind in KINDS if kind.code not in tried])
        if offset is None:
            break
        tried.add(offset.code)
        moved_n4 = offset.move(boxes_n4)
        background = gain_beside(boxes_n4, moved_n4, sample, in_stated_size=offset.kind is TIGHTNESS)
        if not background.explains:
            offsets.append(replace(offset, background=background))
            boxes_n4 = moved_n4
    return offsets


def _gain_apart(enlarged_n4: np.ndarray, boxes_n4: np.ndarray, sample: Sample) -> np.ndarray:
    """Return the gain in onset [I] of the enlarged boxes that touch no other; NaN where an image has none.

    Between goods side by side an enlarged box reaches the edge of its neighbour, which says nothing of its own size.
    """
    first_P, second_P = np.nonzero(np.triu(sample.image_n[:, None] == sample.image_n, 1))
    hits_P = overlap(enlarged_n4[first_P], enlarged_n4[second_P])
    apart_n = ~np.isin(np.arange(len(enlarged_n4)), np.stack([first_P, second_P])[:, hits_P])
    apart = sample.take(apart_n)
    gain_I: np.ndarray = apart.onset(enlarged_n4[apart_n]) - apart.onset(boxes_n4[apart_n])
    return gain_I


def _lies_on_weaker_edges(moved_n4: np.ndarray, boxes_n4: np.ndarray, sample: Sample) -> bool:
    """Return whether the sides of moved boxes lie on weaker edges than the stated ones.

    Where nothing else is in an image, what JPEG leaves around a drawn object begins as clearly as the object itself.
    """
    maps = sample.maps
    moved_I, stated_I = (maps.by_image(maps.along(b, sample.image_n), sample.image_n) for b in (moved_n4, boxes_n4))
    return z_value(moved_I - stated_I) < -_AS_GOOD


def _is_better_at_any_size(kind: OffsetKind, step_D: np.ndarray, boxes_n4: np.ndarray, sample: Sample) -> bool:
    """Return whether moved boxes fit better than the stated ones even if both have the size that fits them best."""
    if kind is TIGHTNESS:
        return True
    (_, moved_I), (_, stated_I) = (in_best_size(b, sample) for b in (kind.move(boxes_n4, step_D), boxes_n4))
    return z_value(moved_I - stated_I) >= _AS_GOOD


def _refined(kind: OffsetKind, step_D: np.ndarray, boxes_n4: np.ndarray, sample: Sample) -> np.ndarray:
    """Return the step near a step with the largest onset, one axis after the other; what is too small is neutral."""
    for axis in range(len(step_D) if kind.reach else 0):
        nearby_KD = np.tile(step_D, (13, 1))
        nearby_KD[:, axis] += np.linspace(-kind.reach, kind.reach, 13)
        step_D = max(nearby_KD, key=lambda near_D: best_onset(kind.move(boxes_n4, near_D), sample))
    return np.where(abs(step_D - kind.neutral) < kind.least, kind.neutral, step_D)
