"""Pascal VOC XML, as the devkit, LabelImg, CVAT and Roboflow write it; one file an image.

Corners are pixel numbers, counted from 1, and the last pixel belongs to the box: the continuous box of `xmin=1,
xmax=10` is 0 to 10. (Some readers subtract 1 from all four corners, which cuts a pixel off every box.) A file with
fractions in its corners is of a tool with continuous coordinates from 0, such as CVAT: they are taken as they are. In a
file of whole numbers a left or upper side at 0 is clipped, and counted as a sign of such a tool.

| element | rule |
|---|---|
| `difficult` 1 | ignored: no target, and neither hit nor miss, as VOC's own scoring has it |
| `truncated`, `occluded` 1 | kept and counted |
| `robndbox` (centre, size, angle) | the upright box around it, counted |
| `polygon` without `bndbox` | the upright box around it, counted |
| `part` of an object | not read |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import parse

from coord_codec.files import InputError, read_text
from coord_trainer.data.formats.raw import (
    Found,
    ImageIndex,
    RawBox,
    RawImage,
    Reading,
    Source,
    find_root,
    is_file,
    number,
)

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_FILES = ("*.xml", "Annotations/*.xml", "annotations/*.xml")


_FRACTIONS = "boxes of files with fractions, which count from 0 and not from 1"
_AT_ZERO = "boxes with a side at 0 where Pascal VOC counts from 1: does the tool that wrote them count from 0?"


def recognise(source: Source) -> bool:
    """Whether it is an XML file, a folder of them, a VOC tree, or one of its lists in ImageSets."""
    return source.head[:1] == "<" or bool(source.glob(*_FILES)) or _is_list(source)


def _is_list(source: Source) -> bool:
    return source.path.suffix == ".txt" and "ImageSets" in source.path.parts and _tree(source.path) is not None


def _tree(path: Path) -> Path | None:
    return next((folder for folder in path.parents if (folder / "Annotations").is_dir()), None)


def read(source: Source, images: Path | None) -> Reading:
    """Read one XML file, all of a folder, or those that a list in ImageSets names."""
    if _is_list(source):
        folder = (_tree(source.path) or source.path) / "Annotations"
        names = [line.split() for line in read_text(source.path).splitlines() if line.strip()]
        # Lists of a class have a second column: 1 the class is there, 0 it is difficult, -1 it is not.
        files = [folder / f"{words[0]}.xml" for words in names if words[1:] != ["-1"]]
    else:
        files = sorted(set(source.glob(*_FILES))) or [source.path]
        folder = files[0].parent
    root = find_root(images, folder.parent / "JPEGImages", folder.parent / "images", folder / "images", folder)
    places = ImageIndex(root).find_all(_names(file, folder, root) for file in files)
    return Reading((_image(file, place) for file, place in zip(files, places, strict=True)), root)


def _names(file: Path, folder: Path, root: Path) -> tuple[str, ...]:
    """Return what may be the image of a file: a folder that is there is part of the name that it states."""
    try:
        top = _parse(file)
    except InputError:
        return ("",)  # named where its boxes are read
    beside = file.relative_to(folder).with_suffix("") if file.is_relative_to(folder) else Path(file.stem)
    name = (top.findtext("filename") or "").strip().replace("\\", "/") or file.stem
    folders = {(top.findtext("folder") or "").strip(), beside.parent.as_posix()} - {"", "."}
    names = [name]
    if "/" not in name and (below := [f"{sub}/{name}" for sub in sorted(folders) if (root / sub).is_dir()]):
        names = [*below, name] if is_file(root / name) else below
    return (*names, str(root.resolve() / beside))


def _parse(file: Path) -> Element:
    """Return the element at the top.

    Raises:
        InputError: it is no Pascal VOC XML.
    """
    try:
        top = parse(file).getroot()
    except FileNotFoundError:
        raise InputError("the file does not exist") from None
    except (ParseError, DefusedXmlException, ValueError, OSError) as error:
        raise InputError(f"expected Pascal VOC XML, found text that is not XML: {error}") from None
    if top.tag != "annotation":
        raise InputError(f"expected the element annotation at the top, found {top.tag}")
    return top


def _image(file: Path, place: Found) -> RawImage:
    if place.fault:
        return RawImage(place.name, str(file), fault=place.fault)
    try:
        top = _parse(file)
    except InputError as error:
        return RawImage("", str(file), fault=str(error))
    try:
        size = tuple(int(number(top.findtext(f"size/{side}"))) for side in ("width", "height"))
    except ValueError:
        size = (0, 0)  # some tools leave it out, or write 0
    boxes = list(_boxes(top, file))
    return RawImage(place.name, str(file), boxes, size if min(size) > 0 else None, notes=place.notes)


def _boxes(top: Element, file: Path) -> Iterator[RawBox]:
    start = 0 if any(_has_fraction(box) for box in top.iterfind("object/bndbox")) else 1
    for position, element in enumerate(top.findall("object")):
        where = f"{file}: object {position}"
        desc = (element.findtext("name") or "").strip()
        try:
            corners, notes = _corners(element, start)
        except ValueError as error:
            yield RawBox(desc, (), where, fault=str(error))
            continue
        flags = [name for name in ("truncated", "occluded") if _flag(element, name)]
        difficult = _flag(element, "difficult")
        notes += tuple(f"{flag} objects, kept" for flag in flags) + ("difficult objects, ignored",) * difficult
        yield RawBox(desc, corners, where, ignored=difficult, notes=notes)


def _flag(element: Element, name: str) -> bool:
    return (element.findtext(name) or "").strip() == "1"


def _has_fraction(box: Element) -> bool:
    try:
        return any(_number(box, side) % 1 for side in _SIDES)
    except ValueError:
        return False  # named where the object is read


def _corners(element: Element, start: int) -> tuple[tuple[float, ...], tuple[str, ...]]:
    box, rotated, polygon = (element.find(name) for name in ("bndbox", "robndbox", "polygon"))
    if box is not None:
        x1, y1, x2, y2 = (_number(box, side) for side in _SIDES)
        notes = ((_FRACTIONS,) if start == 0 else ()) + ((_AT_ZERO,) if start and 0 in (x1, y1) else ())
        return (x1 - start, y1 - start, x2, y2), notes
    if rotated is not None:
        cx, cy, w, h, angle = (_number(rotated, name) for name in ("cx", "cy", "w", "h", "angle"))
        cos, sin = abs(math.cos(angle)), abs(math.sin(angle))
        dx, dy = (w * cos + h * sin) / 2, (w * sin + h * cos) / 2
        return (cx - dx, cy - dy, cx + dx, cy + dy), ("rotated boxes, read as the upright box around them",)
    if polygon is not None:
        xs, ys = ([number(point.text) for point in polygon.iter() if point.tag.startswith(axis)] for axis in ("x", "y"))
        if not xs or len(xs) != len(ys):
            raise InputError("polygon: expected x1, y1, x2, y2, ...")
        return (min(xs) - 1, min(ys) - 1, max(xs), max(ys)), ("polygons, read as the box around them",)
    raise InputError("expected bndbox with xmin, ymin, xmax and ymax, found none")


def _number(element: Element, name: str) -> float:
    try:
        return number(element.findtext(name))
    except ValueError as error:
        raise InputError(f"{element.tag}.{name}: {error}") from None
