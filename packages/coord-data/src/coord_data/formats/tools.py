"""Recognises files of labelling tools that are not supported, and advises what to export instead."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import ijson

from coord_data.formats.raw import Source

_EXPORT = "export the project from it as COCO, Pascal VOC or YOLO"
_TOOLS = (
    ({"shapes", "imagePath"}, "LabelMe", "convert the folder into COCO JSON, as labelme2coco does"),
    ({"data", "annotations"}, "Label Studio", "export the project from it as COCO or YOLO, with images"),
    ({"annotator", "image"}, "Label Studio", "export the project from it as COCO or YOLO, with images"),
    ({"_via_img_metadata"}, "VGG Image Annotator", "export the annotations from it as COCO"),
    ({"filename", "regions"}, "VGG Image Annotator", "export the annotations from it as COCO"),
    ({"image", "annotations"}, "Create ML", _EXPORT),
    ({"tags", "objects", "size"}, "Supervisely", _EXPORT),
    ({"items", "categories"}, "Datumaro", _EXPORT),
    (
        {"file_name", "objects"},
        "Hugging Face's ImageFolder",
        'write {"image": ..., "objects": [{"desc": ..., "bbox": [x1, y1, x2, y2]}]} a line, in fractions of the image',
    ),
)
"""Keys of a record or file that identify a tool, its name, and what to do."""

_OURS = {"images", "annotations"}
_ENOUGH = 20
"""Number of keys that are read of a file, which may be a gigabyte."""


def refusal(source: Source) -> str:
    """Return the error message for JSON of a tool that is not supported; empty if no tool is recognised.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.json"
        >>> _ = path.write_text('{"version": "5.0.1", "shapes": [], "imagePath": "a.jpg"}')
        >>> refusal(Source(path)).partition(": ")[2]
        'JSON of LabelMe, which is not read; convert the folder into COCO JSON, as labelme2coco does'
    """
    if source.head[:1] not in ("{", "["):
        return ""
    if source.record is not None and {"image", "objects"} <= source.record.keys():
        return ""  # instance JSONL, whatever further keys it has
    candidates: tuple[Set[Any], ...] = (source.record.keys(),) if source.record is not None else _keys(source.path)
    for keys, tool, advice in _TOOLS:
        if any(keys <= file_keys for file_keys in candidates):
            return f"{source.path}: JSON of {tool}, which is not read; {advice}"
    return ""


def _keys(path: Path) -> tuple[set[str], set[str]]:
    """Return the first keys of a JSON object, and the first keys of its first value."""
    top: set[str] = set()
    below: set[str] = set()
    first = ""
    try:
        with path.open("rb") as file:
            for prefix, event, value in ijson.parse(file):
                if event != "map_key":
                    continue
                if prefix == "":
                    first = first or value
                    top.add(value)
                elif prefix == first:
                    below.add(value)
                if len(top) > _ENOUGH or len(below) > _ENOUGH or _OURS & top:
                    break
    except (ijson.JSONError, OSError):
        return set(), set()  # the reader reports it
    return top, below
