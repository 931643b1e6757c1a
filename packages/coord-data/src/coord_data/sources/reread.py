"""Reads the numbers of an annotation file in another order or unit than its format has, as `ReadAs` states.

The boxes are replaced in what was parsed of the file, in the order and unit of its format and for the size of the image
file; everything else of the records stays, and the reader of the format goes on from there.

Shapes: M boxes of an image.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.boxes import CLIP_PIXELS
from coord_codec.json_file import parsed_line
from coord_codec.origins import CHOOSES, SCALABEL
from coord_data.looking.looks import ImageFile
from coord_data.sources.raw import RawImage, Reading
from coord_data.sources.raw_boxes import as_centres, has_four_numbers, numbers_of
from coord_data.sources.read_as import ReadAs
from coord_data.sources.source import Source

Look = Callable[[str], ImageFile]
"""Looks at the image of a name."""
_Size = tuple[float, float]
NO_FILE = ImageFile(None)
_OF_ORIGIN = frozenset({"area", SCALABEL})
"""Fields of a COCO annotation by which its reader knows where pixels begin and end."""


def reread_source(source: Source, reading: ReadAs, look: Look) -> Source:
    """Return a source of COCO JSON, LVIS or instance records whose boxes have been replaced."""
    record = partial(_record, reading=reading, look=look)
    if source.format != "jsonl":
        content = json.dumps(_coco(source.document, reading, look)).encode()
    elif source.head[:1] == "[":
        content = json.dumps([*map(record, source.document)]).encode()
    else:
        with source.open() as lines:
            read = ((line, parsed_line(line)) for line in lines)
            parts = (line if isinstance(row, str) else json.dumps(record(row)).encode() + b"\n" for line, row in read)
            content = b"".join(parts)
    return source.with_content(content)


def reread(reading: Reading, read_as: ReadAs, look: Look) -> Reading:
    """Return what a format reader read with its numbers read in another way; sizes are those of the files."""
    images = [_image(image, reading, read_as, look) for image in reading.images]
    return replace(reading, images=images, layout="xyxy", in_thousandths=False)


def _image(image: RawImage, reading: Reading, read_as: ReadAs, look: Look) -> RawImage:
    objects = list(image.objects)
    rows = [box for box in objects if has_four_numbers(box)]
    file = look(image.name) if image.name and rows else NO_FILE
    size = file.size or image.size
    if size is None:
        return image._replace(objects=objects)
    numbers_M4 = np.array([box.corners_xyxy for box in rows], np.float64).reshape(-1, 4)
    if read_as.origin is not None and rows:
        numbers_M4 += [(box.origin.low, box.origin.low, box.origin.high, box.origin.high) for box in rows]
    if reading.layout == "cxcywh":
        numbers_M4 = as_centres(numbers_M4)
    elif reading.layout == "xywh":
        numbers_M4[:, 2:] -= numbers_M4[:, :2]
    elif reading.in_thousandths:
        numbers_M4[[box.unit == "fractions" for box in rows]] *= 1000
    relative = "norm1000" if reading.in_thousandths else "unit"
    units = {"stated" if box.unit == "pixels" else relative for box in rows} or {"stated"}
    if len(units) > 1:
        raise InputError(f"{image.where}: --read-as: expected numbers of one unit in an image, found {sorted(units)}")
    written = (reading.layout, *units)
    values = iter(_corners(numbers_M4, read_as, written, size, image.size, file).tolist())
    for position, box in enumerate(objects):
        if has_four_numbers(box):
            # The only faults of YOLO labels with four numbers are about these numbers as they stood.
            fault = "" if reading.layout == "cxcywh" else box.fault
            notes = tuple(note for note in box.notes if read_as.origin is None or CHOOSES not in note)
            objects[position] = box._replace(
                corners_xyxy=tuple(next(values)), unit="fractions", fault=fault, notes=notes
            )
    return image._replace(size=None, objects=objects)


def _coco(document: Any, reading: ReadAs, look: Look) -> Any:
    """Return a COCO document whose boxes are x, y, width and height in pixels of the image files."""
    lists: list[Any] = [
        document.get(name) if isinstance(document, Mapping) else None for name in ("images", "annotations")
    ]
    if not all(isinstance(rows, list) for rows in lists):
        return document  # the reader reports it
    rows, annotations = map(list, lists)
    images = {_id(row): row for row in rows if isinstance(row, Mapping)}
    files = {image_id: _file(row, "file_name", look) for image_id, row in images.items()}
    sizes = {image_id: files[image_id].size or _stated_size(row) for image_id, row in images.items()}
    boxes: dict[Any, list[tuple[int, tuple[float, ...]]]] = defaultdict(list)
    for position, row in enumerate(annotations):
        if isinstance(row, Mapping) and (box := numbers_of(row)):
            boxes[_id(row, "image_id")].append((position, box))
    for image_id, items in boxes.items():
        if (size := sizes.get(image_id)) is None:  # the reader reports these annotations
            continue
        numbers_M4 = np.array([box for _, box in items])
        stated = _stated_size(images[image_id])
        corners_M4 = _corners(numbers_M4, reading, ("xywh", "stated"), size, stated, files[image_id]) * (size * 2)
        # A named origin holds, whatever the areas of the file or its writer say.
        less = _OF_ORIGIN if reading.origin is not None else frozenset[str]()
        for (position, _), (x1, y1, x2, y2) in zip(items, corners_M4.tolist(), strict=True):
            row = {key: value for key, value in annotations[position].items() if key not in less}
            annotations[position] = {**row, "bbox": [x1, y1, x2 - x1, y2 - y1]}
    for position, row in enumerate(rows):
        if isinstance(row, Mapping) and (size := sizes.get(_id(row))) is not None:
            rows[position] = {**row, "width": size[0], "height": size[1]}
    return {**document, "images": rows, "annotations": annotations}


def _id(row: Mapping[str, Any], key: str = "id") -> Any:
    value = row.get(key)
    return value if isinstance(value, int | str) else None


def _file(row: Mapping[str, Any], key: str, look: Look) -> ImageFile:
    """Return what a look at the file that a row names tells."""
    name = row.get(key)
    return look(name) if isinstance(name, str) else NO_FILE


def _stated_size(row: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = row.get("width"), row.get("height")
    return (width, height) if type(width) is int and type(height) is int and width > 0 and height > 0 else None


def _record(record: Any, reading: ReadAs, look: Look) -> Any:
    """Return a record with boxes in [0, 1] and the size of its file; anything else is returned as it is."""
    if not isinstance(record, Mapping) or not isinstance(record.get("objects"), list):
        return record
    file = _file(record, "image", look)
    if (size := file.size or _stated_size(record)) is None:
        return record
    unit = "norm1000" if record.get("coord_space") == "bins" else "unit"
    boxes = [numbers_of(item) for item in record["objects"]]
    numbers_M4 = np.array([box for box in boxes if box is not None], np.float64).reshape(-1, 4)
    corners_M4 = _corners(numbers_M4, reading, ("xyxy", unit), size, _stated_size(record), file)
    # Boxes are clipped to their image, unless they leave it by more than a pixel.
    inside_M4, slack = corners_M4.clip(0, 1), np.array(size * 2) ** -1.0 * CLIP_PIXELS
    is_near_M1 = (np.abs(inside_M4 - corners_M4) <= slack).all(axis=1, keepdims=True)
    values = iter(np.where(is_near_M1, inside_M4, corners_M4).tolist())
    pairs = zip(record["objects"], boxes, strict=True)
    objects = [item if box is None else {**item, "bbox": next(values)} for item, box in pairs]
    kept = {key: value for key, value in record.items() if key != "coord_space"}
    return {**kept, "width": size[0], "height": size[1], "objects": objects}


def _corners(
    numbers_M4: np.ndarray,
    reading: ReadAs,
    written: tuple[str, ...],
    size: _Size,
    stated: _Size | None,
    file: ImageFile,
) -> np.ndarray:
    """Return corners in [0, 1] of the boxes of one image, whose numbers the format writes in an order and a unit."""
    size_M2, stated_M2 = (np.tile(np.array(s, np.float64), (len(numbers_M4), 1)) for s in (size, stated or size))
    of_image = reading.of_format(*written).of_image(file.orientation)
    return of_image.corners(numbers_M4, size_M2, stated_M2)
