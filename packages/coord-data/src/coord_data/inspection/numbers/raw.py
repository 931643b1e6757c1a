"""Reads the box numbers of an annotation file unchanged, including those that the strict reader refuses.

Shapes: I images, N boxes.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from coord_codec import AnnotationSet, InputError, Object, read_annotations
from coord_codec.files import finite_numbers, parse_json_line, read_text
from coord_codec.images import ImageError, image_facts
from coord_data.formats.collect import collect
from coord_data.formats.raw import Reading
from coord_data.formats.registry import FORMATS, base_of, open_source, read_source
from coord_data.inspection.numbers.class_numbers import ClassNumbers, of_coco
from coord_data.rules import Format


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


@dataclass(frozen=True)
class DataSource:
    """Annotations of any supported format, their image folder, and whether images may lie outside of it."""

    annotations: Path
    images: Path | None = None
    format: Format = "auto"
    allow_outside: bool = False


def read_raw(source: DataSource) -> tuple[AnnotationSet, RawBoxes, Path, Path]:
    """Return the usable annotations, the boxes as the file states them, and two folders.

    Image paths are relative to the first folder and must lie inside the second.

    Raises:
        InputError: the annotations cannot be read at all.
    """
    if source.images is not None and not source.images.is_dir():
        raise InputError(f"data.images: expected a folder of images, found nothing of that kind at {source.images}")
    format, file = open_source(source.annotations, source.format)
    if format in FORMATS:
        reading = FORMATS[format][1](file, source.images)
        reading = replace(reading, images=list(reading.images))
        annotations = collect(reading, "drop_box", lambda name: size_of(reading.root / name))
        raw = replace(_of_reading(reading), format=format)
        if format == "yolo":
            raw = _as_centres(raw)
        elif format == "qwen" and raw.unit == "unit":  # back to the thousandths of the file
            raw = replace(raw, numbers_N4=raw.numbers_N4 * 1000, unit="norm1000")
        return annotations, raw, reading.root, reading.root
    root = source.images or file.path.parent
    if format == "lvis":
        annotations = read_source(source.annotations, source.images, format, "drop_box").annotations
    else:
        annotations = read_annotations(file.path, source.images, image_size=lambda name: size_of(root / name))
    base = root if format == "lvis" else source.images or base_of(file.path)
    raw = replace(raw_boxes(annotations, file.path if format == "jsonl" else None), format=format)
    if format in ("coco", "lvis") and any(problem.field.endswith("category_id") for problem in annotations.problems):
        raw = replace(raw, class_numbers=of_coco(file.document))
    return annotations, raw, root, base


def size_of(path: Path) -> tuple[int, int] | None:
    """Return width and height of an image file; None if it is unreadable."""
    try:
        return image_facts(path).size
    except ImageError:
        return None


def _of_reading(reading: Reading) -> RawBoxes:
    """Return the corners that a format reader returns: in pixels, unless all of them are fractions."""
    images = [image for image in reading.images if image.name]  # a refused file has no image name
    boxes = [(i, box) for i, image in enumerate(images) for box in image.boxes]
    used = Counter(box.class_number for _, box in boxes if box.class_number is not None)
    classes = ClassNumbers(used, reading.class_names) if reading.class_names else None
    boxes = [(i, box) for i, box in boxes if _is_finite(box.corners_xyxy) and not box.ignored]
    fractions = bool(boxes) and all(box.unit == "fractions" for _, box in boxes)
    rows = [(i, box.corners_xyxy) for i, box in boxes]
    unit = "unit" if fractions else "pixels"
    names, labels = [image.name for image in images], [box.desc for _, box in boxes]
    sizes = [image.size or (None, None) for image in images]
    return _raw(names, sizes, rows, labels, layout="xyxy", unit=unit, class_numbers=classes)


def _is_finite(corners_xyxy: Sequence[float]) -> bool:
    return len(corners_xyxy) == 4 and all(map(math.isfinite, corners_xyxy))


def _as_centres(raw: RawBoxes) -> RawBoxes:
    """Convert corners back to the centre, width and height of the file."""
    low_N2, high_N2 = raw.numbers_N4[:, :2], raw.numbers_N4[:, 2:]
    numbers_N4 = np.concatenate([(low_N2 + high_N2) / 2, high_N2 - low_N2], axis=1)
    return replace(raw, numbers_N4=numbers_N4, layout="cxcywh")


def raw_boxes(annotations: AnnotationSet, source: Path | None) -> RawBoxes:
    """Return the boxes of an annotation set as its file states them.

    Args:
        annotations: the set as `read_annotations` returned it; crowd regions are left out
        source: its file of instance records; None if the set was read from COCO JSON
    """
    if annotations.tables is not None:
        rows = [a for a in annotations.tables.annotations if not a.iscrowd]
        labels = tuple(annotations.categories[a.category].name for a in rows)
        sizes = [(i.width, i.height) for i in annotations.tables.images]
        files = tuple(image.file_name for image in annotations.tables.images)
        return _raw(files, sizes, [(a.image, a.bbox_xywh) for a in rows], labels, layout="xywh", unit="pixels")
    records: Sequence[Mapping[str, Any]] = [instance.model_dump() for instance in annotations.instances]
    if annotations.problems and source is not None:
        records = list(_records(source))
    in_bins = source is not None and next(_records(source), {}).get("coord_space") == "bins"
    files, sizes, rows, names = [], [], [], []
    for record in records:
        image, objects = record.get("image"), record.get("objects")
        if not isinstance(image, str) or not isinstance(objects, Sequence):
            continue
        scale = (1000 if in_bins else 1) / (1000 if record.get("coord_space") == "bins" else 1)
        for item in objects:
            box = _numbers(item)
            if box is not None and not item.get("iscrowd"):
                rows.append((len(files), [value * scale for value in box]))
                names.append(str(item.get("desc", "")))
        files.append(image)
        sizes.append((record.get("width"), record.get("height")))
    return _raw(files, sizes, rows, names, layout="xyxy", unit="norm1000" if in_bins else "unit")


def _raw(files: Any, sizes: Any, rows: Any, labels: Any, **reading: Any) -> RawBoxes:
    return RawBoxes(
        tuple(files),
        np.array([[_side(v) for v in size] for size in sizes], np.float64).reshape(-1, 2),
        np.array([image for image, _ in rows], np.int64),
        np.array([box for _, box in rows], np.float64).reshape(-1, 4),
        tuple(labels),
        **reading,
    )


def _side(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and value and value > 0 else float("nan")


def _numbers(item: Any) -> tuple[float, ...] | None:
    try:
        if not isinstance(item, Mapping):
            return None
        if any(isinstance(value, str) for value in item.get("bbox") or ()):
            return Object.model_validate(item).bbox  # coordinate tokens
        return finite_numbers(item.get("bbox"), 4, "bbox")
    except (InputError, ValueError, TypeError):  # not a box: the reader reports it as a problem
        return None


def _records(source: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of instance JSONL or of a JSON list; everything else is skipped."""
    text = read_text(source)
    if text.lstrip().startswith("["):
        yield from (record for record in json.loads(text) if isinstance(record, Mapping))
        return
    for line in text.split("\n"):  # not `splitlines`: descriptions may contain U+2028
        with suppress(ValueError):
            yield parse_json_line(line)
