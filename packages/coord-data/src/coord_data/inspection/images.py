"""Finds image files that show the same image, or look alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coord_data.duplicates import is_same, near_duplicates
from coord_data.image_file import ImageFile


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
