"""The parts of the report that explain the headline numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coord_eval.bootstrap import HEADLINE
from coord_eval.confusion import confused_name, confused_pairs
from coord_eval.error_kinds import ERROR_KINDS
from coord_eval.evaluation import Evaluation
from coord_eval.html_text import safe
from coord_eval.report_tables import folded, number, section, table
from coord_eval.thresholds import F1_THRESHOLDS, f1_name

_Intervals = Mapping[str, Mapping[str, float]]


def analysis_sections(evaluation: Evaluation) -> list[str]:
    """Return the report's sections on intervals, errors, places, scores and confusions."""
    found = evaluation.analysis
    parts = []
    if evaluation.intervals:
        parts.append(section("95 % intervals over pictures", _intervals(evaluation.intervals)))
    if found["errors"]:
        parts.append(section("What the errors cost", _errors(found["errors"])))
    parts.append(section("Places and counts", _places(evaluation)))
    if curves := _curves(found, evaluation.intervals):
        parts.append(section("What the scores are worth", curves))
    if confused := _confused(found["confusion"], evaluation.intervals):
        parts.append(section("Confusions", confused))
    return parts


def _intervals(intervals: _Intervals) -> str:
    head = ("", "value", "interval")
    rows = {
        name: (name, f"{row['value']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}")
        for name, row in intervals.items()
    }
    first = [row for name, row in rows.items() if name in HEADLINE]
    others = [row for name, row in rows.items() if name not in HEADLINE]
    return table(head, first) + (folded("all metrics", table(head, others)) if others else "")


def _errors(errors: dict[str, Any]) -> str:
    rows = [(name.replace("_", " "), row["count"], f"{row['cost']:.3f}") for name, row in errors.items()]
    what = "; ".join(f"{name.replace('_', ' ')}: {text}" for name, text in ERROR_KINDS.items())
    return (
        "<p>AP50 that repairing one kind alone would win, after TIDE. Every false box has one kind.</p>"
        + table(("kind", "count", "AP50 lost"), rows)
        + f"<p>{safe(what)}.</p>"
    )


def _places(evaluation: Evaluation) -> str:
    found = evaluation.analysis
    bias, count = found["edge_bias"], found["count"]
    html = '<div class="columns">'
    rows: list[tuple[object, ...]] = [
        (edge, f"{bias['pixels'][edge]:+.2f}", f"{bias['bins'][edge]:+.2f}") for edge in bias["pixels"]
    ]
    html += table((f"mean error of {bias['pairs']['count']} pairs", "pixels", "bins"), rows)
    rows = [
        ("answered minus true objects a picture", f"{count['mean_error']:+.2f}"),
        ("the same without sign", f"{count['mean_absolute_error']:.2f}"),
        ("pictures with the exact number", f"{100 * count['exact_share']:.1f} %"),
        ("duplicates", count["duplicates"]),
        ("recall for any label, IoU .50", number(found["class_agnostic_recall"])),
    ]
    html += table(("counts", ""), rows)
    macro = [
        (t, *(number(row[k]) for k in ("precision", "recall", "f1"))) for t, row in found["macro"].items()
    ]
    html += table(("mean over labels, IoU", "precision", "recall", "F1"), macro)
    if found["by_size"]:
        rows = [
            (n, r["objects"], number(r["recall"]), number(r["mean_iou"])) for n, r in found["by_size"].items()
        ]
        html += table(("size", "objects", "recall", "mean IoU"), rows)
    rows = [
        (n, r["images"], number(r["precision"]), number(r["recall"]), number(r["f1"]))
        for n, r in found["by_object_count"].items()
    ]
    html += table(("objects in the picture", "pictures", "precision", "recall", "F1"), rows)
    rows = [(n, r["detections"], number(r["precision"])) for n, r in found["by_rank"].items()]
    return html + table(("place in the answer", "boxes", "precision"), rows) + "</div>"


def _curves(found: dict[str, Any], intervals: _Intervals) -> str:
    """Draw F1 against threshold and the reliability diagram, where the scores say anything."""
    html = ""
    curve = found["f1_against_threshold"]
    if len(curve["points"]) > 1:
        best = curve["best"]
        points = [(row[0], row[3]) for row in curve["points"]]
        rows = {threshold: intervals.get(f1_name(threshold)) for threshold in F1_THRESHOLDS}
        band = [(threshold, row["low"], row["high"]) for threshold, row in rows.items() if row]
        note = f"F1 against score threshold; best {best['f1']:.3f} from {best['threshold']:.3g} on"
        html += _plot(points, note + "; 95 % intervals over pictures" * bool(band), band=band)
    if found["reliability"]:
        points = [(row[3], row[4]) for row in found["reliability"]["bins"]]
        note = f"share of hits against score; calibration error {found['reliability']['ece']:.3f}"
        html += _plot(points, note, diagonal=True)
    return f'<div class="columns">{html}</div>' if html else ""


def _plot(
    points: Sequence[tuple[float, float]],
    note: str,
    diagonal: bool = False,
    band: Sequence[tuple[float, float, float]] = (),
) -> str:
    """Return a small line plot with the unit interval upwards, and across where the values lie in it.

    Args:
        points: Across and upwards.
        note: Written below.
        diagonal: Draw where both are equal.
        band: Across, low and high of intervals.
    """
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    wide, tall, left, below = 320, 200, 34, 22

    def place(x: float, y: float) -> str:
        return f"{left + wide * (x - low) / ((high - low) or 1):.1f},{8 + tall * (1 - y):.1f}"

    marks = "".join(
        f'<path d="M{place(low, y)}L{place(high, y)}" stroke="#e3e7ec"/>'
        f'<text class="axis" x="0" y="{12 + tall * (1 - y):.0f}">{y:.1f}</text>'
        for y in (0, 0.5, 1)
    )
    marks += "".join(
        f'<text class="axis" x="{left + wide * part - 8:.0f}" y="{tall + below + 4}">'
        f"{low + part * (high - low):.2g}</text>"
        for part in (0, 0.5, 1)
    )
    guide = (
        f'<path d="M{place(0, 0)}L{place(1, 1)}" stroke="#9aa5b1" stroke-dasharray="4 4"/>'
        if diagonal
        else ""
    )
    guide += "".join(
        f'<path d="M{place(x, bottom)}L{place(x, top)}" stroke="#2563eb" stroke-opacity=".35" stroke-width="6"/>'
        for x, bottom, top in band
    )
    line = " ".join(place(x, y) for x, y in points)
    dots = "".join(
        f'<circle cx="{spot.split(",")[0]}" cy="{spot.split(",")[1]}" r="2.5" fill="#2563eb"/>'
        for spot in line.split()
    )
    return (
        f'<figure class="plot"><svg viewBox="0 0 {left + wide + 20} {tall + below + 12}">{marks}{guide}'
        f'<polyline points="{line}" fill="none" stroke="#2563eb" stroke-width="2"/>{dots}</svg>'
        f"<figcaption>{safe(note)}</figcaption></figure>"
    )


def _confused(confusion: dict[str, dict[str, int]], intervals: _Intervals) -> str:
    """List the most frequent pairs of different labels, background left to the table of errors."""
    rows: list[tuple[object, ...]] = []
    for true, answered, count in confused_pairs(confusion):
        row = intervals.get(confused_name(true, answered))
        share = f"{count / sum(confusion[true].values()):.3f}"
        shown = f" [{row['low']:.3f}, {row['high']:.3f}]" if row else ""
        rows.append((true, answered, count, share + shown))
    return table(("true label", "answered as", "count", "share of the label"), rows) if rows else ""
