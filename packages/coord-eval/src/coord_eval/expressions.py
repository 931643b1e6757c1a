"""Accuracy on referring expressions, as in RefCOCO (Yu et al. 2016, https://arxiv.org/abs/1608.00272).

Acc@.5 is the share of phrases for which the predicted box has an IoU of at least .5 with the box of the phrase.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from coord_codec import CoordGrid, InputError, Instance, MarkerFamily, read_instances
from coord_codec.labels import normalize_label
from coord_eval.ground_truth import load_ground_truth
from coord_eval.intake.answers import (
    AnswerSettings,
    PredictionSource,
    Progress,
    Scale,
    assumed_scale_notes,
    load_predictions,
    parse_all,
    silent,
)
from coord_eval.overlaps import box_iou
from coord_eval.parse.answer import Answer
from coord_eval.predictions import Prediction
from coord_eval.resampling.bootstrap import interval


@dataclass(frozen=True)
class ExpressionScores:
    """Accuracy over referring expressions.

    Attributes:
        phrases: number of phrases
        accuracy: share of phrases whose IoU is at least the threshold, for each threshold
        mean_iou: mean IoU, which is 0 for an answer without a box
        point_in_box: share of phrases for which the answered point, or the centre of the answered box, lies in the box
            of the phrase: the measure of ScreenSpot (Cheng et al. 2024, https://arxiv.org/abs/2401.10935)
        without_box: number of answers without a box, which count as wrong
        several_boxes: number of answers with more than one box; the first one counts
        intervals: `value`, `low` and `high` of each accuracy (`"Acc@0.5"`), of `"mean_iou"` and of `"point_in_box"`:
            the central 95 % of resamples of the images, each with all its phrases; empty without resamples
        notes: conditions that matter when interpreting the metrics
    """

    phrases: int
    accuracy: dict[str, float]
    mean_iou: float
    without_box: int
    several_boxes: int
    point_in_box: float = 0.0
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as plain types, unrounded."""
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
    """Score answers to referring expressions by their first box, regardless of its description.

    Args:
        boxes: `(x1, y1, x2, y2)` of each phrase in [0, 1]; IoU is the same in pixels
        answers: the parsed answer to each phrase, in the same order
        thresholds: lowest IoU of a correct box, one or more values
        images: any identifier of the image of each phrase, since intervals resample images; None if every phrase has
            its own image
        resamples: number of resamples of the images, 0 for no intervals
        seed: seed of the resamples

    Raises:
        InputError: if the numbers of answers or images differ from that of boxes

    Example:
        >>> from coord_eval import parse_answer
        >>> answer = parse_answer('[{"bbox_2d": [100, 100, 300, 300], "label": "left cup"}]', scale=1000)
        >>> score_expressions([(0.1, 0.1, 0.3, 0.4)], [answer]).accuracy
        {'0.5': 1.0}
    """
    boxes, answers = [tuple(map(float, box)) for box in boxes], list(answers)
    if len(boxes) != len(answers):
        raise InputError(f"expressions: {len(boxes)} boxes and {len(answers)} answers; give one answer a phrase")
    if images is not None and len(images) != len(boxes):
        raise InputError(f"expressions: {len(boxes)} boxes and {len(images)} images; name the image of each phrase")
    iou = [
        _iou(box, answer.objects[0].box) if answer.objects else 0.0 for box, answer in zip(boxes, answers, strict=True)
    ]
    values = np.array(iou)
    inside = np.array(
        [
            bool(answer.objects) and _inside(box, answer.objects[0].box)
            for box, answer in zip(boxes, answers, strict=True)
        ],
        dtype=np.float64,
    )
    images = range(len(boxes)) if images is None else images
    measured = {f"Acc@{t:g}": (values >= t).astype(np.float64) for t in thresholds} | {
        "mean_iou": values,
        "point_in_box": inside,
    }
    return ExpressionScores(
        phrases=len(boxes),
        accuracy={f"{t:g}": float((values >= t).mean()) if len(values) else 0.0 for t in thresholds},
        mean_iou=float(values.mean()) if len(values) else 0.0,
        point_in_box=float(inside.mean()) if len(inside) else 0.0,
        without_box=sum(not answer.objects for answer in answers),
        several_boxes=sum(len(answer) > 1 for answer in answers),
        intervals=_intervals(measured, images, resamples, seed) if len(values) else {},
    )


def _intervals(
    measured: dict[str, np.ndarray], images: Sequence[Hashable], resamples: int, seed: int
) -> dict[str, dict[str, float]]:
    """Return intervals of means over phrases when images are resampled with all their phrases."""
    if not resamples:
        return {}
    index = {image: i for i, image in enumerate(dict.fromkeys(images))}
    image_N = np.array([index[image] for image in images])
    # Number of times that each image is drawn in each resample.
    drawn_BI = np.random.default_rng(seed).multinomial(len(index), np.full(len(index), 1 / len(index)), resamples)
    phrases_B = drawn_BI @ np.bincount(image_N)
    return {
        name: interval(float(value_N.mean()), drawn_BI @ np.bincount(image_N, value_N) / phrases_B, True)
        for name, value_N in measured.items()
    }


def score_expression_files(
    ground_truth: str | Path | Sequence[Instance],
    predictions: PredictionSource,
    thresholds: Sequence[float] = (0.5,),
    *,
    format: str | MarkerFamily = "auto",
    scale: Scale = None,
    grid: CoordGrid = CoordGrid(),
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> ExpressionScores:
    """Score a file of answers against a file of phrases, line by line.

    Args:
        ground_truth: instance JSON lines with one object each, whose description is the phrase; an image with several
            phrases has several lines
        predictions: `predictions.jsonl`, the answer to each phrase in the same order; if both files state the image or
            its id, they have to agree
        thresholds: lowest IoU of a correct box, one or more values
        format: format of the answers, see `coord_eval.parse_answer`
        scale: divisor of plain numbers, see `coord_eval.score`
        grid: grid of the coordinate tokens
        resamples: number of resamples of the images for intervals, 0 for none
        seed: seed of the resamples
        progress: called with the name of a stage, the number of steps done and their total

    Raises:
        InputError: if the files do not match; the message names the line
    """
    instances = _read_phrases(ground_truth)
    for number, item in enumerate(instances, 1):
        if len(item.objects) != 1:
            raise InputError(
                f"ground truth, phrase {number} ({item.image}): expected one object, found {len(item.objects)}; "
                "give each phrase a line of its own"
            )
    loaded_records = load_predictions(predictions)
    texts = [item for item in loaded_records if isinstance(item, Prediction)]
    if len(texts) < len(loaded_records):
        raise InputError("expressions: expected answers as text, found a COCO results list")
    if len(texts) != len(instances):
        raise InputError(
            f"expressions: {len(instances)} phrases and {len(texts)} answers; give one answer a phrase, in order"
        )
    for prediction, item in zip(texts, instances, strict=True):
        _check_same_image(prediction, item)
    # Several phrases can share an image, so each line is treated as a separate image.
    lines = load_ground_truth([item.model_copy(update={"image_id": None}) for item in instances])
    options = AnswerSettings(format=format, scale=scale, grid=grid)
    answers, notes = parse_all(lines, texts, range(len(texts)), options, progress or silent)
    answers, moved = _by_phrase(instances, answers)
    boxes = [item.objects[0].bbox for item in instances]
    images = [item.image for item in instances]
    scores = score_expressions(boxes, answers, thresholds, images=images, resamples=resamples, seed=seed)
    return replace(scores, notes=(*notes, *moved, *assumed_scale_notes(answers)))


def _read_phrases(source: str | Path | Sequence[Instance]) -> list[Instance]:
    if not isinstance(source, str | Path):
        return list(source)
    try:
        # `read_annotations` would refuse the repeated images.
        return list(read_instances(source, strict=True).instances)
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror}); check the path") from error


