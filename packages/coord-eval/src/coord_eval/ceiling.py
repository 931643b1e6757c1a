"""The quantisation ceiling: the score of the ground truth itself.

Its objects are sorted, cut at the object limit, quantised on the grid, encoded as the text of an answer and parsed
back. No model can recover what these steps lose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coord_codec import CoordGrid, Form, Instance, MarkerFamily, Object, Order, Style, encode_target
from coord_codec.records import check_description
from coord_eval.arguments import expect
from coord_eval.ground_truth import GroundTruth, GroundTruthSource, load_ground_truth
from coord_eval.intake.collecting import collect_answers
from coord_eval.intake.joining import LabelMatcher, join
from coord_eval.metrics.coco import coco_scores
from coord_eval.parse.parser import parse_answer
from coord_eval.predictions import Prediction, from_records


@dataclass(frozen=True)
class CeilingSettings:
    """How the ground truth is encoded for the ceiling; use the settings of the training.

    Attributes:
        markers: marker family
        max_objects: object limit of an image, None for no limit
        order: object order; it has an effect only under an object limit
    """

    markers: str | MarkerFamily = "obj"
    max_objects: int | None = None
    order: Order = "top_left"

    def __post_init__(self) -> None:
        expect("markers", self.markers, str, MarkerFamily)
        expect("max_objects", self.max_objects, int, type(None))


def oracle_predictions(
    ground_truth: GroundTruthSource,
    *,
    markers: str | MarkerFamily = "obj",
    style: Style = "markers",
    form: Form = "tokens",
    order: Order = "top_left",
    max_objects: int | None = None,
    grid: CoordGrid = CoordGrid(),
) -> list[dict[str, Any]]:
    """Return a prediction record for each image, with the encoded ground truth as its text.

    Crowd regions are left out. Boxes are clipped to the image; a box without area after clipping is left out.

    Args:
        ground_truth: as for `coord_eval.load_ground_truth`; every image needs its size
        markers: marker family, see `coord_codec.encode_target`
        style: `markers` or `json`
        form: `tokens` or `numbers`
        order: order of the objects
        max_objects: maximum number of objects in an image, None for no limit
        grid: grid that quantises the coordinates

    Raises:
        InputError: if the ground truth cannot be read, or an image with objects states no size

    Example:
        >>> from coord_codec import Instance
        >>> cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.3, 0.4]}
        >>> oracle_predictions([Instance(image="a.jpg", width=9, height=9, objects=[cat])])[0]["text"]
        '<obj_start>cat<|coord_100|><|coord_200|><|coord_300|><|coord_400|><obj_end>'
    """
    CeilingSettings(markers, max_objects, order)
    expect("grid", grid, CoordGrid)
    ground_truth = load_ground_truth(ground_truth)
    objects: list[list[Object]] = [[] for _ in ground_truth.image_ids]
    for n in range(len(ground_truth.image_N)):
        image = int(ground_truth.image_N[n])
        width, height = ground_truth.size_of(image)
        x, y, w, h = ground_truth.boxes_N4[n]
        x1, y1, x2, y2 = (
            min(max(float(v), 0.0), 1.0) for v in (x / width, y / height, (x + w) / width, (y + h) / height)
        )
        if not ground_truth.crowd_N[n] and x1 < x2 and y1 < y2:
            name = ground_truth.categories[ground_truth.category_N[n]]
            objects[image].append(Object(desc=name, bbox=(x1, y1, x2, y2)))
    records = []
    for image, image_id in enumerate(ground_truth.image_ids):
        name = ground_truth.file_names[image] or str(image_id)
        instance = Instance(image="any", objects=tuple(objects[image]))
        text = encode_target(
            instance, markers=markers, style=style, form=form, order=order, max_objects=max_objects, grid=grid
        )
        records.append({"image_id": image_id, "image": name, "text": text, "finish_reason": "stop"})
    return records


def no_ceiling(ground_truth: GroundTruth) -> str:
    """Return why the ceiling cannot be computed; empty if it can be."""
    if not np.isfinite(ground_truth.sizes_I2).all():
        return "no ceiling: some images state no size"
    if len(set(ground_truth.categories)) != len(ground_truth.categories):
        return "no ceiling: two categories share a name"
    try:
        for name in ground_truth.categories:
            check_description(name)
    except ValueError as error:
        return f"no ceiling: the name of a category cannot be written in a target text: {error}"
    return ""


def ceiling_scores(
    ground_truth: GroundTruth, settings: CeilingSettings, grid: CoordGrid, backend: str
) -> dict[str, float]:
    """Score the encoded ground truth as if it were the model's answers.

    Returns:
        The twelve COCO metrics with all scores set to 1; empty if they cannot be computed.
    """
    if no_ceiling(ground_truth):
        return {}
    markers, order, max_objects = settings.markers, settings.order, settings.max_objects
    records = oracle_predictions(ground_truth, markers=markers, order=order, max_objects=max_objects, grid=grid)
    predictions = [p for p in from_records(records, "ceiling") if isinstance(p, Prediction)]
    answers = [parse_answer(p.text, markers, grid=grid) for p in predictions]
    images, joined = join(ground_truth, ((p.image_id, p.image, p.where, None) for p in predictions))
    collected = collect_answers(
        ground_truth,
        predictions,
        answers,
        images=images,
        joined=joined,
        labels=LabelMatcher(ground_truth.categories),
        score_source="constant",
    )
    return coco_scores(ground_truth, collected.detections, backend).summary
