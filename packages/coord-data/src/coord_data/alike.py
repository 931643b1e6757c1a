"""Finds image files that show the same image, or look alike: by perceptual hashes (pHash) that differ in few bits.

Forms with the same layout, frames of one video, or objects in front of an empty sky also have similar hashes; comparing
the grey values of reduced images tells copies from such images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from coord_codec import Instance, Object
from coord_data.image_file import ImageFile

NEAR_BITS = 4
"""Maximum of differing bits of 64. A copy of another size or quality differs in 0 to 4, unrelated photographs in 32."""

_SAME_GREY = 10
"""Largest difference of 255 that copies may have in a field, beside half of what neighbouring fields differ by.

Measured on 63 photographs: 3 fields of copies of .25 to 1.5 times the size and of JPEG quality 10 to 80 differ by at
most 8, frames in which an object of 1 to 3 % of the image has moved by 14 or more in 95 % of cases."""
_DIFFERING = 3  # fields that must differ: one may be a scratch or a date
_ROWS = 256
_COMPARED = 25_000_000
"""Number of pairs above which files are compared by their bytes alone."""
_SAME_BOX = 0.02
"""Largest difference of a coordinate, as a fraction of the image, between boxes of one object on two copies."""

_NONE = np.array([], str), np.zeros((0, 4))

Boxes = tuple[np.ndarray, np.ndarray]
"""Sorted labels [M] of the targets of an image, and their boxes [M, 4] in that order, as fractions of its size."""


def boxes_by_image(instances: Iterable[Instance]) -> dict[str, Boxes]:
    """Return the targets of each image by its path, those of all its records together."""
    targets: dict[str, list[tuple[str, tuple[float, ...]]]] = {}
    for instance in instances:
        targets.setdefault(instance.image, []).extend((target.desc, target.bbox) for target in instance.targets)
    ordered = {name: sorted(found) for name, found in targets.items()}
    return {
        name: (np.array([desc for desc, _ in found]), np.array([box for _, box in found]).reshape(-1, 4))
        for name, found in ordered.items()
    }


def have_same_boxes(one: Boxes, other: Boxes) -> bool:
    """Return whether two images have the same objects at the same places."""
    if not np.array_equal(one[0], other[0]):
        return False
    is_near_MM = (np.abs(one[1][:, None] - other[1]) <= _SAME_BOX).all(axis=2) & (one[0][:, None] == other[0])
    return bool(is_near_MM.any(axis=0).all() and is_near_MM.any(axis=1).all())


def is_same_object(one: Object, other: Object) -> bool:
    """Return whether the objects of two copies are the same: of one description, at the same place."""
    sides = zip(one.bbox, other.bbox, strict=True)
    return one.desc == other.desc and all(abs(a - b) <= _SAME_BOX for a, b in sides)


@dataclass(frozen=True)
class Pair:
    """Two files that show the same image, or images that look alike.

    Attributes:
        first: index in the first set
        second: index in the second set
        kind: `equal` files, a `copy` of another size or quality with the same boxes, or images that only look `alike`
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
        one, other = ({i: f.look for i, f in enumerate(files) if f.look is not None} for files in (first, second))
        rows_i, rows_j = list(one), list(other)
        for at_i, at_j, bits in near_duplicates(list(one.values()), list(other.values())):
            i, j = rows_i[at_i], rows_j[at_j]
            same = (i, j) not in pairs and is_same(first[i].grey, second[j].grey)
            how = "copies of another quality or frames without motion" if same else "parts of them differ"
            if same and first[i].size != second[j].size:
                how = "copies of another size"
            how += f", {bits} of 64 bits of their perceptual hashes differ"
            pairs.setdefault((i, j), Pair(i, j, "copy" if same else "alike", how))
    return sorted(pairs.values(), key=lambda pair: (not pair.same, pair.first, pair.second))


def duplicates_in(names: Sequence[str], files: Sequence[ImageFile], boxes: Mapping[str, Boxes]) -> list[Pair]:
    """Return the pairs within a set, the earlier image first: inspection reports them, and preparation drops them.

    Frames of one video, in which too little has moved to be seen in the pixels, are told from copies by their boxes.

    Args:
        names: paths of the images; one that occurs again has a further record
        files: what a look at each told
        boxes: the targets of each image that has a record, see `boxes_by_image`
    """
    pairs = [pair for pair in alike_images(files, files) if pair.first < pair.second]
    judged = [
        pair
        if pair.kind != "copy" or same_boxes_of(names[pair.first], names[pair.second], boxes)
        else replace(pair, kind="alike", how=f"{pair.how.partition(', ')[2]}, and their boxes differ")
        for pair in pairs
    ]
    return sorted(judged, key=lambda pair: not pair.same)


def same_boxes_of(one: str, other: str, boxes: Mapping[str, Boxes]) -> bool:
    """Return whether two images of a set have the same targets; an image without a record has none."""
    return have_same_boxes(boxes.get(one, _NONE), boxes.get(other, _NONE))


def is_same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Return whether two images with these grey fields are copies of each other, at any size and quality.

    Frames of one video, in which something has moved, are not: they differ where each of them is smooth.
    """
    if one is None or other is None:
        return False
    difference = np.abs(one[0].astype(np.int16) - other[0]) - np.minimum(one[1], other[1]) // 2
    return bool(np.partition(difference, -_DIFFERING, axis=None)[-_DIFFERING] <= _SAME_GREY)


def near_duplicates(
    one: Sequence[np.ndarray], other: Sequence[np.ndarray], bits: int = NEAR_BITS
) -> list[tuple[int, int, int]]:
    """Return (index in `one`, index in `other`, differing bits) of each pair that differs in at most `bits`."""
    if not one or not other:
        return []
    # With bits as +1 and -1 the product is the number of agreeing bits minus that of differing bits.
    a_NB, b_MB = (np.where(np.array(hashes), 1.0, -1.0).astype(np.float32) for hashes in (one, other))
    width, pairs = a_NB.shape[1], []
    for start in range(0, len(a_NB), _ROWS):
        differing_NM = ((width - a_NB[start : start + _ROWS] @ b_MB.T) / 2).round().astype(int)
        pairs += [(start + int(i), int(j), int(differing_NM[i, j])) for i, j in np.argwhere(differing_NM <= bits)]
    return pairs
