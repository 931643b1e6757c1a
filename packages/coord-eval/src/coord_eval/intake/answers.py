"""From predictions to parsed answers, on one scale of coordinates for the whole set.

What plain numbers have to be divided by is named, assumed, or inferred with the evidence. The whole set has one scale,
since a single answer can look right on a wrong one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from coord_codec import CoordGrid, InputError, MarkerFamily
from coord_eval.data.ground_truth import GroundTruth
from coord_eval.data.predictions import CocoResult, Prediction, from_records, read_predictions
from coord_eval.intake.box_quality import best_boxes
from coord_eval.intake.joining import with_prompt_label
from coord_eval.match.overlaps import box_iou
from coord_eval.parse.answer import OVERSHOOT, Answer, Drop, corners
from coord_eval.parse.parser import candidate_formats, parse_answer
from coord_eval.parse.scalars import plain

PredictionSource = str | Path | Iterable[Mapping[str, Any]]
"""A path, or the records that the file would hold."""
Scale = float | Literal["pixels", "input_pixels", "infer"] | None
Progress = Callable[[str, int, int], None]
BOX_SOURCES = {
    "tokens": "the tokens of the text",
    "expected": "coord_expected",
    "median": "coord_median",
    "best_iou": "the box of the highest expected IoU under coord_expected and coord_spread",
}
"""What a box can be taken from."""
_NAMED_SCALES = ("pixels", "input_pixels", "infer")


def silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class AnswerOptions:
    """How the text of answers becomes boxes; `coord_eval.score` explains each field.

    Raises:
        InputError: for values that do not exist
    """

    boxes: str = "tokens"
    format: str | MarkerFamily = "auto"
    scale: Scale = None
    grid: CoordGrid = CoordGrid()

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", plain(self.scale))
        if self.boxes not in BOX_SOURCES:
            raise InputError(f"boxes: expected one of {', '.join(BOX_SOURCES)}, found {self.boxes!r}")
        if isinstance(self.scale, str) and self.scale not in _NAMED_SCALES:
            raise InputError(f"scale: expected a number, {', '.join(_NAMED_SCALES)} or None, found {self.scale!r}")


def load_predictions(predictions: PredictionSource) -> list[Prediction] | list[CocoResult]:
    """Read predictions from a file or from records."""
    return read_predictions(predictions) if isinstance(predictions, str | Path) else from_records(predictions)


def parse_all(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    options: AnswerOptions,
    progress: Progress = silent,
) -> tuple[list[Answer], list[str]]:
    """Parse every answer on the scale that was named, or on the one that fits the whole set.

    Args:
        ground_truth: the images
        predictions: the answers as text
        images: index of the image of each, -1 for unknown ones
        options: how the text becomes boxes
        progress: called with the name of a stage, what is done and what there is to do

    Returns:
        The parsed answers, and notes about how they were parsed.
    """
    notes: list[str] = []
    scale, from_text = options.scale, options.boxes == "tokens"
    if scale == "infer":
        choice = infer_scale(ground_truth, predictions, images, options.format, options.grid)
        scale, notes = choice.scale, choice.lines()
    if not from_text:
        notes.append(f"boxes are taken from {BOX_SOURCES[options.boxes]}, not from the tokens")
    answers: list[Answer] = []
    whole_set: Counter[str] = Counter()
    ambiguous = []

    def parse(prediction: Prediction, image: int, preferred: Sequence[str] = ()) -> Answer:
        size = _seen_size(ground_truth, prediction, image, scale) if isinstance(scale, str) else None
        answer = parse_answer(
            prediction.text,
            options.format,
            scale=(size and "pixels") if isinstance(scale, str) else scale,
            image_size=size,
            grid=options.grid,
            keep_flat=not from_text,  # the sides may differ where the tokens are the same
            preferred=preferred,
        )
        answer = with_prompt_label(answer, prediction.label)
        return answer if from_text else with_boxes_from(options.boxes, answer, prediction)

    for prediction, image in zip(predictions, images, strict=True):
        answers.append(parse(prediction, image))
        if options.format == "auto" and len(candidate_formats(prediction.text)) > 1:
            ambiguous.append(len(answers) - 1)
        else:
            whole_set[answers[-1].format] += len(answers[-1])
        progress("parse", len(answers), len(predictions))
    # A label can hold the tokens of another format: the answers that hold one format only decide.
    if preferred := [name for name, _ in whole_set.most_common()]:
        for i in ambiguous:
            answers[i] = parse(predictions[i], images[i], preferred)
    return answers, notes


def _seen_size(ground_truth: GroundTruth, prediction: Prediction, image: int, scale: str) -> tuple[float, float] | None:
    """Return the size of the image that pixel coordinates refer to, None for an unknown image."""
    if scale == "input_pixels":
        if prediction.input_size is None:
            raise InputError(f"{prediction.where}, input_width: scale input_pixels needs input_width and _height")
        return prediction.input_size
    if prediction.tile:
        return (prediction.tile[2], prediction.tile[3])
    if prediction.width and prediction.height:
        return (prediction.width, prediction.height)
    if image < 0:
        return None
    width, height = ground_truth.sizes_I2[image].tolist()
    if not ground_truth.sizes_known or math.isnan(width):
        raise InputError(f"{prediction.where}: pixels need an image size, and neither file states one")
    return (width, height)


def assumed_scale_notes(answers: Sequence[Answer]) -> list[str]:
    """Count the answers that were parsed on a scale that the caller did not name."""
    assumed = [answer for answer in answers if answer.scale_assumed]
    if not assumed:
        return []
    scale = assumed[0].scale
    divisor = f"/{scale[0]:g}" if scale else "a scale"
    return [f"{len(assumed)} answers give plain numbers; {divisor} was assumed, name the scale to be sure"]


def unrecognised_notes(answers: Sequence[Answer], predictions: Sequence[Prediction]) -> list[str]:
    """Count the answers in which no format found anything, with the words of the first."""
    found = [
        (prediction.text[slice(*answer.dropped[0].span)], prediction.where)
        for answer, prediction in zip(answers, predictions, strict=True)
        if not answer.objects and [drop.reason for drop in answer.dropped] == ["unrecognised"]
    ]
    if not found:
        return []
    text, where = found[0]
    shown = ascii(text[:80]) + ("…" if len(text) > 80 else "")
    return [f"{len(found)} answers hold nothing that a format reads; the first ({where}): {shown}"]


def with_boxes_from(source: str, answer: Answer, prediction: Prediction) -> Answer:
    """Return the answer with the box of each object taken from what is known of its coordinates' distributions.

    Softmax over the coordinate tokens gives each side a distribution in [0, 1], which is not bound to the grid; a
    producer that knows it states mean, median and standard deviation beside the text. Corners that come out swapped are
    sorted without a mark, since the text may have them right; a box without area is dropped.

    Args:
        source: one of `BOX_SOURCES` but `tokens`
        answer: as parsed
        prediction: what the producer states

    Raises:
        InputError: the prediction does not state one value for each coordinate token of its text
    """
    if not answer.objects:
        return answer
    if source == "best_iou":
        means, spreads = (_sides(answer, prediction, name) for name in ("coord_expected", "coord_spread"))
        boxes = best_boxes(means, spreads).tolist()
    else:
        boxes = _sides(answer, prediction, f"coord_{source}")
    objects, dropped = [], list(answer.dropped)
    for item, (x1, y1, x2, y2) in zip(answer.objects, boxes, strict=True):
        box = (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))
        if box[0] < box[2] and box[1] < box[3]:
            objects.append(replace(item, box=box))
        else:
            dropped.append(Drop("no_area", item.span))
    dropped.sort(key=lambda drop: drop.span)
    status = "failed" if not objects else "partial" if dropped else answer.status
    return replace(answer, objects=tuple(objects), dropped=tuple(dropped), status=status)


def _sides(answer: Answer, prediction: Prediction, name: str) -> list[list[float]]:
    """Return a field's values at the four sides of each object, as `x1, y1, x2, y2`."""
    given = getattr(prediction, name)
    if given is None or len(given) != answer.coord_count:
        found = "nothing" if given is None else f"{len(given)} values"
        raise InputError(
            f"{prediction.where}, {name}: expected one value for each of {answer.coord_count} coordinate tokens, "
            f"found {found}"
        )
    rows = []
    for item in answer.objects:
        sides = [given[i] for i in item.coord_indices]
        if not sides or not item.order:
            raise InputError(
                f"{prediction.where}: an object without four coordinate tokens has no distribution to take its box from"
            )
        rows.append(corners(item.order, sides))
    return rows


