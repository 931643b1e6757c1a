"""The elements of the report, for pages of your own.

A page is one file without scripts that fetches nothing: text of a model or a file goes through `safe`, images and
charts lie inside the file.

Example:
    >>> curve = line_chart({"loss": ([1, 2, 3], [0.9, 0.5, 0.4])}, "Loss", x_label="step")
    >>> rows = table(("run", "AP"), [("<base>", number(0.5))])
    >>> print(page("Two runs", section("AP", rows) + section("Loss", curve))[:15])
    <!doctype html>
"""

from coord_eval.report.page import number, overlay, page, safe, section, table
from coord_eval.report.plot import INK, PALETTE, Chart, box_rows, chart, legend, line_chart

__all__ = [
    "INK",
    "PALETTE",
    "Chart",
    "box_rows",
    "chart",
    "legend",
    "line_chart",
    "number",
    "overlay",
    "page",
    "safe",
    "section",
    "table",
]
