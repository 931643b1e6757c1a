"""Reader of LVIS: COCO JSON whose images state a `coco_url` instead of a file name; the rest is read as COCO.

Only the classes in `neg_category_ids` are known to be absent from an image; other classes may be there without a box.
Images with classes that were not annotated exhaustively are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from coord_codec import Instance
from coord_codec.records import ABSENT, with_uncertain
from coord_data.formats import coco
from coord_data.formats.annotation_format import AnnotationFormat, Evidence, Example
from coord_data.sources.source import Source

if TYPE_CHECKING:
    from coord_data.sources.object_rules import ObjectRules


_NOT_EXHAUSTIVE = "images with classes that were not annotated exhaustively"


def recognise(source: Source) -> bool:
    """Return whether a source is COCO JSON with the keys that LVIS adds."""
    keys = source.first_image.keys() if isinstance(source.first_image, Mapping) else set()
    return bool({"coco_url", "neg_category_ids"} & keys) and "file_name" not in keys


def load(source: Source, rules: ObjectRules) -> Evidence:
    """Read an LVIS file; images are named `train2017/000000000001.jpg`, or without the folder."""
    images, rows = rules.images, list[Any]()
    notes: Counter[str] = Counter()

    def named(row: Any) -> Any:
        rows.append(row)
        if not isinstance(row, Mapping):
            return row
        notes[_NOT_EXHAUSTIVE] += bool(row.get("not_exhaustive_category_ids"))
        if isinstance(url := row.get("coco_url"), str) and "file_name" not in row:
            path = PurePosixPath(*PurePosixPath(url).parts[-2:])
            is_flat = images is not None and not (images / path.parent).is_dir()
            row = {**row, "file_name": path.name if is_flat else str(path)}
        return row

    found = coco.load(source, rules, named)
    loaded = found.annotations
    instances = _with_absent(loaded.instances, rows, {category.id: category.name for category in loaded.categories})
    return replace(found, annotations=replace(loaded, instances=instances, notes={**loaded.notes, **+notes}))


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


def _example(**annotation: object) -> Example:
    image = {"coco_url": "http://images.cocodataset.org/train2017/1.jpg"}
    return Example({"a.json": coco.example_document(image, **annotation)}, "a.json", "train2017/1.jpg")


FORMAT = AnnotationFormat(
    "lvis",
    "LVIS JSON",
    "COCO JSON whose images state a `coco_url`, and the classes known to be absent from them",
    {"box": _example(), "polygon": _example(segmentation=[[20, 10, 60, 10, 60, 40, 20, 40]])},
    recognise,
    load=load,
)
