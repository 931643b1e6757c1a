"""COCO detection JSON: its rows as the file states them, and the instances made of them.

Format: https://cocodataset.org/#format-data. Boxes are [x, y, width, height] in pixels.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

from coord_codec.boxes import CLIP_PIXELS, OnBadBox, SmallBoxError, place_box
from coord_codec.coco.shapes import ROTATED, coco_shape, rotated_corners, rotation
from coord_codec.coco.tables import Category, CocoAnnotation, CocoImage, ImageId
from coord_codec.files import BACKSLASHES, InputError, finite_numbers, identifier, name_on_disk
from coord_codec.geometry import Geometry, Shape
from coord_codec.grid import CoordGrid
from coord_codec.records import Problem, check_description

CROWDS = "crowd regions, which are no training targets"

_LONGEST_NUMBER = 19
"""Digits of an id in text from which on it is no number: those of 64 bits."""


def keypoint_names(categories: Iterable[Any]) -> dict[Any, Sequence[str]]:
    """Return the names of keypoints by the id of their category."""
    stated = [c for c in categories if isinstance(c, Mapping) and isinstance(c.get("keypoints"), (list, tuple))]
    return {c["id"]: c["keypoints"] for c in stated if isinstance(c.get("id"), (int, str))}


_Row = TypeVar("_Row", Category, CocoImage)


def _by_id(row: Category | CocoImage) -> tuple[bool, Any]:
    return isinstance(row.id, str), row.id


def _unique(
    records: Iterable[Any], table: str, parse: Callable[[Mapping[str, Any]], _Row], problems: list[Problem]
) -> dict[str, _Row]:
    """Return the good records of images or categories by where they stand; an id that occurs twice is ambiguous."""
    rows: dict[str, _Row] = {}
    for position, record in enumerate(records):
        where = f"{table}[{position}]"
        with _listed(problems, where):
            if not isinstance(record, Mapping):
                raise InputError(f": expected an object, found {type(record).__name__}")
            rows[where] = parse(record)
    times = Counter(row.id for row in rows.values())
    for where, row in list(rows.items()):
        if times[row.id] > 1:
            message = f"{row.id!r} occurs {times[row.id]} times; ids must be unique, so all of them are left out"
            problems.append(Problem(where, "id", message))
            del rows[where]
    return rows


def numbered(value: ImageId) -> ImageId:
    """Return an id as a number, also where it is one in text.

    Example:
        >>> numbered("0042"), numbered("a42")
        (42, 'a42')
    """
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _LONGEST_NUMBER
    return int(value) if is_number else value


class _Ids:
    """Finds rows by their ids: as they are written, or as the same number where it is that of no other row.

    Args:
        rows: the good rows.
        records: all rows as the file states them.

    Attributes:
        index: place of each row by its id.
        left_out: ids of the rows that were left out.
    """

    def __init__(self, rows: Sequence[_Row], records: Iterable[Any]) -> None:
        self.index: dict[ImageId, int] = {row.id: i for i, row in enumerate(rows)}
        stated = (record.get("id") for record in records if isinstance(record, Mapping))
        self.left_out = {value for value in stated if isinstance(value, (int, str))} - self.index.keys()

    @cached_property
    def _by_number(self) -> dict[ImageId, int]:
        times = Counter(map(numbered, (*self.index, *self.left_out)))
        return {number: i for value, i in self.index.items() if times[number := numbered(value)] == 1}

    def find(self, value: Any) -> int | None:
        """Return where the row with an id stands; None for what is no id, or that of no row."""
        try:
            value = identifier(value, "id")
        except InputError:
            return None
        row = self.index.get(value)
        return self._by_number.get(numbered(value)) if row is None else row


@contextmanager
def _listed(problems: list[Problem], where: str) -> Iterator[None]:
    """Turn an `InputError` with the message `field: fault` into a problem."""
    try:
        yield
    except InputError as error:
        name, _, message = str(error).partition(": ")
        problems.append(Problem(where, name, message))


def _category(record: Mapping[str, Any]) -> Category:
    name = record.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"name: expected a name, found {name!r:.80}")
    return Category(identifier(record.get("id"), "id"), name)


def _image(record: Mapping[str, Any]) -> CocoImage:
    file_name = record.get("file_name", "")
    image_id = identifier(record.get("id"), "id")
    for name, value in (("file_name: expected a path", file_name), ("id: expected readable text", str(image_id))):
        if not isinstance(value, str) or not _is_readable(value):
            raise InputError(f"{name}, found {value!r:.80}")
    if record.get("width") is None or record.get("height") is None:
        return CocoImage(image_id, file_name, None, None)
    return CocoImage(image_id, file_name, _side(record, "width"), _side(record, "height"))


def _is_readable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _side(record: Mapping[str, Any], name: str) -> int:
    (pixels,) = finite_numbers([record[name]], 1, name)
    if pixels <= 0 or pixels % 1:
        raise InputError(f"{name}: expected a whole number of pixels above 0, found {pixels:g}")
    return int(pixels)


def _with_size(
    image: CocoImage, where: str, image_size: Callable[[str], tuple[int, int] | None] | None, problems: list[Problem]
) -> CocoImage:
    if image.width is None and image.file_name and image_size is not None:
        size = image_size(image.file_name)
        image = image._replace(width=size[0], height=size[1]) if size else image
    if not image.file_name:
        message = "expected a path, found none: the image cannot be trained on"
        problems.append(Problem(where, "file_name", message, training_only=True))
    elif image.width is None:
        message = "expected width and height in pixels, found none: the image cannot be trained on"
        problems.append(Problem(where, "width", message, training_only=True))
    return image


class CocoReader:
    """Places annotations in their images, and lists what is wrong with the others.

    Args:
        categories: rows of that list.
        images: rows of that list.
        source: what problems call the document.
        problems: filled with what is left out.
        notes: filled with counted facts that are no faults.
        on_bad_box: what a refused object does to its image, see `read_annotations`.
        image_size: looks up the size of an image that states none.
        folder: that image paths are relative to; None if unknown.

    Attributes:
        categories: by ascending id.
        images: by ascending id, numbers before text.
        given: the images in the order of the document.
        usable: ids of the images that state a path and a size.
        unteachable: ids of the categories whose names cannot stand in a target.
        uncertain: by id of an image the names of categories of which it has objects that were refused.
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
    ) -> None:
        self._source, self._problems, self._notes = source, problems, notes
        self._on_bad_box, self._grid = on_bad_box, CoordGrid() if on_bad_box else None
        named = _unique(categories, f"{source}: categories", _category, problems)
        given = _unique(images, f"{source}: images", _image, problems)
        for where, image in given.items():
            name = name_on_disk(folder, image.file_name)
            if name != image.file_name:
                given[where] = image._replace(file_name=name)
                notes[BACKSLASHES] += 1
        self.given = tuple(_with_size(image, where, image_size, problems) for where, image in given.items())
        self.images = tuple(sorted(self.given, key=_by_id))
        self.categories = tuple(sorted(named.values(), key=_by_id))
        self._image_ids, self._category_ids = _Ids(self.images, images), _Ids(self.categories, categories)
        self.image_index = self._image_ids.index
        self._first_stray: Problem | None = None
        self._any_has_image = False
        self.usable = {image.id for image in self.images if image.file_name and image.width}
        self.unteachable: set[ImageId] = set()
        self._refused: set[ImageId] = set()
        self.uncertain: dict[ImageId, set[str]] = {}
        for where, category in named.items():
            self._check_name(category, where)

    def _check_name(self, category: Category, where: str) -> None:
        """List a category whose name cannot stand in a target."""
        try:
            check_description(category.name)
        except ValueError as error:
            self.unteachable.add(category.id)
            self._problems.append(Problem(where, "name", str(error), training_only=True))

    def left_out(self) -> set[ImageId]:
        """Return the usable images that an object takes along which was refused."""
        return self._refused & self.usable if self._on_bad_box == "drop_image" else set()

    def place(
        self, record: Any, position: int
    ) -> tuple[CocoAnnotation, bool, tuple[float, float, float, float] | None] | None:
        """Return the row of an annotation, whether it states an area, and its box in [0, 1].

        The box is None where it cannot be a target, and the whole None where the annotation is left out.
        """
        where = self._where(record, position)
        try:
            row, has_area = self._row(record)
            if not row.bbox_xywh[2] or not row.bbox_xywh[3]:
                self._notes["boxes of zero area"] += 1
            if row.iscrowd:
                self._notes[CROWDS] += 1
            return row, has_area, self._corners(row, where)
        except InputError as error:
            name, _, message = str(error).partition(": ")
            self._problems.append(Problem(where, name, message, is_box=True))
            if name == "image_id" and self._first_stray is None:
                self._first_stray = self._problems[-1]
        if isinstance(record, Mapping):
            image = self._image_ids.find(record.get("image_id"))
            category = self._category_ids.find(record.get("category_id"))
            if image is not None:
                self._refuse(self.images[image].id, category, with_image=record.get("iscrowd") != 1)
        return None

    def _refuse(self, image_id: ImageId, category: int | None, *, with_image: bool) -> None:
        """Remember that an object of an image was refused, and whether the image may go with it."""
        if with_image:
            self._refused.add(image_id)
        if category is not None:
            self.uncertain.setdefault(image_id, set()).add(self.categories[category].name)

    def _where(self, record: Any, position: int) -> str:
        label = f" (id {record['id']})" if isinstance(record, Mapping) and "id" in record else ""
        return f"{self._source}: annotations[{position}]{label}"

    def shape(
        self,
        record: Mapping[str, Any],
        row: CocoAnnotation,
        position: int,
        corners: tuple[float, float, float, float],
        geometry: Geometry,
        names: Mapping[Any, Sequence[str]],
    ) -> Shape | None:
        """Return the shape of a placed annotation, or None with a problem listed where it cannot be a target."""
        image = self.images[row.image]
        size = (image.width or 0, image.height or 0)
        if degrees := rotation(record):
            record = {**record, "segmentation": [rotated_corners(record["bbox"], degrees)]}
        try:
            return coco_shape(record, geometry, corners, size, names.get(self.categories[row.category].id), self._notes)
        except InputError as error:
            self._refuse(image.id, row.category, with_image=not isinstance(error, SmallBoxError))
            name, _, message = str(error).partition(": ")
            self._problems.append(Problem(self._where(record, position), name, message, True, is_box=True))
        return None

    def _row(self, record: Any) -> tuple[CocoAnnotation, bool]:
        if not isinstance(record, Mapping):
            raise InputError(f": expected an object, found {type(record).__name__}")
        image = self._known(record, "image_id", self._image_ids, "an image")
        category = self._known(record, "category_id", self._category_ids, "a category")
        x, y, width, height = finite_numbers(record.get("bbox"), 4, "bbox")
        if width < 0 or height < 0:
            raise InputError(
                f"bbox: expected a width and height of at least 0, found {width:g} x {height:g} "
                "([x, y, width, height] in pixels is meant)"
            )
        if degrees := rotation(record):
            outline = rotated_corners((x, y, width, height), degrees)
            x, y = min(outline[::2]), min(outline[1::2])
            width, height = max(outline[::2]) - x, max(outline[1::2]) - y
            self._notes[ROTATED] += 1
        crowd = record.get("iscrowd", 0)
        if crowd not in (0, 1):
            raise InputError(f"iscrowd: expected 0 or 1, found {crowd!r:.80}")
        area = record.get("area")
        (pixels,) = (width * height,) if area is None else finite_numbers([area], 1, "area")
        if pixels < 0:
            raise InputError(f"area: expected at least 0, found {pixels:g}")
        row = CocoAnnotation(image, category, (x, y, width, height), pixels, bool(crowd), False)
        return row, area is not None

    def _known(self, record: Mapping[str, Any], key: str, ids: _Ids, what: str) -> int:
        value = identifier(record.get(key), key)
        row = ids.find(value)
        if ids is self._image_ids:
            self._any_has_image |= row is not None or value in ids.left_out
        if row is None:
            raise InputError(f"{key}: {value!r} is not the id of {what} of this file, or of one that was left out")
        if value not in ids.index:
            self._notes[f"annotations whose {key} is the id of {what} but for being text or a number"] += 1
        return row

    def check_images(self) -> None:
        """Check, when all annotations were placed, that one of them at least has an image.

        Raises:
            InputError: each states an image that is not in the file, so that all images would have no objects.
        """
        images = (*self.image_index, *self._image_ids.left_out)
        if self._first_stray is not None and images and not self._any_has_image:
            raise InputError(
                f"{self._first_stray}; nor has any other annotation an image, where images have ids such as "
                f"{images[0]!r}: write the same ids in both lists"
            )

    def _corners(self, row: CocoAnnotation, where: str) -> tuple[float, float, float, float] | None:
        """Return the box in [0, 1], or None with a problem listed where it cannot be a target."""
        image, category = self.images[row.image], self.categories[row.category]
        if image.id not in self.usable:
            return None  # listed once, with the image
        if category.id in self.unteachable:
            self._refuse(image.id, row.category, with_image=True)  # listed once, with the category
            return None
        x, y, w, h = row.bbox_xywh
        try:
            corners, clipped = place_box(
                (x, y, x + w, y + h), float(image.width or 0), float(image.height or 0), grid=self._grid
            )
        except InputError as error:
            with_image = not isinstance(error, SmallBoxError) and not row.iscrowd
            self._refuse(image.id, row.category, with_image=with_image)
            message = f"[{x:g}, {y:g}, {w:g}, {h:g}] of {image.file_name}: {error}"
            self._problems.append(Problem(where, "bbox", message, True, is_box=True))
            return None
        self._notes[f"boxes clipped by at most {CLIP_PIXELS:g} pixel"] += clipped
        return corners
