"""Boxes from the distributions of the coordinate tokens that a prediction gives, instead of from the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coord_codec import InputError
from coord_eval.data.predictions import Prediction
from coord_eval.intake.best_box import best_boxes
from coord_eval.parse.answer import Answer, Drop, corners

BOX_SOURCES = {
    "tokens": "the tokens of the text",
    "expected": "coord_expected",
    "median": "the medians of coord_quantiles",
    "best_iou": "the box of the highest expected IoU under coord_quantiles",
}
"""Sources of boxes by name."""

STATED_IN = {"expected": "coord_expected", "median": "coord_quantiles", "best_iou": "coord_quantiles"}
"""The field of a prediction that each source other than `tokens` uses."""


def with_boxes_from(source: str, answer: Answer, prediction: Prediction) -> Answer:
    """Return the answer with the box of each object taken from the distributions of its coordinates.

    Softmax over the coordinate tokens gives each side a distribution in [0, 1]; the prediction contains its mean,
    standard deviation and quantiles, which do not lie on the grid. Swapped corners are sorted without counting as a
    repair, since the corners in the text may be in order; a box without area is dropped.

    Args:
        source: one of `BOX_SOURCES` other than `tokens`
        answer: the parsed answer
        prediction: the record of the answer, with the field that the source uses

    Raises:
        InputError: if the prediction does not have one value for each coordinate token of its text
    """
    if not answer.objects:
        return answer
    sides_by_object = _sides(answer, prediction, STATED_IN[source])
    boxes: list[Sequence[float]] = sides_by_object
    if source == "best_iou":
        boxes = best_boxes(sides_by_object).tolist()
    elif source == "median":
        boxes = [[side[len(side) // 2] for side in sides] for sides in sides_by_object]
    objects, dropped = [], list(answer.dropped)
    for item, (x1, y1, x2, y2) in zip(answer.objects, boxes, strict=True):
        box = (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))
        if box[0] < box[2] and box[1] < box[3]:
            objects.append(replace(item, box=box))
        else:
            dropped.append(Drop("no_area", item.span))
    dropped.sort(key=lambda drop: drop.span)
    status = "failed" if not objects else "partial" if dropped else answer.status
    return replace(answer, objects=tuple(objects), dropped=tuple(dropped), status=status)


def _sides(answer: Answer, prediction: Prediction, name: str) -> list[Any]:
    """Return the values of a field at the four sides of each object, as `x1, y1, x2, y2`."""
    values = getattr(prediction, name)
    if values is None or len(values) != answer.coord_count:
        found = "nothing" if values is None else f"{len(values)} values"
        raise InputError(
            f"{prediction.where}, {name}: expected one value for each of {answer.coord_count} coordinate tokens, "
            f"found {found}"
        )
    rows = []
    for item in answer.objects:
        sides = [values[i] for i in item.coord_indices]
        if not sides or not item.order or not item.is_box:
            raise InputError(
                f"{prediction.where}: an object without four coordinate tokens has no distribution to take its box from"
            )
        rows.append(corners(item.order, sides))
    return rows
