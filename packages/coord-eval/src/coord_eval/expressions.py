"""Referring expressions: one phrase, one box, right or wrong.

RefCOCO (Yu et al. 2016, https://arxiv.org/abs/1608.00272) reports the share of phrases whose box has an IoU of at
least .5 with the true one, Acc@.5.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from coord_codec import CoordGrid, Instance, MarkerFamily
from coord_eval.answer import Answer
from coord_eval.bootstrap import interval
from coord_eval.collecting import assumed_scale_notes
from coord_eval.errors import InputError
from coord_eval.intake import PredictionSource, Progress, Reading, Scale, load_predictions, parse_all, silent
from coord_eval.matching import iou_xywh
from coord_eval.predictions import Prediction
from coord_eval.truth import from_instances
from coord_eval.truth_files import read_instance_lines

_DEFAULT_GRID = CoordGrid()


@dataclass(frozen=True)
class ExpressionScores:
    """Accuracy over referring expressions.

    Attributes:
        phrases: How many there are.
        accuracy: Share whose IoU reaches each threshold asked for.
        mean_iou: Mean IoU, an answer without box counting 0.
        without_box: Answers without a box, which count as wrong.
        several_boxes: Answers with more than one box; the first one counts.
        intervals: ``value``, ``low`` and ``high`` of each accuracy (``"Acc@0.5"``) and of ``"mean_iou"``: the central
            95 % of resamples of the pictures, each with all its phrases. Empty without resamples.
        notes: What a reader of the numbers has to know.
    """

    phrases: int
    accuracy: dict[str, float]
    mean_iou: float
    without_box: int
    several_boxes: int
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, values unrounded."""
        return asdict(self)


