"""Elements of an HTML page: escaped text, numbers, tables, sections, images with boxes, and the page itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from coord_codec import Geometry, geometry_of
from coord_eval.match.matching import Scored
from coord_eval.metrics.bootstrap import HEADLINE
from coord_eval.report.photograph import photograph


def printable(value: object, keep: str = "") -> str:
    r"""Escape control, bidirectional and surrogate characters, as in `\u202e`.

    They could otherwise rearrange the text around an answer.

    Args:
        value: any text, for example from a model or a file
        keep: characters that are not escaped
    """
    return "".join(c if c.isprintable() or c in keep else f"\\u{ord(c):04x}" for c in str(value))


def safe(value: object, keep: str = "") -> str:
    """Escape text for HTML content and attributes, after `printable`; characters in `keep` are not escaped.

    Example:
        >>> safe('<b>"')
        '&lt;b&gt;&quot;'
    """
    return escape(printable(value, keep))


def number(value: float) -> str:
    """Format a metric with three decimals; COCO's -1 for an undefined one becomes n/a.

    Example:
        >>> number(0.25), number(-1)
        ('0.250', 'n/a')
    """
    return "n/a" if value < 0 else f"{value:.3f}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table; cells are escaped, all columns but the first are right-aligned."""
    header = "".join(_cell("th", i, cell) for i, cell in enumerate(head))
    body = "".join(f"<tr>{''.join(_cell('td', i, cell) for i, cell in enumerate(row))}</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, column: int, value: object) -> str:
    text = safe(value)
    kind = "" if not column else " class=n" if len(text) <= _ONE_LINE else ' class="n long"'
    return f"<{tag}{kind}>{text}</{tag}>"


def section(title: str, html: str) -> str:
    """Return a card with a heading; `html` is inserted unescaped."""
    return f"<section><h2>{safe(title)}</h2>{html}</section>"


def columns(*parts: str) -> str:
    """Return tables or figures side by side, wrapped on a narrow page."""
    return f'<div class="columns">{"".join(parts)}</div>'


def headline_first(head: tuple[str, ...], rows: Mapping[str, tuple[object, ...]]) -> str:
    """Return a table of the headline metrics and a folded one of the others; `rows` has the row of each metric."""
    first = [row for name, row in rows.items() if name in HEADLINE]
    others = [row for name, row in rows.items() if name not in HEADLINE]
    more = f"<details><summary>all metrics</summary>{table(head, others)}</details>" if others else ""
    return table(head, first) + more if rows else ""


MAX_SIDE = 480
"""Longer side of a drawing, in units of the SVG."""
LEGEND = (
    '<i class="truth"></i>ground truth <i class="hit"></i>answer, IoU ≥ .50 with an object of its label '
    '<i class="false"></i>answer, false'
)
"""HTML that explains the colours, for a paragraph of the CSS class `legend`."""
_LONGEST_NAME = 120
_ONE_LINE = 60
"""Longest text of a table cell that is not broken into lines."""
_TRUTH, _HIT, _FALSE = "#0f766e", "#2563eb", "#dc2626"


def overlay(evaluation: Scored, image: int, root: Path | None = None) -> tuple[str, str | None]:
    """Draw ground truth and answer over one image: objects dashed, hits and false boxes in different colours.

    Args:
        evaluation: the scored answers
        image: index of the image in the ground truth
        root: folder of the images; None draws on an empty background

    Returns:
        The SVG, and the reason why it does not contain the image, None if it does.
    """
    svg, problem = draw(evaluation, image, root)
    return svg, problem and f"{shown_name(evaluation, image)}: {problem}"


def shown_name(evaluation: Scored, image: int) -> str:
    """Return the file name of an image for display: shortened, and without the folders of an absolute path."""
    name = evaluation.truth.file_names[image].replace("\\", "/") or str(evaluation.truth.image_ids[image])
    if name.startswith("/") or ":/" in name[:3] or ".." in name.split("/"):
        name = name.rpartition("/")[2]
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME // 2]}…{name[-_LONGEST_NAME // 2 :]}"


def draw(evaluation: Scored, image: int, root: Path | None) -> tuple[str, str | None]:
    """Draw like `overlay`; the reason does not contain the name of the image."""
    truth, detections, matches = evaluation.truth, evaluation.detections, evaluation.matches
    objects_n, rows_d = np.nonzero(truth.image_N == image)[0], np.nonzero(detections.image_D == image)[0]
    width, height = _size(evaluation, image, objects_n, rows_d)
    zoom = MAX_SIDE / max(width, height)
    w, h = max(round(width * zoom), 1), max(round(height * zoom), 1)
    data, problem = photograph(root, truth.file_names[image], (w, h))
    parts = [
        f'<svg class="overlay" viewBox="0 0 {w} {h}" role="img" aria-label="{safe(shown_name(evaluation, image))}">'
        f'<rect width="{w}" height="{h}" fill="#eef0f3"/>'
    ]
    if data:
        parts.append(f'<image width="{w}" height="{h}" href="{data}"/>')
    pairs = evaluation.shape_pairs
    # Shapes are matched at a threshold of their own measure, so that every matched shape is a hit.
    hit_D = matches.iou_D >= 0.5 if pairs is None else pairs.similarity_D > 0
    hit_N = matches.iou_N >= 0.5 if pairs is None else pairs.similarity_N > 0
    kind = next((geometry_of(shape.type) for shape in truth.shapes or () if shape is not None), geometry_of("box"))
    for n in objects_n:
        name = truth.categories[truth.category_N[n]]
        style = f'stroke="{_TRUTH}" stroke-dasharray="{"2 3" if truth.crowd_N[n] else "7 4"}"'
        missed = not hit_N[n] and not truth.crowd_N[n]
        tip = f"ground truth: {name}" + (", missed" if missed else "")
        label = name if missed else ""
        box, shape = truth.boxes_N4[n] * zoom, truth.shapes[n] if truth.shapes else None
        points = [(x * w, y * h) for x, y in kind.outline(shape.coordinates)] if shape else []
        outline = outline_svg(points, kind) if shape else ""
        parts.append(_box(box, style=style, tip=tip, label=label, colour=_TRUTH, size=(w, h), outline=outline))
    names = [*truth.categories, *detections.unknown]
    for d in rows_d:
        name, colour = names[detections.category_D[d]], _HIT if hit_D[d] else _FALSE
        fits = f"IoU {matches.iou_D[d]:.2f}" if pairs is None else f"similarity {pairs.similarity_D[d]:.2f}"
        tip = f"answer: {name}, {fits}, score {detections.scores_D[d]:.3g}"
        box = detections.boxes_D4[d] * zoom
        points = [(x * zoom, y * zoom) for x, y in detections.shapes[d]] if detections.shapes else []
        outline, style = outline_svg(points, kind) if points else "", f'stroke="{colour}"'
        parts.append(_box(box, style=style, tip=tip, label=name, colour=colour, size=(w, h), outline=outline))
    return "".join([*parts, "</svg>"]), problem


def _size(evaluation: Scored, image: int, objects_n: np.ndarray, rows_d: np.ndarray) -> tuple[float, float]:
    """Return width and height of an image; if they are unknown, the extent of its boxes."""
    truth = evaluation.truth
    width, height = truth.sizes_I2[image].tolist()
    if not truth.sizes_known:
        return 1.0, 1.0
    if np.isfinite([width, height]).all():
        return width, height
    boxes = np.concatenate([truth.boxes_N4[objects_n], evaluation.detections.boxes_D4[rows_d]])
    right, bottom = (boxes[:, :2] + boxes[:, 2:]).max(axis=0, initial=1.0)
    return float(right), float(bottom)


def outline_svg(points: Sequence[tuple[float, float]], kind: Geometry) -> str:
    """Return the start of an SVG element: a closed outline, or a cross at each labelled point."""
    if kind.closed:
        return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"'
    crosses = "".join(f"M{x - 5:.1f},{y:.1f}h10M{x:.1f},{y - 5:.1f}v10" for x, y in kind.placed(points))
    return f'<path d="{crosses}"'


def _box(
    box: np.ndarray, *, style: str, tip: str, label: str, colour: str, size: tuple[int, int], outline: str = ""
) -> str:
    """Draw a box, or `outline` instead, with its label above it and inside the drawing."""
    x, y, w, h = (float(v) for v in box)
    outline = outline or f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}"'
    drawn = f'<g><title>{safe(tip)}</title>{outline} fill="none" stroke-width="2" {style}/>'
    if label:
        shown_label = label if len(label) <= 28 else label[:27] + "…"
        # East Asian characters are about twice as wide as Latin ones.
        label_width = sum(11.5 if ord(c) > 0x2E7F else 6.6 for c in shown_label) + 8
        left = min(max(x, 0.0), max(size[0] - label_width, 0.0))
        top = y - 16 if y >= 16 else min(y, size[1] - 16.0)
        drawn += (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{label_width:.1f}" height="16" fill="{colour}"/>'
            f'<text x="{left + 4:.1f}" y="{top + 12:.1f}">{safe(shown_label)}</text>'
        )
    return drawn + "</g>"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""

