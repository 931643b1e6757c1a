"""Parses all predictions of a set, with one scale of coordinates for the whole set.

The scale, the divisor of plain numbers, is given by the caller, assumed, or inferred from the whole set with the
evidence noted, since a single answer can look right on a wrong scale.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from coord_codec import InputError
from coord_codec.counts import counted
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.box_sources import STATED_IN, with_boxes_from
from coord_eval.intake.joining import with_prompt_label, without_labels
from coord_eval.parse.answer import DROP_REASONS, POINT_ADVICE, Answer, without_other_images, without_points
from coord_eval.settings import BOX_SOURCES, AnswerSettings, Progress, silent

if TYPE_CHECKING:
    from coord_eval.intake.prediction import Prediction


def parse_all(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    options: AnswerSettings,
    progress: Progress = silent,
    *,
    keep_flat: bool = False,
) -> tuple[list[Answer], list[str]]:
    """Parse every answer with the scale of the options, or with the inferred scale of the whole set.

    Args:
        ground_truth: the images
        predictions: the text answers
        images: image index of each answer, -1 for unknown images
        options: options for turning the text into boxes
        progress: called with the name of a stage, the number of steps done and their total
        keep_flat: whether to keep boxes without area

    Returns:
        The parsed answers, and notes about how they were parsed.
    """
    from coord_eval.intake.scale import infer_scale
    from coord_eval.parse.parser import parse_answer

    notes: list[str] = []
    scale, field, kind = options.scale, STATED_IN.get(options.boxes), options.shape
    if scale == "infer":
        scale, notes = infer_scale(ground_truth, predictions, images, options.format, options.grid)
    count = 0
    if field is not None:
        notes.append(f"boxes are taken from {BOX_SOURCES[options.boxes]}, not from the tokens")
        count = sum(getattr(prediction, field) is None for prediction in predictions)
        if 0 < count < len(predictions):  # a server may omit its probabilities for some answers
            notes.append(
                f"{count} of {counted(len(predictions), 'answer states', 'answers state')} no {field}: "
                "their boxes are those of the tokens"
            )
    answers: list[Answer] = []
    objects_by_format: Counter[str] = Counter()

    def parse(prediction: Prediction, image: int, preferred: Sequence[str] = ()) -> Answer:
        size = _size_for(ground_truth, prediction, image, scale) if isinstance(scale, str) else None
        own = None if size else _size_of(ground_truth, prediction, image)
        from_text = field is None or (count < len(predictions) and getattr(prediction, field) is None)
        answer = parse_answer(
            prediction.text,
            options.format,
            scale=(size and "pixels") if isinstance(scale, str) else scale,
            image_size=size,
            grid=options.grid,
            # Sides with equal tokens can still have different expectations.
            keep_flat=keep_flat or not from_text,
            preferred=preferred,
            geometry=kind,
            need_labels=options.need_labels,
            aspect=None if size else own[0] / own[1] if own else math.nan,
        )
        answer = without_points(with_prompt_label(answer, prediction.label), kind)
        answer = without_other_images(answer, _names_of(prediction))
        answer = without_labels(answer, options.ignored_labels)
        return answer if from_text else with_boxes_from(options.boxes, answer, prediction)

    for prediction, image in zip(predictions, images, strict=True):
        answers.append(parse(prediction, image))
        if not answers[-1].formats:
            objects_by_format[answers[-1].format] += len(answers[-1])
        progress("parse", len(answers), len(predictions))
    # A label can contain the tokens of another format, so unambiguous answers decide for the ambiguous ones.
    preferred = [name for name, _ in objects_by_format.most_common()]
    for i, answer in enumerate(answers) if preferred else ():
        if answer.formats:
            answers[i] = parse(predictions[i], images[i], preferred)
    if points := sum(drop.reason == "point" for answer in answers for drop in answer.dropped):
        notes.append(f"{counted(points, 'point is', 'points are')} dropped, since boxes are scored: {POINT_ADVICE}")
    return answers, [*notes, *_notes_of_meaning(answers, predictions)]


def _size_of(ground_truth: GroundTruth, prediction: Prediction, image: int) -> tuple[float, float] | None:
    """Return width and height of an answer's image, None where no file states them."""
    if prediction.tile:
        return (prediction.tile[2], prediction.tile[3])
    if prediction.width and prediction.height:
        return (prediction.width, prediction.height)
    if image < 0 or not ground_truth.sizes_known:
        return None
    width, height = ground_truth.sizes_I2[image].tolist()
    return None if math.isnan(width) else (width, height)


def _names_of(prediction: Prediction) -> frozenset[str]:
    """Return the names by which an object of an answer can name the answer's own image."""
    name = prediction.image or ""
    return frozenset({str(prediction.image_id), name, PurePath(name).name, PurePath(name).stem})


