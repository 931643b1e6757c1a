"""One look at each image file: whether it decodes, its size, its EXIF orientation, and how it looks when small."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from coord_eval import ImageError, decode_image, image_facts
from coord_trainer.inspection.edges import SIDE

_ORIENTATION = 0x0112  # EXIF tag
_HASH_SIDE = 16
_NOISE = 4  # of 255 grey levels
_CONTOURS = 20  # steps that a look needs


@dataclass(frozen=True)
class ImageFile:
    """What is known about one image file.

    Attributes:
        size: width and height in pixels as training sees them; None if the file was not looked at or cannot be decoded
        fault: why it cannot be decoded
        orientation: EXIF orientation, 1 for an image that is stored as it is shown
        digest: of the file's bytes
        look: 256 signs, 0 where there is no contour, that stay the same when an image is resized or compressed again
        small: the image with at most `SIDE` pixels a side, where it was asked for
    """

    size: tuple[int, int] | None
    fault: str | None = None
    orientation: int = 1
    digest: str = ""
    look: np.ndarray | None = None
    small: Image.Image | None = None


def look_at(path: Path, keep: bool) -> ImageFile:
    """Decode one image file; `keep` keeps it in small."""
    try:
        size = image_facts(path).size
        small = decode_image(path, at_most=(SIDE, SIDE))
        with Image.open(path) as header:
            orientation = header.getexif().get(_ORIENTATION, 1)
    except ImageError as error:
        return ImageFile(None, str(error))
    small.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    orientation = orientation if orientation in range(1, 9) else 1
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return ImageFile(size, None, orientation, digest, _look(small), small if keep else None)


def look_at_all(root: Path, files: Sequence[str], chosen: Sequence[int], kept: Sequence[int]) -> list[ImageFile]:
    """Look at the chosen files, and keep some of those in small; of the others nothing is known."""
    in_small = set(kept)
    looks = [ImageFile(None)] * len(files)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes without the interpreter's lock
        for i, look in zip(chosen, pool.map(lambda i: look_at(root / files[i], i in in_small), chosen), strict=True):
            looks[i] = look
    return looks


def _look(small: Image.Image) -> np.ndarray:
    """Return the difference hash (Krawetz 2013) in three values: whether a tiny copy gets brighter.

    From each pixel to the next; 0 where they differ by less than noise.
    """
    tiny = np.asarray(small.convert("L").resize((_HASH_SIDE + 1, _HASH_SIDE), Image.Resampling.BOX), np.int16)
    step = np.diff(tiny, axis=1).ravel()
    return np.sign(step).astype(np.int8) * (np.abs(step) >= _NOISE)


def same_images(first: Sequence[ImageFile], second: Sequence[ImageFile]) -> list[tuple[int, int, str]]:
    """Return pairs of indices of files that show the same image, and how that is known.

    Equal bytes, or looks that agree in 39 of 40 signs and have three quarters of them in common; images without
    contours have no look.
    """
    pairs = {}
    by_digest: dict[str, list[int]] = {}
    for j, file in enumerate(second):
        if file.digest:
            by_digest.setdefault(file.digest, []).append(j)
    for i, file in enumerate(first):
        pairs |= {(i, j): "equal files" for j in by_digest.get(file.digest, ())}
    if len(first) * len(second) <= 25_000_000:
        rows_i, looks_i = _telling(first)
        rows_j, looks_j = _telling(second)
        both = np.abs(looks_i) @ np.abs(looks_j).T
        most = np.maximum(np.abs(looks_i).sum(axis=1)[:, None], np.abs(looks_j).sum(axis=1))
        same = (looks_i @ looks_j.T >= 0.95 * both) & (both >= 0.75 * most)
        for i, j in zip(*np.nonzero(same), strict=True):
            pairs.setdefault((rows_i[int(i)], rows_j[int(j)]), "images that look the same")
    return [(i, j, how) for (i, j), how in sorted(pairs.items())]


def _telling(files: Sequence[ImageFile]) -> tuple[list[int], np.ndarray]:
    """Return the looks that tell images apart, as rows, and whose they are."""
    rows = [i for i, f in enumerate(files) if f.look is not None and np.abs(f.look).sum() >= _CONTOURS]
    return rows, np.array([files[i].look for i in rows], np.float32).reshape(len(rows), _HASH_SIDE**2)
