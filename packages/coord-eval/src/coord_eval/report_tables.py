"""Numbers, tables and cards of the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coord_eval.html_text import safe


def number(value: float) -> str:
    """Format a metric; COCO's -1 for what cannot be measured becomes n/a."""
    return "n/a" if value < 0 else f"{value:.3f}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table; cells are escaped, numbers right-aligned."""
    header = "".join(_cell("th", i, cell) for i, cell in enumerate(head))
    body = "".join(f"<tr>{''.join(_cell('td', i, cell) for i, cell in enumerate(row))}</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, column: int, value: object) -> str:
    return f"<{tag}{' class=n' if column else ''}>{safe(value)}</{tag}>"


def folded(title: str, html: str) -> str:
    """Return content behind a line that opens it; ``html`` is taken as it is."""
    return f"<details><summary>{safe(title)}</summary>{html}</details>"


def section(title: str, html: str) -> str:
    """Return a card with a heading; ``html`` is taken as it is."""
    return f"<section><h2>{safe(title)}</h2>{html}</section>"
