"""What detections are ranked by when a language model gave no score.

Average precision depends on the order of all detections of a data set; a text has none. Every number states
its source, and AP with a constant score stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from coord_eval.answer import Answer, ParsedObject
from coord_eval.errors import InputError
from coord_eval.predictions import Prediction

#: Sources by name. ``exp(mean log p)`` is the geometric mean of the token probabilities.
SCORE_SOURCES = {
    "coord_logprobs": "exp(mean log p) of the object's coordinate tokens",
    "coord_desc_logprobs": "exp(mean log p) of its coordinate and description tokens together",
    "coord_min": "smallest probability among its coordinate tokens",
    "emission_rank": "1 / (1 + position in the answer)",
    "constant": "1 for every object",
    "results": "the score given with each box",
}


def choose_source(
    requested: str, answers: Sequence[Answer], predictions: Sequence[Prediction]
) -> tuple[str, list[str]]:
    """Return the source to use and what has to be said about the choice.

    ``auto`` takes coordinates and descriptions where every answer brings both, else coordinates where every
    answer brings those, else the constant: scores of two kinds must not be ranked against each other.

    Raises:
        InputError: When a source is asked for that some answer cannot serve, naming the answer.
    """
    if requested not in ("auto", *SCORE_SOURCES) or requested == "results":
        known = ", ".join(["auto", *(name for name in SCORE_SOURCES if name != "results")])
        raise InputError(f"score_source: expected one of {known}, found {requested!r}")
    if requested in ("emission_rank", "constant"):
        return requested, []
    misfits = [problem for pair in zip(answers, predictions, strict=True) if (problem := _misfit(*pair))]
    if requested != "auto":
        if misfits:
            raise InputError(
                f"score_source {requested}: {misfits[0]}; {len(misfits)} answers cannot be scored"
            )
        if requested == "coord_desc_logprobs" and (bad := _without_desc(answers, predictions)):
            raise InputError(f"score_source {requested}: {bad}")
        return requested, []
    if not any(prediction.coord_logprobs for prediction in predictions):
        return "constant", ["no token probabilities: all boxes rank alike"]
    if misfits:
        return "constant", [
            f"token probabilities unused, {len(misfits)} answers lack a full set: {misfits[0]}"
        ]
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
    """Say why coordinate probabilities cannot be joined with an answer, None when they can."""
    if any(item.first_coord_index is None for item in answer.objects):
        return f"{prediction.where}: objects in plain numbers have no coordinate tokens"
    if not answer.objects:
        return None
    given = len(prediction.coord_logprobs or ())
    if given != answer.coord_count:
        return f"{prediction.where}: {given} coord_logprobs for {answer.coord_count} coordinate tokens"
    return None


def _without_desc(answers: Sequence[Answer], predictions: Sequence[Prediction]) -> str | None:
    """Name an answer whose description probabilities cannot be joined, None when all can."""
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
