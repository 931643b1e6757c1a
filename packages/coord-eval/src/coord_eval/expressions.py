"""Referring expressions: one phrase, one box, right or wrong.

RefCOCO (Yu et al. 2016, https://arxiv.org/abs/1608.00272) reports the share of phrases whose box has an IoU of at
least .5 with the true one, Acc@.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from coord_eval.answer import Answer
from coord_eval.errors import InputError
from coord_eval.matching import iou_xywh


@dataclass(frozen=True)
class ExpressionScores:
    """Accuracy over referring expressions.

    Attributes:
        phrases: How many there are.
        accuracy: Share whose IoU reaches each threshold asked for.
        mean_iou: Mean IoU, an answer without box counting 0.
        without_box: Answers without a box, which count as wrong.
        several_boxes: Answers with more than one box; the first one counts.
    """

    phrases: int
    accuracy: dict[str, float]
    mean_iou: float
    without_box: int
    several_boxes: int


def score_expressions(
    boxes: Iterable[Sequence[float]], answers: Iterable[Answer], thresholds: Sequence[float] = (0.5,)
) -> ExpressionScores:
    """Score answers to referring expressions by their first box, whatever its description.

    Args:
        boxes: The true ``(x1, y1, x2, y2)`` of each phrase in [0, 1]. IoU is the same in pixels.
        answers: The parsed answer to each phrase, in the same order.
        thresholds: IoU from which a box is right.

    Raises:
        InputError: When there are not as many answers as boxes.
    """
    boxes, answers = [tuple(map(float, box)) for box in boxes], list(answers)
    if len(boxes) != len(answers):
        raise InputError(
            f"expressions: {len(boxes)} boxes and {len(answers)} answers; give one answer a phrase"
        )
    iou = [
        _iou(box, answer.objects[0].box) if answer.objects else 0.0
        for box, answer in zip(boxes, answers, strict=True)
    ]
    values = np.array(iou)
    return ExpressionScores(
        phrases=len(boxes),
        accuracy={f"{t:g}": float((values >= t).mean()) if len(values) else 0.0 for t in thresholds},
        mean_iou=float(values.mean()) if len(values) else 0.0,
        without_box=sum(not answer.objects for answer in answers),
        several_boxes=sum(len(answer) > 1 for answer in answers),
    )


def _iou(a: Sequence[float], b: Sequence[float]) -> float:
    xywh = [np.array([[x1, y1, x2 - x1, y2 - y1]]) for x1, y1, x2, y2 in (a, b)]
    return float(iou_xywh(*xywh)[0, 0])
