"""How the report shows each metric: functions of an evaluation that return HTML, and the headline numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_codec.counts import counted, fixed
from coord_codec.pages import PALETTE, figure, number, safe, table
from coord_eval.metrics.errors import ERROR_KINDS
from coord_eval.metrics.thresholds import best_threshold, threshold_curve
from coord_eval.report.plot import INK, chart
from coord_eval.settings import SCORE_SOURCES

if TYPE_CHECKING:
    from coord_eval.metrics.figures import Figures

_COCO_NAMES = {
    "AP": "AP, IoU .50:.95",
    "AP50": "AP at IoU .50",
    "AP75": "AP at IoU .75",
    "APs": "AP, small objects (below 32² pixels)",
    "APm": "AP, medium objects",
    "APl": "AP, large objects (above 96² pixels)",
    "AR1": "AR, 1 box of a label and image",
    "AR10": "AR, 10 boxes of a label and image",
    "AR100": "AR, 100 boxes of a label and image",
    "ARs": "AR, small objects",
    "ARm": "AR, medium objects",
    "ARl": "AR, large objects",
}
_RATES = ("precision", "recall", "f1")
_HEADS = {"f1": "F1", "mean_iou": "mean IoU", "detections": "boxes"}
_CURVE_RESAMPLES = 200
"""Resamples of the images for the bands of a curve."""


def coco_table(evaluation: Figures) -> str:
    """Return the twelve metrics with the scores, with all scores 1, for any label, and of the ceiling."""
    source = evaluation.score_source
    kinds = (evaluation.coco, evaluation.coco_constant_score, evaluation.coco_class_agnostic, evaluation.ceiling)
    rows = [(name, *(number(kind.get(key, -1)) for kind in kinds)) for key, name in _COCO_NAMES.items()]
    return (
        f"<div><p>Sorted by <b>{safe(source)}</b>: {safe(SCORE_SOURCES[source])}. Ceiling: the ground truth itself, "
        "encoded and parsed back, with all scores set to 1. Any label: all labels replaced by one. Backend: "
        f"{safe(evaluation.backend)}.</p>"
        f"{table(('', 'scores', 'all scores 1', 'any label', 'ceiling'), rows)}</div>"
    )


def coco_tiles(evaluation: Figures) -> list[tuple[str, str, str]]:
    """Return AP and AP50 beside the ceiling."""
    suffix = " of boxes around" if evaluation.shapes else ""
    coco, ceiling = evaluation.coco, evaluation.ceiling
    return [(key + suffix, number(coco[key]), f"ceiling {number(ceiling.get(key, -1))}") for key in ("AP", "AP50")]


def detection_table(evaluation: Figures) -> str:
    """Return precision, recall and F1 at each IoU, of the same label and of any label."""
    both = (evaluation.detection, evaluation.detection_class_agnostic)
    rows = [(t, *(number(rates[t][key]) for rates in both for key in _RATES)) for t in evaluation.detection]
    head = ("IoU", "precision", "recall", "F1", "precision, any label", "recall, any label", "F1, any label")
    return table(head, rows)


def mean_iou(evaluation: Figures) -> str:
    """Return mean IoU of the same label and of any label."""
    iou = f"{number(evaluation.mean_iou)}, {number(evaluation.mean_iou_class_agnostic)} for any label"
    return f"<p>Mean IoU over objects: {iou}.</p>"


def own_table(evaluation: Figures) -> str:
    """Return AP and AR with the caller's parameters; empty without any."""
    rows = [(name, number(value)) for name, value in evaluation.coco_own.items()]
    return table(("metric", "value"), rows) if rows else ""


def errors(evaluation: Figures) -> str:
    """Return the count and the cost of each kind of error; empty without objects."""
    found = evaluation.analysis["errors"]
    if not found:
        return ""
    rows = [(name.replace("_", " "), row["count"], f"{row['cost']:.3f}") for name, row in found.items()]
    kinds = "; ".join(f"{name.replace('_', ' ')}: {text}" for name, text in ERROR_KINDS.items())
    return (
        "<p>AP50 gained if only the errors of one kind were repaired, after TIDE. Every false box has one kind.</p>"
        f"{table(('kind', 'count', 'AP50 lost'), rows)}<p>{safe(kinds)}.</p>"
    )


def pr_curves(evaluation: Figures) -> str:
    """Return the curves of precision against recall; empty without objects."""
    curves = evaluation.pr_curves
    lines = {f"IoU {name}": ys for name, ys in curves.items() if name != "recall"}
    if not lines:
        return ""
    caption = "precision by recall, averaged over labels; the mean of a curve is its AP"
    with chart(caption, height=300) as drawn:
        for name, ys in lines.items():
            drawn.axes.plot(curves["recall"], ys, label=name)
        drawn.axes.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="recall", ylabel="precision")
    return figure(drawn.svg, f"{caption}.")


