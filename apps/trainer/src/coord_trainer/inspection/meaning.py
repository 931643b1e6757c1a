"""What the numbers of a whole set mean: every order and unit is tried, and range and pixels choose.

A rival of the reader's own meaning must stand out on the pixels, and stand out above it. Where nothing does, only
numbers that cannot be meant as they are read (most of them outside their images) let the range alone decide.

Shapes: I images, N boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from coord_eval.diagnosis import LAYOUTS, TURNS
from coord_trainer.inspection.edges import STANDS_OUT, Sample, is_inside, z_value
from coord_trainer.inspection.offsets import KINDS, TIGHTNESS, find_offset
from coord_trainer.inspection.raw import RawBoxes
from coord_trainer.inspection.shuffle import Placed

IMPOSSIBLE = 0.7
"""Share of boxes inside their images below which the range alone may decide."""
_SCAN_STANDS_OUT = 4.0  # of hundreds of scales one reaches 3 by chance
_AS_GOOD = 2.0  # z below which a meaning with more changes fits no better
_INSIDE = 0.98  # share of boxes that must lie inside their images under a rival meaning
_PLAUSIBLE = 0.95  # the same for the reader's own, where a few bad records are ordinary
_REACH, _TINY = 0.35, 0.05  # some box must reach so far into its image, else the unit is too large
_HALF = 0.5  # share of boxes inside their images where images of several sizes are shuffled
_SCANNED = 300  # boxes that hundreds of scales are tried on


@dataclass(frozen=True)
class Meaning:
    """One way to take the numbers.

    Attributes:
        layout: order of the four numbers, a key of `LAYOUTS`
        unit: `pixels` of the files, `stated` pixels, `unit`, `percent`, `norm1000`, or of a copy: `resized`, `padded`
        boxes_N4: corners in [0, 1]
        inside: share of the boxes that have an area and lie inside their images; 0 where all are tiny
        evidence_I: for each image of the sample, see `EdgeMaps.evidence`
        turn: EXIF-like orientation by which the boxes are turned against the images, 1 for none
        scale: of a copy, in words
    """

    layout: str
    unit: str
    boxes_N4: np.ndarray
    inside: float
    evidence_I: np.ndarray
    turn: int = 1
    scale: str = ""

    @property
    def z(self) -> float:
        """How clearly the boxes stand out on the pixels."""
        return z_value(self.evidence_I)

    def above(self, other: Meaning) -> float:
        """How clearly this meaning fits better than another, image by image."""
        return z_value(self.evidence_I - other.evidence_I)


def declared_meaning(raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample) -> Meaning:
    """Return the meaning that the reader gives the numbers."""
    stated_I2 = np.where(np.isfinite(raw.stated_I2), raw.stated_I2, sizes_I2)
    unit = "pixels" if np.array_equal(stated_I2, sizes_I2, equal_nan=True) else "stated"
    unit = unit if raw.unit == "pixels" else "unit"
    return _meaning(sample, raw.layout, unit, _corners(raw, raw.layout, _units(raw, sizes_I2)[unit]))


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
        _meaning(sample, layout, unit, corners_N4)
        for unit, divisor_I2 in units.items()
        for layout in LAYOUTS
        if (layout, unit) != (own.layout, own.unit) and not _impossible(corners_N4 := _corners(raw, layout, divisor_I2))
    ]
    square = _of_copy(raw, raw.layout, _PADDED, sizes_I2, 1.0, sample)
    padded = [square] if raw.unit == "unit" and not _impossible(square.boxes_N4) else []
    turned = [_turned(own, turn, sample) for turn in (2, 3, 4, 6, 8)] if own.inside >= _PLAUSIBLE else []
    fitted = _fitted(own, sample)
    best = max([fitted, *rivals, *padded, *turned], key=lambda m: m.z)
    if best is not fitted and _beats(best, fitted, STANDS_OUT):
        return _simplest(best, [*rivals, *padded, *turned], own, sample), True
    sized = [(_fitted(m, sample), m) for m in padded]
    is_padded = any(_beats(m, fitted, STANDS_OUT) for m, _ in sized)  # its boxes still lie near what they show
    if fitted.inside >= _PLAUSIBLE and max(own.z, fitted.z) >= STANDS_OUT and not is_padded:
        return own, True
    sized += [(_fitted(m, sample), m) for m in rivals]
    best, rival = max(sized, key=lambda pair: pair[0].z, default=(own, own))
    if rival is not own and _beats(best, fitted, STANDS_OUT):
        return replace(rival, evidence_I=best.evidence_I), True  # what is wrong with their size is told besides
    turned = [_turned(m, turn, sample) for m in rivals for turn in (2, 4)]
    unusual: list[Callable[[], Meaning | None]] = [
        lambda: _scan(raw, units["pixels"], sample, 1),
        lambda: max(turned, key=lambda m: m.z, default=None),
        lambda: _scan(raw, units["pixels"], sample, 2),
        lambda: _scan(raw, units["pixels"], sample, 4),
    ]
    for find in unusual:
        if (rival := find()) is not None and _beats(rival, own, _SCAN_STANDS_OUT):
            return rival, True
    if own.inside < IMPOSSIBLE and rivals:
        return min(rivals, key=lambda m: _strangeness(m, own)), False
    return own, False


def rough_ways(raw: RawBoxes, sizes_I2: np.ndarray, own: Meaning) -> list[Placed]:
    """Return the reader's own way to take the numbers, then others that are near enough to recognise images by."""
    ways = [Placed(own.boxes_N4, raw.unit == "pixels")]
    for unit, divisor_I2 in _units(raw, sizes_I2).items():
        for layout in LAYOUTS:
            corners_N4 = _corners(raw, layout, divisor_I2)
            if (layout, unit) != (own.layout, own.unit) and not _is_tiny(corners_N4, _REACH) and _is_likely(corners_N4):
                ways.append(Placed(corners_N4, unit in ("pixels", "stated")))
    if not _is_likely(own.boxes_N4):
        return ways
    far = float(np.quantile(own.boxes_N4[:, 2:], 0.995))
    in_pixels = raw.unit == "pixels"
    ways += [Placed(own.boxes_N4, in_pixels, turn) for turn in (2, 4)]
    moved = [own.boxes_N4 / (far * value) for value in np.geomspace(0.45, 2.5, 80)] if far > 0 else []
    moved += [kind.move(own.boxes_N4, value) for kind in KINDS[1:] for value in kind.steps[::2].tolist()]
    return ways + [Placed(boxes_N4, in_pixels) for boxes_N4 in moved]


