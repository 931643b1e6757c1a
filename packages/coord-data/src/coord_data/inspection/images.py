"""Reads each image file once: whether it decodes, its size, EXIF orientation, perceptual hash and thumbnail."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from coord_codec.images import ImageError, decode_image, image_facts
from coord_data.duplicates import grey_fields, is_same, near_duplicates, perceptual_hash
from coord_data.inspection.numbers.edges import SIDE

_ORIENTATION = 0x0112  # EXIF tag


@dataclass(frozen=True)
class ImageFile:
    """Properties of one image file.

    Attributes:
        size: width and height in pixels after EXIF rotation; None if the file was not read or cannot be decoded
        fault: why the file cannot be decoded
        orientation: EXIF orientation, 1 for an image that is stored upright
        digest: SHA-256 of the file
        look: perceptual hash, which hardly changes when an image is resized or compressed again
        grey: mean grey values of a coarse grid, which distinguish copies from images that only look alike
        small: thumbnail with at most `SIDE` pixels a side, if requested
    """

    size: tuple[int, int] | None
    fault: str | None = None
    orientation: int = 1
    digest: str = ""
    look: np.ndarray | None = None
    grey: np.ndarray | None = None
    small: Image.Image | None = None


def look_at(path: Path, keep: bool) -> ImageFile:
    """Decode one image file; with `keep` the result contains its thumbnail."""
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
    """Read the files with indices `chosen`, with a thumbnail of those in `kept`; the other results are empty."""
    kept_set = set(kept)
    results = [ImageFile(None)] * len(files)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow releases the GIL while it decodes
        for i, file in zip(chosen, pool.map(lambda i: look_at(root / files[i], i in kept_set), chosen), strict=True):
            results[i] = file
    return results


@dataclass(frozen=True)
class Pair:
    """Two files that show the same image, or images that look alike.

    Attributes:
        first: index in the first set
        second: index in the second set
        same: whether both show the same image; otherwise they only look alike
        how: the evidence, in words
    """

    first: int
    second: int
    same: bool
    how: str


def alike_images(first: Sequence[ImageFile], second: Sequence[ImageFile]) -> list[Pair]:
    """Return pairs of files that show the same image, followed by pairs that only look alike.

    Files are compared by their bytes and by their perceptual hashes; very large sets by their bytes alone.
    """
    pairs: dict[tuple[int, int], Pair] = {}
    by_digest: dict[str, list[int]] = {}
    for j, file in enumerate(second):
        if file.digest:
            by_digest.setdefault(file.digest, []).append(j)
    for i, file in enumerate(first):
        pairs |= {(i, j): Pair(i, j, True, "equal files") for j in by_digest.get(file.digest, ())}
    if len(first) * len(second) <= 25_000_000:
        (rows_i, hashes_i), (rows_j, hashes_j) = _hashes(first), _hashes(second)
        for at_i, at_j, bits in near_duplicates(hashes_i, hashes_j):
            i, j = rows_i[at_i], rows_j[at_j]
            grey_i, grey_j = first[i].grey, second[j].grey
            same = grey_i is not None and grey_j is not None and is_same(grey_i, grey_j)
            how = "copies of another size or quality" if same else "parts of them differ"
            pairs.setdefault((i, j), Pair(i, j, same, f"{how}, {bits} of 64 bits of their perceptual hashes differ"))
    return sorted(pairs.values(), key=lambda pair: (not pair.same, pair.first, pair.second))


def _hashes(files: Sequence[ImageFile]) -> tuple[list[int], list[np.ndarray]]:
    rows = [i for i, file in enumerate(files) if file.look is not None]
    return rows, [look for file in files if (look := file.look) is not None]
