"""The report of an evaluation: one HTML file, whose sections follow the table of metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import geometry_of
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_codec.pages import columns, fragment, notes, number, page, safe, section, table, tiles
from coord_eval.metrics.errors import classify_errors
from coord_eval.metrics.figures import Figures
from coord_eval.metrics.metric_table import METRICS, figure_of, figures, headline
from coord_eval.page_options import MAX_OVERLAYS, ImageRoot, ReportSection
from coord_eval.report.distributions import distribution_charts
from coord_eval.report.findings import costly_errors, findings_html
from coord_eval.report.images import choose_images, drawn_from, f1_of_images, images_html
from coord_eval.report.shown import Shown, all_shown, shown_of


def write_report(
    evaluation: Figures,
    folder: str | Path,
    *,
    image_root: str | ImageRoot | None = None,
    title: str | None = None,
    sections: Sequence[ReportSection] = (),
    max_overlays: int = MAX_OVERLAYS,
    facts: Mapping[str, object] | None = None,
) -> Path:
    """Write `evaluation.json` and `report.html`; see `Evaluation.write_report`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    root: ImageRoot | None = Path(image_root) if isinstance(image_root, str) else image_root or evaluation.truth.root
    document = evaluation.to_json()  # first: COCO's tables take most memory, and what follows keeps its own
    kinds = classify_errors(evaluation)
    findings = costly_errors(evaluation, kinds)
    threshold = drawn_from(evaluation)
    f1_I = f1_of_images(evaluation, threshold)
    chosen = choose_images(f1_I, findings, max_overlays) if max_overlays > 0 else []
    images, shown = images_html(evaluation, root, chosen, f1_I, threshold, kinds, folder) if chosen else ("", [])
    first = findings_html(findings, frozenset(shown))
    health = evaluation.format
    parsed = f"{health['parsed']} of {health['answers']} parsed" if health["answers"] else ""
    parts = [
        tiles_html(evaluation),
        figures_html(evaluation),
        notes(evaluation.notes),
        section("What to look at first", first, f"{len(findings)} findings") if findings else "",
        section("Images", images, f"{len(shown)} of {len(f1_I)}") if images else "",
        *(section(part.title, part.html) for part in sections),
        section("Shapes", _shape_table(evaluation.shapes)) if evaluation.shapes else "",
        *_metric_sections(evaluation),
        _distributions(evaluation),
        section("Answers: parsing and format", _format_tables(evaluation), parsed, folded=True),
        _intervals(evaluation),
    ]
    about = {"date": time.strftime("%Y-%m-%d %H:%M"), **(facts or {})}
    html = page(title or "Evaluation", "\n".join(part for part in parts if part), facts=about)
    write_text(folder / "evaluation.json", document)
    write_text(folder / "report.html", html)
    return folder / "report.html"


def _metric_sections(evaluation: Figures) -> list[str]:
    """Return a section for each heading of the table of metrics, those with headline figures first.

    Tables of the others are folded behind their heading; charts are not.
    """
    if not evaluation.has_boxes:
        return []
    contents: dict[str, list[Shown]] = {}
    for shown in all_shown():
        if shown.html:
            contents.setdefault(shown.section, []).append(shown)
    leading = {shown_of(row.name).section for row in METRICS.values() if any(f.headline for f in row.figures)}
    parts = []
    for title, rows in sorted(contents.items(), key=lambda item: item[0] not in leading):
        pieces = list(filter(None, (row.html(evaluation) for row in rows if row.html)))
        mains = (row.main(evaluation) for row in rows if row.main)
        if pieces:
            folded = title not in leading and not any("<figure" in html or "matrix" in html for html in pieces)
            parts.append(section(title, columns(*pieces), next(filter(None, mains), ""), folded))
    return parts


def _distributions(evaluation: Figures) -> str:
    shown = distribution_charts(evaluation) if evaluation.has_boxes else ""
    return section("Where the boxes lie", shown, f"mean IoU {number(evaluation.mean_iou)}") if shown else ""


def _intervals(evaluation: Figures) -> str:
    rows = {
        name: (name, f"{row['value']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}")
        for name, row in evaluation.intervals.items()
    }
    html = headline_first(("", "value", "interval"), rows) if evaluation.has_boxes else ""
    title = "95 % confidence intervals (bootstrap over images)"
    return section(title, html, f"{len(rows)} figures", folded=True) if html else ""


def headline_first(head: tuple[str, ...], rows: Mapping[str, tuple[object, ...]]) -> str:
    """Return a table of the headline metrics and a folded one of the others; `rows` has the row of each metric."""
    first = [row for name, row in rows.items() if figure_of(name).headline]
    others = [row for name, row in rows.items() if not figure_of(name).headline]
    more = f"<details><summary>all metrics</summary>{table(head, others)}</details>" if others else ""
    return table(head, first) + more if rows else ""


