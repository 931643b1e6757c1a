"""Objects in JSON text: four coordinates divided by three times the same tokens.

Inside a box the same separator stands between all coordinates, while from one box to the next the text
differs (brackets, keys and a description). So boxes are found without knowing which id is which character,
and a box of three or five coordinates does not shift those that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from coord_codec.layout_types import ObjectLayout, Omission, Reason
from coord_codec.vocab import CoordVocab

_SEPARATORS = 3  # in a box of four coordinates


def find_json_objects(
    ids: Sequence[int], is_coord: Sequence[bool], vocab: CoordVocab
) -> tuple[list[ObjectLayout], list[Omission]]:
    """Return the boxes of JSON text and what was left out; see `find_layout`."""
    coords = [p for p, c in enumerate(is_coord) if c]
    firsts = _first_coords(ids, coords)
    objects: list[ObjectLayout] = []
    omissions: list[Omission] = []
    loose: list[int] = []

    def leave_out_loose() -> None:
        if loose:
            omissions.append(Omission(loose[0], loose[-1] + 1, Reason.ARITY))
            loose.clear()

    n = 0
    while n < len(coords):
        if n not in firsts:
            loose.append(coords[n])
            n += 1
            continue
        leave_out_loose()
        box = tuple(coords[n : n + 4])
        if box[0] == 0:
            omissions.append(Omission(0, box[-1] + 1, Reason.NO_LOGITS))
        else:
            objects.append(ObjectLayout(box, (), tuple(vocab.id_to_bin(ids[p]) for p in box)))
        n += 4  # a coordinate belongs to one box only
    leave_out_loose()
    return objects, omissions


def _first_coords(ids: Sequence[int], coords: Sequence[int]) -> set[int]:
    """Return which of the coordinates (as indices into `coords`) begin a run of exactly three equal gaps."""
    gaps = [tuple(ids[a + 1 : b]) for a, b in pairwise(coords)]
    firsts = set()
    n = 0
    for gap, run in groupby(gaps):
        length = len(list(run))
        if length == _SEPARATORS and all(i >= 0 for i in gap):
            firsts.add(n)
        n += length
    return firsts
