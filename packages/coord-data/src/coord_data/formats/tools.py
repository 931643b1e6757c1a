"""Recognises files of labelling tools that are not supported, and advises what to export instead."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from coord_data.formats.qwen import MARKS
from coord_data.sources.source import Source

_LABEL_STUDIO = "export the project from it as COCO or YOLO, with images"
_EXPORT = "export the project from it as COCO, Pascal VOC or YOLO"
_TOOLS = (
    ({"data", "annotations"}, "Label Studio", _LABEL_STUDIO),
    ({"annotator", "image"}, "Label Studio (JSON_MIN)", _LABEL_STUDIO),
    ({"annotation_id", "lead_time"}, "Label Studio (JSON_MIN)", _LABEL_STUDIO),
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


def advice(source: Source) -> str:
    """Return what to do with a file of a tool that is not supported; empty if no tool is recognised.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.json"
        >>> _ = path.write_text('{"description": "", "tags": [], "size": {}, "objects": []}')
        >>> advice(Source(path))
        'JSON of Supervisely, which is not read; export the project from it as COCO, Pascal VOC or YOLO'
    """
    if source.head[:1] not in ("{", "["):
        is_table = {"annotator", "annotation_id"} & set(source.head.partition("\n")[0].replace('"', "").split(","))
        return f"a table of Label Studio, which is not read; {_LABEL_STUDIO}" if is_table else ""
    if source.record is not None and {"image", "objects"} <= source.record.keys():
        return ""  # instance JSONL, whatever further keys it has
    record = source.record or {}
    is_conversation = any(isinstance(record.get(key), list) for key in ("messages", "conversations"))
    if is_conversation and "objects" not in record and not any(mark in source.head for mark in MARKS):
        return (
            f"conversations without boxes that are read ({', '.join(MARKS)}, or <bbox> with `objects`); write instance "
            "JSONL, or train on their text alone"
        )
    candidates: tuple[Set[Any], ...] = (source.record.keys(),) if source.record is not None else source.keys
    for keys, tool, what_to_do in _TOOLS:
        if any(keys <= file_keys for file_keys in candidates):
            return f"JSON of {tool}, which is not read; {what_to_do}"
    return ""
