"""The ceiling: what a model scores that writes the truth itself.

The true boxes go through all that an answer goes through: order and object limit, grid, text and parser. What
is lost there no model can win back.
"""

from __future__ import annotations

from typing import Any

from coord_codec import CoordGrid, Form, Instance, MarkerFamily, Object, Order, Style, encode_target
from coord_eval.truth import GroundTruth

_DEFAULT_GRID = CoordGrid()


def oracle_records(
    truth: GroundTruth,
    *,
    markers: str | MarkerFamily = "obj",
    style: Style = "markers",
    form: Form = "tokens",
    order: Order = "top_left",
    max_objects: int | None = None,
    grid: CoordGrid = _DEFAULT_GRID,
) -> list[dict[str, Any]]:
    """Return a prediction record for each image whose text is the encoded truth.

    Crowd regions are left out, boxes cut at the picture's border; what then has no area is left out too.

    Args:
        truth: The objects; every image needs its size.
        markers: Marker family, see :func:`coord_codec.encode_target`.
        style: ``markers`` or ``json``.
        form: ``tokens`` or ``numbers``.
        order: Order of the objects.
        max_objects: At most so many objects an image.
        grid: The grid to encode with.
    """
    objects: list[list[Object]] = [[] for _ in truth.image_ids]
    for n in range(len(truth.image_N)):
        image = int(truth.image_N[n])
        width, height = truth.sizes_I2[image]
        x, y, w, h = truth.boxes_N4[n]
        x1, y1, x2, y2 = (
            min(max(float(v), 0.0), 1.0) for v in (x / width, y / height, (x + w) / width, (y + h) / height)
        )
        if not truth.crowd_N[n] and x1 < x2 and y1 < y2:
            name = truth.categories[truth.category_N[n]]
            objects[image].append(Object(desc=name, bbox=(x1, y1, x2, y2)))
    records = []
    for image, image_id in enumerate(truth.image_ids):
        name = truth.file_names[image] or str(image_id)
        instance = Instance(image=name, objects=tuple(objects[image]))
        text = encode_target(
            instance, markers=markers, style=style, form=form, order=order, max_objects=max_objects, grid=grid
        )
        records.append({"image_id": image_id, "image": name, "text": text, "finish_reason": "stop"})
    return records
