"""From predictions to parsed answers, on one scale of coordinates for the whole set.

What plain numbers have to be divided by is named, assumed, or inferred with the evidence. The whole set has one scale,
since a single answer can look right on a wrong one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from coord_codec import CoordGrid, InputError, MarkerFamily
from coord_eval.data.ground_truth import GroundTruth
from coord_eval.data.predictions import CocoResult, Prediction, from_records, read_predictions
from coord_eval.intake.box_sources import BOX_SOURCES, STATED_IN, with_boxes_from
from coord_eval.intake.joining import with_prompt_label, without_labels
from coord_eval.intake.scale import infer_scale
from coord_eval.parse.answer import Answer
from coord_eval.parse.parser import candidate_formats, parse_answer
from coord_eval.parse.scalars import plain

PredictionSource = str | Path | Iterable[Mapping[str, Any]]
"""A path, or the records that the file would hold."""
Scale = float | Literal["pixels", "input_pixels", "infer"] | None
Progress = Callable[[str, int, int], None]
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
    geometry: str = "box"
    ignored_labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", plain(self.scale))
        if self.boxes not in BOX_SOURCES:
            raise InputError(f"boxes: expected one of {', '.join(BOX_SOURCES)}, found {self.boxes!r}")
        if isinstance(self.scale, str) and self.scale not in _NAMED_SCALES:
            raise InputError(f"scale: expected a number, {', '.join(_NAMED_SCALES)} or None, found {self.scale!r}")

    @property
    def of_text(self) -> list[str]:
        """Names of the fields that were given and act on text alone; the grid is that of the ceiling too."""
        names = (field.name for field in fields(self) if getattr(self, field.name) != field.default)
        return [name for name in names if name != "grid"]


def load_predictions(predictions: PredictionSource) -> list[Prediction] | list[CocoResult]:
    """Read predictions from a file or from records."""
    return read_predictions(predictions) if isinstance(predictions, str | Path) else from_records(predictions)


def parse_all(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    options: AnswerOptions,
    progress: Progress = silent,
    *,
    keep_flat: bool = False,
) -> tuple[list[Answer], list[str]]:
    """Parse every answer on the scale that was named, or on the one that fits the whole set.

    Args:
        ground_truth: the images
        predictions: the answers as text
        images: index of the image of each, -1 for unknown ones
        options: how the text becomes boxes
        progress: called with the name of a stage, what is done and what there is to do
        keep_flat: whether boxes without area are kept

    Returns:
        The parsed answers, and notes about how they were parsed.
    """
    notes: list[str] = []
    scale, stated = options.scale, STATED_IN.get(options.boxes)
    if scale == "infer":
        choice = infer_scale(ground_truth, predictions, images, options.format, options.grid)
        scale, notes = choice.scale, choice.lines()
    bare = 0
    if stated is not None:
        notes.append(f"boxes are taken from {BOX_SOURCES[options.boxes]}, not from the tokens")
        bare = sum(getattr(prediction, stated) is None for prediction in predictions)
        if 0 < bare < len(predictions):  # a server may leave its probabilities out now and then
            notes.append(f"{bare} of {len(predictions)} answers state no {stated}: their boxes are those of the tokens")
    answers: list[Answer] = []
    whole_set: Counter[str] = Counter()
    ambiguous = []

    def parse(prediction: Prediction, image: int, preferred: Sequence[str] = ()) -> Answer:
        size = _seen_size(ground_truth, prediction, image, scale) if isinstance(scale, str) else None
        from_text = stated is None or (bare < len(predictions) and getattr(prediction, stated) is None)
        answer = parse_answer(
            prediction.text,
            options.format,
            scale=(size and "pixels") if isinstance(scale, str) else scale,
            image_size=size,
            grid=options.grid,
            # The sides may differ where the tokens are the same.
            keep_flat=keep_flat or not from_text,
            preferred=preferred,
            geometry=options.geometry,
        )
        answer = without_labels(with_prompt_label(answer, prediction.label), options.ignored_labels)
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
