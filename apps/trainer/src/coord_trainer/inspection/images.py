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
from coord_trainer.data.duplicates import grey_fields, is_same, near_duplicates, perceptual_hash
from coord_trainer.inspection.numbers.edges import SIDE

_ORIENTATION = 0x0112  # EXIF tag


@dataclass(frozen=True)
class ImageFile:
    """What is known about one image file.

    Attributes:
        size: width and height in pixels as training sees them; None if the file was not looked at or cannot be decoded
        fault: why it cannot be decoded
        orientation: EXIF orientation, 1 for an image that is stored as it is shown
        digest: of the file's bytes
        look: its perceptual hash, which stays nearly the same when an image is resized or compressed again
        grey: its grey values in a few fields, which tell other images that look alike from copies
        small: the image with at most `SIDE` pixels a side, where it was asked for
    """

    size: tuple[int, int] | None
    fault: str | None = None
    orientation: int = 1
    digest: str = ""
    look: np.ndarray | None = None
    grey: np.ndarray | None = None
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
    return ImageFile(
        size, None, orientation, digest, perceptual_hash(small), grey_fields(small), small if keep else None
    )


def look_at_all(root: Path, files: Sequence[str], chosen: Sequence[int], kept: Sequence[int]) -> list[ImageFile]:
    """Look at the chosen files, and keep some of those in small; of the others nothing is known."""
    in_small = set(kept)
    looks = [ImageFile(None)] * len(files)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes without the interpreter's lock
        for i, look in zip(chosen, pool.map(lambda i: look_at(root / files[i], i in in_small), chosen), strict=True):
            looks[i] = look
    return looks


@dataclass(frozen=True)
class Pair:
    """Two files that show the same image, or nearly so.

    Attributes:
        first: index in the first set
        second: index in the second
        same: whether it is known to be the same image; others look alike
        how: how that is known
    """

    first: int
    second: int
    same: bool
    how: str


def alike_images(first: Sequence[ImageFile], second: Sequence[ImageFile]) -> list[Pair]:
    """Return pairs of files that show the same image, and then those that only look alike.

    Equal bytes, or looks that are nearly the same; very large sets are compared by bytes alone.
    """
    pairs: dict[tuple[int, int], Pair] = {}
    by_digest: dict[str, list[int]] = {}
    for j, file in enumerate(second):
        if file.digest:
            by_digest.setdefault(file.digest, []).append(j)
    for i, file in enumerate(first):
        pairs |= {(i, j): Pair(i, j, True, "equal files") for j in by_digest.get(file.digest, ())}
    if len(first) * len(second) <= 25_000_000:
        (rows_i, looks_i), (rows_j, looks_j) = _looks(first), _looks(second)
        for at_i, at_j, bits in near_duplicates(looks_i, looks_j):
            i, j = rows_i[at_i], rows_j[at_j]
            one, other = first[i].grey, second[j].grey
            same = one is not None and other is not None and is_same(one, other)
            how = "copies of another size or quality" if same else "not the same everywhere"
            pairs.setdefault((i, j), Pair(i, j, same, f"{how}, {bits} of 64 bits of their looks differ"))
    return sorted(pairs.values(), key=lambda pair: (not pair.same, pair.first, pair.second))


def _looks(files: Sequence[ImageFile]) -> tuple[list[int], list[np.ndarray]]:
    rows = [i for i, file in enumerate(files) if file.look is not None]
    return rows, [look for file in files if (look := file.look) is not None]
