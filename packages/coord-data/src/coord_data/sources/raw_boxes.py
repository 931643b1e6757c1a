"""The numbers of an annotation file as it states them, including those that the reader refuses.

Shapes: I images, N boxes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np

from coord_codec import AnnotationSet, BoxFlag, BoxTable, InputError, Object
from coord_codec.files import finite_numbers
from coord_data.records import Records
from coord_data.sources.raw import RawObject, Reading, as_list
from coord_data.sources.source import Source

SAMPLE = 300
"""Number of images whose pixels are compared with their boxes."""

IN_A_ROW = 60
"""Number of them that follow one another in the file, and are tried with each other's boxes: the cost grows with the
square of this number."""


@dataclass(frozen=True)
class ClassNumbers:
    """Class numbers of an annotation file.

    Attributes:
        used: number of objects of each class number
        names: name of each class number
        of: source of the names: the `names` of YOLO, or the `categories` of COCO
    """

    used: Mapping[int, int]
    names: Mapping[int, str]
    of: Literal["names", "categories"] = "names"


@dataclass(frozen=True)
class RawBoxes:
    """Images and boxes of a set.

    Attributes:
        files: path of each image, relative to the folder of the images
        stated_I2: width and height that the annotations state; NaN where they state none
        image_N: index of the image of each box
        numbers_N4: the four numbers of each box
        labels: description of each box
        layout: order of the four numbers in the format: `xywh` in COCO JSON, `cxcywh` in YOLO, else `xyxy`
        unit: unit of the numbers in the format: `pixels` in COCO JSON, `unit` (0 to 1) in instance records, `norm1000`
            in instance records of bins and in Qwen's thousandths
        format: name of the format
        class_numbers: class numbers of YOLO labels, and of COCO JSON with objects of unknown categories; else None
    """

    files: tuple[str, ...]
    stated_I2: np.ndarray
    image_N: np.ndarray
    numbers_N4: np.ndarray
    labels: tuple[str, ...]
    layout: Literal["xywh", "xyxy", "cxcywh"]
    unit: Literal["pixels", "unit", "norm1000"]
    format: str = ""
    class_numbers: ClassNumbers | None = None

    def __len__(self) -> int:
        return len(self.numbers_N4)

    def of_boxes(self, rows_n: np.ndarray) -> RawBoxes:
        """Return the set with some of its boxes."""
        labels = tuple(self.labels[row] for row in rows_n.tolist())
        return replace(self, image_N=self.image_N[rows_n], numbers_N4=self.numbers_N4[rows_n], labels=labels)

    def compared_images(self) -> list[int]:
        """Return which images are compared with their boxes: evenly spaced ones with boxes, and consecutive ones."""
        with_boxes = np.unique(self.image_N)
        count = len(with_boxes)
        if count <= SAMPLE:
            return [int(i) for i in with_boxes]
        even = np.linspace(0, count - 1, SAMPLE - IN_A_ROW).astype(int)
        chosen = np.union1d(even, (count - IN_A_ROW) // 2 + np.arange(IN_A_ROW))
        return [int(i) for i in with_boxes[chosen]]


def raw_of_coco(table: BoxTable, annotations: AnnotationSet, source: Source) -> RawBoxes:
    """Return the boxes of a COCO file; crowd regions are left out.

    Args:
        table: all valid rows of the file
        annotations: its records
        source: the file
    """
    rows = table.take(~table.has(BoxFlag.CROWD))
    numbers_N4 = np.concatenate([rows.boxes_N4[:, :2], rows.sides_N2], axis=1)
    labels = tuple(table.labels[label] for label in rows.label_N.tolist())
    classes = None
    if any(problem.field.endswith("category_id") for problem in annotations.problems):
        classes = class_numbers_of_coco(source.document)
    facts: Any = "xywh", "pixels", source.format, classes
    return RawBoxes(tuple(table.names), table.sizes_I2, rows.image_N, numbers_N4, labels, *facts)


def raw_of_records(annotations: AnnotationSet, source: Source) -> RawBoxes:
    """Return the boxes of instance records; crowd regions are left out."""
    records = (record for _, record in source.records() if isinstance(record, Mapping))
    first = next(records, {})
    unit: Literal["norm1000", "unit"] = "norm1000" if first.get("coord_space") == "bins" else "unit"
    whole = 1000 if unit == "norm1000" else 1
    if not annotations.problems:
        table = Records.of(annotations.instances)
        image_N, corners_N4, labels = table.boxes
        sizes_I2 = np.where(table.image_sizes > 0, table.image_sizes, np.nan)
        return RawBoxes(tuple(table.names), sizes_I2, image_N, corners_N4 * whole, labels, "xyxy", unit, source.format)
    files: list[str] = []
    sizes: list[tuple[Any, Any]] = []
    rows: list[tuple[int, Sequence[float]]] = []
    names: list[str] = []
    for record in chain((first,), records):
        image, objects = record.get("image"), record.get("objects")
        if not isinstance(image, str) or not isinstance(objects, Sequence):
            continue
        scale = whole / (1000 if record.get("coord_space") == "bins" else 1)
        for item in objects:
            if (box := numbers_of(item)) is not None and not item.get("iscrowd"):
                rows.append((len(files), tuple(value * scale for value in box)))
                names.append(str(item.get("desc", "")))
        files.append(image)
        sizes.append((record.get("width"), record.get("height")))
    return replace(_raw(files, sizes, rows, names), unit=unit, format=source.format)


def raw_of_reading(reading: Reading, format: str) -> RawBoxes:
    """Return the numbers that a format reader returns, in the layout and unit of its format."""
    images = [image for image in reading.images if image.name]  # a refused file has no image name
    boxes = [(i, box) for i, image in enumerate(images) for box in image.objects]
    used = Counter(box.class_number for _, box in boxes if box.class_number is not None)
    classes = ClassNumbers(used, reading.class_names) if reading.class_names else None
    boxes = [(i, box) for i, box in boxes if has_four_numbers(box) and not box.ignored]
    fractions = bool(boxes) and all(box.unit == "fractions" for _, box in boxes)
    raw = _raw(
        [image.name for image in images],
        [image.size or (None, None) for image in images],
        [(i, box.corners_xyxy) for i, box in boxes],
        [box.desc for _, box in boxes],
    )
    raw = replace(raw, unit="unit" if fractions else "pixels", format=format, class_numbers=classes)
    if reading.layout == "cxcywh":
        return replace(raw, numbers_N4=as_centres(raw.numbers_N4), layout="cxcywh")
    if reading.in_thousandths:
        return replace(raw, numbers_N4=raw.numbers_N4 * 1000, unit="norm1000")
    return raw


def class_numbers_of_coco(document: Any) -> ClassNumbers | None:
    """Return the class numbers of a COCO document; None if it is not a JSON object."""
    if not isinstance(document, Mapping):
        return None
    rows = {name: document.get(name) for name in ("annotations", "categories")}
    annotations, categories = ([row for row in as_list(rows[name]) if isinstance(row, Mapping)] for name in rows)
    used = Counter(number for row in annotations if type(number := row.get("category_id")) is int)
    names = {number: str(row.get("name")) for row in categories if type(number := row.get("id")) is int}
    return ClassNumbers(used, names, "categories")


def has_four_numbers(box: RawObject) -> bool:
    """Return whether a file states four finite numbers of a box, and not a point."""
    return len(box.corners_xyxy) == 4 and not box.is_point and all(map(math.isfinite, box.corners_xyxy))


def as_centres(corners_N4: np.ndarray) -> np.ndarray:
    """Return centre, width and height of boxes."""
    low_N2, high_N2 = corners_N4[:, :2], corners_N4[:, 2:]
    return np.concatenate([(low_N2 + high_N2) / 2, high_N2 - low_N2], axis=1)


def _raw(
    files: Sequence[str],
    sizes: Sequence[tuple[Any, Any]],
    rows: Sequence[tuple[int, Sequence[float]]],
    labels: Sequence[str],
) -> RawBoxes:
    return RawBoxes(
        tuple(files),
        np.array(
            [[v if isinstance(v, int | float) and v > 0 else np.nan for v in s] for s in sizes], np.float64
        ).reshape(-1, 2),
        np.array([image for image, _ in rows], np.int64),
        np.array([box for _, box in rows], np.float64).reshape(-1, 4),
        tuple(labels),
        layout="xyxy",
        unit="unit",
    )


def numbers_of(item: Any) -> tuple[float, ...] | None:
    """Return the four numbers of an object of a record; None if it has others, which the reader reports."""
    try:
        if not isinstance(item, Mapping):
            return None
        if any(isinstance(value, str) for value in item.get("bbox") or ()):
            return Object.model_validate(item).bbox  # coordinate tokens
        return finite_numbers(item.get("bbox"), 4, "bbox")
    except (InputError, ValueError, TypeError):
        return None
