"""All metrics of one set of answers, the contents of `evaluation.json`, and the matched boxes behind them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from coord_eval.intake.joining import JoinReport
from coord_eval.match.matching import Scored
from coord_eval.metrics.breakdowns import by_object_count, by_rank, by_size, count_errors, edge_bias
from coord_eval.metrics.detection import ScoreCurve, macro_rates, micro_rates, reliability
from coord_eval.metrics.errors import confusion, error_costs
from coord_eval.metrics.sums import Metric
from coord_eval.parse.answer import Answer

SCHEMA_VERSION = 1
"""Increased when a key of `evaluation.json` changes its meaning."""
_JSON_KEYS = (
    *("coco", "coco_constant_score", "coco_class_agnostic", "score_source", "backend"),
    *("detection", "detection_class_agnostic", "mean_iou", "mean_iou_class_agnostic"),
    *("format", "labels", "unknown_labels", "ceiling", "counts", "join", "per_class"),
    *("analysis", "pr_curves", "coco_own", "intervals", "notes"),
)
"""Keys of `evaluation.json`, in order."""
_LABELS_SHOWN = 5
_COUNTS = ("count", "objects", "images", "detections", "duplicates")


@dataclass(frozen=True, eq=False, kw_only=True)
class EvaluationData(Scored):
    """All metrics of one set of answers; numeric keys of dictionaries are IoU thresholds.

    `Scored` documents `truth`, `detections`, `matches`, `matches_any_label`, `score_source` and `bins`.

    Attributes:
        coco: the twelve COCO metrics under `score_source`; -1 where no object of that kind exists
        coco_constant_score: the twelve COCO metrics with all scores set to 1, from our own matching
        coco_class_agnostic: the twelve COCO metrics when any label may match any object, from our own matching: COCO's
            `useCats=0`, including unknown labels, for the 100 best boxes of an image
        backend: library that computed `coco`, `per_class` and `ceiling`
        detection: micro precision, recall and F1 at IoU .5, .75 and over .5:.95, independent of scores
        detection_class_agnostic: likewise, when any label may match any object
        mean_iou: mean over objects of the IoU with the matched detection of the same label, 0 for missed objects
        mean_iou_class_agnostic: likewise, when any label may match any object
        format: counts of parsed, truncated and dropped answers and objects
        labels: number of objects by the layer that matched their label; `unknown` ones count as false positives
        unknown_labels: number of occurrences of each unknown label
        ceiling: the twelve COCO metrics of the ground truth itself, encoded and parsed back, with all scores 1; empty
            if it cannot be computed
        counts: images, those without an answer, objects, crowd regions, detections, detections beyond COCO's limit
        join: how answers were assigned to images
        per_class: AP, AP50, objects and detections of each category
        notes: conditions that matter when interpreting the metrics
        answers: text and parsed answer by image index; empty for results lists
        pr_curves: precision at 101 recalls, mean over labels, at IoU .5, .75 and over .5:.95, and the recalls
        coco_own: AP and AR with the caller's parameters, empty without any
        intervals: metrics with their 95 % confidence intervals over images, empty without a bootstrap
        shapes: scores of shapes other than boxes, see `coord_eval.shapes.scores.score_shapes`; empty for boxes
    """

    coco: dict[str, float]
    coco_constant_score: dict[str, float]
    coco_class_agnostic: dict[str, float]
    backend: str
    detection: dict[str, dict[str, float]]
    detection_class_agnostic: dict[str, dict[str, float]]
    mean_iou: float
    mean_iou_class_agnostic: float
    format: dict[str, Any]
    labels: dict[str, int]
    unknown_labels: dict[str, int]
    ceiling: dict[str, float]
    counts: dict[str, int]
    join: JoinReport
    per_class: dict[str, dict[str, float]]
    notes: tuple[str, ...]
    answers: dict[int, tuple[str, Answer]] = field(repr=False)
    pr_curves: dict[str, list[float]] = field(default_factory=dict, repr=False)
    coco_own: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)
    shapes: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def analysis(self) -> dict[str, Any]:
        """Macro rates, edge bias, counts, breakdowns, calibration, error kinds and confusion matrix."""
        return analyse(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of `evaluation.json`: plain types, unrounded values."""
        values = {name: getattr(self, name) for name in _JSON_KEYS}
        if self.shapes:
            values["shapes"] = self.shapes
        return {"schema_version": SCHEMA_VERSION, **values, "join": asdict(self.join), "notes": list(self.notes)}

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def join_lines(evaluation: EvaluationData) -> Iterator[str]:
    """Yield a line about unknown labels, whose boxes are false positives, and one about unknown images, left out."""
    if unknown := evaluation.counts["unknown_label_detections"]:
        labels = [f"{label!r} ({times})" for label, times in evaluation.unknown_labels.items()]
        more = f" and {len(labels) - _LABELS_SHOWN} more" if len(labels) > _LABELS_SHOWN else ""
        listed = f"{', '.join(labels[:_LABELS_SHOWN])}{more}"
        yield f"{unknown} boxes with labels that the ground truth does not have, counted as false: {listed}"
    if evaluation.join.unknown:
        yield f"{evaluation.join.unknown} predictions about unknown images, left out"


def point(metric: Metric, scored: Scored) -> dict[str, Any]:
    """Return the values of a metric with each image counted once, as plain numbers; 0 where one is undefined."""
    return _plain(metric(np.ones((1, len(scored.truth)), np.int32)))


def analyse(scored: Scored) -> dict[str, Any]:
    """Return macro rates, count errors, edge bias, breakdowns, F1 by score, calibration, error costs and confusions.

    The function that computes a key documents it.
    """
    with_objects = bool(scored.objects_per_image.any())
    rows = point(by_object_count(scored), scored)
    ranks = point(by_rank(scored), scored)
    return {
        "macro": point(macro_rates(scored), scored),
        "class_agnostic_recall": point(micro_rates(scored, scored.matches_any_label), scored)["rates"]["0.5"]["recall"],
        "count": point(count_errors(scored), scored),
        "edge_bias": point(edge_bias(scored), scored),
        "by_size": point(by_size(scored), scored),
        "by_object_count": {name: row for name, row in rows.items() if row["images"]},
        "by_rank": {name: row for name, row in ranks.items() if row["detections"]},
        "f1_against_threshold": ScoreCurve(scored).table(),
        "reliability": reliability(scored),
        "errors": point(error_costs(scored), scored) if with_objects else {},
        "confusion": confusion(scored),
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _plain(value)
        if isinstance(value, dict)
        else int(value[0])
        if name in _COUNTS
        else float(np.nan_to_num(value[0]))
        for name, value in values.items()
    }
