"""Finds image files that show the same image, or look alike: by perceptual hashes (pHash) that differ in few bits.

Forms with the same layout, frames of one video, or objects in front of an empty sky also have similar hashes; comparing
the grey values of reduced images tells copies from such images.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, overload

import numpy as np

from coord_codec import Instance, Object
from coord_data.looking.hashes import FIELDS, neighbour_range
from coord_data.looking.looks import Looks
from coord_data.records import Records

NEAR_BITS = 4
"""Maximum of differing bits of 64. A copy of another size or quality differs in 0 to 4, unrelated photographs in 32."""

_SAME_GREY = 10
"""Largest difference of 255 that copies may have in a field, beside half of what neighbouring fields differ by.

Measured on 63 photographs: 3 fields of copies of .25 to 1.5 times the size and of JPEG quality 10 to 80 differ by at
most 8, frames in which an object of 1 to 3 % of the image has moved by 14 or more in 95 % of cases."""
_MIRRORED = np.uint64(0x5555555555555555)
"""Bits of a hash that nearly all flip where the image is mirrored: those of odd frequencies along its rows."""
_DIFFERING = 3  # fields that must differ: one may be a scratch or a date
_PARTS = (13, 13, 13, 13, 12)
"""Bits of the parts of a hash: of hashes that differ in at most `NEAR_BITS` bits, one part is equal."""
_AT_ONCE = 1 << 20
"""Number of pairs whose bits are counted together."""
_GREYS_AT_ONCE = 1024
"""Number of pairs whose grey values are compared together."""
_BOXES_AT_ONCE = 4096
"""Number of pairs whose boxes are compared together."""
_MOST = 1_000_000
"""Number of pairs that are compared; images of a still camera have more."""
_SAME_BOX = 0.02
"""Largest difference of a coordinate, as a fraction of the image, between boxes of one object on two copies."""

Boxes = tuple[np.ndarray, np.ndarray]
"""Sorted labels [M] of the targets of an image, and their boxes [M, 4] in that order, as fractions of its size."""


class Targets:
    """The targets of some images of a set, those of all records of an image together, in columns."""

    def __init__(self, instances: Sequence[Instance], names: Collection[str]) -> None:
        records = Records.of(instances if names else ())
        if len(rows := records.rows_of(names)) < len(records):
            records = records.take(rows)
        record_N, boxes_N4, label_N, labels = records.boxes
        self._place: dict[str, int] = {}
        place_R = np.array([self._place.setdefault(name, len(self._place)) for name in records.names], np.int64)
        self._labels, rank_L = np.unique(np.array(labels, str), return_inverse=True)
        image_N, label_N = place_R[record_N], rank_L[label_N]
        order_N = np.lexsort((label_N, image_N))
        self._label_N, self._boxes_N4 = label_N[order_N], boxes_N4[order_N]
        self._ends_I = np.searchsorted(image_N[order_N], np.arange(len(self._place) + 1))

    def _rows(self, name: str) -> tuple[int, int]:
        """Return where the targets of an image begin and end; none of one without a record."""
        place = self._place.get(name)
        return (0, 0) if place is None else (int(self._ends_I[place]), int(self._ends_I[place + 1]))

    def of(self, name: str) -> Boxes:
        """Return the targets of an image."""
        rows = slice(*self._rows(name))
        return self._labels[self._label_N[rows]], self._boxes_N4[rows]

    def are_the_same(self, names: Sequence[str], pairs_P2: np.ndarray) -> np.ndarray:
        """Return which pairs of images have the same objects at the same places."""
        image_U, at_P2 = np.unique(pairs_P2, return_inverse=True)
        rows_U2 = np.array([self._rows(names[i]) for i in image_U.tolist()], np.int64).reshape(-1, 2)
        found = np.zeros(len(pairs_P2), bool)
        for start in range(0, len(pairs_P2), _BOXES_AT_ONCE):
            pairs = slice(start, start + _BOXES_AT_ONCE)
            found[pairs] = self._have_same_boxes(rows_U2[at_P2.reshape(-1, 2)[pairs]])
        return found

    def _have_same_boxes(self, rows_P22: np.ndarray) -> np.ndarray:
        """Return whether both ranges of targets are the same, of which those of copies mostly have one order."""
        counts_P2 = rows_P22[:, :, 1] - rows_P22[:, :, 0]
        same_P: np.ndarray = counts_P2[:, 0] == counts_P2[:, 1]
        count_P = counts_P2[:, 0] * same_P
        pair_n = np.repeat(np.arange(len(count_P)), count_P)
        at_n = np.arange(len(pair_n)) - np.repeat(np.cumsum(count_P) - count_P, count_P)
        one_n, other_n = (rows_P22[pair_n, side, 0] + at_n for side in range(2))
        same_P[pair_n[self._label_N[one_n] != self._label_N[other_n]]] = False
        is_near_n = (np.abs(self._boxes_N4[one_n] - self._boxes_N4[other_n]) <= _SAME_BOX).all(axis=1)
        for pair in np.unique(pair_n[~is_near_n & same_P[pair_n]]).tolist():
            one, other = (slice(*rows) for rows in rows_P22[pair].tolist())
            boxes = [(self._label_N[rows], self._boxes_N4[rows]) for rows in (one, other)]
            same_P[pair] = have_same_boxes(*boxes)
        return same_P


def records_of(instances: Sequence[Instance], names: Collection[str]) -> list[Instance]:
    """Return the records of some images, without decoding those of others."""
    if isinstance(instances, Records):
        return [instances[i] for i in instances.rows_of(names)] if names else []
    return [instance for instance in instances if instance.image in names]


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


_KINDS: tuple[Literal["equal", "copy", "alike"], ...] = ("equal", "copy", "alike")
_EQUAL, _COPY, _ALIKE = range(3)
_HOW = ("equal files", "copies of another quality or frames without motion", "parts of them differ")


@dataclass(frozen=True, eq=False)
class AlikePairs(Sequence[Pair]):
    """Pairs of images, in columns.

    Attributes:
        pairs_P2: index in the first set and in the second set
        kind_P: what they are, an index into `equal`, `copy` and `alike`
        bits_P: number of bits in which their hashes differ
        resized_P: whether the sizes of copies differ
        boxes_differ_P: whether they would be copies, but for their boxes
        uncompared: number of pairs with similar hashes that were not compared, as there are too many
    """

    pairs_P2: np.ndarray
    kind_P: np.ndarray
    bits_P: np.ndarray
    resized_P: np.ndarray
    boxes_differ_P: np.ndarray
    uncompared: int = 0

    def __len__(self) -> int:
        return len(self.pairs_P2)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice | np.ndarray) -> AlikePairs: ...
    def __getitem__(self, index: int | slice | np.ndarray) -> Pair | AlikePairs:
        """Return a pair, or the pairs of a slice or mask."""
        if isinstance(index, slice | np.ndarray):
            columns = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "uncompared"}
            return replace(self, **{name: column[index] for name, column in columns.items()})
        (first, second), kind = self.pairs_P2[index].tolist(), int(self.kind_P[index])
        how = _HOW[kind]
        if kind == _COPY and self.resized_P[index]:
            how = "copies of another size"
        bits = f"{self.bits_P[index]} of 64 bits of their perceptual hashes differ"
        if self.boxes_differ_P[index]:
            how = f"{bits}, and their boxes differ"
        elif kind != _EQUAL:
            how += f", {bits}"
        return Pair(first, second, _KINDS[kind], how)

    @property
    def firsts(self) -> np.ndarray:
        """Index in the first set."""
        return self.pairs_P2[:, 0]

    @property
    def seconds(self) -> np.ndarray:
        """Index in the second set."""
        return self.pairs_P2[:, 1]

    @property
    def is_same(self) -> np.ndarray:
        """Whether both images of each pair show the same."""
        is_same: np.ndarray = self.kind_P != _ALIKE
        return is_same

    @property
    def is_equal(self) -> np.ndarray:
        """Whether both files of each pair are equal."""
        is_equal: np.ndarray = self.kind_P == _EQUAL
        return is_equal


def alike_images(first: Looks, second: Looks, *, within: bool = False) -> AlikePairs:
    """Return pairs of files that show the same image, followed by pairs that only look alike.

    `within` one set each pair is returned once, the earlier image first.
    """
    rows_one, rows_other = (np.flatnonzero(looks.slots >= 0) for looks in (first, second))
    found, uncompared = _near_pairs(first.hashes[rows_one], second.hashes[rows_other], NEAR_BITS, within)
    pairs_P2 = np.stack([rows_one[found[:, 0]], rows_other[found[:, 1]]], axis=1)
    digests = first.digests[pairs_P2[:, 0]], second.digests[pairs_P2[:, 1]]
    kind_P = np.where((digests[0] == digests[1]).all(axis=1), _EQUAL, _ALIKE)
    others = np.flatnonzero(kind_P != _EQUAL)
    is_copy = are_copies(first, second, pairs_P2[others])
    kind_P[others[is_copy]] = _COPY
    resized_P = (first.sizes[pairs_P2[:, 0]] != second.sizes[pairs_P2[:, 1]]).any(axis=1)
    pairs = AlikePairs(pairs_P2, kind_P, found[:, 2], resized_P, np.zeros(len(found), bool), uncompared)
    return pairs[np.lexsort((pairs_P2[:, 1], pairs_P2[:, 0], ~pairs.is_same))]


def duplicates_in(names: Sequence[str], looks: Looks, instances: Sequence[Instance]) -> tuple[AlikePairs, Targets]:
    """Return the pairs within a set, the earlier image first, and the targets of the images.

    Inspection reports the pairs, and preparation drops them. Frames of one video, in which too little has moved to be
    seen in the pixels, are told from copies by their boxes.
    """
    pairs = alike_images(looks, looks, within=True)
    targets = Targets(instances, {names[i] for i in np.unique(pairs.pairs_P2[pairs.is_same]).tolist()})
    copies = np.flatnonzero(pairs.kind_P == _COPY)
    differ_P = np.zeros(len(pairs), bool)
    differ_P[copies] = ~targets.are_the_same(names, pairs.pairs_P2[copies])
    judged = replace(pairs, kind_P=np.where(differ_P, _ALIKE, pairs.kind_P), boxes_differ_P=differ_P)
    return judged[np.argsort(~judged.is_same, kind="stable")], targets


def are_copies(first: Looks, second: Looks, pairs_P2: np.ndarray) -> np.ndarray:
    """Return which pairs of images are copies of each other, at any size and quality, by their grey values.

    Frames of one video, in which something has moved, are not: they differ where each of them is smooth. All images
    were decoded.
    """
    parts = [np.zeros(0, bool)]
    for start in range(0, len(pairs_P2), _GREYS_AT_ONCE):
        chunk = pairs_P2[start : start + _GREYS_AT_ONCE]
        sides = []
        for looks, chosen in ((first, chunk[:, 0]), (second, chunk[:, 1])):
            distinct, inverse = np.unique(looks.slots[chosen], return_inverse=True)
            grey = np.asarray(looks.grey_K[distinct]).reshape(-1, FIELDS, FIELDS)
            sides.append((grey, neighbour_range(grey), inverse))
        (one, range_one, i), (other, range_other, j) = sides
        difference = np.abs(one[i].astype(np.int16) - other[j]) - np.minimum(range_one[i], range_other[j]) // 2
        most = np.partition(difference.reshape(len(i), -1), -_DIFFERING, axis=1)[:, -_DIFFERING]
        parts.append(most <= _SAME_GREY)
    return np.concatenate(parts)


def near_duplicates(
    one_N: np.ndarray, other_M: np.ndarray, bits: int = NEAR_BITS, *, within: bool = False
) -> np.ndarray:
    """Return index in `one_N`, index in `other_M` and differing bits, [P, 3], of 64-bit hashes that differ in few bits.

    These are `NEAR_BITS` at most. `within` one set each pair is returned once, the smaller index first.
    """
    return _near_pairs(one_N, other_M, bits, within)[0]


def groups_of_alike(hash_N: np.ndarray) -> np.ndarray:
    """Return the group [N] of each image: those that look alike, mirrored or not, directly or by way of others."""
    others = (hash_N, hash_N ^ _MIRRORED)
    pairs_P2 = np.concatenate([near_duplicates(hash_N, other_N)[:, :2] for other_N in others])
    first, second = pairs_P2.T
    group_N = np.arange(len(hash_N))
    while True:  # the smallest index of each group spreads over it
        before = group_N.copy()
        np.minimum.at(group_N, first, group_N[second])
        np.minimum.at(group_N, second, group_N[first])
        if (group_N == before).all():
            return np.unique(group_N, return_inverse=True)[1]


def _near_pairs(one_N: np.ndarray, other_M: np.ndarray, bits: int, within: bool) -> tuple[np.ndarray, int]:
    """Return `near_duplicates`, of which there are `_MOST` at most, and the number of those that are left out."""
    (hash_u, of_u), (hash_v, of_v) = (_grouped(hashes) for hashes in (one_N, other_M))
    found_P3 = _near_hashes(hash_u, hash_v, bits)
    if within:
        found_P3 = found_P3[found_P3[:, 0] <= found_P3[:, 1]]
    size_u, size_v = np.diff(of_u[1]), np.diff(of_v[1])
    u, v = found_P3[:, 0], found_P3[:, 1]
    count_P = size_u[u] * size_v[v]
    ends_P = np.minimum(np.cumsum(count_P), _MOST)
    kept_P = np.diff(ends_P, prepend=0)
    pair = np.repeat(np.arange(len(found_P3)), kept_P)
    at = np.arange(len(pair)) - np.repeat(ends_P - kept_P, kept_P)
    width = size_v[v][pair]
    i = of_u[0][of_u[1][u][pair] + at // np.maximum(width, 1)]
    j = of_v[0][of_v[1][v][pair] + at % np.maximum(width, 1)]
    pairs = np.stack([i, j, found_P3[pair, 2]], axis=1)
    if within:
        pairs = pairs[(u[pair] != v[pair]) | (i < j)]
        count_P = np.where(u == v, size_u[u] * (size_u[u] - 1) // 2, count_P)
        pairs[:, :2].sort(axis=1)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))], int(count_P.sum()) - len(pairs)


def _grouped(hash_N: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return the distinct hashes in the order of their first index, indices grouped by hash, and the groups' ends."""
    distinct, first, inverse = np.unique(hash_N, return_index=True, return_inverse=True)
    rank = np.empty(len(distinct), np.int64)
    rank[by_first := np.argsort(first)] = np.arange(len(distinct))
    group_N = rank[inverse]
    ends = np.concatenate([[0], np.cumsum(np.bincount(group_N, minlength=len(distinct)))])
    return distinct[by_first], (np.argsort(group_N, kind="stable"), ends)


