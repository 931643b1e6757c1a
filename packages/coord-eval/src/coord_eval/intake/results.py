"""A COCO results list as columns: boxes of images and categories that are named once.

Shapes: R boxes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain, repeat
from typing import Any, TypeAlias

import numpy as np

from coord_codec import Geometry, geometry_of
from coord_codec.arguments import plain
from coord_codec.box_table import BoxTable
from coord_codec.box_transforms import LAYOUTS
from coord_codec.files import InputError, finite_numbers, identifier
from coord_codec.json_numbers import NumberRows
from coord_eval.intake.stated_shapes import GEOMETRY_OF, SHAPES, box_around, stated_shape

Key = tuple[int | str, str | None]
"""The id of an image or a category, and its name if the results state one."""
Records: TypeAlias = Sequence[Mapping[str, Any]]
_IMAGE = ("image", "file_name")
_CATEGORY = ("category", "category_name")
"""Fields of a row that may name its image, as Ultralytics and our own exports do, and its category."""


class Form(Enum):
    """What the numbers, images and categories of results are.

    Attributes:
        RESULTS: pixels; ids or names
        LABELS: fractions of images, which are named without suffix; names of categories
        CLASSES: as before, with categories by their place, from 0
        FRAMES: pixels; images by the number of their frame, `VIDEO/NUMBER`; one category that is not stated
    """

    RESULTS = "a COCO results list"
    LABELS = "a folder of label files"
    CLASSES = "a folder of label files without the names of their classes"
    FRAMES = "MOT results"

    @property
    def in_fractions(self) -> bool:
        """Whether the numbers are fractions of images."""
        return self in (Form.LABELS, Form.CLASSES)


@dataclass(frozen=True, eq=False)
class ResultsList:
    """The boxes of a results list: a table of them in its order, whose images and labels are those that occur.

    Attributes:
        table: the boxes; a label is the name of a category, or tells its id where the results state no name
        categories: id and name of the category that each label stands for
        positions: number of images if their ids are positions in a list that names none, else None
        form: what numbers, images and categories are
        shapes_R: the fields `segmentation` and `keypoints` of each row; None if no row has one
    """

    table: BoxTable
    categories: tuple[Key, ...]
    positions: int | None = None
    form: Form = Form.RESULTS
    shapes_R: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: slice | np.ndarray) -> ResultsList:
        shapes_R = None if self.shapes_R is None else self.shapes_R[rows]
        return replace(self, table=self.table.take(np.arange(len(self))[rows]), shapes_R=shapes_R)


def states_shapes(loaded: object, geometry: str | Geometry) -> bool:
    """Return whether predictions are results whose shapes of a geometry pycocotools scores as they are stated."""
    if not isinstance(loaded, ResultsList) or loaded.shapes_R is None:
        return False
    fields = [field for field, name in GEOMETRY_OF.items() if name == geometry_of(geometry).name]
    return any(field in shape for field in fields for shape in loaded.shapes_R if shape is not None)


class _Places:
    """Places of ids, or of ids with names, in the order in which they first occur."""

    def __init__(self) -> None:
        self._index = defaultdict[Any, int]()
        self._index.default_factory = self._index.__len__  # a new one gets the next place

    @property
    def keys(self) -> tuple[Key, ...]:
        """The id at each place, and its name."""
        return tuple(key if isinstance(key, tuple) else (key, None) for key in self._index)

    def of(self, values: Sequence[Any]) -> np.ndarray:
        """Return the place of each value."""
        return np.fromiter(map(self._index.__getitem__, values), np.int64, len(values))


class ResultColumns:
    """Collects the records of a results list."""

    def __init__(self) -> None:
        self._images, self._categories = _Places(), _Places()
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._shapes: list[Sequence[dict[str, Any] | None]] = []

    def add(self, records: Records, where: Callable[[int], str]) -> None:
        """Add the boxes of records, of which `where` says where the one of a position stands.

        Raises:
            InputError: naming record and field
        """
        try:
            images, categories, numbers_R5, shapes = _columns_of(records, where)
        except InputError:
            for n, record in enumerate(records):  # the first faulty record is named, and its first faulty field
                _columns_of([record], lambda _, n=n: where(n))  # type: ignore[misc]
            raise
        self._parts.append((self._images.of(images), self._categories.of(categories), numbers_R5))
        self._shapes.append(shapes)

    def finished(
        self, positions: int | None = None, *, form: Form = Form.RESULTS, images: Iterable[str] = ()
    ) -> ResultsList:
        """Return the columns; `images` are names of those that were answered, with boxes or without."""
        self._images.of([(image, image) for image in images])
        categories = self._categories.keys
        none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 5)))
        image_R, category_R, numbers_R5 = map(np.concatenate, zip(none, *self._parts, strict=True))
        table = BoxTable.of(
            image_R,
            category_R,
            LAYOUTS["xywh"](numbers_R5[:, :4]),
            sides_N2=np.ascontiguousarray(numbers_R5[:, 2:4]),
            score_N=numbers_R5[:, 4].copy(),
            image_ids=[image_id for image_id, _ in self._images.keys],
            names=[name or "" for _, name in self._images.keys],
            labels=[name or f"category_id {category_id}" for category_id, name in categories],
        )
        shapes_R = None
        if any(map(any, self._shapes)):
            shapes_R = np.empty(len(table), object)
            shapes_R[:] = [*chain.from_iterable(self._shapes)]
        return ResultsList(table, categories, positions, form, shapes_R)


_PLAIN = frozenset({int, float, str, bool, list, dict, tuple, type(None)})


def _columns_of(
    records: Records, where: Callable[[int], str]
) -> tuple[Sequence[Any], Sequence[Any], np.ndarray, Sequence[dict[str, Any] | None]]:
    """Return the images, categories, numbers and shapes of records, a field of all of them at a time.

    Raises:
        InputError: naming record and field
    """
    named = {*records.widths} if isinstance(records, NumberRows) else set[str]().union(*records)
    shapes: list[dict[str, Any] | None] = [None] * len(records)
    if not named.isdisjoint(SHAPES):
        records = [*map(plain_record, records)]
        for n, record in enumerate(records):
            shapes[n] = shape = stated_shape(record, where(n))
            if shape is not None and not record.get("bbox"):
                box, shape["area"] = box_around(shape)
                records[n] = {**record, "bbox": box}
    boxes_R4 = _numbers(records, "bbox", 4, where)
    for n in np.flatnonzero((boxes_R4[:, 2:] < 0).any(axis=1)).tolist():
        raise InputError(f"{where(n)}.bbox: expected a width and height of at least 0, found {boxes_R4[n].tolist()}")
    images = _keys(records, "image_id", named.intersection(_IMAGE) and _IMAGE, where)
    categories = _keys(records, "category_id", named.intersection(_CATEGORY) and _CATEGORY, where)
    scores_R1 = _numbers(records, "score", None, where)
    return images, categories, np.concatenate([boxes_R4, scores_R1], axis=1), shapes


def _numbers(records: Records, field: str, count: int | None, where: Callable[[int], str]) -> np.ndarray:
    """Return the lists of finite numbers [R, count] in a field, or its single numbers if the count is None.

    All of the usual types are checked at once, others one by one.

    Raises:
        InputError: naming record and field
    """
    numbers = np.zeros((len(records), 0))
    if isinstance(records, NumberRows) and records.widths.get(field, 0) == count:
        numbers = records.array(field)
    else:
        values: list[Any] = [record.get(field) for record in records]
        are_lists = {*map(type, values)} == {list} and {*map(len, values)} == {count}
        if {*map(type, chain.from_iterable(values) if are_lists else values)} <= {int, float}:
            with suppress(OverflowError):
                numbers = np.array(values, np.float64).reshape(len(records), -1)
    if numbers.shape[1] == (count or 1) and np.isfinite(numbers).all():
        return numbers
    lists = (plain(record.get(field)) if count else [plain(record.get(field))] for record in records)
    return np.array([finite_numbers(value, count or 1, f"{where(n)}.{field}") for n, value in enumerate(lists)])


def _keys(records: Records, field: str, names_in: Iterable[str], where: Callable[[int], str]) -> Sequence[Any]:
    """Return the ids of the images or categories of records, each with its name if some field states one.

    Raises:
        InputError: naming record and field
    """
    names = [_name(record, names_in) for record in records] if names_in else None
    if isinstance(records, NumberRows) and records.widths.get(field, 0) is None:
        ids: Sequence[Any] = records.column(field)
    else:
        other = names if names and field == "image_id" else repeat(None)
        ids = [record.get(field, name) for record, name in zip(records, other)]  # noqa: B905
    if not {*map(type, ids)} <= {int, str}:
        ids = [identifier(plain(value), f"{where(n)}.{field}") for n, value in enumerate(ids)]
    return ids if names is None else [i if name is None else (i, name) for i, name in zip(ids, names, strict=True)]


def _name(record: Mapping[str, Any], fields: Iterable[str]) -> str | None:
    """Return the first name that a row states in some fields."""
    names = (record.get(field) for field in fields)
    return next((name for name in names if name and isinstance(name, str)), None)


def plain_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record with `plain` values; the record itself if its values are plain already."""
    if _PLAIN.issuperset(map(type, record.values())):
        return record
    return {key: plain(value) for key, value in record.items()}


def plain_records(rows: Any) -> Any:
    """Return the rows of a list with `plain` values; anything else as it is."""
    if not isinstance(rows, list):
        return rows
    return [plain_record(row) if isinstance(row, Mapping) else row for row in rows]
