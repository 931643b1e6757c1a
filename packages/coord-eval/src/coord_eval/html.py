"""Building blocks of the HTML report, for your own pages.

A page is one HTML file that requests nothing: style, script, images and charts are embedded. Pass text from a model or
a file through `safe`.

Example:
    >>> with chart("Loss") as drawn:
    ...     line = drawn.axes.plot([1, 2, 3], [0.9, 0.5, 0.4])
    >>> rows = table(("run", "AP"), [("<base>", number(0.5))])
    >>> print(page("Two runs", section("AP", rows) + section("Loss", drawn.svg))[:15])
    <!doctype html>
"""

from coord_codec.pages import PALETTE, number, page, safe, section, table
from coord_eval.report.answers import answer_key, coloured_answer
from coord_eval.report.overlay import overlay
from coord_eval.report.plot import INK, Chart, chart

__all__ = [
    "INK",
    "PALETTE",
    "Chart",
    "answer_key",
    "chart",
    "coloured_answer",
    "number",
    "overlay",
    "page",
    "safe",
    "section",
    "table",
]
