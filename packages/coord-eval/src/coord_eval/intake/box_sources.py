"""Boxes from what a producer states of each coordinate's distribution, instead of from the tokens of the text."""

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
"""What a box can be taken from."""

STATED_IN = {"expected": "coord_expected", "median": "coord_quantiles", "best_iou": "coord_quantiles"}
"""The field of a prediction that each source but the tokens reads."""


def with_boxes_from(source: str, answer: Answer, prediction: Prediction) -> Answer:
    """Return the answer with the box of each object taken from what is known of its coordinates' distributions.

    Softmax over the coordinate tokens gives each side a distribution in [0, 1], which is not bound to the grid; a
    producer that knows it states mean, standard deviation and quantiles beside the text. Corners that come out swapped
    are sorted without a mark, since the text may have them right; a box without area is dropped.

    Args:
        source: one of `BOX_SOURCES` but `tokens`
        answer: as parsed
        prediction: what the producer states

    Raises:
        InputError: the prediction does not state one value for each coordinate token of its text
    """
    if not answer.objects:
        return answer
    stated = _sides(answer, prediction, STATED_IN[source])
    boxes: list[Sequence[float]] = stated
    if source == "best_iou":
        boxes = best_boxes(stated).tolist()
    elif source == "median":
        boxes = [[side[len(side) // 2] for side in sides] for sides in stated]
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
    """Return a field's values at the four sides of each object, as `x1, y1, x2, y2`."""
    given = getattr(prediction, name)
    if given is None or len(given) != answer.coord_count:
        found = "nothing" if given is None else f"{len(given)} values"
        raise InputError(
            f"{prediction.where}, {name}: expected one value for each of {answer.coord_count} coordinate tokens, "
            f"found {found}"
        )
    rows = []
    for item in answer.objects:
        sides = [given[i] for i in item.coord_indices]
        if not sides or not item.order:
            raise InputError(
                f"{prediction.where}: an object without four coordinate tokens has no distribution to take its box from"
            )
        rows.append(corners(item.order, sides))
    return rows
