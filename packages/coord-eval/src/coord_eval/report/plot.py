"""Charts as static SVG text, in the colours and fonts of the report.

The output is deterministic: no date, no ids, coordinates in hundredths of a pixel. The few kinds of marks that pages
need are drawn here, since loading a library of charts would take longer than scoring a small set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coord_codec.pages import PALETTE, printable, safe

_DASHES = {"-": "", "--": "6 3", ":": "1.5 3", "-.": "7 3 1.5 3"}
"""Strokes and gaps of line styles, the next one for each round of the palette."""
INK = "#5c6878"
"""Default colour of axes and text: the page's colour of secondary text."""
_FONT = 11
_LETTER = 6.1
"""Mean width of a letter in pixels."""
_ROW = 18
_MARKERS = {
    "s": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "^": ((-1, 1), (0, -1), (1, 1)),
    "v": ((-1, -1), (1, -1), (0, 1)),
    "D": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "o": tuple((math.sin(a * math.pi / 8), math.cos(a * math.pi / 8)) for a in range(16)),
}
"""Corners of markers around the origin."""
Points = list[tuple[float, float]]
_Entry = tuple[str, str, bool]
"""Label and style of an entry of the legend, and whether it stands for an area."""


@dataclass(frozen=True)
class _Mark:
    """Points [P, 2] in the unit of the data, and how they are drawn; `nan` divides a line."""

    points: np.ndarray
    style: str
    closed: bool = False
    marker: str = ""
    size: float = 0.0


