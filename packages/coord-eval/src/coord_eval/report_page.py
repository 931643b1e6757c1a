"""The report of an evaluation: one HTML file, whose sections follow the table of metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_codec import geometry_of
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_codec.html import columns, number, page, safe, section, table
from coord_eval.metric_table import all_metrics, headline
from coord_eval.metrics.detection import image_table
from coord_eval.report.overlay import LEGEND, draw, shown_name
from coord_eval.report.photograph import ImageRoot
from coord_eval.report.plot import MatplotlibMissingError

if TYPE_CHECKING:
    from coord_eval.evaluation import Evaluation


@dataclass(frozen=True)
class ReportSection:
    """A section that a caller adds to the report.

    Attributes:
        title: heading, plain text
        html: content, inserted unescaped: the caller must escape it and embed all resources
    """

    title: str
    html: str


def write_report(
    evaluation: Evaluation,
    folder: str | Path,
    *,
    image_root: str | ImageRoot | None = None,
    title: str | None = None,
    sections: Sequence[ReportSection] = (),
    max_overlays: int = 12,
) -> Path:
    """Write `evaluation.json` and `report.html`; see `Evaluation.write_report`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    root: ImageRoot | None = Path(image_root) if isinstance(image_root, str) else image_root or evaluation.truth.root
    parts = [
        _tiles(evaluation),
        _notes(evaluation.notes),
        *(section(part.title, part.html) for part in sections),
        section("Shapes", _shape_table(evaluation.shapes)) if evaluation.shapes else "",
        *_metric_sections(evaluation, headline=True),
        section("Answers: parsing and format", _format_tables(evaluation)),
        section("Images", _images(evaluation, root, max_overlays)) if max_overlays > 0 else "",
        _intervals(evaluation),
        *_metric_sections(evaluation, headline=False),
    ]
    html = page(title or "Evaluation", "\n".join(part for part in parts if part))
    write_text(folder / "evaluation.json", evaluation.to_json())
    write_text(folder / "report.html", html)
    return folder / "report.html"


def _metric_sections(evaluation: Evaluation, headline: bool) -> list[str]:
    """Return a section for each heading of the table of metrics: those with headline figures, or the others."""
    if not evaluation.has_boxes:
        return []
    leading = {row.shown.section for row in all_metrics() if row.shown and any(f.headline for f in row.figures)}
    contents: dict[str, list[str]] = {}
    for row in all_metrics():
        if row.shown and row.shown.html and (row.shown.section in leading) == headline:
            contents.setdefault(row.shown.section, []).append(_shown(row.shown.html, evaluation))
    return [
        section(title, "".join(shown) if headline or len(shown) == 1 else columns(*shown))
        for title, parts in contents.items()
        if (shown := [part for part in parts if part])
    ]


def _shown(html: Callable[[Evaluation], str], evaluation: Evaluation) -> str:
    """Return what the report shows of a metric; in place of a chart that cannot be drawn, the reason."""
    try:
        return html(evaluation)
    except MatplotlibMissingError as missing:
        return f"<p>{safe(missing)}</p>"


def _intervals(evaluation: Evaluation) -> str:
    rows = {
        name: (name, f"{row['value']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}")
        for name, row in evaluation.intervals.items()
    }
    if not rows or not evaluation.has_boxes:
        return ""
    return section("95 % confidence intervals (bootstrap over images)", headline_first(("", "value", "interval"), rows))


def headline_first(head: tuple[str, ...], rows: Mapping[str, tuple[object, ...]]) -> str:
    """Return a table of the headline metrics and a folded one of the others; `rows` has the row of each metric."""
    names = headline()
    first = [row for name, row in rows.items() if name in names]
    others = [row for name, row in rows.items() if name not in names]
    more = f"<details><summary>all metrics</summary>{table(head, others)}</details>" if others else ""
    return table(head, first) + more if rows else ""