def _check_same_image(prediction: Prediction, item: Instance) -> None:
    """Raise an error if an answer names another image than the phrase at the same position."""
    has_name = prediction.image is not None
    found, expected = (prediction.image, item.image) if has_name else (prediction.image_id, item.image_id)
    if has_name:
        same = PurePath(str(found)).name == PurePath(item.image).name
    else:
        same = expected is None or str(found) == str(expected)
    if not same:
        raise InputError(
            f"{prediction.where}: about {found!r}, but the phrase at this position is about {expected!r}; "
            "answers must have the order of the phrases"
        )


def _inside(box: Sequence[float], answered: Sequence[float]) -> bool:
    """Return whether the centre of the answered box lies in a box; a point is parsed as a tiny box around it."""
    x, y = (answered[0] + answered[2]) / 2, (answered[1] + answered[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _by_phrase(instances: Sequence[Instance], answers: Sequence[Answer]) -> tuple[list[Answer], list[str]]:
    """Bring the answers of each image into the order of its phrases if each names another phrase of that image.

    Returns:
        The answers, and a note with their number if some were moved.
    """
    ordered, moved = list(answers), 0
    by_image: dict[str, list[int]] = {}
    for i, item in enumerate(instances):
        by_image.setdefault(item.image, []).append(i)
    for rows in by_image.values():
        phrases = {normalize_label(instances[i].objects[0].desc): i for i in rows}
        named = {normalize_label(answers[i].objects[0].desc): i for i in rows if answers[i].objects}
        if len(phrases) < len(rows) or phrases.keys() != named.keys() or phrases == named:
            continue
        for name, i in phrases.items():
            ordered[i] = answers[named[name]]
            moved += named[name] != i
    note = f"{moved} answers stood in another order than the phrases of their image: joined by the phrase they name"
    return ordered, [note] if moved else []


def _iou(a: Sequence[float], b: Sequence[float]) -> float:
    xywh = (np.array([x1, y1, x2 - x1, y2 - y1]) for x1, y1, x2, y2 in (a, b))
    return float(box_iou(*xywh))
