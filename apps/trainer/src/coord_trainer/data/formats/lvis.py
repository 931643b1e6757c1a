"""LVIS: COCO JSON whose images state a `coco_url` instead of a file name; the codec reads the rest.

Only the classes of `neg_category_ids` are known to be absent from an image: nothing follows from another's missing box.
Classes that were not annotated exhaustively are counted.
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
from coord_trainer.data.formats.raw import Source


def recognise(source: Source) -> bool:
    """Whether it is COCO JSON with the keys that LVIS adds."""
    if source.head[:1] != "{" or source.record is not None:
        return False
    try:
        with source.path.open("rb") as file:  # not the document: it may be a gigabyte
            first = next(ijson.items(file, "images.item"), None)
    except ijson.JSONError:
        return False  # the reader says what is wrong
    return (
        isinstance(first, Mapping) and ("coco_url" in first or "neg_category_ids" in first) and "file_name" not in first
    )


def read_lvis(
    source: Source, images: Any, image_size: ImageSize, on_bad_box: OnBadBox, geometry: str = "box"
) -> AnnotationSet:
    """Return the annotations of an LVIS file; names are `train2017/000000000001.jpg`, or without the folder."""
    notes: Counter[str] = Counter()
    rows = []
    for row in source.document["images"]:
        named = row
        if isinstance(row, Mapping) and isinstance(url := row.get("coco_url"), str) and "file_name" not in row:
            path = PurePosixPath(*PurePosixPath(url).parts[-2:])
            flat = images is not None and not (images / path.parent).is_dir()
            named = {**row, "file_name": path.name if flat else str(path)}
        notes["images with classes that were not annotated exhaustively"] += bool(
            isinstance(row, Mapping) and row.get("not_exhaustive_category_ids")
        )
        rows.append(named)
    document = {**source.document, "images": rows}
    found = read_annotations(document, images, image_size=image_size, on_bad_box=on_bad_box, geometry=geometry)
    problems = [replace(p, where=p.where.replace("annotations: ", f"{source.path}: ", 1)) for p in found.problems]
    root = images or source.path.parent
    instances = _with_absent(found.instances, rows, {category.id: category.name for category in found.categories})
    return replace(found, instances=instances, problems=tuple(problems), notes={**found.notes, **+notes}, root=root)


def _with_absent(
    instances: Sequence[Instance], rows: Sequence[Any], names: Mapping[int | str, str]
) -> tuple[Instance, ...]:
    """Return the records with what is known to be absent from them, and what may be there without a box."""
    stated = {row["id"]: row for row in rows if isinstance(row, Mapping) and isinstance(row.get("id"), int | str)}
    found = []
    for instance in instances:
        row = stated.get(instance.image_id, {})
        absent, unsure = (_named(row.get(f"{kind}_category_ids"), names) for kind in ("neg", "not_exhaustive"))
        known = {} if absent is None else {ABSENT: sorted(set(absent) - set(unsure or ()))}
        found.append(with_uncertain(instance.model_copy(update=known), unsure or ()))
    return tuple(found)


def _named(ids: Any, names: Mapping[int | str, str]) -> list[str] | None:
    """Return the names of a list of ids; None where there is no list."""
    return [names[i] for i in ids if isinstance(i, int | str) and i in names] if isinstance(ids, list) else None