@dataclass
class Panel:
    """One panel of a chart: marks, limits and labels, with the names of matplotlib's methods.

    Series take their colours from `PALETTE`, lines and areas independently, unless `color` is given.
    """

    ink: str = INK
    _marks: list[_Mark] = field(default_factory=list)
    _legend: list[_Entry] = field(default_factory=list)
    _settings: dict[str, Any] = field(default_factory=dict)
    _lines: int = 0
    _areas: int = 0

    def plot(
        self,
        xs: Any,
        ys: Any,
        linestyle: str = "",
        *,
        color: str = "",
        label: str = "",
        linewidth: float = 2,
        marker: str | None = None,
        markersize: float = 4.5,
    ) -> None:
        """Draw a line through points, with a marker at each; `linestyle` is `-`, `--`, `:` or `-.`."""
        again, slot = divmod(self._lines, len(PALETTE))
        self._lines += not color
        colour = color or PALETTE[slot]
        dashes = _DASHES[linestyle or ("-" if color else list(_DASHES)[again % len(_DASHES)])]
        style = f"fill: none; stroke: {colour}; stroke-width: {linewidth:g}"
        style += f"; stroke-dasharray: {dashes}" if dashes else ""
        points = np.column_stack([np.asarray(xs, np.float64), np.asarray(ys, np.float64)])
        self._add(points, style, label)
        if marker:
            self._marks.append(_Mark(points, f"fill: {colour}", True, marker, markersize / 2))

    def fill_between(
        self, xs: Any, low: Any, high: Any = 0, *, color: str = "", alpha: float = 1, label: str = ""
    ) -> None:
        """Fill the area between two lines."""
        x = np.asarray(xs, np.float64)
        sides = [np.broadcast_to(np.asarray(side, np.float64), x.shape) for side in (low, high)]
        points = np.concatenate([np.column_stack([x, sides[0]]), np.column_stack([x, sides[1]])[::-1]])
        self._add(points, self._filling(color, alpha), label, closed=True)

    def stairs(
        self, values: Any, edges: Any, *, color: str = "", label: str = "", fill: bool = False, linewidth: float = 2
    ) -> None:
        """Draw values over the intervals between edges, filled or as an outline."""
        heights = np.concatenate([[0.0], np.repeat(np.asarray(values, np.float64), 2), [0.0]])
        places = np.repeat(np.asarray(edges, np.float64), 2)
        if fill:
            self._add(np.column_stack([places, heights]), self._filling(color), label, closed=True)
        else:
            self.plot(places, heights, "-", color=color, label=label, linewidth=linewidth)

    def bar(self, xs: Any, heights: Any, width: float = 0.8, *, color: str = "", label: str = "") -> None:
        """Draw a bar from 0 at each place."""
        style = self._filling(color)
        for place, (x, height) in enumerate(zip(xs, heights, strict=True)):
            corners = _rectangle(x - width / 2, 0, x + width / 2, height)
            self._add(corners, style, "" if place else label, closed=True)

    def axvline(self, x: float, *, color: str, linestyle: str = "-", linewidth: float = 1) -> None:
        """Draw a line across the panel."""
        self.plot([x, x], [-np.inf, np.inf], linestyle, color=color, linewidth=linewidth)

    def set(self, **settings: Any) -> None:
        """Set `title`, `xlabel`, `ylabel`, the limits `xlim` and `ylim`, or the places `xticks` and `yticks`."""
        self._settings |= settings

    def set_yticks(self, places: Sequence[float], labels: Sequence[str]) -> None:
        """Set the places along y and their labels, without lines across the panel."""
        self._settings |= {"yticks": places, "ylabels": labels}

    def _add(self, points: np.ndarray, style: str, label: str, *, closed: bool = False) -> None:
        self._marks.append(_Mark(points, style, closed))
        if label:
            self._legend.append((label, style, closed))

    def _filling(self, color: str, alpha: float = 1) -> str:
        """Return the style of an area; without a colour it takes the next one of the palette."""
        colour = color or PALETTE[self._areas % len(PALETTE)]
        self._areas += not color
        return f"fill: {colour}" + (f"; fill-opacity: {alpha:g}" if alpha < 1 else "")

    def render(self, left: float, width: float, height: float) -> str:
        """Return the elements of the panel, which begins at `left` and is so wide and high."""
        has, labels = self._settings.get, self._settings.get("ylabels")
        (x_low, x_high), (y_low, y_high) = self._limits("xlim", 0), self._limits("ylim", 1)
        x_ticks, y_ticks = has("xticks"), has("yticks")
        x_ticks = _nice(x_low, x_high, max(int(width / 90), 2)) if x_ticks is None else x_ticks
        y_ticks = _nice(y_low, y_high, max(int(height / 45), 2)) if y_ticks is None else y_ticks
        y_texts = _texts(y_ticks) if labels is None else [str(label) for label in labels]

        # Room for what stands around the marks
        legend = self._legend_rows(width)
        begin = left + 10 + _LETTER * max(map(len, y_texts), default=0) + _ROW * bool(has("ylabel"))
        end, top = left + width - 14, 8 + _ROW * bool(has("title"))
        bottom = max(height - 20 - _ROW * (bool(has("xlabel")) + len(legend)), top + 1)
        middle = (begin + end) / 2

        def place(points: np.ndarray) -> Points:
            x = begin + (points[:, 0] - x_low) / (x_high - x_low) * (end - begin)
            y = bottom - (points[:, 1] - y_low) / (y_high - y_low) * (bottom - top)
            return list(zip(x.tolist(), np.clip(y, -height, 2 * height).tolist(), strict=True))

        x_places = [x for x, _ in place(np.array([[tick, y_low] for tick in x_ticks]).reshape(-1, 2))]
        y_places = [y for _, y in place(np.array([[x_low, tick] for tick in y_ticks]).reshape(-1, 2))]
        ink = f"fill: none; stroke: {self.ink}"
        parts = []
        if labels is None:
            parts += [_path([(begin, y), (end, y)], f"{ink}; stroke-opacity: 0.2") for y in y_places]
        parts += self._drawn(place, (begin, top - 4, end - begin, bottom - top + 8))
        parts.append(_path([(begin, bottom), (end, bottom)], ink))
        if has("title"):
            parts.append(self._text(middle, top - 10, has("title"), "middle", bold=True))
        for x, text in zip(x_places, _texts(x_ticks), strict=True):
            parts.append(self._text(x, bottom + 15, text, "middle"))
        if has("xlabel"):
            parts.append(self._text(middle, bottom + 31, has("xlabel"), "middle"))
        if has("ylabel"):
            turned = f'transform="rotate(-90 {_short(left + 12)} {_short((top + bottom) / 2)})"'
            parts.append(self._text(left + 12, (top + bottom) / 2, has("ylabel"), "middle", turned))
        for row, entries in enumerate(legend):
            parts += self._legend_row(entries, middle, height - _ROW * (len(legend) - row) + 9)
        for y, text in zip(y_places, y_texts, strict=True):
            parts.append(self._text(begin - 6, y + 4, text, "end"))
        return "\n".join(parts)

    def _drawn(self, place: Callable[[np.ndarray], Points], frame: Sequence[float]) -> Iterator[str]:
        """Yield the marks in an element of its own, which cuts off what lies beyond the limits."""
        x, y, width, height = map(_short, frame)
        yield f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{x} {y} {width} {height}">'
        for mark in self._marks:
            points = place(mark.points)
            if not mark.marker:
                yield _path(points, mark.style, mark.closed)
                continue
            for x0, y0 in points:
                corners = [(x0 + mark.size * dx, y0 + mark.size * dy) for dx, dy in _MARKERS[mark.marker]]
                yield _path(corners, mark.style, closed=True)
        yield "</svg>"

    def _legend_row(self, entries: Sequence[_Entry], middle: float, y: float) -> Iterator[str]:
        x = middle - sum(_width(label) for label, _, _ in entries) / 2
        for label, style, is_area in entries:
            sample = _rectangle(x, y - 4, x + 20, y + 4) if is_area else np.array([[x, y], [x + 20, y]])
            yield _path(sample.tolist(), style, is_area)
            yield self._text(x + 26, y + 4, label, "start")
            x += _width(label)

    def _limits(self, name: str, axis: int) -> tuple[float, float]:
        if (given := self._settings.get(name)) is not None:
            return float(given[0]), float(given[1])
        values = np.concatenate([mark.points[:, axis] for mark in self._marks] or [np.zeros(0)])
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        margin = 0.05 * (high - low) or 0.5
        starts_at_0 = low == 0 and axis == 1 and any(mark.closed and not mark.marker for mark in self._marks)
        return (low if starts_at_0 else low - margin), high + margin

    def _legend_rows(self, width: float) -> list[list[_Entry]]:
        rows: list[list[_Entry]] = []
        for entry in self._legend:
            if not rows or sum(_width(label) for label, _, _ in rows[-1]) + _width(entry[0]) > width:
                rows.append([])
            rows[-1].append(entry)
        return rows

    def _text(self, x: float, y: float, text: object, anchor: str, more: str = "", *, bold: bool = False) -> str:
        weight = ' font-weight="bold"' if bold else ""
        place = f'x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}"'
        return f'<text {place} font-size="{_FONT}" fill="{self.ink}"{weight} {more}>{safe(printable(str(text)))}</text>'