def tiles_html(evaluation: Figures) -> str:
    """Return the headline numbers at the top of the report."""
    health = evaluation.format
    shapes = evaluation.shapes
    cells = [
        (f"{k} of shapes", number(shapes[k]), f"ceiling {number(shapes['ceiling'][k])}" if "ceiling" in shapes else "")
        for k in _ap_names(shapes)[:2]
    ]
    if evaluation.has_boxes:
        for shown in all_shown():
            cells += shown.tiles(evaluation) if shown.tiles else []
    if health["answers"]:
        share = 100 * health["parsed"] / health["answers"]
        cut = f", {health['truncated']} cut off" if health["truncated"] else ""
        cells.append(("Answers parsed", f"{share:.1f} %", f"{health['parsed']} of {health['answers']}{cut}"))
    return tiles(cells)


def figures_html(evaluation: Figures) -> str:
    """Return the headline figures in one paragraph of text, with their intervals and the ceiling."""
    if not evaluation.has_boxes:
        return ""
    names, parts = [*headline(evaluation)], []
    ones_1I = np.ones((1, len(evaluation.truth)), np.int32)
    others = figures(evaluation, ones_1I, [name for name in names if name not in evaluation.coco])
    values = evaluation.coco | {name: float(value_1[0]) for name, value_1 in others.items()}
    for name in names:
        value, row = values[name], evaluation.intervals.get(name)
        interval = f" [{row['low']:.3f}, {row['high']:.3f}]" if row else ""
        ceiling = f" (ceiling {number(evaluation.ceiling[name])})" if name in evaluation.ceiling else ""
        if not np.isnan(value):
            parts.append(f"{name} {number(value)}{interval}{ceiling}")
    remark = ". Brackets: 95 % interval over images" if evaluation.intervals else ""
    return f'<p class="figures">{safe("; ".join(parts))}{remark}.</p>'


def _shape_table(shapes: Mapping[str, Any]) -> str:
    """Return the scores of shapes other than boxes, and their ceiling."""
    ceiling = shapes.get("ceiling")
    names = {name: name for name in _ap_names(shapes)} | {"mean": "mean similarity over objects, 0 for missed ones"}
    rows = [
        (shown, number(shapes[name]), *([number(ceiling[name])] if ceiling else [])) for name, shown in names.items()
    ]
    text = (
        f"<p>{counted(shapes['objects'], 'object')} of the geometry {safe(shapes['geometry'])}, compared by "
        f"{safe(shapes['measure'])}."
    )
    if ceiling:
        simplified = counted(ceiling["simplified"], "outline")
        text += f" Ceiling: the ground truth itself, encoded as a target text, with {simplified} simplified."
    has_extent = geometry_of(shapes["geometry"]).has_extent
    note = " The sections below are about the bounding boxes of the shapes." if has_extent else ""
    return f"{text}{note}</p>{table(('', 'score', 'ceiling')[: 2 + bool(ceiling)], rows)}"


def brief(evaluation: Figures) -> str:
    """Return the headline metrics in one line."""
    parts = []
    if shapes := evaluation.shapes:
        figures = "   ".join(f"{name} {shapes[name]:.3f}" for name in _ap_names(shapes)[:2])
        ceiling = f" (quantisation ceiling {shapes['ceiling']['AP']:.3f})" if "ceiling" in shapes else ""
        parts.append(f"{shapes['geometry']}: {figures}{ceiling}")
    if evaluation.has_boxes:
        around = "boxes around: " if shapes else ""
        parts.append(around + "   ".join(shown.brief(evaluation) for shown in all_shown() if shown.brief))
    return "   ".join(parts)


def notebook_html(evaluation: Figures) -> str:
    """Return what a notebook shows: the headline figures and the notes."""
    return fragment(tiles_html(evaluation) + figures_html(evaluation) + notes(evaluation.notes))


def _ap_names(shapes: Mapping[str, Any]) -> list[str]:
    return [name for name in shapes if name.startswith("AP")]


def _format_tables(evaluation: Figures) -> str:
    health, counts, join = evaluation.format, evaluation.counts, evaluation.join
    rows = [
        ("images", counts["images"]),
        ("images with an answer", join.answered),
        ("images without an answer", join.images - join.answered),
        ("answers about unknown images, left out", join.unknown),
        ("ground-truth objects", counts["objects"]),
        ("crowd regions, neither hit nor missed", counts["crowd_regions"]),
        ("predicted boxes", counts["detections"]),
        ("boxes with unknown labels, counted as false", counts["unknown_label_detections"]),
    ]
    tables = [table(("", "count"), rows)]
    if health["answers"]:
        rows = [(key, health[key]) for key in ("answers", "parsed", "clean", "truncated", "empty", "repeats")]
        rows += [(f"{kind} objects", n) for kind, n in health["completeness"].items()]
        rows += [(f"format {name}", n) for name, n in health["formats"].items()]
        dropped = [(reason.replace("_", " "), n) for reason, n in health["dropped"].items()]
        tables.append(table(("answers", "count"), rows))
        tables.append(table(("reason for dropping", "count"), dropped or [("nothing dropped", 0)]))
    if unknown := list(evaluation.unknown_labels.items())[:15]:
        tables.append(table(("unknown labels", "count"), [(name.strip() or "(no label)", n) for name, n in unknown]))
    return columns(*tables)