def count_table(evaluation: Figures) -> str:
    """Return the errors of the number of objects, and recall of any label."""
    count = evaluation.analysis["count"]
    rows = [
        ("predicted minus ground-truth objects per image", fixed(count["mean_error"], 2, "+")),
        ("absolute difference per image", f"{count['mean_absolute_error']:.2f}"),
        ("images with the exact number", f"{100 * count['exact_share']:.1f} %"),
        ("duplicates", count["duplicates"]),
        ("recall for any label, IoU .50", number(evaluation.analysis["class_agnostic_recall"])),
    ]
    return table(("counts", ""), rows)


def bias_table(evaluation: Figures) -> str:
    """Return the mean error of each edge."""
    bias = evaluation.analysis["edge_bias"]
    rows = [(edge, fixed(error, 2, "+"), fixed(bias["bins"][edge], 2, "+")) for edge, error in bias["pixels"].items()]
    return table((f"mean error of {counted(bias['pairs']['count'], 'pair')}", "pixels", "bins"), rows)


def breakdown(name: str, part: str, *keys: str) -> Callable[[Figures], str]:
    """Return the function that shows a breakdown: these values of each of its parts; empty without any."""
    head = (part, *(_HEADS.get(key, key) for key in keys))

    def html(evaluation: Figures) -> str:
        rows = evaluation.analysis[name]
        return table(head, [(row, *_cells(values, keys)) for row, values in rows.items()]) if rows else ""

    return html


def _cells(row: Mapping[str, float], keys: tuple[str, ...]) -> list[object]:
    return [row[key] if isinstance(row[key], int) else number(row[key]) for key in keys]


def score_curve(evaluation: Figures) -> str:
    """Draw precision, recall and F1 against the score threshold; empty if no scores tell boxes apart.

    Bands are 95 % intervals over images, if the evaluation has intervals.
    """
    if not best_threshold(evaluation):
        return ""
    curve = threshold_curve(evaluation, _CURVE_RESAMPLES if evaluation.intervals else 0)
    best = curve.choose()
    caption = f"precision, recall and F1 against score threshold; best F1 {best.f1:.3f} at {best.value:.3g}"
    scores, *rates = np.array(curve.points).T
    bounds = np.array(curve.intervals).T
    with chart(caption, width=560, height=300) as drawn:
        for place, (name, style) in enumerate(zip(_RATES, ("--", ":", "-"), strict=True)):
            colour = PALETTE[2 - place]
            drawn.axes.plot(scores, rates[place], style, label=name, color=colour)
            if evaluation.intervals:
                drawn.axes.fill_between(scores, *bounds[2 * place : 2 * place + 2], alpha=0.15, color=colour)
        drawn.axes.plot([best.value], [best.f1], marker="o", markersize=8, color=PALETTE[0])
        drawn.axes.set(ylim=(0, 1.02), xlabel="score threshold")
        if scores.min() >= 0 and scores.max() <= 1:
            drawn.axes.set(xlim=(-0.02, 1.02))
    return figure(drawn.svg, caption + ("; bands: 95 % intervals over images" if evaluation.intervals else ""))


def reliability(evaluation: Figures) -> str:
    """Draw the share of hits against the score; empty if scores are no probabilities."""
    found = evaluation.analysis["reliability"]
    if not found:
        return ""
    caption = f"reliability; expected calibration error {found['ece']:.3f}"
    with chart(caption, width=560, height=300) as drawn:
        drawn.axes.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1)
        scores, hits = zip(*(row[3:5] for row in found["bins"]), strict=True)
        drawn.axes.plot(scores, hits, marker="o", color=PALETTE[0])
        drawn.axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.02), xlabel="mean score", ylabel="share of hits at IoU .50")
    return figure(drawn.svg, caption)


def class_table(evaluation: Figures) -> str:
    """Return AP and AP50 of each category, those with most objects first; empty without any."""
    if not evaluation.per_class:
        return ""
    ranked = sorted(evaluation.per_class.items(), key=lambda item: -item[1]["objects"])
    rows = [(name, row["objects"], row["detections"], number(row["AP"]), number(row["AP50"])) for name, row in ranked]
    return table(("class", "objects", "predicted boxes", "AP", "AP50"), rows, sortable=True)


def further(name: str) -> Callable[[Figures], str]:
    """Return the function that lists a registered metric: a number, or a row for each number that it holds."""

    def html(evaluation: Figures) -> str:
        return table((name, ""), [(key or "value", text) for key, text in flat(evaluation.metrics[name])])

    return html


def flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Return the numbers of a value, nested or not, as pairs of a dotted name and text."""
    if not isinstance(value, Mapping):
        return [(prefix, number(value) if isinstance(value, float) else str(value))]
    return [pair for key, part in value.items() for pair in flat(part, f"{prefix}.{key}" if prefix else str(key))]


def f1_tiles(evaluation: Figures) -> list[tuple[str, str, str]]:
    """Return F1 of all boxes at an IoU of .5, and the best one."""
    return [("F1 at IoU .50", number(evaluation.detection["0.5"]["f1"]), score_main(evaluation) or "without scores")]


def score_main(evaluation: Figures) -> str:
    """Return the best F1 and its threshold; empty where no scores tell boxes apart."""
    best = best_threshold(evaluation)
    return f"best F1 {best['f1']:.3f} at {best['threshold']:.3g}" if best else ""
