"""Parses and scores the objects of one answer, without ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from coord_codec import CoordGrid, InputError, MarkerFamily
from coord_eval.intake.answers import AnswerSettings
from coord_eval.intake.box_sources import with_boxes_from
from coord_eval.intake.joining import without_labels
from coord_eval.intake.predictions import from_records
from coord_eval.intake.ranking import choose_source, object_scores
from coord_eval.intake.results import ResultsList
from coord_eval.parse.answer import ParsedObject, without_other_images, without_points
from coord_eval.parse.parser import parse_answer


class ScoredObject(ParsedObject):
    """An object whose `score` is the one by which it is ranked, in (0, 1], whether or not the answer states it."""

    __slots__ = ()
    score: float


def scored_objects(
    record: Mapping[str, Any],
    *,
    boxes: str = "tokens",
    format: str | MarkerFamily = "auto",
    scale: float | None = None,
    score_source: str = "auto",
    grid: CoordGrid = CoordGrid(),
    geometry: str = "box",
    ignored_labels: str | Sequence[str] = (),
) -> tuple[list[ScoredObject], dict[str, int]]:
    """Parse one record of `predictions.jsonl` and score its objects.

    Args:
        record: has `text`, `image` or `image_id`, and the fields that the score source needs
        boxes: a key of `BOX_SOURCES`: `"tokens"`, `"expected"`, `"median"` or `"best_iou"`
        format: as for `parse_answer`
        scale: divisor of plain numbers; None for that of the grid
        score_source: one of `SCORE_SOURCES`, or `"auto"`
        grid: grid of the coordinate tokens
        geometry: geometry that the coordinates between markers describe, see `parse_answer`; `box` encloses the shape
        ignored_labels: labels that name no object; objects with such a label are dropped and counted

    Returns:
        The objects in the order of the answer, and the number of dropped pieces of text by reason.

    Raises:
        InputError: if the record is not an answer, or lacks a field that the score source needs

    Example:
        >>> text = "<|object_ref_start|>cat<|object_ref_end|><|box_start|><|coord_0|><|coord_0|><|coord_500|>"
        >>> objects, dropped = scored_objects({"image": "a.jpg", "text": text + "<|coord_250|><|box_end|>"})
        >>> objects[0].desc, objects[0].box, objects[0].score
        ('cat', (0.0, 0.0, 0.5, 0.25), 1.0)
    """
    AnswerSettings(boxes, format, scale, grid, geometry, ignored_labels)
    loaded = from_records([record])
    if isinstance(loaded, ResultsList):
        raise InputError("the record has no text: expected the record of an answer, found a box of a results list")
    (prediction,) = loaded
    answer = parse_answer(
        prediction.text, format, scale=scale, grid=grid, keep_flat=boxes != "tokens", geometry=geometry
    )
    answer = without_labels(without_other_images(without_points(answer, geometry)), ignored_labels)
    if boxes != "tokens":
        answer = with_boxes_from(boxes, answer, prediction)
    source, _ = choose_source(score_source, [answer], [prediction])
    scored = zip(answer, object_scores(source, answer, prediction), strict=True)
    objects = [ScoredObject(*item._replace(score=score)) for item, score in scored]
    return objects, dict(Counter(drop.reason for drop in answer.dropped))
