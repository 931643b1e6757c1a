"""Reader of Pascal VOC XML, as the devkit, labelImg, CVAT and Roboflow write it, with one file per image.

Which number the first pixel has, and whether the last one is counted, depends on the tool that wrote a file: see
`writers`. As Pascal VOC has it, corners are pixel indices counted from 1, and the last pixel belongs to the box: the
continuous box of `xmin=1, xmax=10` is 0 to 10. Most tools do not write so.

| element | rule |
|---|---|
| `difficult` 1 | no training target, and ignored in scoring, as in VOC's own scoring |
| `truncated`, `occluded` 1 | kept and counted |
| `robndbox` (angle in radians), attribute `rotation` of CVAT (degrees) | an oriented box; as a box the one around it |
| `polygon` | a polygon; as a box that of `bndbox`, or the one around it, counted |
| `deleted` 1, as LabelMe's first site writes it | left out and counted |
| any other, such as `part` or `ignore` | not read, and counted |
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import parse

from coord_codec.counts import counted
from coord_codec.fields import DELETED, NOT_READ, check_places, is_deleted, not_read, rotated_corners
from coord_codec.files import InputError, read_text
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.stated_fields import ROTATED, with_fields
from coord_data.formats.writers import Counted, Sides, counted_by, sides_of, writer_of
from coord_data.looking.image_paths import IMAGE_SUFFIXES, Found, ImageIndex, find_root
from coord_data.sources.raw import RawImage, RawObject, Reading, around, image_size, number
from coord_data.sources.source import Source

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_ANNOTATIONS = ("Annotations", "annotations")

_FLAGS = {
    "truncated": "truncated objects, kept",
    "occluded": "occluded objects, kept",
    "difficult": "difficult objects, ignored",
}
_FEW_FRACTIONS = "boxes with fractions, counted from 1 like the others of this source, most of which are whole numbers"
_OF_FILE = frozenset("filename folder imagesize object owner path segmented size source".split())
"""Elements of a file that are read, or that say nothing of its objects."""
_OF_OBJECT = frozenset("bndbox deleted difficult name occluded polygon pose robndbox truncated".split())
"""Elements of an object that are read, or that every file has."""
_ELEMENT = "files with the element {}, which is not read"
_SEVERAL_NAMES = "objects with several names, of which the first is read"
_PHRASES = (
    "XML of Flickr30k Entities, whose names are numbers of phrases in Sentences, which are not read; convert it to "
    "instance JSONL with the phrase of each number as `desc`"
)
_POLYGONS = "polygons, read as the box around them"
_STALE = "files that state the image of another file: the image with the file's own name is used"
_AT_ZERO = "boxes with a side at 0 where Pascal VOC counts from 1: does the tool that wrote them count from 0?"
_RAISED = "first corners at 1, which labelImg also writes for 0, read as 0"


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
        if again := len(listed) - len(files):
            notes = (f"{source.path}: {counted(again, 'name is', 'names are')} listed more than once, and read once",)
    else:
        folder, files = _files(source)
    root = find_root(images, folder.parent / "JPEGImages", folder.parent / "images", folder / "images", folder)
    headers = [_inspect(file, folder, root) for file in files]
    if phrases := next((file for file, header in zip(files, headers, strict=True) if header.has_phrases), None):
        raise InputError(f"{phrases}: {_PHRASES}")
    image_files = _image_files(ImageIndex(root), [header.names for header in headers])
    shown: dict[int | None, Sides] = {}
    for header in headers:
        shown[header.writer] = shown.get(header.writer, Sides()) + header.sides
    counted_as = {writer: counted_by(writer, sides) for writer, sides in shown.items()}
    images_read = (
        RawImage.found(image, str(file), partial(_image, file, counted_as[header.writer]))
        for file, image, header in zip(files, image_files, headers, strict=True)
    )
    return Reading(images_read, root, notes)


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


class _Header(NamedTuple):
    """What a file tells before its boxes are read.

    Attributes:
        names: candidate image paths
        writer: its writer, see `writer_of`
        sides: what its corners show
        has_phrases: whether it is one of Flickr30k Entities, which states objects without a box
    """

    names: tuple[str, ...]
    writer: int | None = None
    sides: Sides = Sides()
    has_phrases: bool = False


def _inspect(file: Path, folder: Path, root: Path) -> _Header:
    """Return what a file tells; it is parsed again for its boxes, so that a source is never entirely in memory."""
    try:
        top = _parse(file)
    except InputError:
        return _Header(("",))  # reported when its boxes are read
    texts = [_corner_texts(element) for element in top.iterfind("object")]
    sides = Sides()
    if any(texts):
        try:
            boxes = [tuple(map(float, four)) for four in texts if len(four) == 4]
        except ValueError:  # reported with its object
            boxes = []
        size = image_size(top.findtext("size/width"), top.findtext("size/height"))
        sides = sides_of(boxes, size, any("." in text for four in texts for text in four))
    return _Header(_names(top, file, folder, root), writer_of(top), sides, top.find("object/nobndbox") is not None)


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
    """Return the root element of a file, which has to be Pascal VOC XML."""
    try:
        top: Element = parse(file).getroot()
    except FileNotFoundError:
        raise InputError("the file does not exist") from None
    except (ParseError, DefusedXmlException, ValueError, OSError) as error:
        raise InputError(f"expected Pascal VOC XML, found text that is not XML: {error}") from None
    if top.tag == "annotations":
        kind = "video" if top.find("track") is not None else "images"
        raise InputError(
            f"XML of `CVAT for {kind}`, which is not read; export the task as COCO, Pascal VOC or Ultralytics YOLO"
        )
    if top.tag != "annotation":
        raise InputError(f"expected the element annotation at the top, found {top.tag}")
    return top


def _image(file: Path, read_as: Counted, image: RawImage) -> RawImage:
    top = _parse(file)
    size = image_size(top.findtext("size/width"), top.findtext("size/height"))  # some tools omit it or write 0
    stated = [(element, _fields(element)) for element in top.iterfind("object")]
    check_places((fields for _, fields in stated), {**_texts(top), "image": image.name})
    objects = [
        RawObject((element.findtext("name") or "").strip(), (), f"{file}: object {position}").tried(
            partial(_box, element, read_as)
        )
        for position, (element, fields) in enumerate(stated)
        if not is_deleted(fields)
    ]
    notes = image.notes + (DELETED,) * (len(stated) - len(objects)) + _not_read_of_file(top)
    return image._replace(objects=objects, size=size, notes=notes)


def _not_read_of_file(top: Element) -> tuple[str, ...]:
    """Return a note for each element of a file with others in it, except those that are read.

    Raises:
        InputError: the file states its objects in such an element alone
    """
    found = tuple(dict.fromkeys(child.tag for child in top if len(child) and child.tag not in _OF_FILE))
    if found and top.find("object") is None:
        raise InputError(
            f"expected objects in elements `object`, found {found[0]}, which is not read (FAIR1M writes its points "
            "so); convert it to COCO"
        )
    return tuple(map(_ELEMENT.format, found))


def _not_read_of_object(element: Element) -> tuple[str, ...]:
    """Return a note for each element of an object that is not read."""
    nested = {child.tag: None for child in element if len(child) and child.tag != "attributes"}
    plain = not_read(_texts(element), _OF_OBJECT)
    notes = (*plain, *(NOT_READ.format(name) for name in nested if name not in _OF_OBJECT))
    return notes + (_SEVERAL_NAMES,) * (len(element.findall("name")) > 1)


def _box(element: Element, read_as: Counted, stated: RawObject) -> RawObject:
    placed = _place(element, read_as, stated._replace(origin=read_as.origin))
    flags = [flag for flag in _FLAGS if (element.findtext(flag) or "").strip() == "1"]
    notes = (*placed.notes, *map(_FLAGS.__getitem__, flags), *_not_read_of_object(element))
    return placed._replace(ignored="difficult" in flags, notes=notes)


def _place(element: Element, read_as: Counted, stated: RawObject) -> RawObject:
    """Return an object with its outline, the upright box around it and notes to count."""
    box, rotated, polygon = (element.find(name) for name in ("bndbox", "robndbox", "polygon"))
    if box is None and rotated is not None:
        cx, cy, w, h, angle = (_number(rotated, name) for name in ("cx", "cy", "w", "h", "angle"))
        outline = rotated_corners((cx - w / 2, cy - h / 2, w, h), math.degrees(angle))
        return stated.outlined(outline, ROTATED)
    low, high = read_as.origin
    has_fractions = any("." in text for text in _corner_texts(element))
    notes = (read_as.note,) * bool(read_as.note) + (_FEW_FRACTIONS,) * (has_fractions and low == 1)
    outline = _outline(polygon, (low + high) / 2) if polygon is not None else []
    if box is not None:
        written = [_number(box, side) for side in _SIDES]
        if read_as.raised and 1 in written[:2]:
            written[:2] = [0 if value == 1 else value for value in written[:2]]
            notes += (_RAISED,)
        notes += (_AT_ZERO,) * (low == 1 and 0 in written[:2])
        corners = read_as.origin.corners(written)
        stated = stated._replace(notes=notes, corners_xyxy=corners, outlines=(outline,) if outline else ())
        return with_fields(stated, _fields(element), "xyxy", "pixels")
    if not outline:
        raise InputError("expected bndbox with xmin, ymin, xmax and ymax, found none")
    x1, y1, x2, y2 = around(outline)
    half = (low - high) / 2  # from the centre of a pixel to its border
    corners = (x1 - half, y1 - half, x2 + half, y2 + half)
    return stated._replace(corners_xyxy=corners, notes=notes, outlines=(outline,), as_box=(_POLYGONS,))


def _outline(polygon: Element, shift: float) -> list[float]:
    xs, ys = ([number(point.text) for point in polygon.iter() if point.tag.startswith(axis)] for axis in ("x", "y"))
    if not xs or len(xs) != len(ys):
        raise InputError("polygon: expected x1, y1, x2, y2, ...")
    return [value - shift for point in zip(xs, ys, strict=True) for value in point]


def _fields(element: Element) -> dict[str, Any]:
    """Return the fields of an object beside its corners, and the rotation of a CVAT box among its attributes."""
    inner = [child for name in ("bndbox", "robndbox") for child in element.iterfind(f"{name}/*")]
    texts = _texts((*element, *inner))
    for attribute in element.iterfind("attributes/attribute"):
        if (attribute.findtext("name") or "").strip() == "rotation":
            return {**texts, "attributes": {"rotation": attribute.findtext("value")}}
    return texts


def _texts(elements: Iterable[Element]) -> dict[str, str]:
    return {child.tag: (child.text or "").strip() for child in elements if not len(child)}


def _number(element: Element, name: str) -> float:
    try:
        return number(element.findtext(name))
    except ValueError as error:
        raise InputError(f"{element.tag}.{name}: {error}") from None


_SIZE = "<size><width>100</width><height>50</height></size>"


def _example(place: str, **values: float) -> Example:
    numbers = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
    cat = f"<object><name>cat</name><{place}>{numbers}</{place}></object>"
    return Example({"a.xml": f"<annotation><filename>a.jpg</filename>{_SIZE}{cat}</annotation>"}, "a.xml")


FORMAT = AnnotationFormat(
    "voc",
    "Pascal VOC XML",
    "an XML file an image, with `bndbox` in pixels, as the devkit, labelImg, CVAT and Roboflow write it",
    {
        "box": _example("bndbox", xmin=21, ymin=11, xmax=60, ymax=40),
        "polygon": _example("polygon", x1=20.0, y1=10.0, x2=60.0, y2=10.0, x3=60.0, y3=40.0, x4=20.0, y4=40.0),
        "oriented": _example("robndbox", cx=40, cy=25, w=40, h=30, angle=0),
    },
    recognise,
    read,
    has_label_files=recognise,
    file_an_image=True,
)
