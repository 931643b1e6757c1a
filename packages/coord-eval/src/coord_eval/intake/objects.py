"""Parses and scores the objects of one answer, without ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from coord_codec import InputError
from coord_codec.settings import takes_fields_of
from coord_eval.intake.box_sources import with_boxes_from
from coord_eval.intake.joining import without_labels
from coord_eval.intake.predictions import load_predictions
from coord_eval.intake.ranking import choose_source, object_scores
from coord_eval.intake.results import ResultsList
from coord_eval.parse.answer import ParsedObject, without_other_images, without_points
from coord_eval.parse.parser import parse_answer
from coord_eval.settings import AnswerSettings


class ScoredObject(ParsedObject):
    """An object whose `score` is the one by which it is ranked, in (0, 1], whether or not the answer states it."""

    __slots__ = ()
    score: float


@takes_fields_of(answers=AnswerSettings)
def scored_objects(
    record: Mapping[str, Any], *, answers: AnswerSettings = AnswerSettings(), score_source: str = "auto"
) -> tuple[list[ScoredObject], dict[str, int]]:
    """Parse one record of `predictions.jsonl` and score its objects.

    Args:
        record: has `text`, `image` or `image_id`, and the fields that the score source needs
        answers: how the text becomes boxes
        score_source: one of `SCORE_SOURCES`, or `"auto"`

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
    answers.check_acts_in("scored_objects")
    loaded = load_predictions([record])
    if isinstance(loaded, ResultsList):
        raise InputError("the record has no text: expected the record of an answer, found a box of a results list")
    (prediction,) = loaded
    answer = parse_answer(
        prediction.text,
        answers.format,
        scale=cast(Any, answers.scale),
        grid=answers.grid,
        keep_flat=answers.boxes != "tokens",
        geometry=answers.shape,
    )
    answer = without_labels(without_other_images(without_points(answer, answers.shape)), answers.ignored_labels)
    if answers.boxes != "tokens":
        answer = with_boxes_from(answers.boxes, answer, prediction)
    source, _ = choose_source(score_source, [answer], [prediction])
    scored = zip(answer, object_scores(source, answer, prediction), strict=True)
    objects = [ScoredObject(*item._replace(score=score)) for item, score in scored]
    return objects, dict(Counter(drop.reason for drop in answer.dropped))
