"""Boxes read as expectations instead of as the tokens that were said.

Softmax over the coordinate tokens gives each side a mean in [0, 1]; a producer that knows it states it beside
the text (``coord_expected``), and it isn't bound to the grid.
"""

from __future__ import annotations

from dataclasses import replace

from coord_eval.answer import Answer, Drop, ParsedObject
from coord_eval.errors import InputError
from coord_eval.predictions import Prediction

#: What a box can be read from.
BOX_SOURCES = ("tokens", "expected")


def with_expected_boxes(answer: Answer, prediction: Prediction) -> Answer:
    """Return the answer with each object's box taken from ``coord_expected``.

    Corners that come out swapped are put right without a mark, since the text may well have them right; a box
    without area is dropped.

    Raises:
        InputError: When the prediction doesn't state one expectation for each coordinate token of its text.
    """
    if not answer.objects:
        return answer
    given = prediction.coord_expected
    if given is None or len(given) != answer.coord_count:
        found = "nothing" if given is None else f"{len(given)} values"
        raise InputError(
            f"{prediction.where}, coord_expected: expected one value for each of {answer.coord_count} coordinate "
            f"tokens, found {found}"
        )
    objects, dropped = [], list(answer.dropped)
    for item in answer.objects:
        box = _box(item, given, prediction.where)
        if box[0] < box[2] and box[1] < box[3]:
            objects.append(replace(item, box=box))
        else:
            dropped.append(Drop("no_area", item.span))
    dropped.sort(key=lambda drop: drop.span)
    status = "failed" if not objects else "partial" if dropped else answer.status
    return replace(answer, objects=tuple(objects), dropped=tuple(dropped), status=status)


def _box(item: ParsedObject, given: tuple[float, ...], where: str) -> tuple[float, float, float, float]:
    sides = [given[i] for i in item.coord_indices]
    if not sides:
        raise InputError(f"{where}: an object in plain numbers has no expectation to read its box from")
    xs, ys = sides[::2], sides[1::2]
    return (min(xs), min(ys), max(xs), max(ys))
