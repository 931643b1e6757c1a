"""Elements of a self-contained HTML page: escaped text, numbers, tables, sections, figures and outlines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from coord_codec.geometry import Geometry

_ONE_LINE = 60
"""Longest text of a table cell that is not broken into lines."""


def printable(value: object, keep: str = "") -> str:
    r"""Escape control, bidirectional and surrogate characters, as in `\u202e`.

    They could otherwise rearrange the text around an answer. Characters in `keep` are not escaped.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else f"\\u{ord(c):04x}" for c in text)


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


class Strong(str):
    """Text of a cell that is printed in bold."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]], sortable: bool = False, words: int = 1) -> str:
    """Return an HTML table; cells are escaped, and all but `words` columns at the left are right-aligned."""
    header, *lines = (
        "".join(_cell(tag, column < words, cell) for column, cell in enumerate(row))
        for tag, row in (("th", head), *(("td", row) for row in rows))
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    kind = " class=sortable" if sortable else ""
    return scrolled(f"<table{kind}><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>")


def scrolled(html: str) -> str:
    """Return a table that scrolls by itself where the page is too narrow for it."""
    return f"<div class=table><div class=scroll>{html}</div></div>"


def _cell(tag: str, is_word: bool, value: object) -> str:
    text = safe(value)
    kind = "" if is_word else " class=n" if len(text) <= _ONE_LINE else ' class="n long"'
    return f"<{tag}{kind}>{f'<b>{text}</b>' if isinstance(value, Strong) else text}</{tag}>"


def section(title: str, html: str, figure: str = "", folded: bool = False) -> str:
    """Return a part of the page that folds behind its heading.

    `html` is inserted unescaped, the rest is plain text; the main `figure` is shown beside the heading.
    """
    name = re.sub(r"\W+", "-", title.casefold()).strip("-") or "part"
    opened = "" if folded else " open"
    main = f"<b>{safe(figure)}</b>" if figure else ""
    return (
        f'<section id="{safe(name)}"><details{opened}><summary><h2>{safe(title)}</h2>{main}</summary>'
        f"{html}</details></section>"
    )


def tiles(cells: Iterable[tuple[str, object, str]]) -> str:
    """Return headline numbers: name, value and remark of each."""
    shown = (f"<div><span>{safe(a)}</span><b>{safe(b)}</b><small>{safe(c)}</small></div>" for a, b, c in cells)
    return f'<div class="tiles">{"".join(shown)}</div>'


def figure(html: str, caption: str, details: str = "") -> str:
    """Return a figure with a caption in plain text; the rest is HTML."""
    return f"<figure>{html}<figcaption>{safe(caption)}</figcaption>{details}</figure>"


def columns(*parts: str) -> str:
    """Return tables or figures side by side, wrapped on a narrow page."""
    return f'<div class="columns">{"".join(parts)}</div>'


def outline_svg(points: Sequence[tuple[float, float]], kind: Geometry) -> str:
    """Return the start of an SVG element: a closed outline, or a cross at each labelled point."""
    if kind.closed:
        return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"'
    crosses = "".join(f"M{x - 5:.1f},{y:.1f}h10M{x:.1f},{y - 5:.1f}v10" for x, y in kind.placed(points))
    return f'<path d="{crosses}"'
