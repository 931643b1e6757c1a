"""Reader of COCO JSON and of instance JSONL, whose records `coord_codec` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from coord_codec import read_annotations
from coord_codec.files import read_json
from coord_data.formats.annotation_format import Annotated, AnnotationFormat, Example
from coord_data.source import Source

if TYPE_CHECKING:
    from coord_data.image_file import ImageFolder
    from coord_data.object_rules import ObjectRules

SUMMARY = ".summary.json"
"""Suffix of the summary beside an instance file that `prepare` wrote; its key `images` is the image folder."""


def is_instance_file(source: Source) -> bool:
    """Return whether a source has records on lines, or a list of records."""
    return source.record is not None


def is_json(source: Source) -> bool:
    """Return whether a source is JSON of any kind, or called so: the reader says what is missing for COCO."""
    return source.head[:1] in ("{", "[") or (bool(source.head) and source.path.suffix in (".json", ".jsonl"))


def load(source: Source, rules: ObjectRules) -> Annotated:
    """Read COCO JSON or instance records."""
    from coord_data.raw_boxes import raw_of_coco, raw_of_records

    root = rules.images or source.path.parent
    folder = folder_of(source, root)
    annotations = read_annotations(
        source, rules.images, image_size=folder.size, on_bad_box=rules.on_bad_box, geometry=rules.geometry
    )
    stated = annotations.stated
    raw = raw_of_records(annotations, source) if stated is None else raw_of_coco(stated, annotations, source)
    base = rules.images or base_of(source.path)
    return Annotated(source.named, replace(annotations, stated=None), root, base, source.format, (), raw, folder)


def folder_of(source: Source, root: Path) -> ImageFolder:
    """Return the folder of the images of a COCO file, whose pixels are decoded unless there are too many of them."""
    from coord_data.image_file import FULL_CHECK_LIMIT, ImageFolder

    document = None if source.format == "jsonl" else source.document
    images = document.get("images") if isinstance(document, Mapping) else None
    return ImageFolder(root, decode=not isinstance(images, list) or len(images) <= FULL_CHECK_LIMIT)


def base_of(path: Path) -> Path:
    """Return the folder that images of an instance file must lie in: its own, or the one that its summary states."""
    summary = path.with_suffix(SUMMARY)
    stated = read_json(summary).get("images") if summary.is_file() else None
    return path.parent / stated if isinstance(stated, str) else path.parent


def _coco(**annotation: object) -> Example:
    document = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 50}],
        "categories": [{"id": 1, "name": "cat", "keypoints": ["left ear", "right ear"]}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [20, 10, 40, 30], **annotation}],
    }
    return Example({"a.json": json.dumps(document)}, "a.json")


def _record(*coordinates: float, type: str = "", **more: object) -> Example:
    values: dict[str, object] = {"desc": "cat", "bbox": [0.2, 0.2, 0.6, 0.8]}
    if type:
        values["geometry"] = {"type": type, "coordinates": coordinates, **more}
    record = {"image": "a.jpg", "width": 100, "height": 50, "objects": [values]}
    return Example({"a.jsonl": json.dumps(record) + "\n"}, "a.jsonl")


COCO = AnnotationFormat(
    "coco",
    "COCO JSON",
    "one JSON object with `images`, `annotations` and `categories`; boxes are x, y, width, height in pixels",
    {
        "box": _coco(),
        "polygon": _coco(segmentation=[[20, 10, 60, 10, 60, 40, 40, 40, 20, 40]]),
        "oriented": _coco(segmentation=[[20, 10, 60, 10, 60, 40, 20, 40]]),
        "keypoints": _coco(keypoints=[20, 10, 2, 60, 40, 1]),
    },
    is_json,
    load=load,
)
JSONL = AnnotationFormat(
    "jsonl",
    "instance JSONL",
    'one `{"image": ..., "objects": [{"desc": ..., "bbox": [x1, y1, x2, y2]}]}` a line, in fractions of the image',
    {
        "box": _record(),
        "point": _record(0.4, 0.5, type="point"),
        "polygon": _record(0.2, 0.2, 0.6, 0.2, 0.6, 0.8, 0.2, 0.8, type="polygon"),
        "oriented": _record(0.2, 0.2, 0.6, 0.2, 0.6, 0.8, 0.2, 0.8, type="oriented"),
        "keypoints": _record(0.2, 0.2, 0.6, 0.8, type="keypoints", names=["left ear", "right ear"]),
    },
    is_instance_file,
    load=load,
)