@dataclass
class Chart:
    """Panels to draw in, and the finished SVG.

    Attributes:
        panels: the panels, from left to right
        svg: an `<svg>` element; empty until the `with` block of `chart` ends
    """

    panels: tuple[Panel, ...]
    svg: str = ""

    @property
    def axes(self) -> Panel:
        """The first panel."""
        return self.panels[0]


@contextmanager
def chart(alt: str, *, panels: int = 1, width: float = 460, height: float = 220, ink: str = INK) -> Iterator[Chart]:
    """Draw in panels and get an SVG element, for a page or a file of its own.

    After nine lines the line style changes. A panel whose series have a `label` gets a legend below it. Text from a
    model or a file is escaped.

    Args:
        alt: description for screen readers
        panels: number of panels side by side
        width: width of each panel in pixels
        height: height of the chart in pixels
        ink: colour of axes and text. The default is for a page, whose style then sets the colours of a light or a
            dark theme; `"#888888"` is legible on both, for a file of its own

    Example:
        >>> with chart("F1 against score threshold") as drawn:
        ...     drawn.axes.plot([0.1, 0.5, 0.9], [0.4, 0.7, 0.2], marker="o", label="F1")
        ...     drawn.axes.fill_between([0.1, 0.5, 0.9], [0.3, 0.6, 0.1], [0.5, 0.8, 0.3], alpha=0.2)
        >>> drawn.svg[:4]
        '<svg'
    """
    drawn = Chart(tuple(Panel(ink) for _ in range(panels)))
    yield drawn
    parts = [panel.render(place * width, width, height) for place, panel in enumerate(drawn.panels)]
    whole = f"{width * panels:g} {height:g}"
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {whole}" '
        f'style="width:100%;max-width:{width * panels:g}px" role="img" aria-label="{safe(printable(alt))}" '
        'font-family="system-ui, -apple-system, Roboto, sans-serif" stroke-linejoin="round">'
    )
    svg = "\n".join([opening, *parts, "</svg>"])
    drawn.svg = _themed(svg) if ink == INK else svg


