"""Parses token sequences: classifies each position as coordinate, description or structure, and finds the objects."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby, pairwise
from typing import Any

from coord_codec.arguments import expect, plain
from coord_codec.files import InputError
from coord_codec.geometry import Geometry, geometry_of
from coord_codec.vocab import CoordVocab

_MIN_COORDS = 4  # if no geometry is given


@dataclass(frozen=True)
class ObjectLayout:
    """The positions of one object in a sequence.

    Attributes:
        coord_positions: positions of its coordinate tokens, in the order of its geometry
        desc_positions: positions of its description; empty in JSON text
        bins: the bins at `coord_positions`
    """

    coord_positions: tuple[int, ...]
    desc_positions: tuple[int, ...]
    bins: tuple[int, ...]

    @property
    def logit_positions(self) -> tuple[int, ...]:
        """The positions whose logits predict the coordinates: in a causal model position p predicts p + 1."""
        return tuple(p - 1 for p in self.coord_positions)


class Reason(str, Enum):
    """Why a part of the sequence is not an object."""

    NESTED_START = "nested_start"  # a start marker inside an object: the outer object is left out
    NO_DESCRIPTION = "no_description"
    ARITY = "arity"  # wrong number of coordinates for the geometry; without one: not an even number of at least four
    UNEXPECTED_TOKEN = "unexpected_token"  # a token that the syntax does not allow here
    MASKED = "masked"  # a negative id inside an object
    UNFINISHED = "unfinished"  # the sequence ends inside an object
    STRAY_MARKER = "stray_marker"  # a marker other than start outside an object
    STRAY_COORDINATE = "stray_coordinate"  # coordinates outside an object
    NO_LOGITS = "no_logits"  # a coordinate at position 0, which no logits predict


@dataclass(frozen=True)
class Omission:
    """A part of the sequence that is not an object.

    Attributes:
        start: position where it begins
        position: position where the fault was detected; the sequence's length if that is at its end
        reason: the fault
    """

    start: int
    position: int
    reason: Reason


@dataclass(frozen=True)
class SequenceLayout:
    """The classified positions of a sequence, from 0; each non-negative id belongs to exactly one class.

    Attributes:
        coord_positions: all coordinate tokens, inside and outside objects
        desc_positions: the description tokens of the objects
        structure_positions: all other tokens: markers, punctuation, other text, and tokens outside objects
        objects: the objects, in the order of the sequence
        reasons: what was left out, where and why, in the order of the sequence
    """

    coord_positions: tuple[int, ...]
    desc_positions: tuple[int, ...]
    structure_positions: tuple[int, ...]
    objects: tuple[ObjectLayout, ...]
    reasons: tuple[Omission, ...]


def find_layout(
    ids: Any, vocab: CoordVocab, markers: Sequence[int] | None = None, geometry: str | Geometry | None = None
) -> SequenceLayout:
    """Parse a token sequence into objects by syntax alone; the order of corners is not checked.

    With two markers an object is: start, description, coordinates, end. With four it is: description start,
    description, description end, box start, coordinates, box end. No other tokens may occur between them. A description
    has at least one token. The number of coordinates is that of the geometry; without a geometry it is any even number
    of at least four. A start marker inside an object begins a new one, and the outer one is left out.

    Without markers (JSON text) an object is a group of coordinates with the same tokens between all neighbours: as many
    as the geometry has, by default four. Its description cannot be distinguished from punctuation by ids and counts as
    structure.

    Negative ids (the label -100) have no class and end an open object, so labels with a masked prompt can be passed
    unchanged. Every sequence has a layout; the time is linear in its length.

    Args:
        ids: one sequence of token ids or labels: list, NumPy array or torch tensor of shape [T]
        vocab: the coordinate ids
        markers: the two or four ids of a marker family (`MarkerFamily.ids`); None for JSON text
        geometry: the geometry of the objects, see `coord_codec.geometry`

    Raises:
        ValueError: if `ids` is not one sequence, or `markers` are not two or four different ids

    Example:
        >>> vocab = CoordVocab(first_id=100)
        >>> layout = find_layout([7, 1, 42, 110, 120, 130, 140, 2], vocab, markers=(1, 2))
        >>> layout.objects[0].bins, layout.objects[0].logit_positions, layout.desc_positions
        ((10, 20, 30, 40), (2, 3, 4, 5), (2,))
    """
    ids = _to_integers(ids, "ids: expected one sequence of token ids, shape [T] (one row of a batch at a time)")
    expect("vocab", vocab, CoordVocab)
    is_coord = vocab.mask(ids)
    kind = None if geometry is None else geometry_of(geometry)
    if markers is None:
        objects, reasons = _find_json_objects(ids, is_coord, vocab, kind or geometry_of("box"))
    else:
        objects, reasons = _find_marked_objects(ids, is_coord, vocab, _check_markers(markers, vocab), kind)
    desc = tuple(p for o in objects for p in o.desc_positions)
    in_desc = set(desc)
    return SequenceLayout(
        coord_positions=tuple(p for p, c in enumerate(is_coord) if c),
        desc_positions=desc,
        structure_positions=tuple(p for p, i in enumerate(ids) if i >= 0 and not is_coord[p] and p not in in_desc),
        objects=tuple(objects),
        reasons=tuple(reasons),
    )


def _check_markers(markers: Any, vocab: CoordVocab) -> list[int]:
    expected = (
        "markers: expected 2 or 4 different token ids outside the coordinates, or None "
        "(MarkerFamily.ids(tokenizer) gives them)"
    )
    ids = _to_integers(markers, expected)
    if len(ids) not in (2, 4) or len(set(ids)) != len(ids) or any(i < 0 or i in vocab.ids for i in ids):
        raise ValueError(f"{expected}, found {ids}")
    return ids


def _to_integers(values: Any, expected: str) -> list[int]:
    try:
        return [operator.index(v) for v in plain(values)]
    except TypeError as error:
        raise InputError(f"{expected}: {error}") from None


_BEGUN = re.compile("[SDBEC]")
"""A token outside objects that is no text: the start of an object, or a marker or coordinate that is out of place."""
_ENDED = re.compile("[SE]")
"""A token that ends the rest of an invalid object."""
_SYNTAX = {2: (re.compile("S(t*)(C*)"), "CE"), 4: (re.compile("S(t*)(?:D(?:B(C*))?)?"), "D")}
"""By the number of markers: an object up to its end marker or its first fault, and what follows a description."""


def _find_marked_objects(
    ids: Sequence[int], is_coord: Sequence[bool], vocab: CoordVocab, markers: Sequence[int], kind: Geometry | None
) -> tuple[list[ObjectLayout], list[Omission]]:
    """Return the objects and omissions of text with two or four markers; see `find_layout`.

    Each token becomes a letter: S, D, B, E for the markers (start, description end, box start, end), C for a
    coordinate, X for a negative id, t for any other.
    """
    letters = dict(zip(markers, "SE" if len(markers) == 2 else "SDBE", strict=True))
    text = "".join("C" if c else letters.get(i, "X" if i < 0 else "t") for i, c in zip(ids, is_coord, strict=True))
    syntax, after_desc = _SYNTAX[len(markers)]
    objects: list[ObjectLayout] = []
    omissions: list[Omission] = []
    place: int | None = 0
    while place is not None and (begun := _BEGUN.search(text, place)):
        start = end = begun.start()
        reason: Reason | None = Reason.STRAY_COORDINATE if begun[0] == "C" else Reason.STRAY_MARKER
        if found := syntax.match(text, start):
            desc, coords, end = range(*found.span(1)), range(*found.span(2)), found.end()
            following = text[end : end + 1]
            if not desc and (left := text[desc.stop : desc.stop + 1]) and left in after_desc:
                end, reason = desc.stop, Reason.NO_DESCRIPTION
            elif following != "E" or coords.stop < 0:
                faults = {"": Reason.UNFINISHED, "S": Reason.NESTED_START, "X": Reason.MASKED}
                reason = faults.get(following, Reason.UNEXPECTED_TOKEN)
            else:
                fits = kind.fits(len(coords)) if kind else len(coords) >= _MIN_COORDS and len(coords) % 2 == 0
                reason = None if fits else Reason.ARITY
                if fits:
                    objects.append(
                        ObjectLayout(tuple(coords), tuple(desc), tuple(vocab.id_to_bin(ids[p]) for p in coords))
                    )
        if reason is not None:
            omissions.append(Omission(start, end, reason))
        closing = _ENDED.search(text, end)
        place = closing and closing.start() + (closing[0] == "E")
    return objects, omissions


def _find_json_objects(
    ids: Sequence[int], is_coord: Sequence[bool], vocab: CoordVocab, kind: Geometry
) -> tuple[list[ObjectLayout], list[Omission]]:
    """Return the objects and omissions of JSON text; see `find_layout`."""
    coords = [p for p, c in enumerate(is_coord) if c]
    groups = _group_lengths(ids, coords, kind)
    objects: list[ObjectLayout] = []
    omissions: list[Omission] = []
    place = 0
    for start, length in [*groups.items(), (len(coords), 0)]:
        if start < place:
            continue  # a coordinate belongs to one shape only
        if place < start:
            omissions.append(Omission(coords[place], coords[start - 1] + 1, Reason.ARITY))
        shape = tuple(coords[start : start + length])
        if shape and shape[0] == 0:
            omissions.append(Omission(0, shape[-1] + 1, Reason.NO_LOGITS))
        elif shape:
            objects.append(ObjectLayout(shape, (), tuple(vocab.id_to_bin(ids[p]) for p in shape)))
        place = start + length
    return objects, omissions


def _group_lengths(ids: Sequence[int], coords: Sequence[int], kind: Geometry) -> dict[int, int]:
    """Return the number of coordinates of each shape by the index in `coords` where it begins.

    A shape is a run of equal gaps between coordinates. A point has a single gap, like the space between two points;
    the shorter of these gaps is the one inside a point.
    """
    gaps = [tuple(ids[a + 1 : b]) for a, b in pairwise(coords)]
    shortest = min(map(len, gaps), default=0) if kind.fits(2) else None
    groups: dict[int, int] = {}
    n = 0
    for gap, equal_gaps in groupby(gaps):
        length = len(list(equal_gaps))
        if kind.fits(length + 1) and all(i >= 0 for i in gap) and (length > 1 or len(gap) == shortest):
            groups[n] = length + 1
        n += length
    return groups
