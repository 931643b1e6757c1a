"""Finds image files that show the same image, or look alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from coord_data.duplicates import is_same, near_duplicates
from coord_data.image_file import ImageFile

_COMPARED = 25_000_000
"""Number of pairs above which files are compared by their bytes alone."""
_SAME_BOX = 0.02
"""Largest difference of a coordinate, as a fraction of the image, between boxes of one object on two copies."""

Boxes = tuple[tuple[str, ...], np.ndarray]
"""Sorted labels of an image, and its boxes [M, 4] in that order, as fractions of its size."""


def sorted_boxes(objects: Iterable[tuple[str, Sequence[float]]]) -> Boxes:
    """Return labels and boxes in an order of their own, so that those of two images can be compared."""
    ordered = sorted((label, tuple(box)) for label, box in objects)
    return tuple(label for label, _ in ordered), np.array([box for _, box in ordered]).reshape(-1, 4)


def have_same_boxes(one: Boxes, other: Boxes) -> bool:
    """Return whether two images have the same objects at the same places."""
    return one[0] == other[0] and bool((np.abs(one[1] - other[1]) <= _SAME_BOX).all())


@dataclass(frozen=True)
class Pair:
    """Two files that show the same image, or images that look alike.

    Attributes:
        first: index in the first set
        second: index in the second set
        kind: `equal` files, a `copy` of another size or quality, or images that only look `alike`
        how: the evidence, in words
    """

    first: int
    second: int
    kind: Literal["equal", "copy", "alike"]
    how: str

    @property
    def same(self) -> bool:
        """Whether both show the same image."""
        return self.kind != "alike"


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
        pairs |= {(i, j): Pair(i, j, "equal", "equal files") for j in by_digest.get(file.digest, ())}
    if len(first) * len(second) <= _COMPARED:
        (rows_i, hashes_i), (rows_j, hashes_j) = _hashes(first), _hashes(second)
        for at_i, at_j, bits in near_duplicates(hashes_i, hashes_j):
            i, j = rows_i[at_i], rows_j[at_j]
            grey_i, grey_j = first[i].grey, second[j].grey
            same = (i, j) not in pairs and grey_i is not None and grey_j is not None and is_same(grey_i, grey_j)
            how = "copies of another size or quality" if same else "parts of them differ"
            how += f", {bits} of 64 bits of their perceptual hashes differ"
            pairs.setdefault((i, j), Pair(i, j, "copy" if same else "alike", how))
    return sorted(pairs.values(), key=lambda pair: (not pair.same, pair.first, pair.second))


def duplicates_in(files: Sequence[ImageFile], boxes: Sequence[Boxes]) -> list[Pair]:
    """Return the pairs within a set, the earlier image first.

    Frames of one video, in which too little has moved to be seen in the pixels, are told from copies by their boxes.
    """
    pairs = [pair for pair in alike_images(files, files) if pair.first < pair.second]
    judged = [
        pair
        if pair.kind != "copy" or have_same_boxes(boxes[pair.first], boxes[pair.second])
        else replace(pair, kind="alike", how=f"{pair.how.partition(', ')[2]}, and their boxes differ")
        for pair in pairs
    ]
    return sorted(judged, key=lambda pair: not pair.same)


def _hashes(files: Sequence[ImageFile]) -> tuple[list[int], list[np.ndarray]]:
    rows = [i for i, file in enumerate(files) if file.look is not None]
    return rows, [look for file in files if (look := file.look) is not None]
