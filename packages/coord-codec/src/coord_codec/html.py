"""Elements of a self-contained HTML page: escaped text, numbers, tables, sections, outlines, and the page itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from coord_codec.geometry import Geometry

_ONE_LINE = 60
"""Longest text of a table cell that is not broken into lines."""


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


def outline_svg(points: Sequence[tuple[float, float]], kind: Geometry) -> str:
    """Return the start of an SVG element: a closed outline, or a cross at each labelled point.

    Args:
        points: points of `kind.outline` in units of the drawing
        kind: the geometry
    """
    if kind.closed:
        return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"'
    crosses = "".join(f"M{x - 5:.1f},{y:.1f}h10M{x:.1f},{y - 5:.1f}v10" for x, y in kind.placed(points))
    return f'<path d="{crosses}"'


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