def _tiles(evaluation: Evaluation) -> str:
    """Return the headline numbers at the top of the report."""
    health = evaluation.format
    shapes = evaluation.shapes
    tiles = [
        (f"{k} of shapes", number(shapes[k]), f"ceiling {number(shapes['ceiling'][k])}") for k in _ap_names(shapes)[:2]
    ]
    if evaluation.has_boxes:
        tiles += [
            tile for row in all_metrics() if row.shown and row.shown.tiles for tile in row.shown.tiles(evaluation)
        ]
    if health["answers"]:
        share = 100 * health["parsed"] / health["answers"]
        tiles.append(("Answers parsed", f"{share:.1f} %", f"{health['parsed']} of {health['answers']}"))
    cells = (
        f"<div><span>{safe(name)}</span><b>{safe(value)}</b><small>{safe(below)}</small></div>"
        for name, value, below in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{safe(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _shape_table(shapes: Mapping[str, Any]) -> str:
    """Return the scores of shapes other than boxes, and their ceiling."""
    ceiling = shapes["ceiling"]
    names = {"AP": "AP", "mean": "mean similarity over objects, 0 for missed ones"}
    rows = [
        (names.get(name, name), number(shapes[name]), number(ceiling[name])) for name in (*_ap_names(shapes), "mean")
    ]
    text = (
        f"<p>{counted(shapes['objects'], 'object')} of the geometry {safe(shapes['geometry'])}, compared by "
        f"{safe(shapes['measure'])}. Ceiling: the ground truth itself, encoded as a target text, with "
        f"{counted(ceiling['simplified'], 'outline')} simplified."
    )
    has_extent = geometry_of(shapes["geometry"]).has_extent
    note = " The sections below are about the bounding boxes of the shapes." if has_extent else ""
    return f"{text}{note}</p>{table(('', 'score', 'ceiling'), rows)}"


def _ap_names(shapes: Mapping[str, Any]) -> list[str]:
    return [name for name in shapes if name.startswith("AP")]


def _format_tables(evaluation: Evaluation) -> str:
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


def _f1_of_shapes(evaluation: Evaluation) -> np.ndarray:
    """Return F1 of each image at the lowest threshold of the shapes' measure, 1 without objects and detections."""
    pairs = evaluation.shape_pairs
    assert pairs is not None
    hits_I = evaluation.sum_detections(pairs.similarity_D > 0)
    all_I = evaluation.sum_detections(pairs.similarity_D >= 0) + evaluation.objects_per_image
    return np.where(all_I > 0, 2 * hits_I / np.maximum(all_I, 1), 1.0)


def _images(evaluation: Evaluation, root: ImageRoot | None, limit: int) -> str:
    """Draw the images with the lowest and the highest F1, with ground truth and answer."""
    f1_I = _f1_of_shapes(evaluation) if evaluation.shapes else np.array([r["f1"] for r in image_table(evaluation)])
    order = np.argsort(f1_I, kind="stable")
    if len(order) > limit:
        half = limit // 2
        order = np.concatenate([order[: limit - half], order[len(order) - half :]])
    figures = []
    problems: dict[str, list[str]] = {}
    for image in order.tolist():
        svg, problem = draw(evaluation, image, root)
        name = shown_name(evaluation, image)
        if problem:
            problems.setdefault(problem, []).append(name)
        text = safe(evaluation.answers.get(image, ("",))[0], keep="\n\t")
        answer = f"<details><summary>answer</summary><pre>{text}</pre></details>" if text else ""
        figures.append(f"<figure>{svg}<figcaption>{safe(name)}: F1 {f1_I[image]:.2f}</figcaption>{answer}</figure>")
    notes = [
        f"{names[0]}: {problem}" if len(names) == 1 else f"{len(names)} images, the first {names[0]}: {problem}"
        for problem, names in problems.items()
    ]
    legend = f'<p class="legend">{LEGEND}. Sorted by F1, lowest first.</p>'
    return legend + _notes(notes[:5]) + f'<div class="images">{"".join(figures)}</div>'
