"""Reader of LVIS: COCO JSON whose images state a `coco_url` instead of a file name; the rest is read as COCO.

Only the classes in `neg_category_ids` are known to be absent from an image; other classes may be there without a box.
Images with classes that were not annotated exhaustively are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import ijson

from coord_codec import AnnotationSet, Instance, read_annotations
from coord_codec.annotations import ImageSize
from coord_codec.boxes import OnBadBox
from coord_codec.records import ABSENT, with_uncertain
from coord_data.formats.raw import Source


def recognise(source: Source) -> bool:
    """Return whether a source is COCO JSON with the keys that LVIS adds."""
    if source.head[:1] != "{" or source.record is not None:
        return False
    try:
        with source.path.open("rb") as file:  # streamed, since the file may be a gigabyte
            first = next(ijson.items(file, "images.item"), None)
    except ijson.JSONError:
        return False  # the reader reports it
    return (
        isinstance(first, Mapping) and ("coco_url" in first or "neg_category_ids" in first) and "file_name" not in first
    )


def read_lvis(
    source: Source, images: Any, image_size: ImageSize, on_bad_box: OnBadBox, geometry: str = "box"
) -> AnnotationSet:
    """Return the annotations of an LVIS file; images are named `train2017/000000000001.jpg`, or without the folder."""
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
    loaded = read_annotations(document, images, image_size=image_size, on_bad_box=on_bad_box, geometry=geometry)
    problems = [replace(p, where=p.where.replace("annotations: ", f"{source.path}: ", 1)) for p in loaded.problems]
    root = images or source.path.parent
    instances = _with_absent(loaded.instances, rows, {category.id: category.name for category in loaded.categories})
    return replace(loaded, instances=instances, problems=tuple(problems), notes={**loaded.notes, **+notes}, root=root)


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
