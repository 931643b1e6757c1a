"""Charts as static SVG text, drawn with matplotlib in the colours and fonts of the report.

The output is deterministic: no date, no random ids, coordinates truncated to hundredths of a pixel. matplotlib is
imported with the first chart, not by `import coord_eval`, and its global settings do not change.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_codec import InputError
from coord_codec.html import PALETTE, printable, safe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES = ("-", "--", ":", "-.")
"""Line styles, the next one for each round of the palette."""
INK = "#5c6878"
"""Default colour of axes and text: the page's colour of secondary text."""


class MatplotlibMissingError(InputError):
    """A chart was asked for and matplotlib, which draws it, is not installed."""

    def __init__(self) -> None:
        super().__init__("charts need matplotlib, which is not installed: pip install matplotlib")


@dataclass
class Chart:
    """Panels to draw in, and the finished SVG.

    Attributes:
        panels: the matplotlib `Axes` of each panel, from left to right
        svg: an `<svg>` element; empty until the `with` block of `chart` ends
    """

    panels: tuple[Axes, ...]
    svg: str = ""

    @property
    def axes(self) -> Axes:
        """The first panel."""
        return self.panels[0]


@contextmanager
def chart(alt: str, *, panels: int = 1, width: float = 460, height: float = 220, ink: str = INK) -> Iterator[Chart]:
    """Draw on matplotlib axes and get an SVG element, for a page or a file of its own.

    Series take their colours from `PALETTE`, lines and filled areas independently: set `color` if a panel has both.
    After nine lines the line style changes. A panel whose series have a `label` gets a legend below it. Text is not
    parsed as mathematics, and text from a model or a file is escaped.

    Args:
        alt: description for screen readers
        panels: number of panels side by side
        width: width of each panel in pixels
        height: height of the chart in pixels
        ink: colour of axes and text. The default is for a page, whose style then sets the colours of a light or a
            dark theme; `"#888888"` is legible on both, for a file of its own

    Raises:
        MatplotlibMissingError: matplotlib is not installed

    Example:
        >>> with chart("F1 against score threshold") as drawn:
        ...     line = drawn.axes.plot([0.1, 0.5, 0.9], [0.4, 0.7, 0.2], marker="o", label="F1")
        ...     band = drawn.axes.fill_between([0.1, 0.5, 0.9], [0.3, 0.6, 0.1], [0.5, 0.8, 0.3], alpha=0.2)
        >>> drawn.svg[:4]
        '<svg'
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MatplotlibMissingError from error
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_style(ink))
        figure = Figure(figsize=(width * panels / 72, height / 72), dpi=72, layout="constrained")
        parts = figure.subfigures(1, panels, squeeze=False)[0]
        drawn = Chart(tuple(part.subplots() for part in parts))
        yield drawn
        for part, axes in zip(parts, drawn.panels, strict=True):
            handles, labels = axes.get_legend_handles_labels()
            if handles:
                fitting = int(width / (36 + 6.5 * max(map(len, labels))))
                part.legend(handles, labels, loc="outside lower center", ncols=max(1, min(len(labels), fitting)))
        drawn.svg = _themed(_svg(figure, alt)) if ink == INK else _svg(figure, alt)


def forest_plot(rows: Mapping[str, tuple[float, float, float]], alt: str) -> str:
    """Draw differences with their intervals, a row each, the first at the top, and a line at 0; return the SVG.

    Args:
        rows: difference, lower and upper end of its interval, by the name of the row
        alt: description for screen readers

    Example:
        >>> forest_plot({"AP": (0.02, 0.01, 0.03)}, "AP gained")[:4]
        '<svg'
    """
    with chart(alt, width=420, height=60 + 26 * len(rows)) as drawn:
        for place, (value, low, high) in enumerate(rows.values()):
            colour = INK if low <= 0 <= high else PALETTE[0] if value > 0 else PALETTE[1]
            drawn.axes.hlines(place, low, high, colors=colour, linewidth=2)
            drawn.axes.plot([value], [place], marker="o", markersize=7, color=colour)
        drawn.axes.axvline(0, color=INK, linestyle="--", linewidth=1)
        drawn.axes.locator_params(axis="x", nbins=4)  # labels of small differences are long
        drawn.axes.set_yticks(range(len(rows)), list(rows))
        drawn.axes.set_ylim(len(rows) - 0.5, -0.5)
    return drawn.svg


def box_rows(axes: Axes, samples: Mapping[str, Sequence[float]]) -> None:
    """Draw a horizontal box plot with one row for each sample, the first at the top.

    The line extends from the 5th to the 95th percentile and the box from the first to the third quartile; the thick
    stroke marks the median. An empty sample has an empty row.

    Args:
        axes: a panel of a chart
        samples: values by the name of the row
    """
    for row, values in enumerate(samples.values()):
        if len(values):
            colour = PALETTE[row % len(PALETTE)]
            low, first, median, third, high = np.percentile(values, [5, 25, 50, 75, 95])
            axes.hlines(row, low, high, colors=colour, linewidth=1.5)
            axes.barh(row, third - first, 0.5, left=first, color=colour, alpha=0.3)
            axes.vlines(median, row - 0.35, row + 0.35, colors=colour, linewidth=3)
    axes.set_yticks(range(len(samples)), list(samples))
    axes.set_ylim(len(samples) - 0.5, -0.5)
    axes.grid(visible=False)


def _style(ink: str) -> dict[Any, Any]:
    from matplotlib.rcsetup import cycler

    return {
        "axes.prop_cycle": cycler(linestyle=_LINES) * cycler(color=PALETTE),
        **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "text.color"), ink),
        **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), ink),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "axes.labelsize", "legend.fontsize"), 11),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
        **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 0),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.alpha": 0.2,
        "lines.linewidth": 2,
        "lines.markersize": 4.5,
        "legend.frameon": False,
        "text.parse_math": False,
        "font.sans-serif": ["DejaVu Sans"],
        "svg.fonttype": "none",
        "svg.hashsalt": "coord_eval",
    }


def _svg(figure: Figure, alt: str) -> str:
    """Render to an element that can occur several times in one page, without declarations, group ids or style sheet."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'<g id="[\w.]+"(/?)>', r"<g\1>", svg)
    svg = re.sub(r"<[^>]+>", _short_tag, svg).replace("<g/>", "")
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    width, height = figure.get_size_inches() * figure.dpi
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" class="chart" '
        f'viewBox="0 0 {width:g} {height:g}" style="width:100%;max-width:{width:g}px" role="img" '
        f'aria-label="{safe(alt)}" font-family="system-ui, -apple-system, Roboto, sans-serif" '
        'stroke-linejoin="round">'
    )
    return opening + svg[svg.index(">") + 1 :].strip()


def _themed(text: str) -> str:
    """Leave colours of the palette and the ink to the style of the page."""
    for place, colour in enumerate(PALETTE):
        text = text.replace(colour, f"var(--s{place},{colour})")
    return text.replace(INK, "currentColor")


def _short_tag(match: re.Match[str]) -> str:
    """Shorten one tag: two decimals for coordinates, no line breaks in paths, no fonts of its own."""
    tag = re.sub(r"(\.\d\d)\d+", r"\1", match[0])
    tag = re.sub(r" ?font-family: [^;\"]*;| transform=\"rotate\(-?0 [^\"]*\"", "", tag)
    return re.sub(r"\s+", " ", tag).replace(' "', '"')
