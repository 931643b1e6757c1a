"""Validates annotations of COCO detection JSON: the rules of one row, and the rows that its ids name.

Format: https://cocodataset.org/#format-data. Boxes are [x, y, width, height] in pixels.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from coord_codec.coco.rows import PHRASE_KEYS, by_id, read_categories, read_images
from coord_codec.coco.shapes import ROTATED, turned_outline
from coord_codec.coco.tables import Category, CocoImage, ImageId
from coord_codec.fields import (
    DELETED,
    OF_COCO,
    check_places,
    check_unit,
    is_deleted,
    largest_turn,
    not_read,
    numbers_of_images,
    states_more,
)
from coord_codec.files import InputError, finite_numbers, identifier
from coord_codec.origins import SCALABEL
from coord_codec.problems import Problem

NOT_AROUND = "boxes that are not around their segmentation"
_SAME_BOX = 0.7
"""IoU from which a box is that around its outlines, which annotators draw a little inside or outside it."""
AREA_TOO_LARGE = "areas that are larger than their box"
_ROUNDED = 1.05
"""How far an area may exceed its box: that of a mask never does, but sides may be rounded."""
_PANOPTIC = (
    "segments_info: expected an object a row, found the segments of panoptic COCO: name the instance annotations of "
    "the same images (instances_*.json), or convert the file into such"
)
READ = PHRASE_KEYS | OF_COCO | {"attributes", "segments_info", SCALABEL}
"""Fields of an annotation that are read, or told otherwise."""
_NOTHING = frozenset(
    ("empty", "blank", "background", "nothing", "none", "no animal", "no animals", "no object", "no objects")
)
"""Names of categories whose annotations without a box say that an image has no objects, as COCO Camera Traps' do."""
WITHOUT_OBJECTS = "annotations that state an image without objects, by a category such as empty"
CROWDS = "crowd regions, which are not training targets"
ZERO_AREA = "boxes of zero area"

_LONGEST_NUMBER = 19
"""Ids in text with this many digits or more are not treated as numbers: they may exceed 64 bits."""


def numbered(value: ImageId) -> ImageId:
    """Return an id as an integer if it is one, including text such as "0042"; other text is returned unchanged.

    Example:
        >>> numbered("0042"), numbered("a42")
        (42, 'a42')
    """
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _LONGEST_NUMBER
    return int(value) if is_number else value


class _Ids:
    """Finds valid rows by the exact id, otherwise by the same number if no other row has it ("42" finds 42)."""

    def __init__(self, rows: Iterable[Category | CocoImage], records: Iterable[Any]) -> None:
        self.index: dict[ImageId, int] = {row.id: i for i, row in enumerate(rows)}
        all_ids = [r.get("id") for r in records if type(r) is dict or isinstance(r, Mapping)]
        self.left_out = {value for value in all_ids if isinstance(value, (int, str))} - self.index.keys()

    @cached_property
    def _by_number(self) -> dict[ImageId, int]:
        counts = Counter(map(numbered, (*self.index, *self.left_out)))
        return {number: i for value, i in self.index.items() if counts[number := numbered(value)] == 1}

    def find(self, value: Any) -> int | None:
        """Return the index of the row with an id; None if the value is not an id or no row has it."""
        try:
            value = identifier(value, "id")
        except InputError:
            return None
        row = self.index.get(value)
        return self._by_number.get(numbered(value)) if row is None else row


class Annotation(NamedTuple):
    """A valid row of the list `annotations`.

    Attributes:
        image: index of its image in `CocoReader.images`
        category: index of its category in `CocoReader.categories`
        bbox_xywh: x, y, width and height in pixels; for a rotated box those of the upright box around it
        area: stated area in square pixels; None if there is none
        iscrowd: whether it is a crowd region, which covers many objects
        notes: notes on its box, to be counted unless it is refused
    """

    image: int
    category: int
    bbox_xywh: tuple[float, float, float, float]
    area: float | None
    iscrowd: bool
    notes: Sequence[str] = ()


