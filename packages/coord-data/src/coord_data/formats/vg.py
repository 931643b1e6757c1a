"""Reader of Visual Genome: `objects.json` (names, boxes) or `region_descriptions.json` (phrases, boxes), in pixels.

`image_data.json` beside it has sizes and folders. The first of several names of an object is its description.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from coord_codec.files import InputError
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.stated_fields import kept, with_fields
from coord_data.looking.image_paths import find_root
from coord_data.sources.raw import RawImage, RawObject, Reading, as_json, as_list, check, images_named, number
from coord_data.sources.source import Source

_SAMPLED_RECORDS = 100
_SIDES = (("x", "x"), ("y", "y"), ("w", "width"), ("h", "height"))
_READ = frozenset(("x", "y", "w", "h", "width", "height", "names", "phrase", "synsets", "attributes")).union(
    ("object_id", "region_id", "image_id", "merged_object_ids")
)
_EXPECTED = "expected names or phrase, x, y, w and h"
_FILES = ("objects.json", "region_descriptions.json")


def recognise(source: Source) -> bool:
    """Return whether a source is one of the two lists, or a folder with one of them and `image_data.json`."""
    if source.is_dir:
        return any((source.path / name).is_file() for name in _FILES) and (source.path / "image_data.json").is_file()
    if not {"objects", "regions"} & set(source.record or {}):
        return False
    records = (record for _, record in islice(source.records(), _SAMPLED_RECORDS) if isinstance(record, dict))
    lists = (record.get("objects") or record.get("regions") for record in records)
    first = next((boxes[0] for boxes in lists if isinstance(boxes, list) and boxes), None)  # an image may have none
    return isinstance(first, Mapping) and "x" in first and ("names" in first or "phrase" in first)


def read(source: Source, images: Path | None) -> Reading:
    """Read a list; for a folder with both lists, the list of objects."""
    if source.is_dir:
        files = [source.path / name for name in _FILES if (source.path / name).is_file()]
        if not files:
            raise InputError(f"{source.path}: expected {' or '.join(_FILES)} in this folder, found neither")
        source = source.file(files[0])
    folder = source.path.parent
    image_data = folder / "image_data.json"
    facts = _facts(source.file(image_data)) if image_data.is_file() else {}
    root = find_root(images, folder / "images", folder)
    rows = ((where, record, _names(record, facts)) for where, record in source.records())
    return Reading(images_named(root, rows, partial(_image, facts)), root)


def _facts(source: Source) -> dict[int, Mapping[str, Any]]:
    """Return the rows of `image_data.json` by image id."""
    rows, path = source.document, source.path
    check(isinstance(rows, list), f"{path}: expected a list of images", rows)
    facts: dict[Any, Mapping[str, Any]] = {}
    for position, row in enumerate(rows):
        image_id = row.get("image_id", row.get("id")) if isinstance(row, Mapping) else None
        check(isinstance(image_id, int), f"{path}: record {position}: expected an object with image_id", row)
        facts[image_id] = row
    return facts


def _names(record: Any, facts: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return candidate image paths: the one that `image_data.json` states, and the one derived from the id."""
    image_id = None if isinstance(record, str) else record.get("image_id", record.get("id"))
    if not isinstance(image_id, int):
        return ("",)
    url = PurePosixPath(str(facts.get(image_id, {}).get("url", "")))
    return ("/".join(url.parts[-2:]) or f"{image_id}.jpg", f"{image_id}.jpg")


def _image(facts: Mapping[Any, Any], record: Mapping[str, Any], image: RawImage) -> RawImage:
    boxes = record.get("objects", record.get("regions"))
    image_id = record.get("image_id", record.get("id"))
    if not isinstance(boxes, list) or not isinstance(image_id, int):
        fault = f"expected image_id and objects or regions, found {sorted(record)}"
        return RawImage("", image.where, fault=fault)
    stated = facts.get(image_id, {})
    boxes, notes = kept(boxes, _READ, {**stated, **record, "image": image.name, "image_id": image_id})
    objects = [
        RawObject("", (), f"{image.where}: box {position}").tried(partial(_object, box))
        for position, box in enumerate(boxes)
    ]
    image = image.sized(stated.get("width"), stated.get("height"))
    return image._replace(objects=objects, image_id=image_id, notes=image.notes + notes)


def _object(box: Any, stated: RawObject) -> RawObject:
    names = [] if not isinstance(box, Mapping) else as_list(box.get("names")) or [box.get("phrase")]
    check(names and isinstance(names[0], str | None), _EXPECTED, box)
    several = ("objects with several names, of which the first is used",) * (len(names) > 1)
    return stated._replace(desc=str(names[0] or "").strip(), notes=several).tried(partial(_box, box))


def _box(box: Mapping[str, Any], stated: RawObject) -> RawObject:
    try:
        x, y, w, h = (number(box.get(short, box.get(long))) for short, long in _SIDES)
    except ValueError:
        raise InputError(f"{_EXPECTED}, found {as_json(box)}") from None
    return with_fields(stated._replace(corners_xyxy=(x, y, x + w, y + h)), box, "xywh", "pixels")


FORMAT = AnnotationFormat(
    "vg",
    "Visual Genome",
    "`objects.json` or `region_descriptions.json` beside `image_data.json`, with x, y, w, h in pixels",
    {
        "box": Example(
            {
                "objects.json": '[{"image_id": 1, "objects": '
                '[{"names": ["cat"], "x": 20, "y": 10, "w": 40, "h": 30}]}]',
                "image_data.json": '[{"image_id": 1, "width": 100, "height": 50}]',
            },
            "objects.json",
            "1.jpg",
        )
    },
    recognise,
    read,
)