def _near_hashes(one_U: np.ndarray, other_V: np.ndarray, bits: int) -> np.ndarray:
    """Return the pairs of distinct hashes that differ in at most `bits` bits, [P, 3].

    Hashes are sorted by each of their parts in turn, since a part of two similar hashes is equal.
    """
    shifts = np.cumsum((0, *_PARTS[:-1]))
    masks = [np.uint64(((1 << width) - 1) << int(shift)) for width, shift in zip(_PARTS, shifts, strict=True)]
    found = [np.zeros((0, 3), np.int64)]
    for number, mask in enumerate(masks):
        order = np.argsort(other_V & mask, kind="stable")
        sorted_V = (other_V & mask)[order]
        low_U, high_U = (np.searchsorted(sorted_V, one_U & mask, side) for side in ("left", "right"))
        ends_U = np.cumsum(high_U - low_U)
        start = 0
        while start < len(one_U):
            before = ends_U[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends_U, before + _AT_ONCE, "right")))
            counts = (high_U - low_U)[start:stop]
            u = np.repeat(np.arange(start, stop), counts)
            at = np.arange(len(u)) - np.repeat(np.cumsum(counts) - counts, counts)
            v = order[low_U[u] + at]
            differing = one_U[u] ^ other_V[v]
            count = _bit_counts(differing)
            is_new = count <= bits
            for earlier in masks[:number]:
                is_new &= (differing & earlier) != 0
            found.append(np.stack([u, v, count], axis=1)[is_new])
            start = stop
    pairs = np.concatenate(found)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


_BITS_OF_BYTE = np.array([byte.bit_count() for byte in range(256)], np.uint8)


def _bit_counts(values_P: np.ndarray) -> np.ndarray:
    """Return the number of bits of 64-bit numbers that are set."""
    counts: np.ndarray = _BITS_OF_BYTE[values_P.view(np.uint8).reshape(-1, 8)].sum(axis=1, dtype=np.int64)
    return counts