class CocoReader:
    """The images and categories of a document, and the rules for the annotations that name them.

    Args:
        categories: the document's list of categories
        images: the document's list of images
        source: name of the document in problems
        image_size: looks up the size of images that have none in the file
        folder: folder that image paths are relative to; None if unknown
        annotations: all annotations that state more than a plain box, for what only the whole file tells

    Attributes:
        source: name of the document in problems
        problems: what was left out of the two lists
        notes: counts of events that are not faults
        categories: categories by ascending id
        images: images by ascending id, numbers before text
        given: images in the order of the document
        unteachable: indices of the categories whose names cannot occur in a target text
        keypoint_names: names of the keypoints of each category that states them, by its index
    """

    def __init__(
        self,
        categories: Sequence[Any],
        images: Sequence[Any],
        source: str,
        image_size: Callable[[str], tuple[int, int] | None] | None = None,
        folder: str | os.PathLike[str] | None = None,
        annotations: Collection[Any] = (),
    ) -> None:
        self._annotations, self._image_rows = annotations, images
        self.source, self.problems, self.notes = source, list[Problem](), Counter[str]()
        self.categories, unteachable = read_categories(categories, source, self.problems)
        self.given = read_images(images, source, self.problems, self.notes, image_size, folder)
        self.images = tuple(sorted(self.given, key=by_id))
        self._image_ids, self._category_ids = _Ids(self.images, images), _Ids(self.categories, categories)
        self.unteachable = {self.category_index[category_id] for category_id in unteachable}
        self.keypoint_names: dict[int | None, Sequence[str]] = {
            self._category_ids.find(record.get("id")): record["keypoints"]
            for record in categories
            if isinstance(record, Mapping) and isinstance(record.get("keypoints"), (list, tuple))
        }
        self._any_image_known = False

    @cached_property
    def _largest_turn(self) -> float:
        return largest_turn(record for record in self._annotations if isinstance(record, Mapping))

    @cached_property
    def _rows_of_images(self) -> dict[Any, Mapping[str, Any]]:
        return {str(row.get("id")): row for row in self._image_rows if isinstance(row, Mapping)}

    @cached_property
    def _not_places(self) -> frozenset[str]:
        own = numbers_of_images(record for record in self._annotations if isinstance(record, Mapping))
        return own | OF_COCO

    @property
    def image_index(self) -> Mapping[ImageId, int]:
        """The index of each image by its id."""
        return self._image_ids.index

    @property
    def category_index(self) -> Mapping[ImageId, int]:
        """The index of each category by its id."""
        return self._category_ids.index

    def row(self, record: Any) -> Annotation | None:
        """Return a valid annotation; None if it is marked as deleted, or says that its image has no objects.

        Raises:
            InputError: `field: fault`, if the annotation is left out
        """
        if not isinstance(record, Mapping):
            raise InputError(f": expected an object, found {type(record).__name__}")
        if is_deleted(record):
            self.notes[DELETED] += 1
            return None
        if "segments_info" in record and "category_id" not in record:
            raise InputError(_PANOPTIC)
        image = self._find_row(record, "image_id", self._image_ids, "an image")
        category = self._find_row(record, "category_id", self._category_ids, "a category")
        shapes = (record.get("bbox"), record.get("segmentation"), record.get("keypoints"))
        is_shaped = any(shape and shape != [0, 0, 0, 0] for shape in shapes)
        if not is_shaped and self.categories[category].name.strip().lower().replace("_", " ") in _NOTHING:
            self.notes[WITHOUT_OBJECTS] += 1
            return None
        x, y, width, height = finite_numbers(record.get("bbox"), 4, "bbox")
        if width < 0 or height < 0:
            found = f"{width:g} x {height:g} ([x, y, width, height] in pixels is meant)"
            raise InputError(f"bbox: expected a width and height of at least 0, found {found}")
        check_unit(record, "xywh", "pixels")
        if states_more(record):
            own = self.images[image]
            row = {**self._rows_of_images[str(own.id)], "image": own.file_name, "image_id": own.id}
            check_places([{name: value for name, value in record.items() if name not in self._not_places}], row)
        if outline := self.turned(record, (x, y, width, height)):
            x, y = min(outline[::2]), min(outline[1::2])
            width, height = max(outline[::2]) - x, max(outline[1::2]) - y
        iscrowd = record.get("iscrowd", 0)
        if iscrowd not in (0, 1):
            raise InputError(f"iscrowd: expected 0 or 1, found {iscrowd!r:.80}")
        area = record.get("area")
        is_stated = area is not None and not (isinstance(area, float) and math.isnan(area))  # NaN of pandas
        area_px = finite_numbers([area], 1, "area")[0] if is_stated else None
        if area_px is not None and area_px < 0:
            raise InputError(f"area: expected at least 0, found {area_px:g}")
        notes = [ROTATED] if outline else []
        if not iscrowd and not outline:
            notes = contradictions((x, y, width, height), area_px, record.get("segmentation"))
        self.notes.update(not_read(record, READ))
        return Annotation(image, category, (x, y, width, height), area_px, bool(iscrowd), notes)

    def turned(self, record: Mapping[str, Any], bbox_xywh: Sequence[float]) -> list[float] | None:
        """Return the corners of the oriented box that a row states beside its unturned one, or None."""
        return turned_outline(record, bbox_xywh, lambda: self._largest_turn) if states_more(record) else None

    def named_by(self, record: Any) -> tuple[int | None, int | None, bool]:
        """Return the indices of image and category that a refused annotation names, and whether it may be a target."""
        if not isinstance(record, Mapping):
            return None, None, False
        image = self._image_ids.find(record.get("image_id"))
        category = self._category_ids.find(record.get("category_id"))
        return image, category, record.get("iscrowd") != 1

    def _find_row(self, record: Mapping[str, Any], key: str, ids: _Ids, noun: str) -> int:
        value = identifier(record.get(key), key)
        row = ids.find(value)
        if ids is self._image_ids:
            self._any_image_known |= row is not None or value in ids.left_out
        if row is None:
            raise InputError(f"{key}: {value!r} is not the id of {noun} of this file, or that row was left out")
        if value not in ids.index:
            self.notes[f"annotations whose {key} is the id of {noun} only if text is read as a number"] += 1
        return row

    def check_images(self, first_of_none: Problem | None) -> None:
        """Check, after all annotations were read, that at least one of them belongs to an image of the file.

        The first problem with an image id is None if there is none, or any row was plain.
        """
        images = (*self.image_index, *self._image_ids.left_out)
        if first_of_none is not None and images and not self._any_image_known:
            raise InputError(
                f"{first_of_none}; no other annotation belongs to an image either, and images have ids "
                f"such as {images[0]!r}: write the same ids in both lists"
            )