ScaleName = float | Literal["pixels", "input_pixels"]
RAW_SCALE = 1e12
"""Large enough that no number of an answer lies outside the image while the raw numbers are parsed."""
_FLOOR = 0.1
"""Mean best IoU that the chosen scale must reach; boxes outside their images count as 0."""
_CLOSE = 0.005


@dataclass(frozen=True)
class ScaleEvidence:
    """How well one scale fits the whole set.

    Attributes:
        scale: a number, `pixels` or `input_pixels`, as `score` takes it
        boxes: number of boxes in plain numbers whose image is known
        outside: share of them with a number beyond the image
        mean_iou: mean over them of the best IoU with any object of the image, whatever its label, 0 for those outside
    """

    scale: ScaleName
    boxes: int
    outside: float
    mean_iou: float


@dataclass(frozen=True)
class ScaleChoice:
    """The scale that was chosen.

    Attributes:
        scale: the scale; None if no answer holds plain numbers
        certain: False if another scale fits as well, within .005 of mean IoU
        evidence: every scale that could be tried, best first
    """

    scale: ScaleName | None
    certain: bool
    evidence: tuple[ScaleEvidence, ...]

    def lines(self) -> list[str]:
        """Return the choice and its evidence as notes."""
        if self.scale is None:
            return ["no plain numbers in the answers: nothing to scale"]
        sure = "" if self.certain else ", but another one fits as well"
        return [
            f"scale {self.scale} inferred from {self.evidence[0].boxes} boxes{sure}",
            *(
                f"scale {e.scale}: mean best IoU {e.mean_iou:.4f}, {100 * e.outside:.1f} % of the boxes outside"
                for e in self.evidence[:4]
            ),
        ]


