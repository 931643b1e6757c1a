"""Predictions in Python as records: lists, tables, data sets with scores, texts by image, boxes of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan
from typing import Any

from coord_codec import geometry_of
from coord_codec.files import InputError, identifier
from coord_eval.intake.library_boxes import boxes_by_image, is_by_position
from coord_eval.intake.records import SourceRecords


def records_of(source: Any, name: str) -> SourceRecords:
    """Return the records of an object.

    Raises:
        InputError: naming the object and its field, or what was expected
    """
    return next(found for read in _READERS if (found := read(source, name)) is not None)


def _detector(source: Any, name: str) -> SourceRecords | None:
    """Return the boxes of a detector's results.

    A result has `name`, the file name of its image, `size`, and `objects` with `label`, `box` (corners in pixels),
    `score`, and `points` of another `geometry` than boxes; `error` says why one has no answer.
    """
    results = [source] if _has_objects(source) else source
    if isinstance(results, Mapping | str | bytes) or not isinstance(results, Sequence) or not results:
        return None
    if not _has_objects(results[0]):
        return None
    rows = []
    for found in results:
        for item in found.objects:
            x1, y1, x2, y2 = item.box
            row = {"image": found.name, "category_id": item.label, "category": item.label, "score": item.score}
            row |= {"bbox": [x1, y1, x2 - x1, y2 - y1], **_drawn(item)}
            rows.append((row, f"{name}, image {found.name!r}"))
    return SourceRecords.placed(rows, images=[found.name for found in results if not getattr(found, "error", "")])


def _has_objects(item: object) -> bool:
    return all(hasattr(item, name) for name in ("objects", "size", "name"))


def _drawn(item: Any) -> dict[str, Any]:
    points = getattr(item, "points", ())
    if not points:
        return {}
    if geometry_of(item.geometry).closed:
        return {"segmentation": [[value for point in points for value in point]]}
    return {"keypoints": [value for x, y in points for value in (x, y, 2 if (x, y) != (0, 0) else 0)]}


def _library(source: Any, name: str) -> SourceRecords | None:
    if (found := boxes_by_image(source, name)) is None:
        return None
    placed = (
        ({"score": 1.0, **row, "image_id": image_id}, f"{name}, image {image_id!r}")
        for image_id, own in found
        for row in own
    )
    return SourceRecords.placed(placed, positions=len(found) if is_by_position(source) else None)


def _table(source: Any, name: str) -> SourceRecords | None:
    """Return the rows of a pandas table, where NaN stands for a missing value."""
    if not (hasattr(source, "to_dict") and hasattr(source, "columns")):
        return None
    rows = ({k: v for k, v in r.items() if not (isinstance(v, float) and isnan(v))} for r in source.to_dict("records"))
    return SourceRecords.listed(rows, name)


def _coco(source: Any, name: str) -> SourceRecords | None:
    """Return the annotations of a COCO data set with scores, or of pycocotools' `COCO`, with the names of their ids."""
    document = getattr(source, "dataset", source)
    if not isinstance(document, Mapping) or "annotations" not in document:
        return None
    rows = document["annotations"]
    if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{name}, annotations: expected a list of objects, found {rows!r:.80}")
    if lacking := sum("score" not in row for row in rows):
        raise InputError(
            f"{name}: a COCO data set as predictions: expected a score in each annotation, found {lacking} of "
            f"{len(rows)} without; add scores, or pass it as ground truth"
        )
    image = _names(document.get("images"), "file_name", f"{name}, images")
    category = _names(document.get("categories"), "name", f"{name}, categories")
    named = (
        {"image": image.get(row.get("image_id")), "category": category.get(row.get("category_id"))} for row in rows
    )
    return SourceRecords.listed(({**row, **names} for row, names in zip(rows, named, strict=True)), name)


def _texts(source: Any, name: str) -> SourceRecords | None:
    """Return the texts of `{image_id: text}`."""
    if not isinstance(source, Mapping):
        return None
    if not all(isinstance(text, str) for text in source.values()):
        raise InputError(
            f"{name}: expected a list of results or answers, or {{image_id: text}}, found an object with the keys "
            f"{', '.join(map(str, list(source)[:5]))}"
        )
    return SourceRecords.listed(({"image_id": image, "text": text} for image, text in source.items()), name)


def _list(source: Any, name: str) -> SourceRecords:
    if isinstance(source, str | bytes) or not isinstance(source, Iterable):
        raise InputError(f"{name}: expected a list of results or answers, found {type(source).__name__}")
    return SourceRecords.listed(source, name)


_READERS: Sequence[Callable[[Any, str], SourceRecords | None]] = (_detector, _library, _table, _coco, _texts, _list)
"""Readers in the order in which they are asked; each returns None for what it does not know."""


def _names(rows: Any, field: str, where: str) -> dict[Any, str]:
    """Return the names of the images or categories of a data set by id."""
    names: dict[Any, str] = {}
    for row in rows if isinstance(rows, list | tuple) else ():
        key, name = (row.get("id"), row.get(field)) if isinstance(row, Mapping) else (None, None)
        if isinstance(name, str) and name and names.setdefault(identifier(key, f"{where}, id"), name) != name:
            raise InputError(f"{where}: the id {key!r} is {names[key]!r} and {name!r}; ids must be unique")
    return names