def score_expressions(
    boxes: Iterable[Sequence[float]],
    answers: Iterable[Answer],
    thresholds: Sequence[float] = (0.5,),
    *,
    images: Sequence[Hashable] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> ExpressionScores:
    """Score answers to referring expressions by their first box, whatever its description.

    Args:
        boxes: The true ``(x1, y1, x2, y2)`` of each phrase in [0, 1]. IoU is the same in pixels.
        answers: The parsed answer to each phrase, in the same order.
        thresholds: IoU from which a box is right.
        images: The picture of each phrase, by any name; pictures are what intervals are drawn from. None: every phrase
            has a picture of its own.
        resamples: Draws of the pictures, with replacement; 0 for no intervals.
        seed: Of the draws.

    Raises:
        InputError: When there are not as many answers, or pictures, as boxes.
    """
    boxes, answers = [tuple(map(float, box)) for box in boxes], list(answers)
    if len(boxes) != len(answers):
        raise InputError(
            f"expressions: {len(boxes)} boxes and {len(answers)} answers; give one answer a phrase"
        )
    if images is not None and len(images) != len(boxes):
        raise InputError(
            f"expressions: {len(boxes)} boxes and {len(images)} pictures; name each phrase's picture"
        )
    iou = [
        _iou(box, answer.objects[0].box) if answer.objects else 0.0
        for box, answer in zip(boxes, answers, strict=True)
    ]
    values = np.array(iou)
    measured = {f"Acc@{t:g}": (values >= t).astype(np.float64) for t in thresholds} | {"mean_iou": values}
    return ExpressionScores(
        phrases=len(boxes),
        accuracy={f"{t:g}": float((values >= t).mean()) if len(values) else 0.0 for t in thresholds},
        mean_iou=float(values.mean()) if len(values) else 0.0,
        without_box=sum(not answer.objects for answer in answers),
        several_boxes=sum(len(answer) > 1 for answer in answers),
        intervals=_intervals(measured, images or range(len(boxes)), resamples, seed) if len(values) else {},
    )


def _intervals(
    measured: dict[str, np.ndarray], images: Sequence[Hashable], resamples: int, seed: int
) -> dict[str, dict[str, float]]:
    """Intervals of means over phrases when pictures are drawn anew, with all their phrases."""
    if not resamples:
        return {}
    places = {image: place for place, image in enumerate(dict.fromkeys(images))}
    image_N = np.array([places[image] for image in images])
    # As often as each picture is drawn, resample by resample: [B, pictures].
    drawn_BI = np.random.default_rng(seed).multinomial(
        len(places), np.full(len(places), 1 / len(places)), resamples
    )
    phrases_B = drawn_BI @ np.bincount(image_N)
    return {
        name: interval(float(value_N.mean()), drawn_BI @ np.bincount(image_N, value_N) / phrases_B)
        for name, value_N in measured.items()
    }


def score_expression_files(
    ground_truth: str | Path | Sequence[Instance],
    predictions: PredictionSource,
    thresholds: Sequence[float] = (0.5,),
    *,
    format: str | MarkerFamily = "auto",
    scale: Scale = None,
    grid: CoordGrid = _DEFAULT_GRID,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> ExpressionScores:
    """Score a file of answers against a file of phrases, line by line.

    Args:
        ground_truth: Instance JSON lines, a phrase and its box each: one object, whose description is the phrase. A
            picture with several phrases has several lines.
        predictions: ``predictions.jsonl``, the answer to each phrase in the same order. Where both sides name picture
            or id they have to agree.
        thresholds: IoU from which a box is right.
        format: Format of the answers, see :func:`coord_eval.parse_answer`.
        scale: What plain numbers are divided by, see :func:`coord_eval.score`.
        grid: Grid of the coordinate tokens.
        resamples: Draws of the pictures for intervals; 0 for none.
        seed: Of the draws.
        progress: Called with a stage's name, what is done and what there is to do.

    Raises:
        InputError: When the files don't fit each other, naming the line.
    """
    instances = read_instance_lines(ground_truth)
    for number, item in enumerate(instances, 1):
        if len(item.objects) != 1:
            raise InputError(
                f"ground truth, phrase {number} ({item.image}): expected one object, found {len(item.objects)}; "
                "give each phrase a line of its own"
            )
    answered = load_predictions(predictions)
    loaded = [item for item in answered if isinstance(item, Prediction)]
    if len(loaded) < len(answered):
        raise InputError("expressions: expected answers in words, found a COCO results list")
    if len(loaded) != len(instances):
        raise InputError(
            f"expressions: {len(instances)} phrases and {len(loaded)} answers; give one answer a phrase, in order"
        )
    for prediction, item in zip(loaded, instances, strict=True):
        _check_same_picture(prediction, item)
    # Pictures recur, phrases do not: each line is a picture of its own here.
    truth = from_instances([item.model_copy(update={"image_id": None}) for item in instances])
    reading = Reading(format=format, scale=scale, grid=grid)
    answers, notes = parse_all(truth, loaded, range(len(loaded)), reading, progress or silent)
    boxes = [item.objects[0].bbox for item in instances]
    images = [item.image for item in instances]
    scores = score_expressions(boxes, answers, thresholds, images=images, resamples=resamples, seed=seed)
    return replace(scores, notes=(*notes, *assumed_scale_notes(answers)))


def _check_same_picture(prediction: Prediction, item: Instance) -> None:
    """Raise when an answer says that it is about another picture than the phrase in its place."""
    found: object
    expected: object
    if prediction.image is not None:
        same = PurePath(prediction.image).name == PurePath(item.image).name
        found, expected = prediction.image, item.image
    else:
        same = item.image_id is None or str(prediction.image_id) == str(item.image_id)
        found, expected = prediction.image_id, item.image_id
    if not same:
        raise InputError(
            f"{prediction.where}: about {found!r}, where the phrase in its place is about {expected!r}; "
            "answers must come in the order of the phrases"
        )


def _iou(a: Sequence[float], b: Sequence[float]) -> float:
    xywh = [np.array([[x1, y1, x2 - x1, y2 - y1]]) for x1, y1, x2, y2 in (a, b)]
    return float(iou_xywh(*xywh)[0, 0])
