"""Puts answers and results into one table of detections, and counts what happened on the way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coord_eval.answer import Answer
from coord_eval.detections import Detections
from coord_eval.errors import InputError
from coord_eval.joining import ImageIndex, JoinReport, check_any_known
from coord_eval.labels import LABEL_LAYERS, LabelMatcher
from coord_eval.predictions import CocoResult, Prediction
from coord_eval.ranking import choose_source, object_score
from coord_eval.truth import GroundTruth


@dataclass(frozen=True, eq=False)
class Collected:
    """Detections and where they came from.

    Attributes:
        detections: The boxes.
        score_source: What they are ranked by.
        format: Format health, see :func:`format_health`; empty counts for results lists.
        labels: Objects by the layer that matched their label.
        unknown_labels: How often each unknown label occurs.
        join: How answers met images.
        notes: What a reader of the numbers has to know.
    """

    detections: Detections
    score_source: str
    format: dict[str, Any]
    labels: dict[str, int]
    unknown_labels: dict[str, int]
    join: JoinReport
    notes: tuple[str, ...]


def collect_answers(
    truth: GroundTruth,
    predictions: Sequence[Prediction],
    answers: Sequence[Answer],
    *,
    images: Sequence[int],
    joined: JoinReport,
    labels: LabelMatcher,
    score_source: str,
) -> Collected:
    """Place parsed answers in their images and find the categories of their labels.

    Args:
        truth: The objects.
        predictions: The answers as they came.
        answers: The same, parsed.
        images: The image index of each, -1 for unknown images, as :func:`coord_eval.joining.join` finds them.
        joined: Its report.
        labels: Finds categories.
        score_source: See :func:`coord_eval.ranking.choose_source`.
    """
    known = [i for i, image in enumerate(images) if image >= 0]
    source, notes = choose_source(score_source, [answers[i] for i in known], [predictions[i] for i in known])
    layers: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    rows = []
    unknown_index: dict[str, int] = {}
    for i in known:
        image, prediction = images[i], predictions[i]
        width, height = truth.sizes_I2[image]
        if answers[i].objects and math.isnan(width):
            raise InputError(
                f"ground truth, images[id={truth.image_ids[image]}]: width and height are missing, "
                "so answers in words cannot be placed; add them"
            )
        for rank, item in enumerate(answers[i].objects):
            category, layer = labels.match(item.desc)
            layers[layer] += 1
            if category is None:
                unknown[item.desc] += 1
                category = len(truth.categories) + unknown_index.setdefault(item.desc, len(unknown_index))
            x1, y1, x2, y2 = item.box
            box = (x1 * width, y1 * height, (x2 - x1) * width, (y2 - y1) * height)
            rows.append((image, category, *box, object_score(source, item, rank, prediction), rank))
    return Collected(
        _detections(rows, tuple(unknown_index)),
        source,
        format_health([answers[i] for i in known], [predictions[i] for i in known]),
        {layer: layers[layer] for layer in LABEL_LAYERS},
        dict(unknown.most_common()),
        joined,
        (*notes, *assumed_scale_notes(answers), *_size_notes(truth, predictions, images)),
    )


def collect_results(truth: GroundTruth, results: Sequence[CocoResult]) -> Collected:
    """Take a COCO results list as it is: pixels, category ids, scores."""
    index = ImageIndex(truth)
    categories: dict[int | str, int] = {category_id: k for k, category_id in enumerate(truth.category_ids)}
    rows = []
    layers: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    unknown_index: dict[str, int] = {}
    strangers: list[str] = []
    ranks: Counter[int] = Counter()
    for result in results:
        image = index.by_id(result.image_id)
        if image is None:
            strangers.append(repr(result.image_id))
            continue
        category = categories.get(result.category_id)
        layers["unknown" if category is None else "exact"] += 1
        if category is None:
            name = f"category_id {result.category_id}"
            unknown[name] += 1
            category = len(truth.categories) + unknown_index.setdefault(name, len(unknown_index))
        rows.append((image, category, *result.bbox, result.score, ranks[image]))
        ranks[image] += 1
    check_any_known(len(results), len(strangers), strangers, truth)
    return Collected(
        _detections(rows, tuple(unknown_index)),
        "results",
        format_health([], []),
        {layer: layers[layer] for layer in LABEL_LAYERS},
        dict(unknown.most_common()),
        JoinReport(len(truth), len(ranks), 0, len(strangers), tuple(dict.fromkeys(strangers))[:5]),
        (),
    )


def format_health(answers: Sequence[Answer], predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Count how well answers keep to their format.

    ``parsed`` counts the answers that were understood at least in part, or that say, in so many words or by
    silence, that there is nothing; ``truncated`` those that were cut off, by their own end or by
    ``finish_reason: length``; ``clean`` those without a drop or repair.
    """
    objects = [item for answer in answers for item in answer.objects]
    dropped = Counter(drop.reason for answer in answers for drop in answer.dropped)
    pairs = list(zip(answers, predictions, strict=True))
    return {
        "answers": len(answers),
        "parsed": sum(a.status != "failed" and p.finish_reason != "error" for a, p in pairs),
        "truncated": sum(a.truncated or p.finish_reason == "length" for a, p in pairs),
        "objects": len(objects),
        "dropped": dict(sorted(dropped.items())),
        "clean": sum(map(_is_clean, answers)),
        "empty": sum(answer.status == "empty" for answer in answers),
        "errors": sum(p.finish_reason == "error" for p in predictions),
        "repeats": sum(answer.repeats for answer in answers),
        "completeness": _counts(item.completeness for item in objects),
        "repairs": _counts(repair for item in objects for repair in item.repairs),
        "formats": _counts(answer.format for answer in answers),
    }


def _is_clean(answer: Answer) -> bool:
    return answer.status in ("ok", "empty") and all(o.completeness == "complete" for o in answer.objects)


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _detections(rows: Sequence[tuple[float, ...]], unknown: tuple[str, ...]) -> Detections:
    table = np.array(rows, dtype=np.float64).reshape(-1, 8)
    return Detections(
        table[:, 0].astype(np.int64),
        table[:, 1].astype(np.int64),
        table[:, 2:6],
        table[:, 6],
        table[:, 7].astype(np.int64),
        unknown,
    )


def assumed_scale_notes(answers: Sequence[Answer]) -> list[str]:
    """Say how many answers were read on a scale that nobody named."""
    assumed = [answer for answer in answers if answer.scale_assumed]
    if not assumed:
        return []
    scale = assumed[0].scale
    divisor = f"/{scale[0]:g}" if scale else "a scale"
    return [f"{len(assumed)} answers give plain numbers; {divisor} was assumed, name the scale to be sure"]


def _size_notes(truth: GroundTruth, predictions: Sequence[Prediction], images: Sequence[int]) -> list[str]:
    """Mention answers whose picture had other proportions than the annotated one."""
    odd = 0
    for prediction, image in zip(predictions, images, strict=True):
        if image < 0 or not truth.sizes_known or not prediction.width or not prediction.height:
            continue
        width, height = truth.sizes_I2[image]
        odd += abs(prediction.width * height / (prediction.height * width) - 1) > 0.1
    return [f"{odd} answers state other proportions than the ground truth: rotated pictures?"] if odd else []
