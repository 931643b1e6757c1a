"""Reader of Pascal VOC XML, as the devkit, LabelImg, CVAT and Roboflow write it, with one file per image.

Corners are pixel indices counted from 1, and the last pixel belongs to the box: the continuous box of `xmin=1,
xmax=10` is 0 to 10. (Some readers subtract 1 from all four corners, which cuts a pixel off every box.) If at least half
of the files write corners with a decimal point, even as `20.0`, a tool with continuous coordinates from 0 wrote them,
such as CVAT, and all are used unchanged. Otherwise a left or upper side at 0 is clipped and counted as a sign of such a
tool, and fractions are counted as well. (VOC2012 itself has a few.)

| element | rule |
|---|---|
| `difficult` 1 | no training target, and ignored in scoring, as in VOC's own scoring |
| `truncated`, `occluded` 1 | kept and counted |
| `robndbox` (centre, size, angle), attribute `rotation` of CVAT | read as the upright box around it, counted |
| `polygon` without `bndbox` | read as the upright box around it, counted |
| `part` of an object | not read |
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import parse

from coord_codec.files import InputError, read_text
from coord_data.formats.images import IMAGE_SUFFIXES, Found, ImageIndex, find_root
from coord_data.formats.raw import RawBox, RawImage, Reading, Source, image_size, number

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_ANNOTATIONS = ("Annotations", "annotations")

_FRACTIONS = "boxes of files with fractions, which count from 0 and not from 1"
_FEW_FRACTIONS = "boxes with fractions, counted from 1 like the others of this source, most of which are whole numbers"
_ROTATED = "rotated boxes, read as the upright box around them"
_STALE = "files that state the image of another file: the image with the file's own name is used"
_AT_ZERO = "boxes with a side at 0 where Pascal VOC counts from 1: does the tool that wrote them count from 0?"


def recognise(source: Source) -> bool:
    """Return whether a source is an XML file, a folder of them, a VOC tree, or one of its lists in ImageSets."""
    return source.head[:1] == "<" or bool(_xml_folders(source.path)) or bool(source.glob("*.xml")) or _is_list(source)


def _xml_folders(folder: Path) -> dict[Path, list[Path]]:
    """Return the annotation folders of a folder that contain XML files at any depth, with these files."""
    xml_by_folder = {folder / name: Source(folder / name).glob("**/*.xml") for name in _ANNOTATIONS}
    return {place: files for place, files in xml_by_folder.items() if files}


def _is_list(source: Source) -> bool:
    return source.path.suffix == ".txt" and "ImageSets" in source.path.parts and _tree(source.path) is not None


def _tree(path: Path) -> Path | None:
    return next((folder for folder in path.parents if (folder / "Annotations").is_dir()), None)


def read(source: Source, images: Path | None) -> Reading:
    """Read one XML file, all XML files of a folder, or those that a list in ImageSets names."""
    notes: tuple[str, ...] = ()
    if _is_list(source):
        folder = (_tree(source.path) or source.path) / "Annotations"
        listed = _listed(source.path, folder)
        files = [folder / f"{name}.xml" for name in dict.fromkeys(listed)]
        if len(files) < len(listed):
            notes = (f"{source.path}: {len(listed) - len(files)} names are listed more than once, and read once",)
    else:
        folder, files = _files(source)
    root = find_root(images, folder.parent / "JPEGImages", folder.parent / "images", folder / "images", folder)
    inspected = [_inspect(file, folder, root) for file in files]
    image_files = _image_files(ImageIndex(root), [names for names, _ in inspected])
    fractions = [has_fractions for _, has_fractions in inspected if has_fractions is not None]
    start = 0 if fractions and 2 * sum(fractions) >= len(fractions) else 1
    return Reading((_image(file, image, start) for file, image in zip(files, image_files, strict=True)), root, notes)


def _listed(path: Path, folder: Path) -> list[str]:
    """Return the annotation names of a list; lines may contain blanks and the suffix of an image.

    Lists of a class have a second column: 1 if the image has the class, 0 if it is difficult, -1 if it has not.
    """
    names = []
    for row in filter(None, map(str.strip, read_text(path).splitlines())):
        stem = Path(row).with_suffix("") if Path(row).suffix.lower() in (*IMAGE_SUFFIXES, ".xml") else Path(row)
        *words, flag = row.split()
        if (folder / f"{stem}.xml").is_file() or not words or flag not in ("1", "0", "-1"):
            names.append(str(stem))
        elif flag != "-1":
            names.append(row.removesuffix(flag).rstrip())
    return names


def _image_files(index: ImageIndex, names: Sequence[tuple[str, ...]]) -> list[Found]:
    """Return the image of each file: the one it states, or the one named like the file if several state the same."""
    stated = index.find_all(names)
    uses = Counter(image.name for image in stated if not image.fault)
    own = index.find_all((paths[-1],) for paths in names) if max(uses.values(), default=0) > 1 else stated
    return [
        Found(other.name, (_STALE,)) if uses[image.name] > 1 and other.notes and other.name != image.name else image
        for image, other in zip(stated, own, strict=True)
    ]


def _files(source: Source) -> tuple[Path, list[Path]]:
    """Return the annotation folder and its XML files at any depth, with those beside an `Annotations` folder."""
    if not source.is_dir:
        return source.path.parent, [source.path]
    if below := _xml_folders(source.path):
        return next(iter(below)), [*source.glob("*.xml"), *(file for files in below.values() for file in files)]
    return source.path, source.glob("**/*.xml") or [source.path]


def _inspect(file: Path, folder: Path, root: Path) -> tuple[tuple[str, ...], bool | None]:
    """Return candidate image paths of a file, and whether its corners have decimal points (None without corners).

    Files are parsed again for their boxes, so that a large source is never entirely in memory.
    """
    try:
        top = _parse(file)
    except InputError:
        return ("",), None  # reported when its boxes are read
    texts = [text for element in top.iterfind("object") for text in _corner_texts(element)]
    return _names(top, file, folder, root), any("." in text for text in texts) if texts else None


def _corner_texts(element: Element) -> list[str]:
    """Return the text of the corners of an object's box or polygon."""
    if (box := element.find("bndbox")) is not None:
        return [box.findtext(side) or "" for side in _SIDES]
    polygon = element.find("polygon")
    return [] if polygon is None else [point.text or "" for point in polygon.iter() if point.tag[:1] in ("x", "y")]


