"""Validates the annotations of COCO detection JSON and converts their boxes to fractions of the image.

Format: https://cocodataset.org/#format-data. Boxes are [x, y, width, height] in pixels.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from coord_codec.boxes import CLIP_PIXELS, OnBadBox, SmallBoxError, place_box
from coord_codec.coco.rows import PHRASE_KEYS, PHRASES, by_id, read_categories, read_images
from coord_codec.coco.shapes import ROTATED, coco_shape, turned_outline
from coord_codec.coco.tables import Category, CocoAnnotation, CocoImage, ImageId
from coord_codec.fields import DELETED, OF_COCO, check_unit, is_deleted, largest_turn, not_read, states_more
from coord_codec.files import InputError, finite_numbers, identifier
from coord_codec.geometry import Geometry, Shape
from coord_codec.geometry.base import Box
from coord_codec.grid import CoordGrid
from coord_codec.records import Problem

NOT_AROUND = "boxes that are not those around their segmentation"
_SAME_BOX = 0.7
"""IoU from which a box is that around its outlines, which annotators draw a little inside or outside it."""
AREA_TOO_LARGE = "areas that are larger than their box"
_ROUNDED = 1.05
"""How far an area may exceed its box: that of a mask never does, but sides may be rounded."""
_PANOPTIC = (
    "segments_info: expected an object a row, found the segments of panoptic COCO: name the instance annotations of "
    "the same images (instances_*.json), or convert the file into such"
)
READ = PHRASE_KEYS | OF_COCO | {"attributes", "segments_info"}
"""Fields of an annotation that are read, or told otherwise."""
CROWDS = "crowd regions, which are not training targets"

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
    """Finds rows by id: by the exact id, otherwise by the same number if no other row has it ("42" finds 42).

    Args:
        rows: the valid rows
        records: all rows of the document

    Attributes:
        index: index of each row by its id
        left_out: ids of the rows that were left out
    """

    def __init__(self, rows: Iterable[Category | CocoImage], records: Iterable[Any]) -> None:
        self.index: dict[ImageId, int] = {row.id: i for i, row in enumerate(rows)}
        all_ids = (record.get("id") for record in records if isinstance(record, Mapping))
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


class CocoReader:
    """Validates annotations, converts their boxes to fractions of the image and lists problems.

    Args:
        categories: the document's list of categories
        images: the document's list of images
        source: name of the document in problems
        problems: list that problems are appended to
        notes: counter of events that are not faults
        on_bad_box: how to treat images with refused objects, see `read_annotations`
        image_size: looks up the size of images that have none in the file
        folder: folder that image paths are relative to; None if unknown
        geometry: the shape of every target; None for boxes
        annotations: returns all annotations that state more than a plain box, for what only the whole file tells

    Attributes:
        categories: categories by ascending id
        images: images by ascending id, numbers before text
        given: images in the order of the document
        usable: ids of the images with a path and a size
        unteachable: ids of the categories whose names cannot occur in a target text
        uncertain: for each image id, the names of the categories of its refused objects
    """

    def __init__(
        self,
        categories: Sequence[Any],
        images: Sequence[Any],
        source: str,
        problems: list[Problem],
        notes: Counter[str],
        on_bad_box: OnBadBox | None,
        image_size: Callable[[str], tuple[int, int] | None] | None = None,
        folder: str | os.PathLike[str] | None = None,
        geometry: Geometry | None = None,
        annotations: Callable[[], Iterable[Any]] = tuple,
    ) -> None:
        self._annotations = annotations
        self._source, self._problems, self._notes = source, problems, notes
        self._on_bad_box, self._grid = on_bad_box, CoordGrid() if on_bad_box else None
        self._geometry = geometry
        self.categories, self.unteachable = read_categories(categories, source, problems)
        self.given = read_images(images, source, problems, notes, image_size, folder)
        self.images = tuple(sorted(self.given, key=by_id))
        self._image_ids, self._category_ids = _Ids(self.images, images), _Ids(self.categories, categories)
        self._keypoint_names: dict[int | None, Sequence[str]] = {
            self._category_ids.find(record.get("id")): record["keypoints"]
            for record in categories
            if isinstance(record, Mapping) and isinstance(record.get("keypoints"), (list, tuple))
        }
        self.image_index = self._image_ids.index
        self._first_unknown_image: Problem | None = None
        self._any_image_known = False
        self.usable = {image.id for image in self.images if image.file_name and image.width}
        self._images_with_refused: set[ImageId] = set()
        self.uncertain: dict[ImageId, set[str]] = {}

    @cached_property
    def _all_turns(self) -> float:
        return largest_turn(record for record in self._annotations() if isinstance(record, Mapping))

    def _largest_turn(self) -> float:
        return self._all_turns

    def left_out(self) -> set[ImageId]:
        """Return the ids of usable images that are left out because of a refused object."""
        return self._images_with_refused & self.usable if self._on_bad_box == "drop_image" else set()

    def place(self, record: Any, position: int) -> tuple[CocoAnnotation, bool, Box | None, Shape | None] | None:
        """Return the row of an annotation, whether it has an `area` key, its box in [0, 1], and its shape if asked for.

        The box is None if it cannot be a target; the result is None if the annotation is left out.
        """
        label = f" (id {record['id']})" if isinstance(record, Mapping) and "id" in record else ""
        where = f"{self._source}: annotations[{position}]{label}"
        try:
            if isinstance(record, Mapping):
                self._notes.update(not_read(record, READ))
                if is_deleted(record):
                    self._notes[DELETED] += 1
                    return None
            row, has_area = self._row(record)
            self._notes[PHRASES] += not PHRASE_KEYS.isdisjoint(record)
            if not row.bbox_xywh[2] or not row.bbox_xywh[3]:
                self._notes["boxes of zero area"] += 1
            if row.iscrowd:
                self._notes[CROWDS] += 1
            corners, shape = self._corners(row, where), None
            if self._geometry is not None and corners is not None and not row.iscrowd:
                shape = self._shape(record, row, where, corners, self._geometry)
                corners = None if shape is None else corners
            return row._replace(is_target=corners is not None and not row.iscrowd), has_area, corners, shape
        except InputError as error:
            name, _, message = str(error).partition(": ")
            self._problems.append(Problem(where, name, message, is_box=True))
            if name == "image_id" and self._first_unknown_image is None:
                self._first_unknown_image = self._problems[-1]
        if isinstance(record, Mapping):
            image = self._image_ids.find(record.get("image_id"))
            category = self._category_ids.find(record.get("category_id"))
            if image is not None:
                self._refuse(self.images[image].id, category, with_image=record.get("iscrowd") != 1)
        return None

    def _refuse(self, image_id: ImageId, category: int | None, *, with_image: bool) -> None:
        """Record a refused object, and with `with_image` that its image may have to be left out."""
        if with_image:
            self._images_with_refused.add(image_id)
        if category is not None:
            self.uncertain.setdefault(image_id, set()).add(self.categories[category].name)

    def _shape(
        self, record: Mapping[str, Any], row: CocoAnnotation, where: str, corners: Box, geometry: Geometry
    ) -> Shape | None:
        """Return the shape of an annotation; if it cannot be a target, list a problem and return None."""
        image = self.images[row.image]
        size = (image.width or 0, image.height or 0)
        if outline := self._turned(record, record["bbox"]):
            record = {**record, "segmentation": [outline]}
        try:
            return coco_shape(record, geometry, corners, size, self._keypoint_names.get(row.category), self._notes)
        except InputError as error:
            self._refuse(image.id, row.category, with_image=not isinstance(error, SmallBoxError))
            name, _, message = str(error).partition(": ")
            self._problems.append(Problem(where, name, message, True, is_box=True))
        return None

    def _row(self, record: Any) -> tuple[CocoAnnotation, bool]:
        if not isinstance(record, Mapping):
            raise InputError(f": expected an object, found {type(record).__name__}")
        if "segments_info" in record and "category_id" not in record:
            raise InputError(_PANOPTIC)
        image = self._find_row(record, "image_id", self._image_ids, "an image")
        category = self._find_row(record, "category_id", self._category_ids, "a category")
        x, y, width, height = finite_numbers(record.get("bbox"), 4, "bbox")
        if width < 0 or height < 0:
            found = f"{width:g} x {height:g} ([x, y, width, height] in pixels is meant)"
            raise InputError(f"bbox: expected a width and height of at least 0, found {found}")
        check_unit(record, "xywh", "pixels")
        if outline := self._turned(record, (x, y, width, height)):
            x, y = min(outline[::2]), min(outline[1::2])
            width, height = max(outline[::2]) - x, max(outline[1::2]) - y
            self._notes[ROTATED] += 1
        iscrowd = record.get("iscrowd", 0)
        if iscrowd not in (0, 1):
            raise InputError(f"iscrowd: expected 0 or 1, found {iscrowd!r:.80}")
        area = record.get("area")
        area_px = width * height if area is None else finite_numbers([area], 1, "area")[0]
        if area_px < 0:
            raise InputError(f"area: expected at least 0, found {area_px:g}")
        if not iscrowd and not outline:
            self._notes.update(contradictions((x, y, width, height), area_px, record.get("segmentation")))
        row = CocoAnnotation(image, category, (x, y, width, height), area_px, bool(iscrowd), False)
        return row, area is not None

    def _turned(self, record: Mapping[str, Any], bbox_xywh: Sequence[float]) -> list[float] | None:
        if not states_more(record):
            return None
        return turned_outline(record, bbox_xywh, self._largest_turn)

    def _find_row(self, record: Mapping[str, Any], key: str, ids: _Ids, noun: str) -> int:
        value = identifier(record.get(key), key)
        row = ids.find(value)
        if ids is self._image_ids:
            self._any_image_known |= row is not None or value in ids.left_out
        if row is None:
            raise InputError(f"{key}: {value!r} is not the id of {noun} of this file, or that row was left out")
        if value not in ids.index:
            self._notes[f"annotations whose {key} is the id of {noun} only if text is read as a number"] += 1
        return row

    def check_images(self) -> None:
        """Check, after all annotations were read, that at least one of them belongs to an image of the file.

        Raises:
            InputError: if none does, so that no image would have objects
        """
        images = (*self.image_index, *self._image_ids.left_out)
        if self._first_unknown_image is not None and images and not self._any_image_known:
            raise InputError(
                f"{self._first_unknown_image}; no other annotation belongs to an image either, and images have ids "
                f"such as {images[0]!r}: write the same ids in both lists"
            )

    def _corners(self, row: CocoAnnotation, where: str) -> Box | None:
        """Return the box in [0, 1]; if it cannot be a target, list a problem and return None."""
        image, category = self.images[row.image], self.categories[row.category]
        if image.id not in self.usable:
            return None  # the problem is already listed for the image
        if category.id in self.unteachable:
            self._refuse(image.id, row.category, with_image=True)  # the problem is already listed for the category
            return None
        x, y, w, h = row.bbox_xywh
        sides = float(image.width or 0), float(image.height or 0)
        try:
            corners, clipped = place_box((x, y, x + w, y + h), *sides, grid=self._grid)
        except InputError as error:
            with_image = not isinstance(error, SmallBoxError) and not row.iscrowd
            self._refuse(image.id, row.category, with_image=with_image)
            message = f"[{x:g}, {y:g}, {w:g}, {h:g}] of {image.file_name}: {error}"
            self._problems.append(Problem(where, "bbox", message, True, is_box=True))
            return None
        self._notes[f"boxes clipped by at most {CLIP_PIXELS:g} pixel"] += clipped
        return corners


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