def _is_likely(corners_N4: np.ndarray) -> bool:
    """Whether nearly all boxes have an area, and half of them lie in the image that they are given to."""
    has_area = float((corners_N4[:, :2] < corners_N4[:, 2:]).all(axis=1).mean())
    return has_area >= _INSIDE and float(is_inside(corners_N4).mean()) >= _HALF


def _simplest(best: Meaning, others: Sequence[Meaning], own: Meaning, sample: Sample) -> Meaning:
    """Return the meaning that differs least from what is declared, of those as good as the best but for their size."""
    simpler = [(_fitted(m, sample), m) for m in others if _changes(m, own) < _changes(best, own)]
    as_good = [(f.z, m) for f, m in simpler if f.z >= STANDS_OUT and best.above(f) < _AS_GOOD]
    return max(as_good, key=lambda pair: pair[0], default=(0.0, best))[1]


def _changes(found: Meaning, own: Meaning) -> int:
    return (found.layout != own.layout) + (found.unit != own.unit) + (found.turn != own.turn)


def _fitted(found: Meaning, sample: Sample) -> Meaning:
    """Return the same with the size of its boxes fitted: boxes of the wrong size show little."""
    offset = find_offset(found.boxes_N4, sample, (TIGHTNESS,))
    if offset is None or (inside := float(is_inside(offset.boxes_N4).mean())) < _PLAUSIBLE:
        return found
    return replace(found, boxes_N4=offset.boxes_N4, inside=inside, evidence_I=sample.evidence(offset.boxes_N4))


def _beats(rival: Meaning, own: Meaning, threshold: float) -> bool:
    if rival.z < threshold:
        return False
    return own.inside < _PLAUSIBLE or rival.above(own) >= STANDS_OUT


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


def _corners(raw: RawBoxes, layout: str, divisor_I2: np.ndarray) -> np.ndarray:
    corners_N4: np.ndarray = LAYOUTS[layout](raw.numbers_N4) / np.tile(divisor_I2, 2)[raw.image_N]
    return corners_N4


def _meaning(sample: Sample, layout: str, unit: str, corners_N4: np.ndarray, scale: str = "") -> Meaning:
    inside = 0.0 if _is_tiny(corners_N4, _TINY) else float(is_inside(corners_N4).mean())
    return Meaning(layout, unit, corners_N4, inside, sample.evidence(corners_N4), scale=scale)


def _impossible(corners_N4: np.ndarray) -> bool:
    return float(is_inside(corners_N4).mean()) < _INSIDE or _is_tiny(corners_N4, _REACH)