def infer_scale(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    format: str | MarkerFamily,
    grid: CoordGrid,
) -> ScaleChoice:
    """Try every scale on the whole set and choose the one whose boxes fit the objects best.

    A box outside its image counts as an IoU of 0. Labels play no part. Where two scales are within .005 of mean IoU,
    the first of grid, /999, fractions, per cent, /1024, pixels is chosen and the choice is called uncertain.

    The other arguments are those of `parse_all`.

    Raises:
        InputError: if no scale makes the boxes find objects, or answers are about tiles
    """
    rows = _raw_boxes(ground_truth, predictions, images, format, grid)
    if not rows:
        return ScaleChoice(None, True, ())
    image_B, raw_B4, pixels_B2, seen_B2 = (np.array(column) for column in zip(*rows, strict=True))
    divisors: dict[ScaleName, np.ndarray] = {
        float(grid.scale): np.full_like(pixels_B2, grid.scale),
        **{float(n): np.full_like(pixels_B2, n) for n in (grid.scale - 1, 1, 100, 1024)},
        "pixels": pixels_B2,
        "input_pixels": seen_B2,
    }
    tried = []
    for scale, sides_B2 in divisors.items():
        if np.isfinite(sides_B2).all():
            unit_B4 = raw_B4 / np.tile(sides_B2, 2)
            outside_B = (unit_B4 > 1 + OVERSHOOT).any(axis=1)
            fit = mean_best_iou(ground_truth, image_B, np.where(outside_B[:, None], 0, unit_B4))
            tried.append(ScaleEvidence(scale, len(rows), float(outside_B.mean()), fit))
    ranked = sorted(tried, key=lambda e: -e.mean_iou)
    top = ranked[0].mean_iou
    if top < _FLOOR:
        found = ", ".join(f"{e.scale}: {e.mean_iou:.3f}" for e in ranked[:3])
        raise InputError(
            f"scale: none fits (mean best IoU {found}); this looks like a resized input: give input_width and "
            "input_height, or name the scale; `coord-eval score --diagnose` tries orders and shifts as well"
        )
    near = [e for e in tried if e.mean_iou >= top - _CLOSE]
    return ScaleChoice(near[0].scale, len(near) == 1, tuple(ranked))


def _raw_boxes(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    format: str | MarkerFamily,
    grid: CoordGrid,
) -> list[tuple[int, list[float], Sequence[float], Sequence[float]]]:
    """Return image, raw box, image size and size of the model input of each box in plain numbers."""
    rows: list[tuple[int, list[float], Sequence[float], Sequence[float]]] = []
    for prediction, image in zip(predictions, images, strict=True):
        if prediction.tile:
            raise InputError(f"{prediction.where}, tile: the scale of numbers within tiles cannot be inferred; name it")
        if image < 0:
            continue
        size = ground_truth.sizes_I2[image] if ground_truth.sizes_known else (np.nan, np.nan)
        if prediction.width and prediction.height:
            size = (prediction.width, prediction.height)
        seen = prediction.input_size or (np.nan, np.nan)
        answer = parse_answer(prediction.text, format, scale=RAW_SCALE, grid=grid)
        rows += [
            (image, [c * RAW_SCALE for c in item.box], size, seen)
            for item in answer
            if answer.scale is not None and item.geometry == "box"
        ]
    return rows


def mean_best_iou(ground_truth: GroundTruth, image_B: np.ndarray, unit_B4: np.ndarray) -> float:
    """Return the mean over boxes of the best IoU with any object, in unit coordinates."""
    total = 0.0
    sizes_I4 = np.tile(ground_truth.sizes_I2, 2)
    regular = np.nonzero(~ground_truth.crowd_N)[0]
    for image in np.unique(image_B):
        objects = regular[ground_truth.image_N[regular] == image]
        if len(objects):
            chosen = unit_B4[image_B == image]
            boxes = np.concatenate([chosen[:, :2], chosen[:, 2:] - chosen[:, :2]], axis=1)
            iou = box_iou(boxes[:, None], ground_truth.boxes_N4[objects] / sizes_I4[image])
            total += float(iou.max(axis=1).sum())
    return total / len(image_B)
