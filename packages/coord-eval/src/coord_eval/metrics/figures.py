"""All metrics of one set of answers, computed on first use, and the contents of `evaluation.json`."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from coord_codec import CoordGrid, geometry_of
from coord_codec.counts import counted
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.joining import JoinReport
from coord_eval.match.matching import Scored
from coord_eval.metrics.coco import COCO_KEYS, CocoScores, beyond_limit, coco_scores
from coord_eval.metrics.metric import point
from coord_eval.metrics.metric_table import METRICS, figures
from coord_eval.parse.answer import Answer
from coord_eval.settings import CeilingSettings, CocoParams

SCHEMA_VERSION = 1
"""Increased when a key of `evaluation.json` changes its meaning."""
_FACTS = ("score_source", "backend", "format", "labels", "unknown_labels", "counts", "intervals")
"""Keys of `evaluation.json` that are no metrics."""
_LABELS_SHOWN = 5
_TORCHMETRICS = (
    *("map", "map_50", "map_75", "map_small", "map_medium", "map_large"),
    *("mar_1", "mar_10", "mar_100", "mar_small", "mar_medium", "mar_large"),
)
OTHER_NAMES = {
    **dict(zip(_TORCHMETRICS, COCO_KEYS, strict=True)),
    **{"map50_95": "AP", "map50": "AP50", "map75": "AP75"},
    **{"mAP": "AP", "mAP50-95": "AP", "mAP50": "AP50", "mAP75": "AP75", "mAP@50": "AP50", "mAP@50:95": "AP"},
    **{"metrics/mAP50-95(B)": "AP", "metrics/mAP50(B)": "AP50"},
}
"""Names of torchmetrics' and supervision's `MeanAveragePrecision` and of Ultralytics, and ours."""


def _row(name: str) -> Any:
    """Return an attribute that a row of the table of metrics computes on first use."""
    return cached_property(METRICS[name].value_of)


class MetricValues:
    """The values of the table of metrics that are attributes; numeric keys of dictionaries are IoU thresholds.

    Attributes:
        coco: the twelve COCO metrics under `score_source`; -1 where no object of that kind exists
        coco_constant_score: the twelve COCO metrics with all scores set to 1
        coco_class_agnostic: the twelve COCO metrics when any label may match any object: COCO's
            `useCats=0`, including unknown labels, for the 100 best boxes of an image
        detection: micro precision, recall and F1 at IoU .5, .75 and over .5:.95, independent of scores
        detection_class_agnostic: likewise, when any label may match any object
        mean_iou: mean over objects of the IoU with the matched detection of the same label, 0 for missed objects
        mean_iou_class_agnostic: likewise, when any label may match any object
        ceiling: the twelve COCO metrics of the ground truth itself, encoded and parsed back, with all scores 1; empty
            if it cannot be computed
        per_class: AP, AP50, objects and detections of each category
        pr_curves: precision at 101 recalls, mean over labels, at IoU .5, .75 and over .5:.95, and the recalls
        coco_own: AP and AR with the caller's parameters, empty without any
    """

    coco: dict[str, float] = _row("coco")
    coco_constant_score: dict[str, float] = _row("coco_constant_score")
    coco_class_agnostic: dict[str, float] = _row("coco_class_agnostic")
    detection: dict[str, dict[str, float]] = _row("detection")
    detection_class_agnostic: dict[str, dict[str, float]] = _row("detection_class_agnostic")
    mean_iou: float = _row("mean_iou")
    mean_iou_class_agnostic: float = _row("mean_iou_class_agnostic")
    ceiling: dict[str, float] = _row("ceiling")
    per_class: dict[str, dict[str, float]] = _row("per_class")
    pr_curves: dict[str, list[float]] = _row("pr_curves")
    coco_own: dict[str, float] = _row("coco_own")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Figures(MetricValues, Scored):
    """All metrics of one set of answers, each computed when it is first used.

    `evaluation["AP"]` is a figure by its name, also by those of torchmetrics and supervision (`map_50`). `MetricValues`
    documents the metrics, `Scored` documents `truth`, `detections`, `matches`, `matches_any_label`, `score_source` and
    `bins`.

    Attributes:
        backend: what computed `coco`, `per_class` and `pr_curves`: `coord_eval`, or `pycocotools`
        format: counts of parsed, truncated and dropped answers and objects
        labels: number of objects by the layer that matched their label; `unknown` ones count as false positives
        unknown_labels: number of occurrences of each unknown label
        counts: images, those without an answer, objects, crowd regions, detections, detections beyond COCO's limit
        join: how answers were assigned to images
        notes: conditions that matter when interpreting the metrics
        answers: text and parsed answer by image index; empty for results lists
        intervals: metrics with their 95 % confidence intervals over images, empty without a bootstrap
        shapes: scores of shapes other than boxes, see `coord_eval.shapes.scores.score_shapes`; empty for boxes
        fusion: the rule by which near-duplicates were fused, and the counts of `coord_eval.Fusion`; empty without one
        calibrated: whether a calibration has mapped the scores to probabilities
    """

    backend: str
    format: dict[str, Any]
    labels: dict[str, int]
    unknown_labels: dict[str, int]
    counts: dict[str, int]
    join: JoinReport
    notes: tuple[str, ...]
    answers: dict[int, tuple[str, Answer]]
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)
    shapes: dict[str, Any] = field(default_factory=dict)
    grid: CoordGrid = CoordGrid()
    ceiling_settings: CeilingSettings = CeilingSettings()
    params: CocoParams | None = None
    fusion: dict[str, Any] = field(default_factory=dict)
    calibrated: bool = False

    @cached_property
    def backend_scores(self) -> CocoScores:
        """Precision and recall, on which `coco`, `per_class` and `pr_curves` stand."""
        return coco_scores(self, self.backend)

    @property
    def has_boxes(self) -> bool:
        """Whether scores of boxes are meaningful, which they are not for the boxes around points."""
        return not self.shapes or geometry_of(self.shapes["geometry"]).has_extent

    @cached_property
    def analysis(self) -> dict[str, Any]:
        """Macro rates, edge bias, counts, breakdowns, calibration, error kinds and confusion matrix."""
        return {row.name: row.value_of(self) for row in METRICS.values() if row.place == "analysis"}

    @property
    def metrics(self) -> dict[str, Any]:
        """Values of the metrics that `register_metric` added."""
        return {row.name: row.value_of(self) for row in METRICS.values() if row.place == "metrics"}

    def point(self, name: str) -> Any:
        """Return the values of a metric's measure with each image counted once."""
        row = METRICS[name]
        assert row.measure is not None
        return point(row.measure(self), self)

    def with_notes(self, before: Sequence[str] = (), after: Sequence[str] = ()) -> Self:
        """Return the evaluation with further notes; nothing is computed again."""
        return self._changed(notes=(*before, *self.notes, *after))

    def with_intervals(self, intervals: dict[str, dict[str, float]], notes: Sequence[str] = ()) -> Self:
        """Return the evaluation with intervals and notes on them."""
        return self._changed(intervals=intervals, notes=(*self.notes, *notes))

    def _changed(self, **values: Any) -> Self:
        changed = copy.copy(self)
        changed.__dict__.update(values)
        return changed

    def __getitem__(self, name: str) -> float:
        """Return a figure: one of `COCO_KEYS`, or any other name that `resample` lists; NaN where it is undefined.

        Raises:
            InputError: for an unknown name
        """
        name = OTHER_NAMES.get(name, name)
        if name in self.coco:
            if not self.coco[name] and (reason := nothing_to_match(self.truth, self.detections)):
                warnings.warn(f"{name} is 0: {reason}", stacklevel=2)
            return self.coco[name]
        return float(figures(self, np.ones((1, len(self.truth)), np.int32), [name])[name][0])

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of `evaluation.json`: plain types, unrounded values."""
        top = {row.name: getattr(self, row.name) for row in METRICS.values() if row.place == "top"}
        facts = {name: getattr(self, name) for name in _FACTS}
        values = {"schema_version": SCHEMA_VERSION, **top, "analysis": self.analysis, **facts}
        if registered := self.metrics:
            values["metrics"] = registered
        if self.shapes:
            values["shapes"] = self.shapes
        if self.fusion:
            values["fusion"] = self.fusion
        if self.calibrated:
            values["calibrated"] = True
        return {**values, "join": asdict(self.join), "notes": list(self.notes)}

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def nothing_to_match(truth: GroundTruth, detections: Detections) -> str:
    """Return why no box can match an object; empty if some box has a label of the ground truth."""
    if not len(detections):
        return "the predictions have no box"
    if (detections.category_D < len(truth.categories)).any():
        return ""
    shown = ", ".join(map(repr, detections.unknown[:_LABELS_SHOWN]))
    names = ", ".join(map(repr, truth.categories[:_LABELS_SHOWN]))
    none = f"none of {counted(len(detections), 'box', 'boxes')} has a known label"
    return f"{none}: answers name {shown}, the ground truth {names}; synonyms translate them"


def join_lines(evaluation: Figures) -> Iterator[str]:
    """Yield a line about unknown labels, whose boxes are false positives, and one about unknown images, left out."""
    if unknown := evaluation.counts["unknown_label_detections"]:
        labels = [f"{label!r} ({times})" for label, times in evaluation.unknown_labels.items()]
        more = f" and {len(labels) - _LABELS_SHOWN} more" if len(labels) > _LABELS_SHOWN else ""
        listed = f"{', '.join(labels[:_LABELS_SHOWN])}{more}"
        yield (
            f"{counted(unknown, 'box', 'boxes')} with labels that the ground truth does not have, counted as "
            f"false: {listed}"
        )
    if evaluation.join.unknown:
        yield f"{counted(evaluation.join.unknown, 'prediction')} about unknown images, left out"


def counts_of(truth: GroundTruth, detections: Detections, join: JoinReport) -> dict[str, int]:
    """Return `counts` of an `Evaluation`."""
    return {
        "images": len(truth),
        "objects": int((~truth.crowd_N).sum()),
        "crowd_regions": int(truth.crowd_N.sum()),
        "detections": len(detections),
        "unknown_label_detections": int((detections.category_D >= len(truth.categories)).sum()),
        "beyond_coco_limit": beyond_limit(detections.image_D, detections.category_D),
        "images_without_answer": join.images - join.answered,
    }
