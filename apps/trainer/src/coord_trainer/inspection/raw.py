"""The numbers of an annotation file as they stand there, before any of them is refused.

Shapes: I images, N boxes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from coord_codec import AnnotationSet, InputError, Object
from coord_codec.files import finite_numbers, parse_json_line, read_text


@dataclass(frozen=True)
class RawBoxes:
    """Images and boxes of a set.

    Attributes:
        files: path of each image, relative to the folder of the images
        stated_I2: width and height that the annotations state; NaN where they state none
        image_N: index of the image of each box
        numbers_N4: the four numbers of each box
        labels: description of each box
        layout: the order in which the reader takes the numbers: `xywh` in COCO JSON, `xyxy` in instance records
        unit: the unit in which it takes them: `pixels` in COCO JSON, `unit` (0 to 1) in instance records
    """

    files: tuple[str, ...]
    stated_I2: np.ndarray
    image_N: np.ndarray
    numbers_N4: np.ndarray
    labels: tuple[str, ...]
    layout: Literal["xywh", "xyxy"]
    unit: Literal["pixels", "unit"]

    def __len__(self) -> int:
        return len(self.numbers_N4)


def raw_boxes(found: AnnotationSet, source: Path | None) -> RawBoxes:
    """Return what the file of an annotation set states.

    Args:
        found: the set as `read_annotations` returned it; crowd regions are left out
        source: its file; None where the set was not read from COCO JSON or instance records
    """
    if found.tables is not None:
        rows = [a for a in found.tables.annotations if not a.iscrowd]
        labels = tuple(found.categories[a.category].name for a in rows)
        sizes = [(i.width, i.height) for i in found.tables.images]
        files = tuple(image.file_name for image in found.tables.images)
        return _raw(files, sizes, [(a.image, a.bbox_xywh) for a in rows], labels, layout="xywh", unit="pixels")
    records: Sequence[Mapping[str, Any]] = [instance.model_dump() for instance in found.instances]
    if found.problems and source is not None:
        records = list(_records(source))
    files, sizes, rows, names = [], [], [], []
    for record in records:
        image, objects = record.get("image"), record.get("objects")
        if not isinstance(image, str) or not isinstance(objects, Sequence):
            continue
        scale = 1000 if record.get("coord_space") == "bins" else 1
        for item in objects:
            box = _numbers(item)
            if box is not None and not item.get("iscrowd"):
                rows.append((len(files), [value / scale for value in box]))
                names.append(str(item.get("desc", "")))
        files.append(image)
        sizes.append((record.get("width"), record.get("height")))
    return _raw(files, sizes, rows, names, layout="xyxy", unit="unit")


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
    except (InputError, ValueError, TypeError):  # no box: one of the reader's problems
        return None


def _records(source: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of instance JSONL, or of a JSON list of them; whatever is none is passed over."""
    text = read_text(source)
    if text.lstrip().startswith("["):
        yield from (record for record in json.loads(text) if isinstance(record, Mapping))
        return
    for line in text.splitlines():
        with suppress(ValueError):
            yield parse_json_line(line)
