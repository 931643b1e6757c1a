"""Finds boxes that are exact to the pixel but lie a pixel aside, as those of writers that count pixels otherwise.

Around an object that was drawn, or cut out by a mask, nothing changes up to its first pixel. Where nearly all boxes of
a set begin and end at such a pixel, or all the same number of pixels beside it, the boxes were computed, and what they
miss is systematic. Boxes that people drew miss it by one pixel here and three there, so that nothing is said of them;
neither is of boxes that are wider or narrower on both sides, since a border may belong to an object or not.

Shapes: n boxes, K offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from coord_codec.images import ImageError, facts_and_image
from coord_codec.origins import ABOUT, ORIGINS, Origin
from coord_data.finding import Finding
from coord_data.inspection.numbers.differences import command
from coord_data.inspection.numbers.laid_out import LaidOut
from coord_data.looking.looks import Looks
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import Change, ReadAs

_IMAGES = 24
"""Images that are compared at their own size; those larger than a thumbnail are opened again."""
_REACH = 3
"""Pixels on either side of a stated border in which the first change is searched."""
_LEAST_STEP = 32
"""Smallest change of 255 from one pixel to the next that can be the border of an object."""
_BEGINS = 0.5
"""Share of the largest change near a border from which a change is its beginning: JPEG leaves less before it."""
_AGREE = 0.8
"""Share of the borders of each side that must begin at the same offset. Of boxes drawn by hand under half do."""
_LEAST_BOXES, _LEAST_IMAGES = 40, 8
_CLEARANCE = 2 * _REACH
"""Least width and height of a box, so that its two borders are told apart."""


@np.errstate(over="ignore", invalid="ignore")  # numbers near the limit of float64
def beside_by_a_pixel(raw: RawBoxes, boxes: LaidOut, files: Looks, root: Path) -> list[Finding]:
    """Return the finding that exact boxes lie a pixel beside their objects.

    Args:
        raw: the boxes as they are read
        boxes: their corners in [0, 1]
        files: what a look at each image told
        root: folder of the images
    """
    offsets_n4 = _offsets(raw, boxes.of(slice(None)), files, root)
    found = _common(offsets_n4)
    if found is None:
        return []
    low, high, share = found
    words = [
        f"{verb} {_pixels(offset)} {'before' if offset > 0 else 'behind'} their objects"
        for verb, offset in (("begin", low), ("end", high))
        if offset
    ]
    message = f"boxes that are exact to the pixel {' and '.join(words)}"
    evidence = f"{share:.0%} of the borders of {len(offsets_n4)} boxes have their first change at this distance"
    reading = _reading(raw, low, high)
    fix = "count pixels as the tool that wrote them does" if reading is None else f"{command(reading)}{_about(reading)}"
    return [
        Finding("one_off", "warning", message, evidence, len(raw), fix, read_as="" if reading is None else str(reading))
    ]


def _pixels(count: int) -> str:
    return "a pixel" if abs(count) == 1 else f"{abs(count)} pixels"


def _about(reading: ReadAs) -> str:
    return f" ({ABOUT[reading.origin.word]})" if reading.origin is not None else ""


def _reading(raw: RawBoxes, low: int, high: int) -> ReadAs | None:
    """Return the reading with which boxes of these distances lie on their objects; None if no word says it."""
    if raw.unit == "pixels" and raw.origin is not None:
        wanted = Origin(raw.origin.low - low, raw.origin.high - high)
        if wanted in ORIGINS.values():
            return ReadAs(origin=wanted)
    if low != high:
        return None
    names = ("moved-left", "moved-up") if low > 0 else ("moved-right", "moved-down")
    return ReadAs(changes=tuple(Change(name, float(abs(low)), in_pixels=True) for name in names))


def _offsets(raw: RawBoxes, boxes_N4: np.ndarray, files: Looks, root: Path) -> np.ndarray:
    """Return for each border of the boxes of some images how many pixels behind it its object begins or ends [n, 4].

    It is NaN where nothing tells it: nothing changes there, or something does all over.
    """
    compared = files.compared
    chosen = (
        [compared[i] for i in np.unique(np.linspace(0, len(compared) - 1, _IMAGES).astype(int))] if compared else []
    )
    found = [np.zeros((0, 4))]
    count = 0
    for image in chosen:
        width, height = files.sizes[image].tolist()
        corners_n4 = boxes_N4[raw.image_N == image] * [width, height, width, height]
        corners_n4 = corners_n4[np.isfinite(corners_n4).all(axis=1)]
        near_n4 = np.rint(corners_n4)
        is_whole_n = (abs(corners_n4 - near_n4) < 0.05).all(axis=1) if len(corners_n4) else np.zeros(0, bool)
        if not is_whole_n.any() or files.orientations[image] != 1:
            continue
        if (pixels_HWC := _pixels_of(files, image, root / raw.files[image], (width, height))) is None:
            continue
        count += 1
        found += [np.array([list(_borders(pixels_HWC, box)) for box in near_n4[is_whole_n].astype(int).tolist()])]
    return np.concatenate(found) if count >= _LEAST_IMAGES else np.zeros((0, 4))


def _pixels_of(files: Looks, image: int, path: Path, size: tuple[int, int]) -> np.ndarray | None:
    """Return the pixels of an image at its own size; None if it cannot be opened."""
    small = files.thumbnail(image)
    if small is None or small.size != size:
        try:
            small = facts_and_image(path.read_bytes())[1]
        except (OSError, ImageError):
            return None
    pixels_HWC = np.asarray(small.convert("RGB"), np.int16)
    return pixels_HWC if pixels_HWC.shape[:2] == size[::-1] else None


def _borders(pixels_HWC: np.ndarray, box: list[int]) -> Iterable[float]:
    """Yield the offset of each border of a box: left, upper, right, lower."""
    x1, y1, x2, y2 = box
    height, width, _ = pixels_HWC.shape
    if x2 - x1 < _CLEARANCE or y2 - y1 < _CLEARANCE:
        yield from (np.nan,) * 4
        return
    columns_HWC, rows_HWC = pixels_HWC[max(y1, 0) : y2], pixels_HWC[:, max(x1, 0) : x2].transpose(1, 0, 2)
    yield _first_change(columns_HWC, x1, width, 1)
    yield _first_change(rows_HWC, y1, height, 1)
    yield _first_change(columns_HWC, x2, width, -1)
    yield _first_change(rows_HWC, y2, height, -1)


def _first_change(strip_HWC: np.ndarray, border: int, width: int, inwards: int) -> float:
    """Return how many pixels behind a border, along the axis, the first change from outside lies; NaN if unknown.

    Args:
        strip_HWC: the pixels beside the border, along the second axis
        border: the number of the pixel before which it lies
        width: length of that axis
        inwards: 1 where the object lies behind the border, -1 where it lies before it
    """
    low, high = border - _REACH - 1, border + _REACH + 1
    if low < 0 or high > width:
        return np.nan
    window = strip_HWC[:, low:high]
    change_K = abs(np.diff(window, axis=1)).max(axis=(0, 2))  # [2 * _REACH + 1], at the border in the middle
    change_K = change_K[::inwards]
    if (largest := change_K.max()) < _LEAST_STEP:
        return np.nan
    first = int(np.argmax(change_K >= _BEGINS * largest))
    return np.nan if first == 0 else float(inwards * (first - _REACH))  # it begins before what is looked at


def _common(offsets_n4: np.ndarray) -> tuple[int, int, float] | None:
    """Return by how many pixels nearly all objects begin behind and end behind their boxes, and the least share.

    None if they do not agree, or if the boxes are exact, or wider or narrower on both sides.
    """
    if len(offsets_n4) < _LEAST_BOXES:
        return None
    steps_K = np.arange(-_REACH, _REACH + 1)
    # Of borders at which something is seen; those where something changes all over count as disagreeing.
    share_K4 = np.stack([(offsets_n4 == step).mean(axis=0) for step in steps_K])
    best_4, shares_4 = steps_K[share_K4.argmax(axis=0)], share_K4.max(axis=0)
    (left, upper, right, lower), share = best_4.tolist(), float(shares_4.min())
    is_wide = left * right < 0
    if share < _AGREE or left != upper or right != lower or is_wide or not (left or right):
        return None
    return left, right, share