def forest_plot(rows: Mapping[str, tuple[float, float, float]], alt: str) -> str:
    """Draw differences, each with the two ends of its interval, in a row each, and a line at 0; return the SVG.

    Example:
        >>> forest_plot({"AP": (0.02, 0.01, 0.03)}, "AP gained")[:4]
        '<svg'
    """
    with chart(alt, width=420, height=60 + 26 * len(rows)) as drawn:
        for place, (value, low, high) in enumerate(rows.values()):
            colour = INK if low <= 0 <= high else PALETTE[0] if value > 0 else PALETTE[1]
            drawn.axes.plot([low, high], [place, place], color=colour)
            drawn.axes.plot([value], [place], marker="o", markersize=7, color=colour)
        drawn.axes.axvline(0, color=INK, linestyle="--")
        drawn.axes.set_yticks(range(len(rows)), list(rows))
        drawn.axes.set(ylim=(len(rows) - 0.5, -0.5))
    return drawn.svg


def box_rows(axes: Panel, samples: Mapping[str, Sequence[float]]) -> None:
    """Draw a horizontal box plot with one row for each sample, the first at the top.

    The line extends from the 5th to the 95th percentile and the box from the first to the third quartile; the thick
    stroke marks the median. An empty sample has an empty row.
    """
    for row, values in enumerate(samples.values()):
        if len(values):
            colour = PALETTE[row % len(PALETTE)]
            low, first, median, third, high = np.percentile(values, [5, 25, 50, 75, 95])
            axes.plot([low, high], [row, row], color=colour, linewidth=1.5)
            axes.fill_between([first, third], row - 0.25, row + 0.25, color=colour, alpha=0.3)
            axes.plot([median, median], [row - 0.35, row + 0.35], color=colour, linewidth=3)
    axes.set_yticks(range(len(samples)), list(samples))
    axes.set(ylim=(len(samples) - 0.5, -0.5))


def _nice(low: float, high: float, most: int) -> list[float]:
    """Return at most about so many round places between two limits."""
    span = abs(high - low)
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first = math.ceil(min(low, high) / step - 1e-9)
    last = math.floor(max(low, high) / step + 1e-9)
    return [step * n for n in range(first, last + 1)]


def _texts(ticks: Sequence[float]) -> list[str]:
    """Return numbers with as many decimals as all of them need."""
    for decimals in range(7):
        if all(abs(round(tick, decimals) - tick) <= 1e-9 * max(abs(tick), 1e-6) for tick in ticks):
            return [f"{tick + 0.0:.{decimals}f}" for tick in ticks]
    return [f"{tick:.3g}" for tick in ticks]


def _rectangle(x1: float, y1: float, x2: float, y2: float) -> np.ndarray:
    return np.array([[x1, y1], [x2, y1], [x2, y2], [x1, y2]], np.float64)


def _width(label: str) -> float:
    return 44 + _LETTER * len(label)


def _path(points: Points, style: str, closed: bool = False) -> str:
    """Return a path, of which points that are no numbers are left out."""
    moves, is_new = [], True
    for x, y in points:
        is_known = math.isfinite(x) and math.isfinite(y)
        if is_known:
            moves.append(f"{'M' if is_new else 'L'} {_short(x)} {_short(y)}")
        is_new = not is_known
    return f'<path d="{" ".join(moves)}{" Z" if closed else ""}" style="{style}"/>'


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _themed(text: str) -> str:
    """Leave colours of the palette and the ink to the style of the page."""
    for place, colour in enumerate(PALETTE):
        text = text.replace(colour, f"var(--s{place},{colour})")
    return text.replace(INK, "currentColor")
