"""Reader of LabelMe's JSON: a file an image, with `shapes` of pixels that count from 0.

| `shape_type` | rule |
|---|---|
| `rectangle` (two corners in any order), or four corners that are upright | a box |
| `polygon`, `oriented_rectangle`, `rotation` | an outline; as a box the one around it, counted |
| `circle` (centre, and a point on it) | the box around it |
| `point` | a point |
| `line`, `linestrip`, `mask`, others | refused |

As labelme's own converter has it, shapes with one `label` and `group_id` are one object, and `__ignore__` is no class.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any

from coord_codec.files import InputError
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.stated_fields import OUTLINED, kept, with_fields
from coord_data.looking.image_paths import IMAGE_SUFFIXES, ImageIndex, find_root
from coord_data.remote import cache_folder, place_inside, suffix_of
from coord_data.sources.raw import RawImage, RawObject, Reading, around, check, images_named, number
from coord_data.sources.source import Source

_LOOKS = 8
"""Number of files of a folder, from all over it, that are looked at to recognise it."""
_CIRCLES = "circles, read as the box around them"
_OUTLINES = ("polygon", "oriented_rectangle", "rotation", "rectangle", "quadrilateral")
_IGNORED = "__ignore__"
_NO_CLASS = "shapes labelled __ignore__, which is no class of LabelMe's converter, left out"
_JOINED = "shapes with the label and group_id of another, of which they are further parts"
_READ = frozenset(("label", "points", "shape_type", "group_id", "description", "flags", "mask", "other_data"))


def recognise(source: Source) -> bool:
    """Return whether a source is such a file, or a folder with them."""
    if source.is_dir:
        files = source.glob("*.json")
        return any(_is_labelme(source.file(path)) for path in files[:: len(files) // _LOOKS + 1])
    return _is_labelme(source)


def _is_labelme(source: Source) -> bool:
    keys = source.keys[0] | set(source.record or {})
    return "shapes" in keys and bool({"imagePath", "imageData", "imageHeight"} & keys)


def _is_broken(path: Path) -> bool:
    """Return whether a file, which cannot be read, has an image of its name beside it."""
    has_image = any(path.with_suffix(suffix).is_file() for suffix in IMAGE_SUFFIXES)
    return has_image and isinstance(_document(Source(path)), str)


def read(source: Source, images: Path | None) -> Reading:
    """Read a file, or all files of a folder."""
    files = [path for path in source.glob("**/*.json") if _is_labelme(source.file(path)) or _is_broken(path)]
    files = files or [source.path]
    folder = source.path if source.is_dir else source.path.parent
    root = find_root(images, folder)
    rows = [(path, _document(Source(path))) for path in files]
    names = [_names(document, path, folder) for path, document in rows]
    found = ImageIndex(root).find_all(names)
    notes: tuple[str, ...] = ()
    missing = [not (root / image.name).is_file() for image in found]
    if any(lacks and _pixels(document) for lacks, (_, document) in zip(missing, rows, strict=True)):
        notes = (f"{folder}: images are read from imageData in the files, as {sum(missing)} image files are missing",)
        named = [(path.relative_to(folder), document) for path, document in rows]
        root, names = _unpacked([root / image.name for image in found], named, files)
    named_rows = ((str(path), document, own) for (path, document), own in zip(rows, names, strict=True))
    return Reading(images_named(root, named_rows, _image), root, notes)


def _pixels(document: Mapping[str, Any] | str) -> bytes | None:
    """Return the image that a document has inside; None if it has none."""
    stated = None if isinstance(document, str) else document.get("imageData")
    try:
        return b64decode(stated, validate=True) if isinstance(stated, str) and stated else None
    except ValueError:
        return None


def _unpacked(
    images: Sequence[Path], named: Sequence[tuple[Path, Mapping[str, Any] | str]], files: Sequence[Path]
) -> tuple[Path, list[tuple[str, ...]]]:
    """Return a folder of the cache with the image of each document, and their names in it."""
    stamps = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    folder = cache_folder("labelme", json.dumps(stamps))
    names: list[tuple[str, ...]] = []
    for image, (path, document) in zip(images, named, strict=True):
        content = _pixels(document) or (image.read_bytes() if image.is_file() else b"")
        place = place_inside(folder, path.with_suffix(suffix_of(content)).as_posix())
        names.append((place.relative_to(folder).as_posix(),))
        if content and not place.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    return folder, names


def _document(source: Source) -> Mapping[str, Any] | str:
    """Return the content of a file, or why it cannot be read."""
    try:
        document = source.document
        check(isinstance(document, Mapping), "expected an object with shapes", document)
    except InputError as error:
        return str(error)
    checked: Mapping[str, Any] = document
    return checked


def _names(document: Mapping[str, Any] | str, path: Path, folder: Path) -> tuple[str, ...]:
    """Return candidate paths of the image: beside the file as it states, and by its name alone."""
    stated = "" if isinstance(document, str) else str(document.get("imagePath") or "")
    name = stated.replace("\\", "/") or f"{path.stem}.jpg"
    beside = path.parent.relative_to(folder) / name
    return beside.as_posix(), name, PureWindowsPath(name).name


def _image(document: Mapping[str, Any], image: RawImage) -> RawImage:
    check(isinstance(document.get("shapes"), list), "shapes: expected a list", document.get("shapes"))
    shapes, notes = kept(document["shapes"], _READ, {**document, "image": image.name})
    read = [
        (shape, RawObject("", (), f"{image.where}: shapes[{position}]").tried(partial(_object, shape)))
        for position, shape in enumerate(shapes)
    ]
    objects: dict[Any, RawObject] = {}
    for position, (shape, part) in enumerate(read):
        if part.desc == _IGNORED:
            notes += (_NO_CLASS,)
            continue
        group = shape.get("group_id") if isinstance(shape, Mapping) else None
        has_box = len(part.corners_xyxy) == 4 and not part.is_point
        key = (part.desc, str(group)) if group is not None and has_box else (position,)
        notes += (_JOINED,) * (key in objects)
        objects[key] = objects[key].joined(part) if key in objects else part
    image = image._replace(objects=list(objects.values()), notes=image.notes + notes)
    return image.sized(document.get("imageWidth"), document.get("imageHeight"))


def _object(shape: Any, stated: RawObject) -> RawObject:
    check(isinstance(shape, Mapping), "expected an object", shape)
    label, points = shape.get("label"), shape.get("points")
    check(isinstance(label, str), "label: expected text", label)
    return stated._replace(desc=str(label).strip()).tried(partial(_shape, shape, points))


def _shape(shape: Mapping[str, Any], points: Any, stated: RawObject) -> RawObject:
    check(isinstance(points, list) and points, "points: expected points", points)
    flat = [number(value) for point in points for value in (point if isinstance(point, list) else [None])]
    kind = shape.get("shape_type") or "polygon"
    if kind == "point" and len(flat) == 2:
        return stated.at(*flat)
    if kind == "circle" and len(flat) == 4:
        x, y, radius = flat[0], flat[1], math.dist(flat[:2], flat[2:])
        box = (x - radius, y - radius, x + radius, y + radius)
        return with_fields(stated._replace(corners_xyxy=box, as_box=(_CIRCLES,)), shape, "xyxy", "pixels")
    if kind == "rectangle" and len(flat) in (4, 8):
        stated = stated._replace(corners_xyxy=around(flat))
        is_turned = len(flat) == 8 and (len(set(flat[::2])) > 2 or len(set(flat[1::2])) > 2)
        if not is_turned:
            return with_fields(stated, shape, "xyxy", "pixels")
    if kind in _OUTLINES and len(flat) >= 6 and len(flat) % 2 == 0:
        return stated.outlined(flat, OUTLINED)
    raise InputError(f"shape_type {kind!r} with {len(points)} points: expected a rectangle, polygon, circle or point")


def _example(kind: str, *points: list[float]) -> Example:
    shape = {"label": "cat", "points": points, "shape_type": kind}
    document = {"shapes": [shape], "imagePath": "a.jpg", "imageWidth": 100, "imageHeight": 50}
    return Example({"a.json": json.dumps(document)}, "a.json")


FORMAT = AnnotationFormat(
    "labelme",
    "LabelMe JSON",
    "a JSON file an image, with `shapes` in pixels: rectangles, polygons, circles, points",
    {
        "box": _example("rectangle", [20, 10], [60, 40]),
        "point": _example("point", [40, 25]),
        "polygon": _example("polygon", [20, 10], [60, 10], [60, 40], [20, 40]),
        "oriented": _example("oriented_rectangle", [20, 10], [60, 10], [60, 40], [20, 40]),
    },
    recognise,
    read,
    has_label_files=recognise,
    file_an_image=True,
)
