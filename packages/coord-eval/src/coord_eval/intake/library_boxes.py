"""Boxes as other libraries hold them, recognised by their fields, so that neither is imported.

supervision's `Detections` (`xyxy`, `confidence`, `class_id`, `data["class_name"]`) come with the ids of their images,
as `[(image_id, detections), ...]` or `{image_id: detections}`; torchmetrics' dictionaries (`boxes`, `scores`, `labels`,
`iscrowd`, `area`) in the same ways, or as a list in the order of the images. Such a list names no images, so that it
is joined by position, and only with another such list or with as many images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coord_codec.arguments import plain
from coord_codec.files import InputError, finite_numbers, identifier

Rows = Sequence[tuple[int | str, list[dict[str, Any]]]]
"""The id of each image, and its boxes as COCO has them: `bbox` in pixels, `category_id` (or a name), and what is given
of `score`, `iscrowd` and `area`."""
_NAMES = {
    **{"xyxy": "bbox", "class_id": "category_id", "confidence": "score"},
    **{"boxes": "bbox", "labels": "category_id", "scores": "score", "iscrowd": "iscrowd", "area": "area"},
}


def is_by_position(source: Any) -> bool:
    """Return whether a source is a list of torchmetrics' dictionaries without the ids of their images."""
    return isinstance(source, list | tuple) and any(_is_dictionary(i) and "image_id" not in i for i in source)


def boxes_by_image(source: Any, name: str) -> Rows | None:
    """Return the boxes of each image; None if the source holds objects of neither library.

    The ids of `is_by_position` sources are 0, 1, 2, ...

    Raises:
        InputError: naming the object and its field
    """
    if _is_detections(source):
        raise InputError(f"{name}: detections of one image without its id; pass [(image_id, detections), ...]")
    if not isinstance(source, Mapping | list | tuple) or not source:
        return None
    # The first image decides, since lists of results are long.
    first = next(iter(source.values())) if isinstance(source, Mapping) else _with_id(source[0], 0)[1]
    if not _is_detections(first) and not _is_dictionary(first):
        return None
    if isinstance(source, Mapping):
        pairs = [(key, item, f"{name}[{key!r}]") for key, item in source.items()]
    else:
        pairs = [(*_with_id(item, n), f"{name}[{n}]") for n, item in enumerate(source)]
        stated = [isinstance(item, Mapping) and "image_id" in item for item in source]
        if any(stated) and is_by_position(source):
            where = f"{name}[{stated.index(False)}]"
            raise InputError(f"{where}: image_id is missing, which {name}[{stated.index(True)}] states; give each one")
    return [(identifier(plain(image_id), f"{where}: image_id"), _rows(item, where)) for image_id, item, where in pairs]


def as_coco(images: Rows) -> dict[str, Any]:
    """Return boxes as a COCO data set: labels that are numbers are ids, and name their categories in digits."""
    labels = sorted(
        {row["category_id"] for _, rows in images for row in rows}, key=lambda label: (str(type(label)), label)
    )
    taken = {label for label in labels if isinstance(label, int)}
    free = (number for number in range(1, len(labels) + len(taken) + 1) if number not in taken)
    ids = {label: label if isinstance(label, int) else next(free) for label in labels}
    annotations: list[dict[str, Any]] = []
    for image_id, rows in images:
        for row in rows:
            area = row.get("area") or row["bbox"][2] * row["bbox"][3]
            own = {"image_id": image_id, "category_id": ids[row["category_id"]], "area": area}
            annotations.append({"id": len(annotations) + 1, **row, **own, "iscrowd": int(row.get("iscrowd", 0) > 0)})
    return {
        "images": [{"id": image_id, "file_name": str(image_id)} for image_id, _ in images],
        "categories": [{"id": number, "name": str(label)} for label, number in ids.items()],
        "annotations": annotations,
    }


def _with_id(item: Any, position: int) -> tuple[Any, Any]:
    """Return the id of an image, its position if it has none, and its boxes."""
    if isinstance(item, tuple) and len(item) == 2:
        return item
    if isinstance(item, Mapping):
        return item.get("image_id", position), item
    return None, item


def _is_detections(item: object) -> bool:
    return hasattr(item, "xyxy") and hasattr(item, "class_id")


def _is_dictionary(item: object) -> bool:
    return isinstance(item, Mapping) and {"boxes", "labels"} <= item.keys() and "text" not in item


def _rows(item: Any, where: str) -> list[dict[str, Any]]:
    if _is_detections(item):
        given = {name: getattr(item, name, None) for name in ("xyxy", "class_id", "confidence")}
        names = (getattr(item, "data", None) or {}).get("class_name")
        given |= {} if names is None else {"class_id": names}
    elif _is_dictionary(item):
        given = {name: item.get(name) for name in ("boxes", "labels", "scores", "iscrowd", "area")}
    else:
        raise InputError(f"{where}: expected boxes of the same library as the others, found {type(item).__name__}")
    columns = {name: plain(values) for name, values in given.items() if values is not None}
    counts = {name: len(values) if isinstance(values, list | tuple) else None for name, values in columns.items()}
    if len({*counts.values()}) > 1 or None in counts.values():
        raise InputError(f"{where}: expected lists with one value a box, found numbers of values {counts}")
    rows = []
    for n, values in enumerate(zip(*columns.values(), strict=True)):
        row = {_NAMES[name]: plain(value) for name, value in zip(columns, values, strict=True)}
        place = f"{where}.{next(iter(columns))}[{n}]"
        x1, y1, x2, y2 = finite_numbers(row["bbox"], 4, place)
        if x1 > x2 or y1 > y2:
            raise InputError(f"{place}: expected x1 <= x2 and y1 <= y2, found {[x1, y1, x2, y2]}")
        rows.append(row | {"bbox": [x1, y1, x2 - x1, y2 - y1], "category_id": identifier(row["category_id"], place)})
    return rows
