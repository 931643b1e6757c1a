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
from coord_codec.files import InputError, finite_numbers, identifier
from coord_codec.layouts import LAYOUTS
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
        self._shapes: list[Sequence[dict[str, Any] | None]] = []

    def add_usual(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Add boxes if all records are results of the usual types, and return whether they are."""
        if usual := self._usual(records):
            self._parts.append(usual)
            self._shapes.append((None,) * len(records))
        return usual is not None

    def add(self, records: Sequence[Mapping[str, Any]], places: Iterable[str]) -> None:
        """Add the boxes of records, of which `places` say where they stand.

        Raises:
            InputError: naming record and field
        """
        if not self.add_usual(records):
            self._parts.append(self._checked(records, places))

    def finished(
        self, positions: int | None = None, *, form: Form = Form.RESULTS, images: Iterable[str] = ()
    ) -> ResultsList:
        """Return the columns; `images` are names of those that were answered, with boxes or without."""
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
        if any(shape is not None for part in self._shapes for shape in part):
            shapes_R = np.empty(len(table), object)
            shapes_R[:] = [shape for part in self._shapes for shape in part]
        return ResultsList(table, tuple(self._categories), positions, form, shapes_R)

    def _usual(self, records: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Return the columns of records of the usual types, all at once; None if one of them has others."""
        try:
            boxes, scores = [record["bbox"] for record in records], [record["score"] for record in records]
            ids = [record["image_id"] for record in records], [record["category_id"] for record in records]
        except KeyError:
            return None
        if {*map(type, boxes)} != {list} or {*map(len, boxes)} != {4}:
            return None
        if not _all_of((int,), *ids) or not _all_of((int, float), scores, *boxes):
            return None
        if {*_IMAGE, *_CATEGORY, *SHAPES, "text"} & set[str]().union(*records):
            return None
        try:
            image_R, category_R = (np.array(column, np.int64) for column in ids)
            numbers_R5 = np.column_stack([np.array(boxes, np.float64), np.array(scores, np.float64)])
        except OverflowError:
            return None
        if not np.isfinite(numbers_R5).all() or (numbers_R5[:, 2:4] < 0).any():
            return None
        return _coded(self._images, image_R), _coded(self._categories, category_R), numbers_R5

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
        image_R, category_R = np.array(images, np.int64), np.array(categories, np.int64)
        return image_R, category_R, np.array(numbers, np.float64).reshape(-1, 5)


def _name(record: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    """Return the first name that a row states in some fields."""
    names = (record.get(field) for field in fields)
    return next((name for name in names if name and isinstance(name, str)), None)


def _all_of(types: Sequence[type], *columns: Sequence[Any]) -> bool:
    """Return whether all values of some columns are of some types; a bool is no int."""
    return {*map(type, chain.from_iterable(columns))}.issubset(types)


def _coded(index: dict[Key, int], ids_R: np.ndarray) -> np.ndarray:
    """Return the place of each id in an index, to which new ids are added in their order."""
    unique_U, first_U, code_R = np.unique(ids_R, return_index=True, return_inverse=True)
    ids, place_U = unique_U.tolist(), np.empty(len(unique_U), np.int64)
    for u in np.argsort(first_U).tolist():
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
