"""A text whose characters are coloured by what became of them."""

from __future__ import annotations

from collections.abc import Iterable

from coord_codec.pages.elements import safe

LONGEST = 4000
"""Characters shown of one text; a line says how many are left out."""


def coloured_text(text: str, spans: Iterable[tuple[int, int, str, str]]) -> str:
    """Return a text as HTML, with a CSS class and a tooltip on its spans; later spans win where they overlap.

    Example:
        >>> coloured_text("a cat", [(2, 5, "desc", "description")])
        '<pre class="answer">a <i class="desc" title="description">cat</i></pre>'
    """
    shown = text[:LONGEST]
    marks: list[tuple[str, str]] = [("", "")] * len(shown)
    for start, end, kind, tip in spans:
        for place in range(max(start, 0), min(end, len(shown))):
            marks[place] = (kind, tip)
    parts, begin = [], 0
    for place in range(1, len(shown) + 1):
        if place == len(shown) or marks[place] != marks[begin]:
            kind, tip = marks[begin]
            piece = safe(shown[begin:place], keep="\n\t")
            parts.append(f'<i class="{kind}" title="{safe(tip)}">{piece}</i>' if kind else piece)
            begin = place
    rest = len(text) - len(shown)
    more = f"\n… {rest:,} further characters" if rest else ""
    return f'<pre class="answer">{"".join(parts)}{more}</pre>'
