"""Reader of LVIS: COCO JSON whose images state a `coco_url` instead of a file name; the rest is read as COCO.

Only the classes in `neg_category_ids` are known to be absent from an image; other classes may be there without a box.
Images with classes that were not annotated exhaustively are counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from coord_codec import InputError, Instance, read_annotations
from coord_codec.coco.document import is_coco
from coord_codec.records import ABSENT, with_uncertain
from coord_data.formats.annotation_format import Annotated, AnnotationFormat, Example
from coord_data.formats.coco import folder_of
from coord_data.source import Source

if TYPE_CHECKING:
    from coord_data.object_rules import ObjectRules


def recognise(source: Source) -> bool:
    """Return whether a source is COCO JSON with the keys that LVIS adds."""
    first = source.first_image
    return (
        isinstance(first, Mapping) and ("coco_url" in first or "neg_category_ids" in first) and "file_name" not in first
    )


def load(source: Source, rules: ObjectRules) -> Annotated:
    """Read an LVIS file; images are named `train2017/000000000001.jpg`, or without the folder."""
    if not is_coco(source.document):
        raise InputError(f"{source.named}: --format lvis, but the file is not COCO JSON")
    from coord_data.raw_boxes import raw_of_coco

    images, root = rules.images, rules.images or source.path.parent
    folder = folder_of(source, root)
    notes: Counter[str] = Counter()
    rows = []
    for row in source.document["images"]:
        named_row = row
        if isinstance(row, Mapping) and isinstance(url := row.get("coco_url"), str) and "file_name" not in row:
            path = PurePosixPath(*PurePosixPath(url).parts[-2:])
            is_flat = images is not None and not (images / path.parent).is_dir()
            named_row = {**row, "file_name": path.name if is_flat else str(path)}
        notes["images with classes that were not annotated exhaustively"] += bool(
            isinstance(row, Mapping) and row.get("not_exhaustive_category_ids")
        )
        rows.append(named_row)
    document = {**source.document, "images": rows}
    loaded = read_annotations(
        document, images, image_size=folder.size, on_bad_box=rules.on_bad_box, geometry=rules.geometry
    )
    problems = [replace(p, where=p.where.replace("annotations: ", f"{source.path}: ", 1)) for p in loaded.problems]
    instances = _with_absent(loaded.instances, rows, {category.id: category.name for category in loaded.categories})
    stated = loaded.stated
    loaded = replace(
        loaded, instances=instances, problems=tuple(problems), notes={**loaded.notes, **+notes}, root=root, stated=None
    )
    assert stated is not None  # as of every COCO document
    raw = raw_of_coco(stated, loaded, source)
    return Annotated(source.named, loaded, root, root, source.format, (), raw, folder)


def _with_absent(
    instances: Sequence[Instance], rows: Sequence[Any], names: Mapping[int | str, str]
) -> tuple[Instance, ...]:
    """Return the records with the classes known to be absent and those that may be there without a box."""
    rows_by_id = {row["id"]: row for row in rows if isinstance(row, Mapping) and isinstance(row.get("id"), int | str)}
    records = []
    for instance in instances:
        row = rows_by_id.get(instance.image_id, {})
        absent, uncertain = (_named(row.get(f"{kind}_category_ids"), names) for kind in ("neg", "not_exhaustive"))
        stated = {} if absent is None else {ABSENT: sorted(set(absent) - set(uncertain or ()))}
        records.append(with_uncertain(instance.model_copy(update=stated), uncertain or ()))
    return tuple(records)


def _named(ids: Any, names: Mapping[int | str, str]) -> list[str] | None:
    """Return the class names of a list of ids; None if `ids` is not a list."""
    return [names[i] for i in ids if isinstance(i, int | str) and i in names] if isinstance(ids, list) else None


_DOCUMENT = {
    "images": [{"id": 1, "coco_url": "http://images.cocodataset.org/train2017/1.jpg", "width": 100, "height": 50}],
    "categories": [{"id": 1, "name": "cat"}],
}


def _example(**annotation: object) -> Example:
    row = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [20, 10, 40, 30], **annotation}
    return Example({"a.json": json.dumps({**_DOCUMENT, "annotations": [row]})}, "a.json", "train2017/1.jpg")


FORMAT = AnnotationFormat(
    "lvis",
    "LVIS JSON",
    "COCO JSON whose images state a `coco_url`, and the classes known to be absent from them",
    {"box": _example(), "polygon": _example(segmentation=[[20, 10, 60, 10, 60, 40, 20, 40]])},
    recognise,
    load=load,
)
