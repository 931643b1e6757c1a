"""What an evaluation holds, as the metrics and the report read it: below both, so that nothing imports in a circle."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from coord_codec import CoordGrid, geometry_of
from coord_eval.intake.joining import JoinReport
from coord_eval.match.computed import computed
from coord_eval.match.matching import Scored
from coord_eval.metrics.ceiling import CeilingSettings
from coord_eval.metrics.coco import CocoScores, coco_scores
from coord_eval.metrics.coco_own import CocoParams
from coord_eval.parse.answer import Answer


def _of_row(name: str) -> Any:
    """Return a field that the row of the table of metrics computes."""
    return computed(lambda evaluated: evaluated.value_of(name))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Evaluated(Scored):
    """The fields of an `Evaluation`, as metrics and reports read them; numeric keys of dictionaries are IoU thresholds.

    `Evaluation` adds the values of the rows of the table of metrics, and the reports.

    `Scored` documents `truth`, `detections`, `matches`, `matches_any_label`, `score_source` and `bins`.

    Attributes:
        coco: the twelve COCO metrics under `score_source`; -1 where no object of that kind exists
        coco_constant_score: the twelve COCO metrics with all scores set to 1, from our own matching
        coco_class_agnostic: the twelve COCO metrics when any label may match any object, from our own matching: COCO's
            `useCats=0`, including unknown labels, for the 100 best boxes of an image
        backend: library that computed `coco` and `per_class`
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
        fusion: the rule by which near-duplicates were fused, and the counts of `coord_eval.Fusion`; empty without one
        calibrated: whether a calibration has mapped the scores to probabilities
    """

    coco: dict[str, float] = _of_row("coco")
    coco_constant_score: dict[str, float] = _of_row("coco_constant_score")
    coco_class_agnostic: dict[str, float] = _of_row("coco_class_agnostic")
    backend: str
    detection: dict[str, dict[str, float]] = _of_row("detection")
    detection_class_agnostic: dict[str, dict[str, float]] = _of_row("detection_class_agnostic")
    mean_iou: float = _of_row("mean_iou")
    mean_iou_class_agnostic: float = _of_row("mean_iou_class_agnostic")
    format: dict[str, Any]
    labels: dict[str, int]
    unknown_labels: dict[str, int]
    ceiling: dict[str, float] = _of_row("ceiling")
    counts: dict[str, int]
    join: JoinReport
    per_class: dict[str, dict[str, float]] = _of_row("per_class")
    notes: tuple[str, ...]
    answers: dict[int, tuple[str, Answer]]
    pr_curves: dict[str, list[float]] = _of_row("pr_curves")
    coco_own: dict[str, float] = _of_row("coco_own")
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)
    shapes: dict[str, Any] = field(default_factory=dict)
    grid: CoordGrid = CoordGrid()
    ceiling_settings: CeilingSettings = CeilingSettings()
    params: CocoParams | None = None
    fusion: dict[str, Any] = field(default_factory=dict)
    calibrated: bool = False

    @cached_property
    def backend_scores(self) -> CocoScores:
        """The result of the backend, on which `coco`, `per_class` and `pr_curves` stand."""
        return coco_scores(self.truth, self.detections, self.backend)

    @property
    def has_boxes(self) -> bool:
        """Whether scores of boxes are meaningful, which they are not for the boxes around points."""
        return not self.shapes or geometry_of(self.shapes["geometry"]).has_extent

    @property
    @abstractmethod
    def analysis(self) -> dict[str, Any]:
        """Macro rates, edge bias, counts, breakdowns, calibration, error kinds and confusion matrix."""

    @property
    @abstractmethod
    def metrics(self) -> dict[str, Any]:
        """Values of the metrics that `register_metric` added."""

    @abstractmethod
    def value_of(self, name: str) -> Any:
        """Return the value of a row of the table of metrics."""

    @abstractmethod
    def point(self, name: str) -> Any:
        """Return the values of a metric's measure with each image counted once."""

    @abstractmethod
    def __getitem__(self, name: str) -> float:
        """Return a figure by its name."""

    @abstractmethod
    def to_json(self) -> str:
        """Return the contents of `evaluation.json`."""
