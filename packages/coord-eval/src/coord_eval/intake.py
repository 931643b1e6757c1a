"""From predictions to boxes in their pictures: reads, joins, parses and places answers; takes results as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from coord_codec import CoordGrid, MarkerFamily
from coord_eval.answer import Answer
from coord_eval.collecting import Collected, collect_answers, collect_results
from coord_eval.errors import InputError
from coord_eval.expected import BOX_SOURCES, with_expected_boxes
from coord_eval.joining import join
from coord_eval.labels import LabelMatcher
from coord_eval.parsing import parse_answer
from coord_eval.predictions import CocoResult, Prediction, from_records, read_predictions
from coord_eval.scale_inference import infer_scale
from coord_eval.truth import GroundTruth

#: A path, or the records that the file would hold.
PredictionSource = str | Path | Iterable[Mapping[str, Any]]
Scale = float | Literal["pixels", "input_pixels", "infer"] | None
Progress = Callable[[str, int, int], None]
_NAMED_SCALES = ("pixels", "input_pixels", "infer")


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Reading:
    """How answers in words are read; :func:`coord_eval.score` explains each.

    Raises:
        InputError: For values that don't exist.
    """

    boxes: str = "tokens"
    format: str | MarkerFamily = "auto"
    scale: Scale = None
    grid: CoordGrid = CoordGrid()

    def __post_init__(self) -> None:
        if self.boxes not in BOX_SOURCES:
            raise InputError(f"boxes: expected one of {', '.join(BOX_SOURCES)}, found {self.boxes!r}")
        if isinstance(self.scale, str) and self.scale not in _NAMED_SCALES:
            raise InputError(
                f"scale: expected a number, {', '.join(_NAMED_SCALES)} or None, found {self.scale!r}"
            )


def take_in(
    truth: GroundTruth,
    predictions: PredictionSource,
    reading: Reading,
    *,
    labels: Callable[[], LabelMatcher],
    score_source: str = "auto",
    progress: Progress = silent,
) -> tuple[Collected, dict[int, tuple[str, Answer]]]:
    """Place predictions in their pictures.

    Args:
        truth: The pictures and labels.
        predictions: Answers in words, or a COCO results list.
        reading: How answers are read.
        labels: Makes what finds categories; asked for answers in words only.
        score_source: What answers are ranked by; results keep their scores.
        progress: Called with a stage's name, what is done and what there is to do.

    Returns:
        The boxes, and by image the text and the parsed answer, none for results.
    """
    answered = load_predictions(predictions)
    progress("read", 2, 2)
    results = [item for item in answered if isinstance(item, CocoResult)]
    if len(results) == len(answered):
        return collect_results(truth, results), {}
    loaded = [item for item in answered if isinstance(item, Prediction)]
    images, joined = join(truth, ((p.image_id, p.image, p.where) for p in loaded))
    answers, evidence = parse_all(truth, loaded, images, reading, progress)
    collected = collect_answers(
        truth, loaded, answers, images=images, joined=joined, labels=labels(), score_source=score_source
    )
    by_image = {i: (p.text, a) for p, a, i in zip(loaded, answers, images, strict=True) if i >= 0}
    return replace(collected, notes=(*evidence, *collected.notes)), by_image


def load_predictions(predictions: PredictionSource) -> list[Prediction] | list[CocoResult]:
    """Read predictions from a file or from records."""
    if isinstance(predictions, str | Path):
        return read_predictions(predictions)
    return from_records(predictions)


def parse_all(
    truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    reading: Reading,
    progress: Progress = silent,
) -> tuple[list[Answer], list[str]]:
    """Parse every answer on the scale that was named, or on the one that fits the whole set.

    Args:
        truth: The pictures.
        predictions: The answers.
        images: Index of the picture of each, -1 for unknown ones.
        reading: How they are read.
        progress: Called with a stage's name, what is done and what there is to do.

    Returns:
        The parsed answers, and what has to be said about how they were read.
    """
    notes: list[str] = []
    scale, expected = reading.scale, reading.boxes == "expected"
    if scale == "infer":
        choice = infer_scale(truth, predictions, images, reading.format, reading.grid)
        scale, notes = choice.scale, choice.lines()
    if expected:
        notes.append("boxes are read from coord_expected, not from the tokens")
    answers = []
    for prediction, image in zip(predictions, images, strict=True):
        size = _seen_size(truth, prediction, image, scale) if isinstance(scale, str) else None
        answer = parse_answer(
            prediction.text,
            reading.format,
            scale=(size and "pixels") if isinstance(scale, str) else scale,
            image_size=size,
            grid=reading.grid,
            keep_flat=expected,  # the sides may differ where the tokens are the same
        )
        answers.append(with_expected_boxes(answer, prediction) if expected else answer)
        progress("parse", len(answers), len(predictions))
    return answers, notes


def _seen_size(
    truth: GroundTruth, prediction: Prediction, image: int, scale: str
) -> tuple[float, float] | None:
    """Return the size of the picture that pixel coordinates refer to, None for an unknown picture."""
    if scale == "input_pixels":
        if prediction.input_size is None:
            raise InputError(
                f"{prediction.where}, input_width: scale input_pixels needs input_width and _height"
            )
        return prediction.input_size
    if prediction.width and prediction.height:
        return (prediction.width, prediction.height)
    if image < 0:
        return None
    width, height = truth.sizes_I2[image].tolist()
    if not truth.sizes_known or math.isnan(width):
        raise InputError(f"{prediction.where}: pixels need a picture size, and neither file states one")
    return (width, height)