def contradictions(bbox_xywh: Sequence[float], area: float | None, segmentation: Any) -> list[str]:
    """Return what a box contradicts that its annotation states besides, as names of notes."""
    found = [AREA_TOO_LARGE] if area is not None and is_larger(area, bbox_xywh[2], bbox_xywh[3]) else []
    return [*found, NOT_AROUND] if segmentation and not _encloses(bbox_xywh, segmentation) else found


def is_larger(area: Any, width: Any, height: Any) -> Any:
    """Return whether an area is larger than its box, whose sides may be rounded: numbers or arrays in pixels."""
    return area > _ROUNDED * (width + 1) * (height + 1)


def _encloses(bbox_xywh: Sequence[float], segmentation: Any) -> bool:
    """Return whether a box is about the one around some outlines; true as well if there are none that can be read."""
    if not isinstance(segmentation, (list, tuple)):  # a mask
        return True
    try:
        outlines = [outline for outline in segmentation if len(outline) >= 6]
        xs, ys = ([f(f(outline[axis::2]) for outline in outlines) for f in (min, max)] for axis in (0, 1))
    except (TypeError, ValueError):  # no outlines, or no numbers
        return True
    x, y, width, height = bbox_xywh
    common = max(min(x + width, xs[1]) - max(x, xs[0]), 0) * max(min(y + height, ys[1]) - max(y, ys[0]), 0)
    union = width * height + (xs[1] - xs[0]) * (ys[1] - ys[0]) - common
    return bool(common >= _SAME_BOX * union)
