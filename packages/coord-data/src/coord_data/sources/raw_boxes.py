"""The numbers of an annotation file as it states them, including those that the reader refuses.

Shapes: I images, N boxes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal

import numpy as np

from coord_codec import AnnotationSet, BoxFlag, BoxTable, InputError, Object
from coord_codec.files import finite_numbers, name_on_disk
from coord_codec.origins import ORIGINS, SHORT, WIDE, Origin
from coord_data.looking.image_paths import found_here
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


Layout = Literal["xywh", "xyxy", "cxcywh"]
RawUnit = Literal["pixels", "unit", "norm1000"]


@dataclass(frozen=True)
class RawBoxes:
    """Images and boxes of a set with the numbers of a file: a view of their table in the layout of the format.

    Attributes:
        table: the boxes without crowd regions; corners and sides are in `unit`, and `sizes_I2` is what the annotations
            state
        layout: order of the four numbers in the format: `xywh` in COCO JSON, `cxcywh` in YOLO, else `xyxy`
        unit: unit of the numbers in the format: `pixels` in COCO JSON, `unit` (0 to 1) in instance records, `norm1000`
            in instance records of bins and in Qwen's thousandths
        format: name of the format
        class_numbers: class numbers of YOLO labels, and of COCO JSON with objects of unknown categories; else None
        origin: where the pixels of the writer begin and end, up to whose edges the boxes are; None for several writers
    """

    table: BoxTable
    layout: Layout
    unit: RawUnit
    format: str = ""
    class_numbers: ClassNumbers | None = None
    origin: Origin | None = ORIGINS["from-0"]

    @classmethod
    def of(
        cls,
        files: Sequence[str],
        stated_I2: Any,
        image_N: Any,
        numbers_N4: Any,
        labels: Iterable[str],
        layout: Layout = "xyxy",
        unit: RawUnit = "pixels",
    ) -> RawBoxes:
        """Return the view of the numbers of a file; see the properties of the same names."""
        label_of: dict[str, int] = {}
        label_N = [label_of.setdefault(label, len(label_of)) for label in labels]
        corners_N4, sides_N2 = _corners_and_sides(np.asarray(numbers_N4, np.float64).reshape(-1, 4), layout)
        table = BoxTable.of(
            image_N,
            label_N,
            corners_N4,
            sides_N2=sides_N2,
            sizes_I2=stated_I2,
            image_ids=range(len(files)),
            names=tuple(files),
            labels=tuple(label_of),
        )
        return cls(table, layout, unit)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def files(self) -> Sequence[str]:
        """Path of each image, relative to the folder of the images."""
        return self.table.names

    @property
    def stated_I2(self) -> np.ndarray:  # noqa: N802
        """Width and height that the annotations state; NaN where they state none."""
        return self.table.sizes_I2

    @property
    def image_N(self) -> np.ndarray:  # noqa: N802
        """Index of the image of each box."""
        return self.table.image_N

    @cached_property
    def numbers_N4(self) -> np.ndarray:  # noqa: N802
        """The four numbers of each box."""
        if self.layout == "xyxy":
            return self.table.boxes_N4
        if self.layout == "cxcywh":
            return as_centres(self.table.boxes_N4)
        return np.concatenate([self.table.boxes_N4[:, :2], self.table.sides_N2], axis=1)

    def label(self, row: int) -> str:
        """Return the description of a box."""
        desc: str = self.table.labels[self.table.label_N[row]]
        return desc

    @property
    def class_counts(self) -> Counter[str]:
        """Number of boxes of each description, in the order in which they occur."""
        label_N, labels = self.table.label_N, self.table.labels
        first_L = np.full(len(labels), len(self))
        first_L[label_N[::-1]] = np.arange(len(self))[::-1]  # the last of equal indices counts
        count_L = np.bincount(label_N, minlength=len(labels))
        counts = Counter[str]()
        for label in np.argsort(first_L, kind="stable")[: np.count_nonzero(count_L)].tolist():
            counts[labels[label]] += int(count_L[label])
        return counts

    def of_boxes(self, rows_n: np.ndarray) -> RawBoxes:
        """Return the set with some of its boxes."""
        return replace(self, table=self.table.take(rows_n))

    def in_images(self, image_N: np.ndarray) -> RawBoxes:
        """Return the boxes as those of other images."""
        return replace(self, table=self.table.changed(image_N=image_N))

    def with_numbers(self, numbers_N4: np.ndarray) -> RawBoxes:
        """Return the boxes with other numbers."""
        corners_N4, sides_N2 = _corners_and_sides(numbers_N4, self.layout)
        return replace(self, table=self.table.changed(boxes_N4=corners_N4, sides_N2=sides_N2))

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
    """Return the boxes of a COCO file; crowd regions are left out."""
    classes = None
    if any(problem.field.endswith("category_id") for problem in annotations.problems):
        classes = class_numbers_of_coco(source.document)
    origins = {SHORT: ORIGINS["from-0-to-last"], WIDE: ORIGINS["from-0-past-last"]}
    origin = next((origins[note] for note in annotations.notes if note in origins), ORIGINS["from-0"])
    return RawBoxes(table.take(~table.has(BoxFlag.CROWD)), "xywh", "pixels", source.format, classes, origin)


def raw_of_records(annotations: AnnotationSet, source: Source) -> RawBoxes:
    """Return the boxes of instance records; crowd regions are left out."""
    records = (record for _, record in source.records() if isinstance(record, Mapping))
    first = next(records, {})
    unit: RawUnit = "norm1000" if first.get("coord_space") == "bins" else "unit"
    whole = 1000 if unit == "norm1000" else 1
    if not annotations.problems:
        table = Records.of(annotations.instances)
        image_N, corners_N4, label_N, labels = table.boxes
        boxes = BoxTable.of(
            image_N,
            label_N,
            corners_N4 if whole == 1 else corners_N4 * whole,
            sizes_I2=np.where(table.image_sizes > 0, table.image_sizes, np.nan),
            image_ids=range(len(table)),
            names=tuple(table.names),
            labels=labels,
        )
        return RawBoxes(boxes, "xyxy", unit, source.format)
    files: list[str] = []
    sizes: list[tuple[Any, Any]] = []
    owners: list[int] = []
    rows: list[Sequence[float]] = []
    names: list[str] = []
    for record in chain((first,), records):
        image, objects = record.get("image"), record.get("objects")
        if not isinstance(image, str) or not isinstance(objects, Sequence):
            continue
        scale = whole / (1000 if record.get("coord_space") == "bins" else 1)
        for item in objects:
            if (box := numbers_of(item)) is not None and not item.get("iscrowd"):
                owners.append(len(files))
                rows.append([value * scale for value in box])
                names.append(str(item.get("desc", "")))
        files.append(image)
        sizes.append((record.get("width"), record.get("height")))
    root = annotations.root or source.path.parent
    here = found_here(files, root)
    files = [here[name].name if name in here else name_on_disk(root, name) for name in files]
    return replace(RawBoxes.of(files, _sizes(sizes), owners, rows, names, unit=unit), format=source.format)


def raw_of_reading(reading: Reading, format: str) -> RawBoxes:
    """Return the numbers that a format reader returns, in the layout and unit of its format."""
    images = [image for image in reading.images if image.name]  # a refused file has no image name
    boxes = [(i, box) for i, image in enumerate(images) for box in image.objects]
    used = Counter(box.class_number for _, box in boxes if box.class_number is not None)
    classes = ClassNumbers(used, reading.class_names) if reading.class_names else None
    boxes = [(i, box) for i, box in boxes if has_four_numbers(box) and not box.ignored]
    fractions = bool(boxes) and all(box.unit == "fractions" for _, box in boxes)
    thousandths = reading.in_thousandths and reading.layout == "xyxy"
    raw = RawBoxes.of(
        [image.name for image in images],
        _sizes([image.size or (None, None) for image in images]),
        [i for i, _ in boxes],
        np.array([box.corners_xyxy for _, box in boxes], np.float64) * (1000 if thousandths else 1),
        [box.desc for _, box in boxes],
        unit="norm1000" if thousandths else "unit" if fractions else "pixels",
    )
    origins = {box.origin for _, box in boxes}
    origin = origins.pop() if len(origins) == 1 else None
    return replace(raw, layout=reading.layout, format=format, class_numbers=classes, origin=origin)


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


def _corners_and_sides(numbers_N4: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the corners of boxes, and their sides as written where the layout states them."""
    low_N2, high_N2 = numbers_N4[:, :2], numbers_N4[:, 2:]
    with np.errstate(over="ignore", invalid="ignore"):
        if layout == "xyxy":
            return numbers_N4, None
        start_N2 = low_N2 if layout == "xywh" else low_N2 - high_N2 / 2
        return np.concatenate([start_N2, start_N2 + high_N2], axis=1), high_N2


def _sizes(stated: Sequence[tuple[Any, Any]]) -> np.ndarray:
    """Return widths and heights, NaN where a file states none above 0."""
    rows = [[side if isinstance(side, int | float) and side > 0 else np.nan for side in size] for size in stated]
    return np.array(rows, np.float64).reshape(-1, 2)


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