_STYLE = """
:root { --ink: #1c2430; --soft: #5c6878; --line: #e3e7ec; --card: #ffffff; --page: #f5f7f9; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 28px; margin: 0 0 20px; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 12px; }
p { margin: 0 0 12px; color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 20px 24px;
  margin: 0 0 20px; overflow-x: auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px; margin: 0 0 20px; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 18px; }
.tiles span, .tiles small { display: block; color: var(--soft); font-size: 13px; }
.tiles b { font-size: 28px; font-weight: 650; font-variant-numeric: tabular-nums; }
.notes { background: #fff8e6; border: 1px solid #f0dca6; border-radius: 12px; margin: 0 0 20px;
  padding: 12px 18px 12px 36px; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0 0 12px; }
th, td { padding: 5px 14px 5px 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; font-size: 13px; }
td.n, th.n { text-align: right; padding: 5px 0 5px 22px; white-space: nowrap; }
td.long, th.long { white-space: normal; }
.columns { display: flex; flex-wrap: wrap; gap: 8px 56px; align-items: flex-start; }
.images { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(340px, 100%), 1fr)); gap: 20px; }
figure { margin: 0; min-width: 0; }
.columns figure { width: 374px; }
figure svg { width: 100%; height: auto; display: block; border-radius: 8px; }
svg.overlay text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #fff; }
svg.chart { display: block; height: auto; }
.key span { margin-right: 18px; white-space: nowrap; }
.key i { display: inline-block; width: 14px; height: 4px; margin: 0 6px 3px 0; }
figcaption { color: var(--soft); font-size: 13px; padding-top: 6px; overflow-wrap: anywhere; }
details { font-size: 13px; color: var(--soft); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--page); padding: 10px; border-radius: 8px;
  max-height: 240px; overflow-y: auto; }
.legend i { display: inline-block; width: 18px; height: 12px; border: 2px solid; margin: 0 5px 0 12px; }
.legend .truth { border-color: #0f766e; border-style: dashed; margin-left: 0; }
.legend .hit { border-color: #2563eb; }
.legend .false { border-color: #dc2626; }
@media (max-width: 800px) { th:first-child, td:first-child { min-width: 7em; } }
@media print { body { background: #fff; } section, .tiles div { break-inside: avoid; } }
"""


def page(title: str, body: str, style: str = "") -> str:
    """Return a complete HTML document.

    Its content security policy allows inline styles and embedded images, and no scripts or requests.

    Args:
        title: heading, plain text
        body: HTML, inserted unescaped
        style: CSS added to the report's own
    """
    return _PAGE.format(title=safe(title), style=_STYLE + style, body=body)