def _names(top: Element, file: Path, folder: Path, root: Path) -> tuple[str, ...]:
    """Return candidate image paths of a file, with the stated folder if it exists."""
    relative = file.relative_to(folder).with_suffix("") if file.is_relative_to(folder) else Path(file.stem)
    name = (top.findtext("filename") or "").strip().replace("\\", "/") or file.stem
    folders = {(top.findtext("folder") or "").strip(), relative.parent.as_posix()} - {"", "."}
    folders = {sub for sub in folders if not Path(sub).is_absolute() and ".." not in Path(sub).parts}
    names = [name]
    # A Path raises for a name that is too long for any file.
    in_folders = [f"{sub}/{name}" for sub in sorted(folders) if os.path.isdir(root / sub)]  # noqa: PTH112
    if in_folders and "/" not in name:
        names = [*in_folders, name] if os.path.isfile(root / name) else in_folders  # noqa: PTH113
    return (*names, str(root.resolve() / relative))


def _parse(file: Path) -> Element:
    """Return the root element of a file.

    Raises:
        InputError: the file is not Pascal VOC XML.
    """
    try:
        top = parse(file).getroot()
    except FileNotFoundError:
        raise InputError("the file does not exist") from None
    except (ParseError, DefusedXmlException, ValueError, OSError) as error:
        raise InputError(f"expected Pascal VOC XML, found text that is not XML: {error}") from None
    if top.tag == "annotations" and top.find("image") is not None:
        raise InputError(
            "XML of `CVAT for images`, which is not read; export the task as COCO, Pascal VOC or Ultralytics YOLO"
        )
    if top.tag != "annotation":
        raise InputError(f"expected the element annotation at the top, found {top.tag}")
    return top


def _image(file: Path, image: Found, start: int) -> RawImage:
    if image.fault:
        return RawImage(image.name, str(file), fault=image.fault)
    try:
        top = _parse(file)
    except InputError as error:
        return RawImage("", str(file), fault=str(error))
    size = image_size(top.findtext("size/width"), top.findtext("size/height"))  # some tools omit it or write 0
    return RawImage(image.name, str(file), list(_boxes(top, file, start)), size, notes=image.notes)


def _boxes(top: Element, file: Path, start: int) -> Iterator[RawBox]:
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


def _corners(element: Element, start: int) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Return the upright box around an object, and notes to count.

    Args:
        element: the object
        start: the index of the first pixel, 0 or 1
    """
    box, rotated, polygon = (element.find(name) for name in ("bndbox", "robndbox", "polygon"))
    if box is None and rotated is not None:
        cx, cy, w, h, angle = (_number(rotated, name) for name in ("cx", "cy", "w", "h", "angle"))
        return _upright_box(cx, cy, w, h, angle), (_ROTATED,)
    has_point = any("." in text for text in _corner_texts(element))
    notes = (_FRACTIONS,) if start == 0 else (_FEW_FRACTIONS,) * has_point
    if box is not None:
        x1, y1, x2, y2 = (_number(box, side) for side in _SIDES)
        notes += (_AT_ZERO,) * (start == 1 and 0 in (x1, y1))
        x1, y1 = x1 - start, y1 - start
        if angle := _rotation(element):
            notes += (_ROTATED,)
            x1, y1, x2, y2 = _upright_box((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, math.radians(angle))
        return (x1, y1, x2, y2), notes
    if polygon is not None:
        xs, ys = ([number(point.text) for point in polygon.iter() if point.tag.startswith(axis)] for axis in ("x", "y"))
        if not xs or len(xs) != len(ys):
            raise InputError("polygon: expected x1, y1, x2, y2, ...")
        corners = (min(xs) - start, min(ys) - start, max(xs), max(ys))
        return corners, (*notes, "polygons, read as the box around them")
    raise InputError("expected bndbox with xmin, ymin, xmax and ymax, found none")


def _rotation(element: Element) -> float:
    """Return the rotation of a CVAT box in degrees; 0 if none is stated."""
    for attribute in element.iterfind("attributes/attribute"):
        if (attribute.findtext("name") or "").strip() == "rotation":
            try:
                angle = number(attribute.findtext("value"))
            except ValueError:
                return 0.0  # a custom attribute with the same name
            return angle % 360 if math.isfinite(angle) else 0.0
    return 0.0


def _upright_box(cx: float, cy: float, w: float, h: float, angle: float) -> tuple[float, float, float, float]:
    """Return the upright box around a box with a centre and size, rotated by an angle in radians."""
    cos, sin = abs(math.cos(angle)), abs(math.sin(angle))
    dx, dy = (w * cos + h * sin) / 2, (w * sin + h * cos) / 2
    return cx - dx, cy - dy, cx + dx, cy + dy


def _number(element: Element, name: str) -> float:
    try:
        return number(element.findtext(name))
    except ValueError as error:
        raise InputError(f"{element.tag}.{name}: {error}") from None