def _is_tiny(corners_N4: np.ndarray, reach: float) -> bool:
    return float(np.quantile(corners_N4[:, 2:], 0.99)) < reach


def _turned(found: Meaning, turn: int, sample: Sample) -> Meaning:
    boxes_N4 = TURNS[turn](found.boxes_N4)
    return replace(found, turn=turn, boxes_N4=boxes_N4, evidence_I=sample.evidence(boxes_N4))


_PADDED = "a square of {:.0f} pixels with the image in its middle"
_COPIES: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "{:.3g} times the size of the files": lambda sizes_I2, value: sizes_I2 * value,
    "{0:.0f} x {0:.0f} pixels": np.full_like,
    _PADDED: lambda sizes_I2, value: sizes_I2 * value / sizes_I2.max(axis=1, keepdims=True),
    "a longer side of {:.0f} pixels": lambda sizes_I2, value: sizes_I2 * value / sizes_I2.max(axis=1, keepdims=True),
    "an area of {0:.0f} x {0:.0f} pixels": lambda sizes_I2, value: (
        sizes_I2 * value / np.sqrt(sizes_I2.prod(axis=1, keepdims=True))
    ),
}
"""Sizes that images may have had when they were annotated, in words and as a function of a number."""
_USUAL_SIZES = (224, 256, 300, 320, 384, 416, 448, 512, 600, 608, 640, 672, 736, 768, 800, 896, 960, 1024, 1280, 1333)
_NEAR = 0.04  # boxes with a margin seem to be those of a copy of another size
_OF_ONE_SIZE = 3  # of these copies differ where all images have the same size


def _corners_of_copy(raw: RawBoxes, layout: str, words: str, sizes_I2: np.ndarray, value: float) -> np.ndarray:
    """Return the corners in [0, 1] of numbers that are pixels of a copy of each image."""
    size_I2 = _COPIES[words](sizes_I2, value)
    if words is not _PADDED:
        return _corners(raw, layout, size_I2)
    margin_N4 = np.tile((value - size_I2) / 2, 2)[raw.image_N]
    corners_N4: np.ndarray = (LAYOUTS[layout](raw.numbers_N4) - margin_N4) / np.tile(size_I2, 2)[raw.image_N]
    return corners_N4


def _of_copy(raw: RawBoxes, layout: str, words: str, sizes_I2: np.ndarray, value: float, sample: Sample) -> Meaning:
    corners_N4 = _corners_of_copy(raw, layout, words, sizes_I2, value)
    scale = "a square with the image in its middle" if words is _PADDED and value == 1 else words.format(value)
    return _meaning(sample, layout, "padded" if words is _PADDED else "resized", corners_N4, scale=scale)


def _scan(raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample, turn: int) -> Meaning | None:
    """Return the resized copy, turned or not, whose boxes stand out most: of some, and looked at on all of them."""
    few = sample.few(_SCANNED)

    def fit(layout: str, words: str, value: float) -> float:
        corners_N4 = _corners_of_copy(raw, layout, words, sizes_I2, value)
        return -np.inf if _impossible(corners_N4) else z_value(few.contrast(TURNS[turn](corners_N4)))

    found = []
    one_size = bool((sizes_I2 == sizes_I2[0]).all())
    for layout in LAYOUTS:
        corners_N4 = LAYOUTS[layout](raw.numbers_N4)
        far = float(np.quantile(corners_N4[:, 2:], 0.995))
        if far <= 0 or (corners_N4[:, :2] < corners_N4[:, 2:]).all(axis=1).mean() < _INSIDE:
            continue
        for words in list(_COPIES)[: _OF_ONE_SIZE if one_size else None]:
            base = far if "pixels" in words else far / float(np.median(sizes_I2))
            found += [(fit(layout, words, v), layout, words, v) for v in base * np.geomspace(0.7, 2.5, 60)]
    if not found or max(found)[0] == -np.inf:
        return None
    _, layout, words, near = max(found)
    value = max(near * np.linspace(0.98, 1.02, 17), key=lambda v: fit(layout, words, float(v)))

    def copy(value: float) -> Meaning:
        found = _of_copy(raw, layout, words, sizes_I2, value, sample)
        return found if turn == 1 else _turned(found, turn, sample)

    best, usual = copy(value), min(_USUAL_SIZES, key=lambda size: abs(np.log(size / value)))
    if "pixels" in words and abs(usual / value - 1) < _NEAR:
        rounded = copy(usual)
        return rounded if best.above(_fitted(rounded, sample)) < _AS_GOOD else best
    return best
