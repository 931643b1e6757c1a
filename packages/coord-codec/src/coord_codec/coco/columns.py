"""The list `annotations` of a COCO document as columns, which are filled in parts, so that no part has to be kept.

Plain rows, nearly all of a large file, become numbers at once; each other row is kept as it is and judged by the rules
of `CocoReader.row`. Shapes: N plain annotations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from coord_codec.coco.reader import READ, contradictions, is_larger, numbered
from coord_codec.coco.rows import PHRASE_KEYS, PHRASES
from coord_codec.coco.tables import ImageId
from coord_codec.fields import OF_COCO, not_read, states_more
from coord_codec.json_numbers import NumberRows
from coord_codec.origins import SCALABEL

_NUMBER = frozenset({int, float})
PART = 1 << 14
"""Number of rows that become numbers at once."""
_NO_ID = int(np.iinfo(np.int64).min)


class AnnotationColumns:
    """The rows of the list, in the order in which they are added.

    Args:
        whole: keep each row as it is, since its shape is asked for

    Attributes:
        count: number of rows
        other: the rows that are no plain numbers, by their position
        notes: counts of what plain rows have besides
        from_scalabel: number of boxes that scalabel wrote
    """

    def __init__(self, whole: bool = False) -> None:
        self._whole, self.count = whole, 0
        self._ints: list[np.ndarray] = []
        self._floats: list[np.ndarray] = []
        self.other: dict[int, Any] = {}
        self.notes = Counter[str]()
        self.from_scalabel = 0

    def add(self, records: Sequence[Any]) -> None:
        """Add rows of the list."""
        if isinstance(records, NumberRows) and not self._whole:
            self._add(records)
            return
        for start in range(0, len(records), PART):
            self._add(records[start : start + PART])

    def _add(self, records: Sequence[Any]) -> None:
        first, self.count = self.count, self.count + len(records)
        positions: Sequence[int] = [] if self._whole else range(len(records))
        fields, lists = (frozenset[str](), None) if self._whole else _plain_lists(records)
        if not lists and not self._whole:
            positions = [n for n, record in enumerate(records) if _is_plain(record)]
        try:
            ints_N4, floats_N5 = _numbers_of(lists or _lists_of([records[n] for n in positions]))
        except OverflowError:  # a number of this part does not fit into 64 bits
            positions = []
            ints_N4, floats_N5 = _numbers_of(_lists_of([]))
        crowd_N = ints_N4[:, 3] == 1
        width_N, height_N, area_N = floats_N5[:, 2:].T
        sound_N = np.isfinite(floats_N5[:, :4]).all(axis=1) & (width_N >= 0) & (height_N >= 0)
        sound_N &= floats_N5[:, :4].any(axis=1)  # zeros stand for no box where a category says that there is none
        sound_N &= ~((area_N < 0) | np.isinf(area_N))
        with np.errstate(over="ignore"):
            sound_N &= crowd_N | ~is_larger(area_N, width_N, height_N)
        for n in np.flatnonzero(sound_N & ~crowd_N).tolist() if not fields or "segmentation" in fields else ():
            record = records[positions[n]]
            if (outlines := record.get("segmentation")) and contradictions(record["bbox"], None, outlines):
                sound_N[n] = False
        kept = [positions[n] for n in np.flatnonzero(sound_N).tolist()]
        for n in kept if not fields else ():
            self.notes[PHRASES] += not PHRASE_KEYS.isdisjoint(records[n])
            self.from_scalabel += _is_of_scalabel(records[n])
            if not READ.issuperset(records[n]):
                self.notes.update(not_read(records[n], READ))
        if len(kept) < len(records):
            for n in sorted(set(range(len(records))).difference(kept)):
                self.other[first + n] = records[n]
                self.from_scalabel += isinstance(records[n], dict) and _is_of_scalabel(records[n])
        position_N1 = first + np.array(kept, np.int64)[:, None]
        self._ints.append(np.concatenate([position_N1, ints_N4[sound_N]], axis=1))
        self._floats.append(floats_N5[sound_N])

    @cached_property
    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """The plain rows that were added: whole numbers [N, 5] and floats [N, 5].

        Whole numbers are position, image id, category id, id and crowd flag; floats are the bbox and the area. An id
        that is not stated is the least 64-bit integer, an area that is not stated NaN.
        """
        ints = np.concatenate([np.zeros((0, 5), np.int64), *self._ints])
        return ints, np.concatenate([np.zeros((0, 5)), *self._floats])

    def record(self, position: int) -> Any:
        """Return the row at a position; a plain one without its further keys."""
        if position in self.other:
            return self.other[position]
        ints_N5, floats_N5 = self.numbers
        n = int(np.searchsorted(ints_N5[:, 0], position))
        return record_of(ints_N5[n].tolist(), floats_N5[n].tolist())

    def of_images(self, ids: Set[ImageId]) -> list[Any]:
        """Return the annotations of some images, given by numbers where their ids are numbers."""
        ints_N5, floats_N5 = self.numbers
        own_N = np.isin(ints_N5[:, 1], [value for value in ids if isinstance(value, int)])
        rows = [record_of(*pair) for pair in zip(ints_N5[own_N].tolist(), floats_N5[own_N].tolist(), strict=True)]
        rows = [{**row, SCALABEL: ""} for row in rows] if self.from_scalabel else rows
        others = (row for row in self.other.values() if isinstance(row, dict))
        return [*rows, *(row for row in others if _is_id(row.get("image_id")) and numbered(row["image_id"]) in ids)]


def record_of(ints: Sequence[int], floats: Sequence[float]) -> dict[str, Any]:
    """Return a plain row as the document had it."""
    _, image, category, number, crowd = ints
    record: dict[str, Any] = {"image_id": image, "category_id": category, "bbox": list(floats[:4]), "iscrowd": crowd}
    if number != _NO_ID:
        record["id"] = number
    if floats[4] == floats[4]:
        record["area"] = floats[4]
    return record


def _is_of_scalabel(record: dict[str, Any]) -> bool:
    """Return whether scalabel wrote the box of a row, which is no box around an outline."""
    return SCALABEL in record and "segmentation" not in record


def _is_id(value: Any) -> bool:
    return isinstance(value, (int, str))


_Lists = tuple[list[list[int]], Any, Any]
"""Image id, category id, id and crowd flag of rows; their boxes; their areas: the last two as lists or arrays."""


def _lists_of(records: Sequence[Any]) -> _Lists:
    """Return the lists of rows; of rows of numbers boxes and areas are arrays."""
    given = (("image_id", None), ("category_id", None), ("id", _NO_ID), ("iscrowd", 0))
    if isinstance(records, NumberRows):
        count, widths = len(records), records.widths
        ids: list[Any] = [records.column(n) if n in widths or none is None else [none] * count for n, none in given]
        areas = records.array("area")[:, 0] if "area" in widths else np.full(count, np.nan)
        return ids, records.array("bbox"), areas
    ids = [[r[n] if none is None else r.get(n, none) for r in records] for n, none in given]
    return ids, [record["bbox"] for record in records], [record.get("area") for record in records]


def _plain_lists(records: Sequence[Any]) -> tuple[frozenset[str], _Lists | None]:
    """Return the fields and the lists of rows if all of them are plain and have the fields of COCO alone; else none.

    It looks at a column at a time, which takes a fifth of the time of `_is_plain`.
    """
    try:
        widths = records.widths if isinstance(records, NumberRows) else None
        fields = frozenset(widths) if widths else frozenset[str]().union(*records)
        ids, boxes, areas = lists = _lists_of(records)
        is_plain = (
            fields <= OF_COCO and {*map(type, chain.from_iterable(ids))} <= {int} and {*ids[-1]} <= {0, 1}
        ) and (
            all(widths[name] == (4 if name == "bbox" else None) for name in fields)
            if widths
            else {*map(type, boxes)} <= {list}
            and {*map(len, boxes)} <= {4}
            and {*map(type, chain.from_iterable(boxes))} <= _NUMBER
            and {*map(type, areas)} <= {int, float, type(None)}
        )
    except (TypeError, KeyError, AttributeError, OverflowError):
        is_plain = False
    return (fields, lists) if is_plain else (frozenset(), None)


def _is_plain(record: Any) -> bool:
    """Return whether a row has whole numbers as ids and numbers as box, and no key that changes what they mean."""
    try:
        x, y, width, height = record["bbox"]
        crowd, area = record.get("iscrowd", 0), record.get("area", 0)
        return (
            type(record["image_id"]) is type(record["category_id"]) is type(record.get("id", 0)) is type(crowd) is int
            and crowd in (0, 1)
            and type(x) in _NUMBER
            and type(y) in _NUMBER
            and type(width) in _NUMBER
            and type(height) in _NUMBER
            and (area is None or type(area) in _NUMBER)
            and not states_more(record)
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return False


def _numbers_of(lists: _Lists) -> tuple[np.ndarray, np.ndarray]:
    """Return image id, category id, id and crowd flag, and bbox and area, of plain rows."""
    ids, boxes, areas = lists
    area_N1 = np.array(areas, np.float64)[:, None]  # None becomes NaN
    ints_N4 = np.stack([np.array(column, np.int64) for column in ids], axis=1)
    return ints_N4, np.concatenate([np.array(boxes, np.float64).reshape(-1, 4), area_N1], axis=1)
