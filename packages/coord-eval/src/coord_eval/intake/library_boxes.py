"""Boxes as other libraries hold them, recognised by their fields, so that neither is imported.

supervision's `Detections` (`xyxy`, `confidence`, `class_id`, `data["class_name"]`) come with the ids of their images,
as `[(image_id, detections), ...]` or `{image_id: detections}`; torchmetrics' dictionaries (`boxes`, `scores`, `labels`,
`iscrowd`, `area`) in the same ways, or as a list in the order of the images, whose ids are then 0, 1, 2, ...

Shapes: N boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coord_codec.files import InputError, identifier
from coord_eval.parse.parser import plain


@dataclass(frozen=True, eq=False)
class ImageBoxes:
    """The boxes of one image.

    Attributes:
        image_id: id of the image
        boxes_N4: `x, y, width, height` in pixels
        labels: N category ids, or names of categories
        scores: N confidences; None if the object states none
        crowd: N flags of crowd regions
        areas: N areas in square pixels
    """

    image_id: int | str
    boxes_N4: list[list[float]]
    labels: list[int | str]
    scores: list[float] | None
    crowd: list[bool]
    areas: list[float]


def boxes_by_image(source: Any, name: str) -> list[ImageBoxes] | None:
    """Return the boxes of each image; None if the source holds objects of neither library.

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
    return [_image_boxes(image_id, item, where) for image_id, item, where in pairs]


def as_coco(images: Iterable[ImageBoxes]) -> dict[str, Any]:
    """Return boxes as a COCO data set: labels that are numbers are ids, and name their categories in digits."""
    images = list(images)
    labels = sorted({label for image in images for label in image.labels}, key=lambda label: (str(type(label)), label))
    taken = {label for label in labels if isinstance(label, int)}
    free = (number for number in range(1, len(labels) + len(taken) + 1) if number not in taken)
    ids = {label: label if isinstance(label, int) else next(free) for label in labels}
    rows = [
        {"image_id": image.image_id, "category_id": ids[label], "bbox": box, "area": area, "iscrowd": int(crowd)}
        for image in images
        for box, label, area, crowd in zip(image.boxes_N4, image.labels, image.areas, image.crowd, strict=True)
    ]
    return {
        "images": [{"id": image.image_id, "file_name": str(image.image_id)} for image in images],
        "categories": [{"id": number, "name": str(label)} for label, number in ids.items()],
        "annotations": [{"id": number, **row} for number, row in enumerate(rows, 1)],
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


def _image_boxes(image_id: Any, item: Any, where: str) -> ImageBoxes:
    image_id = plain(image_id)
    if image_id is None:
        raise InputError(f"{where}: detections of an image without its id; pass (image_id, detections)")
    if _is_detections(item):
        names = (getattr(item, "data", None) or {}).get("class_name")
        labels = item.class_id if names is None else names
        values = {"xyxy": item.xyxy, "class_id": labels, "confidence": getattr(item, "confidence", None)}
    elif _is_dictionary(item):
        values = {"boxes": item["boxes"], "labels": item["labels"], "scores": item.get("scores")}
    else:
        raise InputError(f"{where}: expected boxes of the same library as the others, found {type(item).__name__}")
    (box_name, boxes), (label_name, labels), (score_name, scores) = values.items()
    xyxy_N4 = _numbers(boxes, f"{where}.{box_name}")
    if xyxy_N4.size == 0:
        xyxy_N4 = np.zeros((0, 4))
    if xyxy_N4.ndim != 2 or xyxy_N4.shape[1] != 4 or (xyxy_N4[:, 2:] < xyxy_N4[:, :2]).any():
        raise InputError(f"{where}.{box_name}: expected rows of x1, y1, x2, y2 with x1 <= x2 and y1 <= y2")
    count = len(xyxy_N4)
    extras = item if isinstance(item, Mapping) else {}
    sizes_N2 = xyxy_N4[:, 2:] - xyxy_N4[:, :2]
    own_N = sizes_N2.prod(axis=1)
    areas_N = _column(extras.get("area"), count, f"{where}.area", own_N)
    return ImageBoxes(
        image_id=identifier(image_id, f"{where}: image_id"),
        boxes_N4=np.concatenate([xyxy_N4[:, :2], sizes_N2], axis=1).tolist(),
        labels=_labels(labels, count, f"{where}.{label_name}"),
        scores=None if scores is None else _column(scores, count, f"{where}.{score_name}", own_N).tolist(),
        crowd=(_column(extras.get("iscrowd"), count, f"{where}.iscrowd", np.zeros(count)) > 0).tolist(),
        areas=np.where(areas_N > 0, areas_N, own_N).tolist(),
    )


def _numbers(value: Any, where: str) -> np.ndarray:
    try:
        numbers = np.asarray(plain(value), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: expected an array of numbers, found {type(value).__name__}") from error
    if not np.isfinite(numbers).all():
        raise InputError(f"{where}: expected finite numbers, found {numbers[~np.isfinite(numbers)].flat[0]}")
    return numbers


def _column(value: Any, count: int, where: str, absent_N: np.ndarray) -> np.ndarray:
    """Return one number a box; `absent_N` if the field is missing."""
    if value is None:
        return absent_N
    numbers = _numbers(value, where)
    if numbers.shape != (count,):
        raise InputError(f"{where}: expected {count} numbers, one a box, found the shape {list(numbers.shape)}")
    return numbers


def _labels(value: Any, count: int, where: str) -> list[int | str]:
    labels = plain(value)
    if not isinstance(labels, list | tuple) or len(labels) != count:
        found = f"{len(labels)}" if isinstance(labels, list | tuple) else type(value).__name__
        raise InputError(f"{where}: expected {count} categories, one a box, found {found}")
    return [identifier(plain(label), where) for label in labels]
