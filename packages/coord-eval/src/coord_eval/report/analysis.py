"""Report sections that explain the scores: intervals, error kinds, localisation, calibration, confusions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coord_codec.html import columns, number, safe, section, table
from coord_eval.metrics.detection import SCORE_THRESHOLDS, f1_name
from coord_eval.metrics.errors import ERROR_KINDS, confused_name, confused_pairs
from coord_eval.metrics.evaluation import EvaluationData
from coord_eval.report.page import headline_first
from coord_eval.report.plot import INK, PALETTE, chart, line_chart

_Intervals = Mapping[str, Mapping[str, float]]


def analysis_sections(evaluation: EvaluationData) -> list[str]:
    """Return the sections on intervals, errors, localisation, scores and confusions, without empty ones."""
    analysis, intervals = evaluation.analysis, evaluation.intervals
    contents = {
        "95 % confidence intervals (bootstrap over images)": headline_first(
            ("", "value", "interval"),
            {
                name: (name, f"{row['value']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}")
                for name, row in intervals.items()
            },
        ),
        "Error kinds and their cost": _errors(analysis["errors"]),
        "AP and AR with your parameters": table(
            ("metric", "value"), [(name, number(value)) for name, value in evaluation.coco_own.items()]
        )
        if evaluation.coco_own
        else "",
        "Precision and recall": _pr_curves(evaluation.pr_curves),
        "Localisation and counts": _breakdowns(analysis),
        "F1 by score, and calibration": _curves(analysis, intervals),
        "Confusion of labels": _confusions(analysis["confusion"], intervals),
    }
    return [section(title, html) for title, html in contents.items() if html]


def _errors(errors: dict[str, Any]) -> str:
    if not errors:
        return ""
    rows = [(name.replace("_", " "), row["count"], f"{row['cost']:.3f}") for name, row in errors.items()]
    kinds = "; ".join(f"{name.replace('_', ' ')}: {text}" for name, text in ERROR_KINDS.items())
    return (
        "<p>AP50 gained if only the errors of one kind were repaired, after TIDE. Every false box has one kind.</p>"
        + table(("kind", "count", "AP50 lost"), rows)
        + f"<p>{safe(kinds)}.</p>"
    )


def _pr_curves(curves: Mapping[str, list[float]]) -> str:
    lines = {f"IoU {name}": (curves["recall"], ys) for name, ys in curves.items() if name != "recall"}
    if not lines:
        return ""
    caption = "precision by recall, averaged over labels; the mean of a curve is its AP"
    svg = line_chart(lines, caption, x_label="recall", y_label="precision")
    return f"{svg}<p>{safe(caption)}.</p>"


def _breakdowns(analysis: dict[str, Any]) -> str:
    bias, count, by_count = analysis["edge_bias"], analysis["count"], analysis["by_object_count"]
    rates = ("precision", "recall", "f1")
    counts = [
        ("predicted minus ground-truth objects per image", f"{count['mean_error']:+.2f}"),
        ("absolute difference per image", f"{count['mean_absolute_error']:.2f}"),
        ("images with the exact number", f"{100 * count['exact_share']:.1f} %"),
        ("duplicates", count["duplicates"]),
        ("recall for any label, IoU .50", number(analysis["class_agnostic_recall"])),
    ]
    tables = [
        table(
            (f"mean error of {bias['pairs']['count']} pairs", "pixels", "bins"),
            [(edge, f"{error:+.2f}", f"{bias['bins'][edge]:+.2f}") for edge, error in bias["pixels"].items()],
        ),
        table(("counts", ""), counts),
    ]
    for head, rows, keys in (
        (("mean over labels, IoU", "precision", "recall", "F1"), analysis["macro"], rates),
        (("size", "objects", "recall", "mean IoU"), analysis["by_size"], ("objects", "recall", "mean_iou")),
        (("objects in the image", "images", "precision", "recall", "F1"), by_count, ("images", *rates)),
        (("position in the answer", "boxes", "precision"), analysis["by_rank"], ("detections", "precision")),
    ):
        if rows:
            tables.append(table(head, [(name, *_cells(row, keys)) for name, row in rows.items()]))
    return columns(*tables)


def _cells(row: Mapping[str, float], keys: tuple[str, ...]) -> list[object]:
    return [row[key] if isinstance(row[key], int) else number(row[key]) for key in keys]


def _curves(analysis: dict[str, Any], intervals: _Intervals) -> str:
    """Draw F1 against the score threshold, and the reliability diagram; empty if all scores are equal."""
    figures = []
    curve = analysis["f1_against_threshold"]
    if len(curve["points"]) > 1:
        best = curve["best"]
        caption = f"F1 against score threshold; best {best['f1']:.3f} at {best['threshold']:.3g}"
        with chart(caption, width=374, height=230) as drawn:
            scores = [row[0] for row in curve["points"]]
            drawn.axes.plot(scores, [row[3] for row in curve["points"]], marker="o")
            drawn.axes.set(ylim=(0, 1.02), xlabel="score threshold", ylabel="F1")
            if min(scores) >= 0 and max(scores) <= 1:
                drawn.axes.set_xlim(-0.02, 1.02)
            bounds = {t: row for t in SCORE_THRESHOLDS if (row := intervals.get(f1_name(t)))}
            if bounds:
                low, high = ([row[key] for row in bounds.values()] for key in ("low", "high"))
                drawn.axes.fill_between(list(bounds), low, high, alpha=0.2)
                caption += "; band: 95 % confidence interval over images"
        figures.append((drawn.svg, caption))
    if analysis["reliability"]:
        caption = f"reliability; expected calibration error {analysis['reliability']['ece']:.3f}"
        with chart(caption, width=374, height=230) as drawn:
            drawn.axes.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1)
            bins = analysis["reliability"]["bins"]
            drawn.axes.plot([row[3] for row in bins], [row[4] for row in bins], marker="o", color=PALETTE[0])
            drawn.axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.02), xlabel="mean score", ylabel="share of hits at IoU .50")
        figures.append((drawn.svg, caption))
    html = (f"<figure>{svg}<figcaption>{safe(caption)}</figcaption></figure>" for svg, caption in figures)
    return columns(*html) if figures else ""


def _confusions(confusion: dict[str, dict[str, int]], intervals: _Intervals) -> str:
    """List the most frequent pairs of different labels; the table of error kinds covers background."""
    rows: list[tuple[object, ...]] = []
    for true, predicted, count in confused_pairs(confusion):
        row = intervals.get(confused_name(true, predicted))
        share = f"{count / sum(confusion[true].values()):.3f}"
        shown = f" [{row['low']:.3f}, {row['high']:.3f}]" if row else ""
        rows.append((true, predicted, count, share + shown))
    head = ("ground-truth label", "predicted label", "count", "share of the label")
    return table(head, rows) if rows else ""
