"""Ground truth as flat arrays, from COCO JSON or instance records.

Shape legend: I images, N objects; boxes are ``xywh`` in pixels, the COCO way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import Instance
from coord_eval.errors import InputError
from coord_eval.reading import finite_numbers, identifier

ImageId = int | str


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The objects of a set of images.

    Attributes:
        image_ids: I ids, in the order in which pycocotools would visit them.
        file_names: I paths, relative to ``root``.
        sizes_I2: Width and height in pixels; NaN where a COCO file states none; 1 x 1 everywhere when
            ``sizes_known`` is False.
        sizes_known: False when instance records state no size: IoU does not need one (stretching an axis
            leaves it as it is), small, medium and large do.
        categories: The K category names.
        category_ids: The K ids of the file, in ascending order of id.
        image_N: Index of each object's image.
        category_N: Index of each object's category.
        boxes_N4: ``x, y, width, height`` in pixels.
        area_N: Area in pixels by which objects count as small, medium or large (COCO: of the mask).
        crowd_N: True for regions that are neither hit nor missed (``iscrowd``).
        root: Folder that the file names are relative to, None when unknown.
        notes: What was noticed on the way in.
    """

    image_ids: tuple[ImageId, ...]
    file_names: tuple[str, ...]
    sizes_I2: np.ndarray
    sizes_known: bool
    categories: tuple[str, ...]
    category_ids: tuple[ImageId, ...]
    image_N: np.ndarray
    category_N: np.ndarray
    boxes_N4: np.ndarray
    area_N: np.ndarray
    crowd_N: np.ndarray
    root: Path | None = None
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.image_ids)


def sort_ids(ids: Sequence[ImageId]) -> list[int]:
    """Return the order of ids: numbers ascending, then text."""
    return sorted(range(len(ids)), key=lambda i: (isinstance(ids[i], str), ids[i]))


def from_coco(data: Mapping[str, Any], source: str, root: Path | None = None) -> GroundTruth:
    """Read a COCO ``instances`` dictionary.

    A missing ``iscrowd`` counts as 0 and a missing ``area`` as width times height.

    Raises:
        InputError: On a missing or wrong field, naming record and field.
    """
    for key in ("images", "annotations", "categories"):
        if not isinstance(data.get(key), list):
            raise InputError(
                f"{source}: expected COCO annotations with a list {key!r}, "
                f"found the keys {sorted(map(str, data))[:8]}"
            )
    images = _by_id(data["images"], "images", source)
    categories = _by_id(data["categories"], "categories", source)
    order = sort_ids(images[0])
    image_ids, image_records = [images[0][i] for i in order], [images[1][i] for i in order]
    order = sort_ids(categories[0])
    category_ids = [categories[0][i] for i in order]
    names = [
        _text(categories[1][i].get("name"), f"{source}, categories[id={categories[0][i]}].name")
        for i in order
    ]
    image_index = {image_id: i for i, image_id in enumerate(image_ids)}
    category_index = {category_id: i for i, category_id in enumerate(category_ids)}

    rows = []
    for position, annotation in enumerate(data["annotations"]):
        where = f"{source}, annotations[{position}]"
        if not isinstance(annotation, Mapping):
            raise InputError(f"{where}: expected an object, found {type(annotation).__name__}")
        box = finite_numbers(annotation.get("bbox"), 4, f"{where}.bbox")
        if box[2] < 0 or box[3] < 0:
            raise InputError(f"{where}.bbox: expected a width and height of at least 0, found {list(box)}")
        area = annotation.get("area")
        area = box[2] * box[3] if area is None else finite_numbers([area], 1, f"{where}.area")[0]
        image = _known(annotation, "image_id", image_index, where)
        category = _known(annotation, "category_id", category_index, where)
        rows.append((image, category, *box, area, bool(annotation.get("iscrowd", 0))))
    sizes = [
        _size(record, f"{source}, images[id={i}]") for i, record in zip(image_ids, image_records, strict=True)
    ]
    unsized = sum(math.isnan(width) for width, _ in sizes)
    notes = [f"{unsized} images state no size: answers in words cannot be placed there"] if unsized else []
    file_names = [str(record.get("file_name", "")) for record in image_records]
    # Boxes and areas are pixels already, so small, medium and large need no picture size.
    return _assemble(
        ids=image_ids,
        file_names=file_names,
        sizes=sizes,
        sizes_known=True,
        names=names,
        category_ids=category_ids,
        rows=rows,
        root=root,
        notes=notes,
    )


