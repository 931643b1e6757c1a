"""The sequence parser: which position of a token sequence is a coordinate, a description, or structure."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coord_codec.layout_json import find_json_objects
from coord_codec.layout_markers import find_marked_objects
from coord_codec.layout_types import ObjectLayout, Omission
from coord_codec.vocab import CoordVocab


@dataclass(frozen=True)
class SequenceLayout:
    """What stands where in a sequence. Positions count from 0; each non-negative id is of exactly one kind.

    Attributes:
        coord_positions: every coordinate token, inside objects or not.
        desc_positions: the description tokens of the objects.
        structure_positions: everything else: markers, punctuation, any other text, what belongs to no object.
        objects: the objects, in the order of the sequence.
        reasons: what was left out, where and why, in the order of the sequence.
    """

    coord_positions: tuple[int, ...]
    desc_positions: tuple[int, ...]
    structure_positions: tuple[int, ...]
    objects: tuple[ObjectLayout, ...]
    reasons: tuple[Omission, ...]


def find_layout(ids: Any, vocab: CoordVocab, markers: Sequence[int] | None = None) -> SequenceLayout:
    """Parse a token sequence into objects by syntax alone; corner order is not judged.

    With two markers an object is start, description, coordinates, end; with four it is description start,
    description, description end, box start, coordinates, box end; nothing may stand between. A description
    has at least one token, the coordinates are an even number from four up. A start inside an object begins
    a new one and the outer is left out.

    Without markers (JSON text) an object is four coordinates divided by three times the same tokens. Its
    description cannot be told from the punctuation by ids, and counts as structure.

    Negative ids (the label -100) are no positions at all and end whatever object is open, so labels with a
    masked prompt can be given as they are. Any sequence has a layout; time is linear.

    Args:
        ids: one sequence of token ids or labels: list, NumPy array or torch tensor of shape [T].
        vocab: the coordinate ids.
        markers: the ids of a marker family (`MarkerFamily.ids`), two or four, or None.

    Raises:
        ValueError: if `ids` is not one sequence, or `markers` are not two or four different ids.
    """
    ids = _whole_numbers(
        ids, "ids: expected one sequence of token ids, shape [T] (one row of a batch at a time)"
    )
    is_coord = vocab.mask(ids)
    if markers is None:
        objects, reasons = find_json_objects(ids, is_coord, vocab)
    else:
        objects, reasons = find_marked_objects(ids, is_coord, vocab, _check_markers(markers, vocab))
    desc = tuple(p for o in objects for p in o.desc_positions)
    in_desc = set(desc)
    return SequenceLayout(
        coord_positions=tuple(p for p, c in enumerate(is_coord) if c),
        desc_positions=desc,
        structure_positions=tuple(
            p for p, i in enumerate(ids) if i >= 0 and not is_coord[p] and p not in in_desc
        ),
        objects=tuple(objects),
        reasons=tuple(reasons),
    )


def _check_markers(markers: Any, vocab: CoordVocab) -> list[int]:
    wanted = (
        "markers: expected 2 or 4 different token ids outside the coordinates, or None "
        "(MarkerFamily.ids(tokenizer) gives them)"
    )
    ids = _whole_numbers(markers, wanted)
    if len(ids) not in (2, 4) or len(set(ids)) != len(ids) or any(i < 0 or i in vocab.ids for i in ids):
        raise ValueError(f"{wanted}, found {ids}")
    return ids


def _whole_numbers(values: Any, wanted: str) -> list[int]:
    try:
        return [operator.index(v) for v in (values.tolist() if hasattr(values, "tolist") else values)]
    except TypeError as error:
        raise ValueError(f"{wanted}: {error}") from None
