"""Reader of COCO JSON and of instance JSONL, which are streamed into an Arrow table, whatever their size."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_codec import AnnotationSet
from coord_codec.annotations import ValidInstances, records_in, used_in_training
from coord_codec.files import read_json
from coord_codec.geometry import geometry_of
from coord_data.formats.annotation_format import AnnotationFormat, Evidence, Example
from coord_data.sources.source import Source

if TYPE_CHECKING:
    from coord_data.looking.image_file import ImageFolder
    from coord_data.sources.object_rules import ObjectRules
    from coord_data.stream.coco import CocoRecords
    from coord_data.stream.lines import LineRecords

_BATCH = 4096
"""Number of records that are converted at a time."""
SUMMARY = ".summary.json"
"""Suffix of the summary beside an instance file that `prepare` wrote; its key `images` is the image folder."""


def is_json(source: Source) -> bool:
    """Return whether a source is JSON of any kind, or called so: the reader says what is missing for COCO."""
    return source.head[:1] in ("{", "[") or (bool(source.head) and source.path.suffix in (".json", ".jsonl"))


def load(source: Source, rules: ObjectRules, image_row: Callable[[Any], Any] | None = None) -> Evidence:
    """Read COCO JSON or instance records; `image_row` changes the rows of the images of a COCO file."""
    from coord_data.looking.image_file import ImageFolder
    from coord_data.records import Records
    from coord_data.sources.raw_boxes import raw_of_coco, raw_of_records

    folder = ImageFolder(rules.images or source.path.parent, decode=not has_many(source))
    found = records_of(source, rules, folder, image_row)
    records = Records.in_one_piece(found.batches(_BATCH))
    table = None if found.table is None else used_in_training(found.table, records.image_ids)
    facts = tuple(found.problems), found.categories, dict(+found.notes), folder.root, table
    annotations = AnnotationSet(records, *facts)
    raw = raw_of_records if found.table is None else partial(raw_of_coco, found.table)
    base, boxes = rules.images or base_of(source.path), raw(annotations, found.source)
    return Evidence(source.named, annotations, folder.root, base, source.format, source.notes, boxes, folder)


def records_of(
    source: Source, rules: ObjectRules, folder: ImageFolder, image_row: Callable[[Any], Any] | None = None
) -> CocoRecords | LineRecords:
    """Return the records of a file of COCO JSON or of instance records, which decides by its content."""
    from coord_codec.coco.document import CocoLists, stream_coco
    from coord_data.sources.read_as import ReadAs
    from coord_data.sources.reread import reread_source
    from coord_data.stream.coco import CocoRecords
    from coord_data.stream.lines import LineRecords

    stated = [ReadAs.parse(words) for words in (rules.read_as, source.read_as) if words is not None]
    if stated:
        reading = replace(
            stated[0], layout=stated[0].layout or stated[-1].layout, unit=stated[0].unit or stated[-1].unit
        )
        source = reread_source(source, reading, folder.look_at)
    kind = None if geometry_of(rules.geometry).is_box else geometry_of(rules.geometry)
    is_coco = bool(_COCO & source.keys[0]) and source.record is None
    records = None if is_coco else records_in(source)
    read: CocoLists | ValidInstances
    if records is None:
        read = stream_coco(source, whole=kind is not None, image_row=image_row)
    else:
        read = ValidInstances(records, rules.on_bad_box, kind, folder.root)
    if isinstance(read, ValidInstances):
        return LineRecords(source, read, folder.root)
    return CocoRecords(source, read, rules.on_bad_box, kind, folder)


_COCO = {"images", "annotations"}
_KEY_OF_IMAGE = {"jsonl": b'"objects"', "coco": b'"file_name"', "lvis": b'"coco_url"'}


def has_many(source: Source) -> bool:
    """Return whether more than `FULL_CHECK_LIMIT` images are in a file, judged by a key that each of them has."""
    from coord_data.looking.image_file import FULL_CHECK_LIMIT

    key = _KEY_OF_IMAGE[source.format]
    with source.open() as file:
        return sum(block.count(key) for block in iter(partial(file.read, 1 << 20), b"")) > FULL_CHECK_LIMIT


def base_of(path: Path) -> Path:
    """Return the folder that images of an instance file must lie in: its own, or the one that its summary states."""
    summary = path.with_suffix(SUMMARY)
    stated = read_json(summary).get("images") if summary.is_file() else None
    return path.parent / stated if isinstance(stated, str) else path.parent


def example_document(image: Mapping[str, object], **annotation: object) -> str:
    """Return the smallest COCO document with a cat; `image` names its file."""
    document = {
        "images": [{"id": 1, **image, "width": 100, "height": 50}],
        "categories": [{"id": 1, "name": "cat", "keypoints": ["left ear", "right ear"]}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [20, 10, 40, 30], **annotation}],
    }
    return json.dumps(document)


def _coco(**annotation: object) -> Example:
    return Example({"a.json": example_document({"file_name": "a.jpg"}, **annotation)}, "a.json")


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
    lambda source: source.record is not None,
    load=load,
)