def from_instances(instances: Sequence[Instance], root: Path | None = None) -> GroundTruth:
    """Read instance records; every distinct description is a category, and missing ids count from 0.

    Raises:
        InputError: When two instances share an image id.
    """
    ids = [i if item.image_id is None else item.image_id for i, item in enumerate(instances)]
    seen: set[ImageId] = set()
    for image_id in ids:
        if image_id in seen:
            raise InputError(f"ground truth: image_id {image_id!r} occurs twice; ids must be unique")
        seen.add(image_id)
    order = sort_ids(ids)
    unsized = sum(item.width is None or item.height is None for item in instances)
    names = sorted({item.desc for instance in instances for item in instance.objects})
    category = {name: i for i, name in enumerate(names)}
    sizes = []
    rows = []
    for image, position in enumerate(order):
        instance = instances[position]
        width, height = (1.0, 1.0) if unsized else (float(instance.width or 0), float(instance.height or 0))
        sizes.append((width, height))
        for item in instance.objects:
            x1, y1, x2, y2 = item.bbox
            box = (x1 * width, y1 * height, (x2 - x1) * width, (y2 - y1) * height)
            rows.append((image, category[item.desc], *box, box[2] * box[3], False))
    notes = [f"{unsized} images state no size: no small, medium and large figures"] if unsized else []
    return _assemble(
        ids=[ids[position] for position in order],
        file_names=[str(instances[position].image) for position in order],
        sizes=sizes,
        sizes_known=not unsized,
        names=names,
        category_ids=range(1, len(names) + 1),
        rows=rows,
        root=root,
        notes=notes,
    )


def _assemble(
    *,
    ids: Sequence[ImageId],
    file_names: Sequence[str],
    sizes: Sequence[tuple[float, float]],
    sizes_known: bool,
    names: Sequence[str],
    category_ids: Sequence[ImageId],
    rows: Sequence[tuple[float, ...]],
    root: Path | None,
    notes: Sequence[str],
) -> GroundTruth:
    """Pack rows ``(image, category, x, y, w, h, area, crowd)`` into arrays."""
    table = np.array(rows, dtype=np.float64).reshape(-1, 8)
    if flat := int(((table[:, 4] <= 0) | (table[:, 5] <= 0)).sum()):
        notes = [*notes, f"{flat} true boxes have no area and can hardly be found"]
    return GroundTruth(
        image_ids=tuple(ids),
        file_names=tuple(file_names),
        sizes_I2=np.array(sizes, dtype=np.float64).reshape(-1, 2),
        sizes_known=sizes_known,
        categories=tuple(names),
        category_ids=tuple(category_ids),
        image_N=table[:, 0].astype(np.int64),
        category_N=table[:, 1].astype(np.int64),
        boxes_N4=table[:, 2:6],
        area_N=table[:, 6],
        crowd_N=table[:, 7].astype(bool),
        root=root,
        notes=tuple(notes),
    )


def _by_id(records: Sequence[Any], key: str, source: str) -> tuple[list[ImageId], list[Mapping[str, Any]]]:
    """Return ids and records of ``images`` or ``categories``; ids must be unique."""
    ids: list[ImageId] = []
    seen: set[ImageId] = set()
    for position, record in enumerate(records):
        where = f"{source}, {key}[{position}]"
        if not isinstance(record, Mapping):
            raise InputError(f"{where}: expected an object, found {type(record).__name__}")
        ids.append(identifier(record.get("id"), f"{where}.id"))
        if ids[-1] in seen:
            raise InputError(f"{where}.id: {ids[-1]!r} occurs twice; ids must be unique")
        seen.add(ids[-1])
    return ids, list(records)


def _known(annotation: Mapping[str, Any], key: str, index: Mapping[ImageId, int], where: str) -> int:
    """Return the index that an annotation's ``image_id`` or ``category_id`` stands for."""
    value = identifier(annotation.get(key), f"{where}.{key}")
    if value not in index:
        raise InputError(
            f"{where}.{key}: {value!r} is not among the file's own; complete or remove the record"
        )
    return index[value]


def _size(record: Mapping[str, Any], where: str) -> tuple[float, float]:
    """Return width and height of a COCO image; NaN where the file states none."""
    if record.get("width") is None or record.get("height") is None:
        return (float("nan"), float("nan"))
    width, height = finite_numbers([record["width"], record["height"]], 2, f"{where}.width/height")
    if width <= 0 or height <= 0:
        raise InputError(f"{where}: expected a positive width and height, found {width:g} x {height:g}")
    return (width, height)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: expected a name, found {value!r:.80}")
    return value
