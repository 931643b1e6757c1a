"""Reader of VGG Image Annotator (VIA 2): a JSON file of images with `regions` in pixels that count from 0.

A project keeps them under `_via_img_metadata`; an export of the annotations has them at the top. The description is the
attribute that every region has, or that is called `label`, `class`, `name` or `type`; an attribute of choices may be
`{"cat": true}`.

| shape | rule |
|---|---|
| `rect` | a box |
| `polygon` | an outline; as a box the one around it, counted |
| `circle`, `ellipse` | the box around it, counted |
| `point` | a point |
| `polyline`, others | refused |
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from coord_codec.fields import DELETED, check_places, is_deleted
from coord_codec.files import InputError
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.stated_fields import OUTLINED, with_fields
from coord_data.looking.image_paths import find_root
from coord_data.sources.raw import RawImage, RawObject, Reading, as_list, check, images_named, number
from coord_data.sources.source import Source

_LABELS = ("label", "class", "name", "type", "category", "object")
_PROJECT, _SHAPE = "_via_img_metadata", "shape_attributes"
_ROUND = "circles and ellipses, read as the box around them"


def recognise(source: Source) -> bool:
    """Return whether a source is a project or an export of its annotations."""
    keys, below = source.keys
    return _PROJECT in keys or {"filename", "regions"} <= below


def read(source: Source, images: Path | None) -> Reading:
    """Read a project or an export of its annotations."""
    path, document = source.path, source.document
    stated = document.get(_PROJECT, document) if isinstance(document, Mapping) else None
    check(isinstance(stated, Mapping), f"{path}: expected images by their keys", stated)
    entries: Mapping[str, Any] = stated or {}
    label = _label_attribute(list(entries.values()), path)
    root = find_root(images, path.parent / "images", path.parent)
    rows = ((f"{path}: {key}", *_content(row)) for key, row in entries.items())
    note = f"{path}: descriptions are read from the attribute {label}"
    return Reading(images_named(root, rows, partial(_image, label)), root, (note,) * bool(label))


def _content(row: Any) -> tuple[Mapping[str, Any] | str, tuple[str]]:
    """Return an entry with the path of its image, or why it is none."""
    if not isinstance(row, Mapping):
        return "expected an object with filename and regions", ("",)
    return row, (str(row.get("filename") or ""),)


def _regions(row: Any) -> list[Any]:
    """Return the regions of an image, which VIA 1 has in an object."""
    regions = row.get("regions") if isinstance(row, Mapping) else None
    return list(regions.values()) if isinstance(regions, Mapping) else as_list(regions)


def _label_attribute(rows: Sequence[Any], path: Path) -> str:
    """Return the name of the attribute with the description; "" without regions."""
    of_regions = [
        region.get("region_attributes") for row in rows for region in _regions(row) if isinstance(region, Mapping)
    ]
    counts = Counter(name for attributes in of_regions if isinstance(attributes, Mapping) for name in attributes)
    if not of_regions:
        return ""
    known: list[str] = [name for wanted in _LABELS for name in counts if name.lower() == wanted]
    if known:
        return known[0]
    if len(counts) == 1:
        return str(next(iter(counts)))
    listed = ", ".join(counts) or "none"
    raise InputError(f"{path}: expected an attribute of the regions called {' or '.join(_LABELS)}, found {listed}")


def _image(label: str, row: Mapping[str, Any], image: RawImage) -> RawImage:
    regions = _regions(row)
    parts = [part for region in regions if isinstance(region, Mapping) for part in (region, region.get(_SHAPE))]
    check_places((part for part in parts if isinstance(part, Mapping)), {**row, "image": image.name})
    present = [region for region in regions if not _is_deleted(region)]
    objects = [
        RawObject("", (), f"{image.where}: regions[{position}]").tried(partial(_object, region, label))
        for position, region in enumerate(present)
    ]
    return image._replace(objects=objects, notes=image.notes + (DELETED,) * (len(regions) - len(present)))


def _is_deleted(region: Any) -> bool:
    parts = region.values() if isinstance(region, Mapping) else ()
    return any(is_deleted(part) for part in parts if isinstance(part, Mapping))


def _object(region: Any, label: str, stated: RawObject) -> RawObject:
    check(isinstance(region, Mapping), "expected an object", region)
    shape, attributes = region.get(_SHAPE), region.get("region_attributes")
    check(isinstance(shape, Mapping), "shape_attributes: expected an object", shape)
    return stated._replace(desc=_description(attributes, label)).tried(partial(_shape, shape))


def _shape(shape: Mapping[str, Any], stated: RawObject) -> RawObject:
    kind = shape.get("name")
    if kind == "rect":
        x, y, width, height = (number(shape.get(name)) for name in ("x", "y", "width", "height"))
        return with_fields(stated._replace(corners_xyxy=(x, y, x + width, y + height)), shape, "xywh", "pixels")
    if kind == "polygon":
        points = zip(as_list(shape.get("all_points_x")), as_list(shape.get("all_points_y")), strict=True)
        outline = [number(value) for point in points for value in point]
        check(len(outline) >= 6, "all_points_x: expected three or more points", shape)
        return stated.outlined(outline, OUTLINED)
    if kind == "point":
        return stated.at(number(shape.get("cx")), number(shape.get("cy")))
    if kind in ("circle", "ellipse"):
        x, y = number(shape.get("cx")), number(shape.get("cy"))
        across, down = (number(shape.get(name, shape.get("r"))) for name in ("rx", "ry"))
        u, v = _half_extent(across, down, number(shape.get("theta") or 0))
        return stated._replace(corners_xyxy=(x - u, y - v, x + u, y + v), as_box=(_ROUND,))
    raise InputError(f"a region called {kind!r}: expected rect, polygon, circle, ellipse or point")


def _half_extent(across: float, down: float, radians: float) -> tuple[float, float]:
    """Return half the width and height of the upright box around an ellipse, whose `theta` VIA states in radians."""
    cos, sin = math.cos(radians), math.sin(radians)
    return math.hypot(across * cos, down * sin), math.hypot(across * sin, down * cos)


def _description(attributes: Any, label: str) -> str:
    """Return the text of an attribute; of choices `{"cat": true}` the only one."""
    value = attributes.get(label) if isinstance(attributes, Mapping) else None
    if isinstance(value, Mapping):
        chosen = [str(name) for name, is_chosen in value.items() if is_chosen]
        check(len(chosen) == 1, f"{label}: expected one choice", value)
        return chosen[0]
    return "" if value is None else str(value).strip()


def _example(name: str, **shape: object) -> Example:
    region = {"shape_attributes": {"name": name, **shape}, "region_attributes": {"label": "cat"}}
    document = {"a.jpg9": {"filename": "a.jpg", "size": 9, "regions": [region], "file_attributes": {}}}
    return Example({"a.json": json.dumps(document)}, "a.json")


_POLYGON = _example("polygon", all_points_x=[20, 60, 60, 20], all_points_y=[10, 10, 40, 40])
FORMAT = AnnotationFormat(
    "via",
    "VGG Image Annotator",
    "a JSON file of VIA 2 with `regions` in pixels: rectangles, polygons, circles, points",
    {
        "box": _example("rect", x=20, y=10, width=40, height=30),
        "point": _example("point", cx=40, cy=25),
        "polygon": _POLYGON,
        "oriented": _POLYGON,
    },
    recognise,
    read,
)
