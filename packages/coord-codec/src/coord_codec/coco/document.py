"""Reads a COCO document in memory into instances and table rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from coord_codec.boxes import OnBadBox
from coord_codec.coco.reader import CocoReader
from coord_codec.coco.tables import Category, CocoAnnotation, CocoTables, ImageId
from coord_codec.geometry import Geometry
from coord_codec.records import UNCERTAIN, Instance, Object, Problem

WITH_REFUSED = "images left out with an object that was refused (on_bad_box: drop_image)"

_LISTS = ("images", "annotations", "categories")


def is_coco(document: Any) -> bool:
    """Return whether a JSON document is COCO detection annotations."""
    return isinstance(document, Mapping) and all(isinstance(document.get(key), list) for key in _LISTS)


def read_coco(
    document: Mapping[str, Any],
    source: str,
    image_size: Callable[[str], tuple[int, int] | None] | None = None,
    on_bad_box: OnBadBox | None = None,
    geometry: Geometry | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> tuple[tuple[Instance, ...], tuple[Problem, ...], dict[str, int], tuple[Category, ...], CocoTables]:
    """Return instances, problems, notes, categories and table rows of a COCO document; see `read_annotations`."""
    problems: list[Problem] = []
    notes: Counter[str] = Counter()
    lists = document["categories"], document["images"]
    annotations = document["annotations"]
    reader = CocoReader(*lists, source, problems, notes, on_bad_box, image_size, folder, geometry, lambda: annotations)
    objects: dict[ImageId, list[Object]] = {image_id: [] for image_id in reader.usable}
    rows: list[CocoAnnotation] = []
    for position, record in enumerate(annotations):
        placement = reader.place(record, position)
        if placement is None:
            continue
        row, has_area, corners, shape = placement
        if corners is not None:
            fields: dict[str, Any] = {"desc": reader.categories[row.category].name, "bbox": corners}
            if row.iscrowd:
                fields["iscrowd"] = True
            if has_area:
                fields["area"] = row.area
            if shape is not None:
                fields["geometry"] = shape
            objects[reader.images[row.image].id].append(Object.model_construct(**fields))
        rows.append(row)
    reader.check_images()
    left_out = reader.left_out()
    notes[WITH_REFUSED] += len(left_out)
    instances = []
    for image in reader.given:
        if image.id not in objects or image.id in left_out:
            continue
        names = reader.uncertain.get(image.id) if on_bad_box else None
        values: dict[str, Any] = {} if names is None else {UNCERTAIN: sorted(names)}
        values |= {"width": image.width, "height": image.height, "image_id": image.id}
        instances.append(Instance.model_construct(image=image.file_name, **values, objects=tuple(objects[image.id])))
    return tuple(instances), tuple(problems), dict(+notes), reader.categories, CocoTables(reader.images, tuple(rows))
