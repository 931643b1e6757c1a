"""Building blocks of the HTML report, for your own pages.

A page is one HTML file that requests nothing: style, script, images and charts are embedded. Pass text from a model or
a file through `safe`.

Example:
    >>> curve = line_chart({"loss": ([1, 2, 3], [0.9, 0.5, 0.4])}, "Loss", x_label="step")
    >>> rows = table(("run", "AP"), [("<base>", number(0.5))])
    >>> print(page("Two runs", section("AP", rows) + section("Loss", curve))[:15])
    <!doctype html>
"""

from coord_codec.html import PALETTE, number, page, safe, section, table
from coord_eval.metrics.breakdowns import EDGES, edge_errors
from coord_eval.report.answers import answer_key, coloured_answer
from coord_eval.report.changed import changed_images
from coord_eval.report.distributions import coordinate_chart, iou_chart
from coord_eval.report.overlay import overlay
from coord_eval.report.plot import INK, Chart, box_rows, chart, forest_plot, legend, line_chart, series_styles

__all__ = [
    "EDGES",
    "INK",
    "PALETTE",
    "Chart",
    "answer_key",
    "box_rows",
    "changed_images",
    "chart",
    "coloured_answer",
    "coordinate_chart",
    "edge_errors",
    "forest_plot",
    "iou_chart",
    "legend",
    "line_chart",
    "number",
    "overlay",
    "page",
    "safe",
    "section",
    "series_styles",
    "table",
]
