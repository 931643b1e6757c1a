"""Recognises files of labelling tools that are not supported, and advises what to export instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any

from coord_data.formats.qwen import MARKS
from coord_data.sources.source import Source

_LABEL_STUDIO = "export the project from it as COCO or YOLO, with images"
_INSTANCES = (
    'write {"image": ..., "objects": [{"desc": ..., "bbox": [x1, y1, x2, y2]}]} a line, in fractions of the image'
)
_EXPORT = "export the project from it as COCO, Pascal VOC or YOLO"
_CONVERT = "convert it to COCO or instance JSONL"
_FIFTYONE = "export the data set from it as fiftyone.types.COCODetectionDataset or YOLOv5Dataset"
_TABLES = (
    (r"(?:.*,)?(?:annotator|annotation_id)(?:,|\s*$)", "a table of Label Studio", _LABEL_STUDIO),
    (r".*\bregion_shape_attributes\b", "a table of VGG Image Annotator", "export its annotations as JSON"),
    (r"(?:TRAIN(?:ING)?|VALIDATION|TEST|UNASSIGNED),[^,]+,", "a table of Vertex AI", _CONVERT),
)
"""How the first line of a table of a tool begins."""
_BOX_KEYS = re.compile(r'"(\w*(?:box|bbox|quad|obb|polygon|point)\w*)\\*"\s*:|<\|?(quad_start|poly|quad)\|?>')
"""Keys and marks of shapes in the answers of conversations."""
_TOOLS = (
    ({"data", "annotations"}, "Label Studio", _LABEL_STUDIO),
    ({"annotator", "image"}, "Label Studio (JSON_MIN)", _LABEL_STUDIO),
    ({"annotation_id", "lead_time"}, "Label Studio (JSON_MIN)", _LABEL_STUDIO),
    ({"image", "annotations"}, "Create ML", _EXPORT),
    ({"tags", "objects", "size"}, "Supervisely", _EXPORT),
    ({"items", "categories"}, "Datumaro", _EXPORT),
    ({"asset", "regions"}, "VoTT", _EXPORT),
    ({"project", "metadata", "file"}, "VGG Image Annotator 3", "export the project from VIA 2, or as COCO"),
    ({"samples"}, "FiftyOne", _FIFTYONE),
    ({"classes", "labels"}, "FiftyOne", _FIFTYONE),
    ({"metainfo", "data_list"}, "MMDetection", _CONVERT),
    ({"file_name", "annotations"}, "Detectron2 (dataset dicts)", _CONVERT),
    ({"name", "labels"}, "BDD100K or Scale", _CONVERT),
    ({"frames", "config"}, "Scale", _CONVERT),
    ({"source-ref"}, "SageMaker Ground Truth", _CONVERT),
    ({"ID", "gtboxes"}, "CrowdHuman (odgt)", _CONVERT),
    ({"image", "solution"}, "VLM-R1", _CONVERT),
    ({"image_name", "annotation"}, "Rex-Omni", _CONVERT),
    ({"prefix", "suffix"}, "PaliGemma or Florence-2", _CONVERT),
    ({"file_name", "objects"}, "Hugging Face's ImageFolder", _INSTANCES),
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
        line = source.head.partition("\n")[0].replace('"', "")
        found = next((row for row in _TABLES if re.match(row[0], line)), None)
        return f"{found[1]}, which is not read; {found[2]}" if found else ""
    if source.record is not None and {"image", "objects"} <= source.record.keys():
        if isinstance(source.record["objects"], Mapping) and "bbox" in source.record["objects"]:
            return f"records with the objects of Hugging Face's datasets, which are not read; {_INSTANCES}"
        return ""  # instance JSONL, whatever further keys it has
    record = source.record or {}
    is_conversation = any(isinstance(record.get(key), list) for key in ("messages", "conversations"))
    if is_conversation and "objects" not in record and not any(mark in source.head for mark in MARKS):
        named = dict.fromkeys(match[1] or match[2] for match in _BOX_KEYS.finditer(source.head))
        found_keys = f", but with {', '.join(named)}" if named else ""
        return (
            f"conversations without boxes that are read ({', '.join(MARKS)}, or <bbox> with `objects`){found_keys}; "
            "write instance JSONL, or train on their text alone"
        )
    candidates: tuple[Set[Any], ...] = (source.record.keys(),) if source.record is not None else source.keys
    for keys, tool, what_to_do in _TOOLS:
        if any(keys <= file_keys for file_keys in candidates):
            return f"JSON of {tool}, which is not read; {what_to_do}"
    return ""
