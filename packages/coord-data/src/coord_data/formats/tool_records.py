"""Reads JSON of tools that state an image and its objects in records, by the paths of their keys: a `Fields` a tool.

A path joins keys by dots; `*` stands for every value of an object or a list, and "" for the value itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from coord_codec.fields import NumberOrder, Unit
from coord_data.formats.boxes_as_stated import order_and_unit
from coord_data.formats.stated_fields import OUTLINED, kept, with_fields
from coord_data.looking.image_paths import find_root
from coord_data.sources.raw import RawImage, RawObject, Reading, as_list, check, images_named, number
from coord_data.sources.source import Source

_GROUPS: Mapping[tuple[str, ...], NumberOrder] = {
    ("x1", "y1", "x2", "y2"): "xyxy",
    ("xmin", "ymin", "xmax", "ymax"): "xyxy",
    ("x_min", "y_min", "x_max", "y_max"): "xyxy",
    ("left", "top", "right", "bottom"): "xyxy",
    ("left", "top", "width", "height"): "xywh",
    ("x", "y", "width", "height"): "xywh",
    ("x", "y", "w", "h"): "xywh",
    ("cx", "cy", "w", "h"): "cxcywh",
}
"""Names of the numbers of a box, and what they are."""
_SEVERAL = "images labelled several times, of which all objects are read"
_NUMBERS = "objects of class numbers without a name"
_SHAPELESS = "labels without a box or a closed outline (lanes, masks, boxes in space), not read"


@dataclass(frozen=True)
class Fields:
    """Where the records of a tool state what is read; of several paths the first one that has a value.

    Attributes:
        image: path or name of the image
        label: description of an object, its parts, or the key of its name in `names`
        records: the records of a document; "" for records in lines or a list
        objects: the objects of a record; those of all paths are read
        size: width and height of the image
        image_id: id of the image
        boxes: the box of an object: numbers, several boxes, or an object of four named numbers
        outlines: the vertices of an object, where it has no box
        order: order of the numbers; "" for what they show, see `order_and_unit`
        unit: unit of the numbers
        names: path of the names of labels in the document
        fault: what says why the image could not be read
        ignored: what says that an object is no training target, and ignored in scoring
        name_file: a file beside that has the names of labels by number, a glob
    """

    image: tuple[str, ...]
    label: tuple[str, ...]
    records: str = ""
    objects: tuple[str, ...] = ("",)
    size: tuple[str, str] = ("width", "height")
    image_id: str = "-"
    boxes: tuple[str, ...] = ("bbox",)
    outlines: tuple[str, ...] = ()
    order: NumberOrder | None = "xyxy"
    unit: Unit = "pixels"
    names: str = "-"
    fault: str = "-"
    ignored: tuple[str, ...] = ()
    name_file: str = ""

    def read(self, source: Source, images: Path | None) -> Reading:
        """Read the records of a file; those of one image are read as one."""
        name_files = list(source.path.parent.glob(self.name_file)) if self.name_file else []
        names: Any = Source(name_files[0]).document if len(name_files) == 1 else {}
        if self.records and source.head[:1] == "{":
            document = source.document
            rows = list(enumerate(as_list(next(at(document, self.records), None))))
            records: list[tuple[str, Any]] = [(f"{source.path}: {self.records}[{n}]", row) for n, row in rows]
            names = next(at(document, self.names), {})
        else:
            records = list(source.records())
        root = find_root(images, source.path.parent / "images", source.path.parent)
        found = ((where, record, self._image_names(record)) for where, record in records)
        read = list(images_named(root, found, partial(self._image, names)))
        read = _joined(read)
        if self.order is not None:
            return Reading(read, root)
        return _in_found_order(read, root, source.path)

    def _image_names(self, record: Any) -> tuple[str, ...]:
        stated = first(record, self.image)
        if not isinstance(stated, str) or not stated:
            return ("",)
        return tuple(dict.fromkeys((stated, PurePosixPath(urlsplit(stated).path).name)))

    def _image(self, names: Any, record: Mapping[str, Any], image: RawImage) -> RawImage:
        check(image.name, f"{' or '.join(self.image)}: expected the name of an image", list(record)[:9])
        if (fault := first(record, (self.fault,))) is not None:
            return image._replace(fault=f"the image could not be read where the file was written: {fault}")
        lists = [found for path in self.objects for found in at(record, path)]
        items = [item for found in lists for item in as_list(found)]
        notes = image.notes + (_SEVERAL,) * (len(lists) > 1)
        if "" not in self.objects:
            read = frozenset(path.partition(".")[0] for path in (*self.label, *self.boxes, *self.outlines))
            items, told = kept(items, read, {**record, "image": image.name})
            notes += told
        objects: list[RawObject] = []
        for position, item in enumerate(items):
            stated = RawObject(self._label(item, names), (), f"{image.where}: object {position}")
            stated = stated._replace(ignored=bool(first(item, self.ignored)))
            boxes = list(self._boxes(item, stated))
            notes += (_SHAPELESS,) * (not boxes)
            notes += (_NUMBERS,) * (bool(self.name_file) and stated.desc.isdecimal())
            objects += boxes
        image_id = first(record, (self.image_id,))
        image = image._replace(objects=objects, notes=notes, image_id=image_id)
        return image.sized(*(first(record, (path,)) for path in self.size))

    def _label(self, item: Any, names: Any) -> str:
        stated = first(item, self.label)
        name = names.get(str(stated), stated) if isinstance(names, Mapping) else stated
        return "" if name is None else " ".join(map(str, name if isinstance(name, list) else [name])).strip()

    def _boxes(self, item: Any, stated: RawObject) -> Iterator[RawObject]:
        """Yield the boxes of an object, or its outline."""
        if (box := first(item, self.boxes)) is not None:
            several = box if isinstance(box, list) and box and isinstance(box[0], list) else [box]
            yield from (stated.tried(partial(self._box, own, item)) for own in several)
            return
        for path in self.outlines:
            for outline in at(item, path):
                is_part = isinstance(outline, Mapping)
                if is_part and outline.get("closed") is False:
                    continue
                vertices = outline.get("vertices") if is_part else outline
                yield stated.tried(partial(_outlined, vertices))

    def _box(self, box: Any, item: Any, stated: RawObject) -> RawObject:
        order = self.order or "xyxy"
        if isinstance(box, Mapping):
            group = next((group for group in _GROUPS if set(group) <= set(box)), None)
            check(group, "expected four named numbers of a box", list(box))
            box, order = [box[name] for name in group or ()], _GROUPS[group or ()]
            if self.order is None:
                stated = stated._replace(further=1.0)  # its order is stated
        check(isinstance(box, list) and len(box) == 4, "expected the four numbers of a box", box)
        x, y, a, b = map(number, box)
        if order == "cxcywh":
            x, y = x - a / 2, y - b / 2
        corners = (x, y, a, b) if order == "xyxy" else (x, y, x + a, y + b)
        stated = stated._replace(corners_xyxy=corners, unit="fractions" if self.unit == "fractions" else "pixels")
        return with_fields(stated, item if isinstance(item, Mapping) else {}, order, self.unit)


def at(value: Any, path: str) -> Iterator[Any]:
    """Yield the values at a path.

    Example:
        >>> list(at({"a": {"x": [{"b": 1}, {"b": 2}]}}, "a.*.*.b")), list(at({"a": 1}, "b"))
        ([1, 2], [])
    """
    if not path:
        yield value
        return
    key, _, rest = path.partition(".")
    if key == "*":
        below = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    else:
        below = [value[key]] if isinstance(value, Mapping) and key in value else []
    for own in below:
        yield from at(own, rest)


def first(value: Any, paths: Sequence[str]) -> Any:
    """Return the first value at one of several paths that is not None; None if there is none."""
    return next((found for path in paths for found in at(value, path) if found is not None), None)


def _outlined(vertices: Any, stated: RawObject) -> RawObject:
    points = [tuple(p[k] for k in "xy") if isinstance(p, Mapping) else p for p in as_list(vertices)]
    flat = [number(value) for point in points for value in (point if isinstance(point, list | tuple) else [None])]
    check(len(flat) >= 6 and len(flat) % 2 == 0, "expected the vertices of an outline", vertices)
    return stated.outlined(flat, OUTLINED)


def _joined(images: Sequence[RawImage]) -> list[RawImage]:
    """Return one image for all rows of an image: each row has one object, or some of them; equal ones count once."""
    by_name: dict[Any, RawImage] = {}
    for position, image in enumerate(images):
        key = image.name if image.name and not image.fault else position
        own = list(image.objects)
        if (before := by_name.get(key)) is not None:
            have = {(box.desc, box.corners_xyxy) for box in before.objects}
            own = [*before.objects, *(box for box in own if (box.desc, box.corners_xyxy) not in have)]
            image = before._replace(notes=before.notes + image.notes)  # noqa: PLW2901
        by_name[key] = image._replace(objects=own)
    return list(by_name.values())


def _in_found_order(images: Sequence[RawImage], root: Path, path: Path) -> Reading:
    """Return the images with their boxes in the order and unit that the numbers allow."""
    from coord_data.looking.image_file import ImageFolder

    folder = ImageFolder(root, decode=False)
    sizes = [image.size or (folder.size(image.name) if image.name else None) for image in images]
    open_boxes = [[box for box in image.objects if not box.further] for image in images]
    rows = [[{"bbox": list(box.corners_xyxy)} for box in of_image] for of_image in open_boxes]
    words, note = order_and_unit(rows, sizes, of_phrases=True)
    order, _, unit = (words or "xywh,stated").partition(",")
    read = []
    for image in images:
        objects = [_as_found(box, order, unit) if box.corners_xyxy else box for box in image.objects]
        read.append(image._replace(objects=objects))
    return Reading(read, root, (f"{path}: {note}",) if note else (), layout="xywh" if order == "xywh" else "xyxy")


def _as_found(box: RawObject, order: str, unit: str) -> RawObject:
    x, y, a, b = box.corners_xyxy
    if order == "xywh" and not box.further:
        a, b = x + a, y + b
    is_fraction = unit == "unit" if not box.further else max(x, y, a, b) <= 1
    return box._replace(corners_xyxy=(x, y, a, b), unit="fractions" if is_fraction else "pixels", further=0.0)
