"""How each metric is shown, by its name: in the report, on the console, and in the line that sums an evaluation up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from coord_codec.pages import number
from coord_eval.metrics.figures import Figures
from coord_eval.metrics.metric_table import METRICS
from coord_eval.report import metric_html as html
from coord_eval.report import metric_lines as lines
from coord_eval.report.confusion import confusion_main, confusions

Tile = tuple[str, str, str]
"""Heading, value and remark of a headline number of the report."""
CLASSES, PARAMETERS, FURTHER = "Classes", "AP and AR with your parameters", "Further metrics"
COCO, PRECISION = "Average precision and recall (COCO)", "Precision, recall and F1 (no scores)"
BREAKDOWNS, BY_SCORE = "Localisation and counts", "F1 by score, and calibration"
_RATES = ("precision", "recall", "f1")


@dataclass(frozen=True)
class Shown:
    """How a metric is shown.

    Attributes:
        section: heading of the report's section; metrics with the same heading share it
        html: content of the section; None if another metric shows this one too
        lines: lines of the console; None for none
        tiles: headline numbers at the top of the report
        brief: part of the one line that sums an evaluation up; empty for none
        main: main figure of the section, beside its heading; empty for none
    """

    section: str
    html: Callable[[Figures], str] | None = None
    lines: Callable[[Figures], Iterable[str]] | None = None
    tiles: Callable[[Figures], Sequence[Tile]] | None = None
    brief: Callable[[Figures], str] | None = None
    main: Callable[[Figures], str] | None = None


SHOWN: dict[str, Shown] = {
    "coco": Shown(
        COCO,
        html.coco_table,
        lines.coco_lines,
        html.coco_tiles,
        lines.coco_brief,
        main=lambda evaluation: f"AP {number(evaluation.coco['AP'])}",
    ),
    "coco_by_size": Shown(COCO),
    "coco_constant_score": Shown(COCO),
    "coco_class_agnostic": Shown(COCO),
    "ceiling": Shown(COCO),
    "coco_own": Shown(PARAMETERS, html.own_table, lines.own_lines),
    "detection": Shown(
        PRECISION,
        html.detection_table,
        lines.detection_lines,
        html.f1_tiles,
        main=lambda evaluation: f"F1 {number(evaluation.detection['0.5']['f1'])}",
    ),
    "detection_class_agnostic": Shown(PRECISION),
    "mean_iou": Shown(
        PRECISION,
        html.mean_iou,
        lambda e: [f"mean IoU {e.mean_iou:.3f} ({e.mean_iou_class_agnostic:.3f} for any label)"],
        lambda evaluation: [("Mean IoU", number(evaluation.mean_iou), "over objects, 0 for missed ones")],
        lambda evaluation: f"mean IoU {evaluation.mean_iou:.3f}",
    ),
    "mean_iou_class_agnostic": Shown(PRECISION),
    "pr_curves": Shown(COCO, html.pr_curves),
    "macro": Shown(BREAKDOWNS, html.breakdown("macro", "mean over labels, IoU", *_RATES)),
    "class_agnostic_recall": Shown(BREAKDOWNS),
    "count": Shown(BREAKDOWNS, html.count_table),
    "edge_bias": Shown(BREAKDOWNS, html.bias_table, main=lambda evaluation: f"mean IoU {number(evaluation.mean_iou)}"),
    "by_size": Shown(BREAKDOWNS, html.breakdown("by_size", "size", "objects", "recall", "mean_iou")),
    "by_object_count": Shown(BREAKDOWNS, html.breakdown("by_object_count", "objects in the image", "images", *_RATES)),
    "by_rank": Shown(BREAKDOWNS, html.breakdown("by_rank", "position in the answer", "detections", "precision")),
    "f1_against_threshold": Shown(BY_SCORE, html.score_curve, main=html.score_main),
    "reliability": Shown(BY_SCORE, html.reliability),
    "errors": Shown(
        "Error kinds and their cost",
        html.errors,
        main=lambda evaluation: f"{sum(row['count'] for row in evaluation.analysis['errors'].values()):,} errors",
    ),
    "confusion": Shown("Confusion of labels", confusions, main=confusion_main),
    "per_class": Shown(CLASSES, html.class_table, main=lambda evaluation: f"{len(evaluation.per_class):,}"),
}
"""How the built-in metrics are shown, in the order of `METRICS`, and what `show_metric` added."""


def show_metric(name: str, shown: Shown) -> None:
    """State how a registered metric is shown; otherwise its value is listed among the further metrics.

    Args:
        name: name of the metric
        shown: how it is shown
    """
    SHOWN[name] = shown


def shown_of(name: str) -> Shown:
    """Return how a metric is shown."""
    if name in SHOWN:
        return SHOWN[name]
    listed = lines.further(name)
    return Shown(FURTHER, html.further(name), listed, brief=lambda evaluation: "   ".join(listed(evaluation)))


def all_shown() -> Iterator[Shown]:
    """Yield how each metric is shown."""
    yield from map(shown_of, METRICS)
