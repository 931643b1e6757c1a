"""Reads the numbers of an annotation file in another order or unit than its format has, as `ReadAs` states.

The boxes are replaced in what was parsed of the file, in the order and unit of its format and for the size of the image
file; everything else of the records stays, and the reader of the format goes on from there.

Shapes: M boxes of an image.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.boxes import CLIP_PIXELS
from coord_codec.files import parse_json_line
from coord_data.raw import RawImage, RawObject, Reading
from coord_data.raw_boxes import numbers_of
from coord_data.read_as import ReadAs
from coord_data.source import Source

ImageSize = Callable[[str], "tuple[int, int] | None"]
_Size = tuple[float, float]


class RereadSource(Source):
    """A source whose boxes have been replaced: COCO JSON, LVIS, or instance records.

    Args:
        source: the source as it was opened
        reading: how its numbers are read
        image_size: looks up the width and height of an image file
    """

    def __init__(self, source: Source, reading: ReadAs, image_size: ImageSize) -> None:
        super().__init__(source.path, source.named, source.format)
        records = _Records(reading, image_size)
        if source.format != "jsonl":
            content = json.dumps(_coco(source.document, reading, image_size)).encode()
        elif source.head[:1] == "[":
            content = json.dumps([records.reread(record) for record in source.document]).encode()
        else:
            with source.open() as lines:
                content = b"".join(map(records.reread_line, lines))
        self.__dict__["content"] = content


def reread(reading: Reading, read_as: ReadAs, image_size: ImageSize) -> Reading:
    """Return what a format reader read with its numbers read in another way; sizes are those of the files."""
    images = [_image(image, reading, read_as, image_size) for image in reading.images]
    return replace(reading, images=images, layout="xyxy", in_thousandths=False)


def _image(image: RawImage, reading: Reading, read_as: ReadAs, image_size: ImageSize) -> RawImage:
    objects = list(image.objects)
    rows = [box for box in objects if _is_box(box)]
    size = image_size(image.name) if image.name and rows else None
    size = size or image.size
    if size is None:
        return image._replace(objects=objects)
    numbers_M4 = np.array([_as_written(box, reading) for box in rows], np.float64).reshape(-1, 4)
    units = {_unit(box, reading) for box in rows} or {"stated"}
    if len(units) > 1:
        raise InputError(f"{image.where}: --read-as: expected numbers of one unit in an image, found {sorted(units)}")
    corners_M4 = _corners(numbers_M4, read_as.of_format(reading.layout, *units), size, image.size)
    values = iter(corners_M4.tolist())
    return image._replace(
        size=None, objects=[_with_corners(box, next(values), reading) if _is_box(box) else box for box in objects]
    )


def _with_corners(box: RawObject, corners: list[float], reading: Reading) -> RawObject:
    # The only faults of YOLO labels with four numbers are about these numbers as they stood.
    fault = "" if reading.layout == "cxcywh" else box.fault
    return box._replace(corners_xyxy=tuple(corners), unit="fractions", fault=fault)


def _as_written(box: RawObject, reading: Reading) -> tuple[float, ...]:
    """Return the numbers as the file states them, in the order and unit in which the inspection reports them."""
    x1, y1, x2, y2 = box.corners_xyxy
    if reading.layout == "cxcywh":
        return ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)
    if reading.in_thousandths and box.unit == "fractions":
        return (1000 * x1, 1000 * y1, 1000 * x2, 1000 * y2)
    return (x1, y1, x2, y2)


def _unit(box: RawObject, reading: Reading) -> str:
    if box.unit == "pixels":
        return "stated"
    return "norm1000" if reading.in_thousandths else "unit"


def _is_box(box: RawObject) -> bool:
    return len(box.corners_xyxy) == 4 and not box.is_point and all(map(math.isfinite, box.corners_xyxy))


def _coco(document: Any, reading: ReadAs, image_size: ImageSize) -> Any:
    """Return a COCO document whose boxes are x, y, width and height in pixels of the image files."""
    reading = reading.of_format("xywh", "stated")
    images = {_id(row): row for row in _rows(document, "images")}
    sizes = {image_id: _file_or_stated_size(row, image_size) for image_id, row in images.items()}
    boxes: dict[Any, list[tuple[int, tuple[float, ...]]]] = defaultdict(list)
    annotations = document.get("annotations")
    reread = list(annotations) if isinstance(annotations, list) else annotations
    for position, row in enumerate(reread if isinstance(reread, list) else ()):
        if isinstance(row, Mapping) and (box := numbers_of(row)):
            boxes[_id(row, "image_id")].append((position, box))
    for image_id, items in boxes.items():
        size = sizes.get(image_id)
        if size is None:  # the reader reports these annotations
            continue
        numbers_M4 = np.array([box for _, box in items])
        corners_M4 = _corners(numbers_M4, reading, size, _stated_size(images[image_id])) * (size * 2)
        for (position, _), (x1, y1, x2, y2) in zip(items, corners_M4.tolist(), strict=True):
            reread[position] = {**reread[position], "bbox": [x1, y1, x2 - x1, y2 - y1]}
    rows = [_with_size(row, sizes.get(_id(row))) if isinstance(row, Mapping) else row for row in document["images"]]
    return {**document, "images": rows, "annotations": reread}


def _rows(document: Any, name: str) -> list[Mapping[str, Any]]:
    rows = document.get(name) if isinstance(document, Mapping) else None
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _id(row: Mapping[str, Any], key: str = "id") -> Any:
    value = row.get(key)
    return value if isinstance(value, int | str) else None


def _file_or_stated_size(row: Mapping[str, Any], image_size: ImageSize) -> tuple[int, int] | None:
    name = row.get("file_name")
    return (image_size(name) if isinstance(name, str) else None) or _stated_size(row)


def _stated_size(row: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = row.get("width"), row.get("height")
    return (width, height) if type(width) is int and type(height) is int and width > 0 and height > 0 else None


def _with_size(row: Mapping[str, Any], size: tuple[int, int] | None) -> Mapping[str, Any]:
    return row if size is None else {**row, "width": size[0], "height": size[1]}


class _Records:
    """Replaces the boxes of instance records.

    Args:
        reading: how their numbers are read
        image_size: looks up the width and height of an image file
    """

    def __init__(self, reading: ReadAs, image_size: ImageSize) -> None:
        self._reading, self._image_size = reading, image_size

    def reread_line(self, line: bytes) -> bytes:
        """Return a line with its record as `reread` returns it; as it is if there is none."""
        try:
            return json.dumps(self.reread(parse_json_line(line))).encode() + b"\n"
        except ValueError:
            return line

    def reread(self, record: Any) -> Any:
        """Return a record with boxes in [0, 1] and the size of its file; anything else is returned as it is."""
        if not isinstance(record, Mapping) or not isinstance(record.get("objects"), list):
            return record
        name = record.get("image")
        size = (self._image_size(name) if isinstance(name, str) else None) or _stated_size(record)
        if size is None:
            return record
        unit = "norm1000" if record.get("coord_space") == "bins" else "unit"
        boxes = [numbers_of(item) for item in record["objects"]]
        numbers_M4 = np.array([box for box in boxes if box is not None], np.float64).reshape(-1, 4)
        corners_M4 = _corners(numbers_M4, self._reading.of_format("xyxy", unit), size, _stated_size(record))
        reread = iter(_clipped(corners_M4, size).tolist())
        objects = [
            item if box is None else {**item, "bbox": next(reread)}
            for item, box in zip(record["objects"], boxes, strict=True)
        ]
        kept = {key: value for key, value in record.items() if key != "coord_space"}
        return {**kept, "width": size[0], "height": size[1], "objects": objects}


def _corners(numbers_M4: np.ndarray, reading: ReadAs, size: _Size, stated: _Size | None) -> np.ndarray:
    """Return corners in [0, 1] of the boxes of one image."""
    size_M2, stated_M2 = (np.tile(np.array(s, np.float64), (len(numbers_M4), 1)) for s in (size, stated or size))
    return reading.corners(numbers_M4, size_M2, stated_M2)


def _clipped(corners_M4: np.ndarray, size: _Size) -> np.ndarray:
    """Return the boxes clipped to their image, unless they leave it by more than a pixel."""
    slack = np.array(size * 2) ** -1.0 * CLIP_PIXELS
    inside_M4 = corners_M4.clip(0, 1)
    return np.where((np.abs(inside_M4 - corners_M4) <= slack).all(axis=1, keepdims=True), inside_M4, corners_M4)
