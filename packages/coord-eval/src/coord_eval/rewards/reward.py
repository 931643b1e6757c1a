"""One number in [0, 1] for each answer: `box_reward`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

import numpy as np

from coord_codec import CoordGrid, InputError, MarkerFamily
from coord_codec.counts import counted
from coord_eval.rewards.judged import JudgedAnswers, Truth, judge
from coord_eval.rewards.kinds import REWARDS
from coord_eval.rewards.measures import duplicate_boxes
from coord_eval.settings import LabelSettings

RewardKind = str | Mapping[str, float]
"""A name of `REWARDS`, or weights of several, whose mean is the reward."""


@dataclass(frozen=True)
class RewardedAnswer:
    """The reward of one answer, and what it is made of.

    Attributes:
        value: the reward in [0, 1]
        parts: the value of each kind in it, by name
        objects: number of objects of the image, without crowd regions
        boxes: number of boxes of the answer
        hits: number of boxes with an IoU of at least .5 with their object
        dropped: number of pieces that could not be read
        duplicates: number of boxes that repeat an earlier one or are a second box of an object
    """

    value: float
    parts: dict[str, float]
    objects: int
    boxes: int
    hits: int
    dropped: int
    duplicates: int


def box_reward(
    answers: Sequence[str],
    truths: Sequence[Truth],
    kind: RewardKind = "f1",
    *,
    parts: bool = False,
    format: str | MarkerFamily = "auto",
    scale: float | Literal["pixels"] | None = None,
    image_sizes: Sequence[tuple[float, float]] | None = None,
    grid: CoordGrid = CoordGrid(),
    labels: LabelSettings = LabelSettings(),
) -> list[Any]:
    """Reward answers for their boxes.

    Each answer is judged alone, so that a reward does not depend on the batch. Name the format in training: with
    `auto` a model may change it.

    Args:
        answers: the texts, with their special tokens
        truths: for each answer the objects of its image: a target text in the format of the answers, a record, or a
            list of objects with `desc` and `bbox` in [0, 1]
        kind: a name of `REWARDS`, or weights of several such as `{"f1": 0.9, "format": 0.1}`
        parts: whether what the rewards are made of is returned too
        format: format of the answers, see `coord_eval.parse_answer`
        scale: divisor of plain numbers, see there
        image_sizes: width and height of the model's input for each answer, for `scale="pixels"`
        grid: grid of the coordinate tokens
        labels: how labels are matched; by default differences of case, plural and spacing are none

    Returns:
        A value in [0, 1] for each answer; with `parts` its `RewardedAnswer`.

    Raises:
        InputError: for an unknown kind, numbers of answers and truths that differ, or a faulty truth; never because
            of an answer

    Example:
        >>> truth = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}]
        >>> right = "<obj_start>cat<|coord_100|><|coord_200|><|coord_500|><|coord_600|><obj_end>"
        >>> [round(value, 3) for value in box_reward([right, "", right + right], [truth] * 3)]
        [1.0, 0.0, 0.667]
        >>> box_reward([right + right], [truth], {"ap": 0.75, "duplicates": 0.25}, parts=True)[0].parts
        {'ap': 0.75, 'duplicates': 0.5}
    """
    weights = _weights(kind)
    judged = judge(answers, truths, format=format, scale=scale, image_sizes=image_sizes, grid=grid, labels=labels)
    values = {name: _checked(name, judged) for name in weights}
    total = sum(weights.values())
    value_I = sum((weights[name] / total * values[name] for name in weights), np.zeros(len(answers)))
    # The weights' rounding must not carry a sum beyond its bounds.
    value_I = np.clip(value_I, 0.0, 1.0)
    return _with_parts(judged, value_I, values) if parts else value_I.tolist()


def _weights(kind: RewardKind) -> Mapping[str, float]:
    """Return the weights of a kind by name; raises an InputError for an unknown name, or weights not above 0."""
    weights = {kind: 1.0} if isinstance(kind, str) else kind
    if not weights:
        raise InputError(f"reward: expected one or more of {', '.join(REWARDS)}, found none")
    for name, weight in weights.items():
        if name not in REWARDS:
            raise InputError(f"reward: expected one of {', '.join(REWARDS)}, found {name!r}")
        if not isfinite(weight) or weight <= 0:
            raise InputError(f"reward {name}: expected a weight above 0, found {weight!r}")
    return weights


def _checked(name: str, judged: JudgedAnswers) -> np.ndarray:
    """Return the values of a kind, which a registered one may have got wrong."""
    value_I = np.asarray(REWARDS[name].measure(judged), np.float64)
    if value_I.shape != (len(judged.answers),) or not ((value_I >= 0) & (value_I <= 1)).all():
        answers = counted(len(judged.answers), "answer")
        found = value_I.tolist()
        raise InputError(f"reward {name}: expected a value in [0, 1] for each of {answers}, found {found}")
    return value_I


def _with_parts(judged: JudgedAnswers, value_I: np.ndarray, values: Mapping[str, np.ndarray]) -> list[RewardedAnswer]:
    duplicates_I = judged.scored.sum_detections(duplicate_boxes(judged))
    return [
        RewardedAnswer(
            value=float(value_I[i]),
            parts={name: float(value[i]) for name, value in values.items()},
            objects=int(judged.objects_I[i]),
            boxes=len(answer),
            hits=int(judged.hits_IT[i, 0]),
            dropped=len(answer.dropped),
            duplicates=int(duplicates_I[i]),
        )
        for i, answer in enumerate(judged.answers)
    ]
