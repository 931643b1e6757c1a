"""Scores by which detections are sorted, since a text states none.

Average precision depends on the order of all detections of a data set. Every result states the source of its scores,
and AP with a constant score is given for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coord_codec import InputError
from coord_codec.counts import counted
from coord_eval.boxes.quality import expected_iou, hit_probability
from coord_eval.parse.answer import Answer, ParsedObject, corners
from coord_eval.settings import SCORE_SOURCE

if TYPE_CHECKING:
    from coord_eval.intake.prediction import Prediction


def choose_source(
    requested: str, answers: Sequence[Answer], predictions: Sequence[Prediction]
) -> tuple[str, list[str]]:
    """Return the score source to use and notes about the choice.

    `auto` chooses the first source for which every answer has the data: the expected IoU, the probabilities of
    coordinates and descriptions, those of coordinates, the confidences in the text. Otherwise it chooses the constant,
    since scores of two kinds cannot be compared. Confidences in the text are used if at least half of the boxes state
    one; a box without one has the mean of its answer.

    Raises:
        InputError: if an answer lacks the data of the requested source; the message names the answer
    """
    if unknown := SCORE_SOURCE.expected_name(requested):
        raise InputError(f"score_source: {unknown}")
    if requested in ("emission_rank", "constant"):
        return requested, []
    pairs = list(zip(answers, predictions, strict=True))
    available = [source for source in _AUTO if any(_has_data(source, *pair) for pair in pairs)]
    notes: list[str] = []
    for source in available if requested == "auto" else [requested]:
        problems = [problem for pair in pairs if (problem := _data_problem(source, *pair))]
        if not problems:
            return source, notes
        if source == "stated" and (note := _unstated(answers)):
            return source, [*notes, note]
        if requested != "auto":
            raise InputError(
                f"score_source {requested}: {problems[0]}; {counted(len(problems), 'answer')} cannot be scored"
            )
        notes.append(
            f"{_AUTO[source]} unused, {counted(len(problems), 'answer lacks', 'answers lack')} a full set: "
            f"{problems[0]}"
        )
    return "constant", notes or ["no token probabilities: all boxes have the same score"]


def with_one_unit(answers: Sequence[Answer]) -> tuple[list[Answer], list[str]]:
    """Return the answers with stated confidences in the unit of the whole set, and a note on it.

    A single number does not tell its unit: beside 95 a 1 is one per cent, and beside 5 a fifth. So all numbers of a set
    are divided by 100, 10 or 5, the least that none of them exceeds, if one of them is above 1.
    """
    numbers = [item.score_number for answer in answers for item in answer if item.score_number is not None]
    most = max(numbers, default=0.0)
    if most <= 1:
        return list(answers), []
    unit = next((unit for unit in (5.0, 10.0) if most <= unit), 100.0)
    stated = (
        f"confidences from {min(numbers):g} to {most:g} are divided by {unit:g}: the unit is taken to be that of all "
        f"{counted(len(numbers), 'number')}"
    )
    shares = sum(0 < number < 1 for number in numbers)
    notes = [stated + (f", although {shares} of them lie between 0 and 1" if shares else "")]

    def in_unit(item: ParsedObject) -> ParsedObject:
        return item if item.score_number is None else item._replace(score=item.score_number / unit)

    return [replace(answer, objects=tuple(map(in_unit, answer))) for answer in answers], notes


def _unstated(answers: Sequence[Answer]) -> str:
    """Return a note on the boxes that state no confidence; empty if they are the majority, or all."""
    unstated = sum(item.score is None for answer in answers for item in answer)
    boxes = sum(map(len, answers))
    if 2 * unstated > boxes:
        return ""
    stated = counted(boxes, "box states", "boxes state")
    return (
        f"{unstated} of {stated} no confidence: they are ranked by the mean of their answer, or last if it states none"
    )


_AUTO = {
    "expected_iou": "spreads of coordinates",
    "coord_desc_logprobs": "description probabilities",
    "coord_logprobs": "token probabilities",
    "stated": "stated confidences",
}
"""Sources that `auto` tries, in order, and the data that each needs, for messages."""


def object_scores(source: str, answer: Answer, prediction: Prediction) -> list[float]:
    """Return the score in [0, 1] of each object of an answer."""
    if source in _FROM_SPREAD:
        return _box_quality(source, answer, prediction)
    if source == "stated":
        stated = [item.score for item in answer if item.score is not None]
        default = math.fsum(stated) / len(stated) if stated else 0.0
        return [default if item.score is None else item.score for item in answer]
    return [_object_score(source, item, rank, prediction) for rank, item in enumerate(answer)]


_FROM_SPREAD = ("expected_iou", "hit_probability")


def _box_quality(source: str, answer: Answer, prediction: Prediction) -> list[float]:
    if not answer.objects:
        return []

    def sides_of(item: ParsedObject, values: Sequence[float]) -> list[float]:
        sides = [values[i] for i in item.coord_indices]
        return corners("yxyx", sides) if item.order == "yxyx" else sides

    mean = [sides_of(item, prediction.coord_expected or ()) for item in answer]
    spread = [sides_of(item, prediction.coord_spread or ()) for item in answer]
    quality = (expected_iou if source == "expected_iou" else hit_probability)([o.box for o in answer], mean, spread)
    return [_label_probability(item, prediction) * q for item, q in zip(answer, quality.tolist(), strict=True)]


def _label_probability(item: ParsedObject, prediction: Prediction) -> float:
    """Return the probability of the description, 1 if the prediction does not contain it."""
    logs = prediction.desc_logprobs or ()
    if item.start_index is None or item.start_index >= len(logs):
        return 1.0
    return math.exp(math.fsum(logs[item.start_index]))


def _object_score(source: str, item: ParsedObject, rank: int, prediction: Prediction) -> float:
    if source == "constant":
        return 1.0
    if source == "emission_rank":
        return 1.0 / (1.0 + rank)
    coord_logprobs = prediction.coord_logprobs or ()
    logs = [coord_logprobs[i] for i in item.coord_indices]
    if source == "coord_min":
        return math.exp(min(logs))
    if source == "coord_desc_logprobs" and item.start_index is not None:
        logs = [*logs, *(prediction.desc_logprobs or ())[item.start_index]]
    return math.exp(math.fsum(logs) / len(logs))


def _has_data(source: str, answer: Answer, prediction: Prediction) -> bool:
    """Return whether a prediction contains any of the data that a source needs."""
    if source == "stated":
        return any(item.score is not None for item in answer)
    if source in _FROM_SPREAD:
        return prediction.coord_spread is not None
    needs_desc = source == "coord_desc_logprobs"
    return bool(prediction.coord_logprobs) and not (needs_desc and prediction.desc_logprobs is None)


def _data_problem(source: str, answer: Answer, prediction: Prediction) -> str | None:
    """Return why the data of a prediction do not fit its parsed answer, None if they fit."""
    if not answer.objects:
        return None
    where = prediction.where
    if source == "stated":
        without = sum(item.score is None for item in answer)
        return f"{where}: {counted(without, 'object states', 'objects state')} no confidence" if without else None
    if any(item.first_coord_index is None for item in answer.objects):
        return f"{where}: objects in plain numbers have no coordinate tokens"
    fields = ("coord_expected", "coord_spread") if source in _FROM_SPREAD else ("coord_logprobs",)
    for field in fields:
        count = len(getattr(prediction, field) or ())
        if count != answer.coord_count:
            return f"{where}: {count} {field} for {answer.coord_count} coordinate tokens"
    if source in _FROM_SPREAD and any(len(item.coord_indices) != 4 for item in answer):
        return f"{where}: an object that is no box of four coordinate tokens has no expected IoU"
    return _desc_problem(answer, prediction) if source == "coord_desc_logprobs" else None


def _desc_problem(answer: Answer, prediction: Prediction) -> str | None:
    if prediction.desc_logprobs is None:
        return f"{prediction.where}: no desc_logprobs"
    if len(prediction.desc_logprobs) != answer.start_count:
        return (
            f"{prediction.where}: desc_logprobs for {counted(len(prediction.desc_logprobs), 'object')}, the text "
            f"starts {answer.start_count}; give a list for each, or desc_token_counts beside a flat list"
        )
    if any(item.start_index is None for item in answer.objects):
        return f"{prediction.where}: a box without description"
    return None