_KEYS_LISTED = 5


def _notes_of_meaning(answers: Sequence[Answer], predictions: Sequence[Prediction]) -> list[str]:
    """Return notes on objects that name an image, boxes that are turned or stand for nothing, and empty answers."""
    reasons = Counter(drop.reason for answer in answers for drop in answer.dropped)
    named = sum(
        bool(item.place) and item.place not in _names_of(prediction)
        for answer, prediction in zip(answers, predictions, strict=True)
        for item in (answer if any(item.place for item in answer) else ())
    )
    zeros = sum(len(answer.zeros) for answer in answers)
    turned, other_unit = (f"dropped: {DROP_REASONS[reason]}" for reason in ("turned", "other_unit"))
    other = "another image or frame than the answer: dropped"
    found = [
        (reasons["other_image"], "object names", "objects name", other),
        (named, "object names", "objects name", "an image, frame or time, which is not used"),
        (reasons["turned"], "box", "boxes", f"with an angle {turned}"),
        (reasons["other_unit"], "box", "boxes", f"{other_unit}; set the scale"),
        (zeros, "box", "boxes", "of four zeros counted as no object"),
    ]
    notes = [f"{counted(count, one, several)} {what}" for count, one, several, what in found if count]
    if keys := Counter(key for answer in answers for key in answer.label_keys):
        below = ", ".join(f"{key!r} ({counted(count, 'answer')})" for key, count in keys.most_common(_KEYS_LISTED))
        notes.append(f"labels are read below {below}, the only further text of each record of a list")
    if predictions and not any(prediction.text.strip() for prediction in predictions):
        empty = counted(len(predictions), "answer is an empty text", "answers are empty texts")
        notes.append(f"{'the' if len(predictions) == 1 else 'all'} {empty}: {_instead(predictions)}")
    elif thoughtful := [item for item in predictions if item.thoughts]:
        empty = counted(len(thoughtful), "answer is an empty text", "answers are empty texts")
        notes.append(f"{empty}: {_instead(thoughtful)}")
    return notes


def _instead(predictions: Sequence[Prediction]) -> str:
    """Return where the model wrote something, if its answers are empty."""
    keys = sorted({key for item in predictions for key in item.thoughts})
    if not keys:
        return "the model wrote nothing"
    where = " and ".join(keys)
    return f"what the model wrote is in {where}, which is no answer; if it was cut off there, allow more tokens"


def _size_for(ground_truth: GroundTruth, prediction: Prediction, image: int, scale: str) -> tuple[float, float] | None:
    """Return the size of the image to which pixel coordinates refer, None for an unknown image."""
    if scale == "input_pixels":
        if prediction.input_size is None:
            raise InputError(f"{prediction.where}, input_width: scale input_pixels needs input_width and input_height")
        return prediction.input_size
    size = _size_of(ground_truth, prediction, image)
    if size is None and image >= 0:
        raise InputError(f"{prediction.where}: scale pixels needs an image size, and neither file states one")
    return size


def dropped_notes(answers: Sequence[Answer]) -> list[str]:
    """Return a note with the number of pieces of the answers that were dropped, by reason."""
    reasons = Counter(drop.reason for answer in answers for drop in answer.dropped)
    if not reasons:
        return []
    pieces = counted(reasons.total(), "piece of the answers was", "pieces of the answers were")
    return [f"{pieces} dropped: {', '.join(f'{count:,} {reason}' for reason, count in reasons.most_common())}"]


def assumed_scale_notes(answers: Sequence[Answer]) -> list[str]:
    """Return a note with the number of answers parsed with an assumed scale."""
    assumed = [answer for answer in answers if answer.scale_assumed]
    if not assumed:
        return []
    scale = assumed[0].scale
    divisor = f"/{scale[0]:g}" if scale else "a scale"
    return [
        f"{counted(len(assumed), 'answer contains', 'answers contain')} plain numbers; {divisor} was "
        "assumed, set the scale to be sure"
    ]


def unrecognised_notes(answers: Sequence[Answer], predictions: Sequence[Prediction]) -> list[str]:
    """Return a note with the number of answers in which no format is recognised, and the text of the first."""
    unrecognised = [
        (prediction.text[slice(*answer.dropped[0].span)], prediction.where)
        for answer, prediction in zip(answers, predictions, strict=True)
        if not answer.objects and [drop.reason for drop in answer.dropped] == ["unrecognised"]
    ]
    if not unrecognised:
        return []
    text, where = unrecognised[0]
    excerpt = ascii(text[:80]) + ("…" if len(text) > 80 else "")
    return [
        f"{counted(len(unrecognised), 'answer has', 'answers have')} no recognised format; the first "
        f"({where}): {excerpt}"
    ]
