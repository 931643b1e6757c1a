"""A COCO results list as columns: boxes of images and categories that are named once.

Shapes: R boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import Any

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


class ResultColumns:
    """Collects the records of a results list."""

    def __init__(self) -> None:
        self._images: dict[Key, int] = {}
        self._categories: dict[Key, int] = {}
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._uncoded: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._shapes: list[Sequence[dict[str, Any] | None]] = []
        self._are_drawn = False

    def add_usual(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Add boxes if all records are results of the usual types, and return whether they are."""
        if usual := _usual(records):
            self._uncoded.append(usual)
            self._shapes.append((None,) * len(records))
        return usual is not None

    def add(self, records: Sequence[Mapping[str, Any]], places: Iterable[str]) -> None:
        """Add the boxes of records, of which `places` say where they stand.

        Raises:
            InputError: naming record and field
        """
        if not self.add_usual(records):
            self._code()
            self._parts.append(self._checked(records, places))

    def finished(
        self, positions: int | None = None, *, form: Form = Form.RESULTS, images: Iterable[str] = ()
    ) -> ResultsList:
        """Return the columns; `images` are names of those that were answered, with boxes or without."""
        self._code()
        for image in images:
            self._images.setdefault((image, image), len(self._images))
        none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 5)))
        image_R, category_R, numbers_R5 = map(np.concatenate, zip(none, *self._parts, strict=True))
        table = BoxTable.of(
            image_R,
            category_R,
            LAYOUTS["xywh"](numbers_R5[:, :4]),
            sides_N2=np.ascontiguousarray(numbers_R5[:, 2:4]),
            score_N=numbers_R5[:, 4].copy(),
            image_ids=[image_id for image_id, _ in self._images],
            names=[name or "" for _, name in self._images],
            labels=[name or f"category_id {category_id}" for category_id, name in self._categories],
        )
        shapes_R = None
        if self._are_drawn:
            shapes_R = np.empty(len(table), object)
            shapes_R[:] = [shape for part in self._shapes for shape in part]
        return ResultsList(table, tuple(self._categories), positions, form, shapes_R)

    def _code(self) -> None:
        """Give the images and categories of usual boxes, those of many parts at once, their places."""
        if self._uncoded:
            image_R, category_R, numbers_R5 = map(np.concatenate, zip(*self._uncoded, strict=True))
            self._parts.append((_coded(self._images, image_R), _coded(self._categories, category_R), numbers_R5))
            self._uncoded = []

    def _checked(
        self, records: Sequence[Mapping[str, Any]], places: Iterable[str]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the columns of any records, one by one.

        Raises:
            InputError: naming record and field
        """
        images, categories, numbers, shapes = [], [], [], []
        for given, place in zip(records, places, strict=True):
            record = plain_record(given)
            shape = stated_shape(record, place)
            if shape is not None and not record.get("bbox"):
                box, area = box_around(shape)
                shape["area"] = area
            else:
                box = finite_numbers(record.get("bbox"), 4, f"{place}.bbox")
            if box[2] < 0 or box[3] < 0:
                raise InputError(f"{place}.bbox: expected a width and height of at least 0, found {list(box)}")
            image, category = _name(record, _IMAGE), _name(record, _CATEGORY)
            image_id = identifier(record.get("image_id", image), f"{place}.image_id")
            category_id = identifier(record.get("category_id"), f"{place}.category_id")
            score = finite_numbers([record.get("score")], 1, f"{place}.score")[0]
            images.append(self._images.setdefault((image_id, image), len(self._images)))
            categories.append(self._categories.setdefault((category_id, category), len(self._categories)))
            numbers.append((*box, score))
            shapes.append(shape)
        self._shapes.append(shapes)
        self._are_drawn |= any(shape is not None for shape in shapes)
        image_R, category_R = np.array(images, np.int64), np.array(categories, np.int64)
        return image_R, category_R, np.array(numbers, np.float64).reshape(-1, 5)


def _name(record: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    """Return the first name that a row states in some fields."""
    names = (record.get(field) for field in fields)
    return next((name for name in names if name and isinstance(name, str)), None)


def _usual(records: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return ids of images and of categories, and the numbers, of records of the usual types; None for others."""
    try:
        named, ids, numbers_R5 = _in_rows(records) if isinstance(records, NumberRows) else _in_records(records)
        image_R, category_R = (np.array(column, np.int64) for column in ids)
    except (KeyError, ValueError, OverflowError):
        return None
    if not _all_of((int,), *ids) or {*_IMAGE, *_CATEGORY, *SHAPES, "text"} & named:
        return None
    if not np.isfinite(numbers_R5).all() or (numbers_R5[:, 2:4] < 0).any():
        return None
    return image_R, category_R, numbers_R5


def _in_records(records: Sequence[Mapping[str, Any]]) -> tuple[set[str], Sequence[list[Any]], np.ndarray]:
    """Return the fields of records, the ids of their images and categories, and their boxes and scores.

    Raises:
        KeyError: a record does not have these
        ValueError: its box is no list of four numbers, or its score is none
    """
    boxes, scores = [record["bbox"] for record in records], [record["score"] for record in records]
    ids = [record["image_id"] for record in records], [record["category_id"] for record in records]
    if {*map(type, boxes)} != {list} or {*map(len, boxes)} != {4} or not _all_of((int, float), scores, *boxes):
        raise ValueError("other types")
    named = set[str]().union(*records)
    return named, ids, np.column_stack([np.array(boxes, np.float64), np.array(scores, np.float64)])


def _in_rows(rows: NumberRows) -> tuple[set[str], Sequence[list[Any]], np.ndarray]:
    """Return the same of rows of numbers, and raise the same."""
    if [rows.widths[name] for name in ("bbox", "score", "image_id", "category_id")] != [4, None, None, None]:
        raise ValueError("other lengths")
    numbers_RC = np.array(rows.numbers, np.float64).reshape(len(rows), -1)
    score_R1, boxes_R4 = numbers_RC[:, rows.place("score")], numbers_RC[:, rows.place("bbox")]
    ids = rows.column("image_id"), rows.column("category_id")
    return {*rows.widths}, ids, np.concatenate([boxes_R4, score_R1], axis=1)


def _all_of(types: Sequence[type], *columns: Sequence[Any]) -> bool:
    """Return whether all values of some columns are of some types; a bool is no int."""
    return {*map(type, chain.from_iterable(columns))}.issubset(types)


def _coded(index: dict[Key, int], ids_R: np.ndarray) -> np.ndarray:
    """Return the place of each id in an index, to which new ids are added in their order."""
    ids: Sequence[int]
    least, span = int(ids_R.min()), int(ids_R.max()) - int(ids_R.min())
    if span < 4 * len(ids_R):  # a table of all ids between the least and the largest one
        code_R = ids_R - least
        first_U = np.full(span + 1, len(ids_R))
        first_U[code_R[::-1]] = np.arange(len(ids_R))[::-1]  # of several values for one index the last one stays
        ids = range(least, least + span + 1)
    else:
        ids_U, first_U, code_R = np.unique(ids_R, return_index=True, return_inverse=True)
        ids = ids_U.tolist()
    place_U = np.empty(len(first_U), np.int64)
    for u in np.argsort(first_U)[: np.count_nonzero(first_U < len(ids_R))].tolist():
        place_U[u] = index.setdefault((ids[u], None), len(index))
    return np.asarray(place_U[code_R])


_PLAIN = frozenset({int, float, str, bool, list, dict, tuple, type(None)})


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
