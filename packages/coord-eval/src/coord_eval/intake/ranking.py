"""Scores by which detections are sorted, since a text states none.

Average precision depends on the order of all detections of a data set. Every result names the source of the scores,
and stands beside AP with a constant score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from coord_codec import InputError
from coord_eval.data.predictions import Prediction
from coord_eval.parse.answer import Answer, ParsedObject

SCORE_SOURCES = {
    "coord_logprobs": "exp(mean log p) of the object's coordinate tokens",
    "coord_desc_logprobs": "exp(mean log p) of its coordinate and description tokens together",
    "coord_min": "smallest probability among its coordinate tokens",
    "emission_rank": "1 / (1 + position in the answer)",
    "constant": "1 for every object",
    "results": "the score given with each box",
}
"""Score sources by name. `exp(mean log p)` is the geometric mean of the token probabilities."""


def choose_source(
    requested: str, answers: Sequence[Answer], predictions: Sequence[Prediction]
) -> tuple[str, list[str]]:
    """Return the score source to use and notes about the choice.

    `auto` chooses the probabilities of coordinates and descriptions if every answer states both, those of coordinates
    if every answer states these, else the constant: scores of two kinds cannot be compared.

    Raises:
        InputError: if an answer lacks what the requested source needs, naming the answer
    """
    if requested not in ("auto", *SCORE_SOURCES) or requested == "results":
        known = ", ".join(["auto", *(name for name in SCORE_SOURCES if name != "results")])
        raise InputError(f"score_source: expected one of {known}, found {requested!r}")
    if requested in ("emission_rank", "constant"):
        return requested, []
    misfits = [problem for pair in zip(answers, predictions, strict=True) if (problem := _misfit(*pair))]
    if requested != "auto":
        if misfits:
            raise InputError(f"score_source {requested}: {misfits[0]}; {len(misfits)} answers cannot be scored")
        if requested == "coord_desc_logprobs" and (bad := _without_desc(answers, predictions)):
            raise InputError(f"score_source {requested}: {bad}")
        return requested, []
    if not any(prediction.coord_logprobs for prediction in predictions):
        return "constant", ["no token probabilities: all boxes have the same score"]
    if misfits:
        return "constant", [f"token probabilities unused, {len(misfits)} answers lack a full set: {misfits[0]}"]
    without = _without_desc(answers, predictions)
    if not any(prediction.desc_logprobs is not None for prediction in predictions):
        return "coord_logprobs", []
    if without:
        return "coord_logprobs", [f"description probabilities unused: {without}"]
    return "coord_desc_logprobs", []


def object_score(source: str, item: ParsedObject, rank: int, prediction: Prediction) -> float:
    """Return the score of one object in (0, 1]."""
    if source == "constant":
        return 1.0
    if source == "emission_rank":
        return 1.0 / (1.0 + rank)
    given = prediction.coord_logprobs or ()
    logs = [given[i] for i in item.coord_indices]
    if source == "coord_min":
        return math.exp(min(logs))
    if source == "coord_desc_logprobs" and item.start_index is not None:
        logs = [*logs, *(prediction.desc_logprobs or ())[item.start_index]]
    return math.exp(math.fsum(logs) / len(logs))


def _misfit(answer: Answer, prediction: Prediction) -> str | None:
    """Return why the probabilities of coordinates do not fit an answer, None if they fit."""
    if any(item.first_coord_index is None for item in answer.objects):
        return f"{prediction.where}: objects in plain numbers have no coordinate tokens"
    if not answer.objects:
        return None
    given = len(prediction.coord_logprobs or ())
    if given != answer.coord_count:
        return f"{prediction.where}: {given} coord_logprobs for {answer.coord_count} coordinate tokens"
    return None


def _without_desc(answers: Sequence[Answer], predictions: Sequence[Prediction]) -> str | None:
    """Return an answer whose probabilities of descriptions do not fit, None if all fit."""
    for answer, prediction in zip(answers, predictions, strict=True):
        if not answer.objects:
            continue
        if prediction.desc_logprobs is None:
            return f"{prediction.where}: no desc_logprobs"
        if len(prediction.desc_logprobs) != answer.start_count:
            return (
                f"{prediction.where}: desc_logprobs for {len(prediction.desc_logprobs)} objects, the text starts "
                f"{answer.start_count}; give a list for each, or desc_token_counts beside a flat list"
            )
        if any(item.start_index is None for item in answer.objects):
            return f"{prediction.where}: a box without description"
    return None
