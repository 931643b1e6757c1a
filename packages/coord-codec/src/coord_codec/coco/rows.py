"""Validates the images and categories of a COCO document."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from coord_codec.coco.tables import Category, CocoImage, ImageId
from coord_codec.files import BACKSLASHES, InputError, finite_numbers, identifier, name_on_disk
from coord_codec.problems import Problem, description_fault

PHRASE_KEYS = frozenset(("query", "caption", "expression", "phrase"))
"""Keys of the question that a record answers, as grounding sets have it."""
PHRASES = f"records with a {', '.join(sorted(PHRASE_KEYS))}, which is not read"
_LARGEST = 1 << 31
"""The side of an image is below this, in pixels."""
_Row = TypeVar("_Row", Category, CocoImage)


def by_id(row: Category | CocoImage) -> tuple[bool, Any]:
    """Return a sorting key: ascending ids, numbers before text."""
    return isinstance(row.id, str), row.id


def read_categories(
    records: Iterable[Any], source: str, problems: list[Problem]
) -> tuple[tuple[Category, ...], set[ImageId]]:
    """Return the categories by ascending id, and ids of those whose names cannot occur in a target text."""
    named = _unique(records, f"{source}: categories", _category, problems)
    unteachable: set[ImageId] = set()
    for where, category in named.items():
        if fault := description_fault(category.name):
            unteachable.add(category.id)
            problems.append(Problem(where, "name", fault, training_only=True))
    return tuple(sorted(named.values(), key=by_id)), unteachable


def read_images(
    records: Iterable[Any],
    source: str,
    problems: list[Problem],
    notes: Counter[str],
    image_size: Callable[[str], tuple[int, int] | None] | None,
    folder: str | os.PathLike[str] | None,
) -> tuple[CocoImage, ...]:
    """Return the images in the order of the document."""

    def parse(record: Mapping[str, Any]) -> CocoImage:
        if not PHRASE_KEYS.isdisjoint(record):
            notes[PHRASES] += 1
        return _usual(record) or _image(record)

    images = []
    for where, image in _unique(records, f"{source}: images", parse, problems).items():
        if image.file_name and image.width and "\\" not in image.file_name:
            images.append(image)
            continue
        name = name_on_disk(folder, image.file_name)
        notes[BACKSLASHES] += name != image.file_name
        width, height = image.width, image.height
        if width is None and name and image_size is not None:
            width, height = image_size(name) or (None, None)
        if not name:
            message = "expected a path, found none: the image cannot be trained on"
            problems.append(Problem(where, "file_name", message, training_only=True))
        elif width is None:
            message = "expected width and height in pixels, found none: the image cannot be trained on"
            problems.append(Problem(where, "width", message, training_only=True))
        images.append(CocoImage(image.id, name, width, height))
    return tuple(images)


def _unique(
    records: Iterable[Any], table: str, parse: Callable[[Mapping[str, Any]], _Row], problems: list[Problem]
) -> dict[str, _Row]:
    """Return the valid images or categories by their place in the document; rows with duplicate ids are left out."""
    rows: dict[str, _Row] = {}
    for position, record in enumerate(records):
        where = f"{table}[{position}]"
        try:
            if type(record) is not dict and not isinstance(record, Mapping):
                raise InputError(f": expected an object, found {type(record).__name__}")
            rows[where] = parse(record)
        except InputError as error:
            name, _, message = str(error).partition(": ")
            problems.append(Problem(where, name, message))
    id_counts = Counter(row.id for row in rows.values())
    for where, row in list(rows.items()) if len(id_counts) < len(rows) else ():
        if id_counts[row.id] > 1:
            message = f"{row.id!r} occurs {id_counts[row.id]} times; ids must be unique, so all of them are left out"
            problems.append(Problem(where, "id", message))
            del rows[where]
    return rows


def _category(record: Mapping[str, Any]) -> Category:
    name = record.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"name: expected a name, found {name!r:.80}")
    return Category(identifier(record.get("id"), "id"), name)


def _usual(record: Mapping[str, Any]) -> CocoImage | None:
    """Return an image whose row has the usual types, which most rows of a large file are; None for any other one."""
    image_id, name, width, height = record.get("id"), record.get("file_name"), record.get("width"), record.get("height")
    if type(image_id) is type(width) is type(height) is int and type(name) is str and name.isascii():
        return CocoImage(image_id, name, width, height) if 0 < width < _LARGEST > height > 0 else None
    return None


def _image(record: Mapping[str, Any]) -> CocoImage:
    file_name = record.get("file_name", "")
    image_id = identifier(record.get("id"), "id")
    for name, value in (("file_name: expected a path", file_name), ("id: expected readable text", str(image_id))):
        if not isinstance(value, str) or not (value.isascii() or _is_text(value)):
            raise InputError(f"{name}, found {value!r:.80}")
    if record.get("width") is None or record.get("height") is None:
        return CocoImage(image_id, file_name, None, None)
    return CocoImage(image_id, file_name, _side(record, "width"), _side(record, "height"))


def _is_text(value: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _side(record: Mapping[str, Any], name: str) -> int:
    if type(value := record[name]) is int and 0 < value < _LARGEST:
        return int(value)
    (pixels,) = finite_numbers([value], 1, name)
    if not 0 < pixels < _LARGEST or pixels % 1:
        raise InputError(f"{name}: expected a whole number of pixels above 0, found {pixels:g}")
    return int(pixels)
