"""Static charts as inline SVG, in the colours and type of the evaluation's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coord_eval.html import safe

#: One colour a group, told apart also by people who see fewer colours (Okabe and Ito 2008, darkened).
COLOURS = ("#2563eb", "#d97706", "#0f766e", "#b91c5c", "#6d28d9", "#0284c7", "#65a30d", "#78350f", "#475569")
_GREY, _LINE = "#5c6878", "#e3e7ec"
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 20, 12, 34


def line_chart(
    series: Mapping[str, tuple[str, Sequence[Sequence[tuple[float, float]]]]], x_name: str, title: str
) -> str:
    """Curves: the mean over seeds in full, each seed in pale.

    Args:
        series: label -> (colour, one list of (x, y) per seed); seeds share their x.
        x_name: of the axis.
        title: for screen readers.
    """
    points = [p for _, seeds in series.values() for curve in seeds for p in curve]
    if len({x for x, _ in points}) < 2:
        return "<p>Fewer than two log lines: nothing to draw.</p>"
    frame = _Frame(
        460,
        220,
        (min(x for x, _ in points), max(x for x, _ in points)),
        _round_range([y for _, y in points]),
    )
    body = [frame.axes(x_name, "")]
    for colour, seeds in series.values():
        shown = [curve for curve in seeds if len(curve) > 1]
        if len(shown) > 1:
            body.extend(frame.path(curve, colour, opacity=0.25, width=1) for curve in shown)
        if shown:
            body.append(frame.path(_mean_curve(shown), colour, opacity=1, width=2))
    return frame.svg(title, body)


def outline_chart(
    edges: np.ndarray, shares: Mapping[str, tuple[str, np.ndarray]], x_name: str, y_name: str
) -> str:
    """Histograms as outlines over the same bins; `shares` holds (colour, height of each bin)."""
    top = max((float(heights.max()) for _, heights in shares.values() if len(heights)), default=0.0) or 1.0
    frame = _Frame(460, 220, (float(edges[0]), float(edges[-1])), (0.0, top * 1.05))
    body = [frame.axes(x_name, y_name)]
    for colour, heights in shares.values():
        steps = [(x, h) for k, h in enumerate(heights) for x in (float(edges[k]), float(edges[k + 1]))]
        body.append(frame.path(steps, colour, opacity=0.95, width=1.8))
    return frame.svg(y_name, body)


def spread_chart(rows: Mapping[str, tuple[str, np.ndarray]], name: str) -> str:
    """One row a group: median, middle half and middle nine tenths of signed values, around 0."""
    spans = [np.percentile(values, [5, 95]) for _, values in rows.values() if len(values)]
    reach = max((float(np.abs(span).max()) for span in spans), default=1.0) or 1.0
    height = _TOP + 24 * len(rows) + _BOTTOM
    frame = _Frame(330, height, (-reach * 1.1, reach * 1.1), (0.0, 1.0), left=8)
    body = [frame.axes(name, "", y_ticks=False), frame.vertical(0.0)]
    for place, (label, (colour, values)) in enumerate(rows.items()):
        y = _TOP + 24 * place + 12
        if not len(values):
            body.append(f'<text x="12" y="{y + 4}" fill="{_GREY}">{safe(label)}: no pairs</text>')
            continue
        low, first, middle, third, high = (frame.x(v) for v in np.percentile(values, [5, 25, 50, 75, 95]))
        body.append(
            f"<g><title>{safe(label)}: mean {values.mean():+.2f}, median {np.median(values):+.2f}, "
            f"{len(values)} pairs</title>"
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="1.5"/>'
            f'<rect x="{first:.1f}" y="{y - 6}" width="{max(third - first, 1):.1f}" height="12" '
            f'fill="{colour}" fill-opacity=".3" stroke="{colour}"/>'
            f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{y - 8}" y2="{y + 8}" stroke="{colour}" '
            'stroke-width="3"/></g>'
        )
    return frame.svg(name, body)


def legend(colours: Mapping[str, str]) -> str:
    """The colours of the groups, once above the charts that use them."""
    items = "".join(
        f'<span style="margin-right:18px;white-space:nowrap"><i style="display:inline-block;width:14px;height:4px;'
        f'background:{colour};margin:0 6px 3px 0"></i>{safe(name)}</span>'
        for name, colour in colours.items()
    )
    return f"<p>{items}</p>"


class _Frame:
    """A plotting area: data to pixels, axes with a few ticks."""

    def __init__(
        self,
        width: int,
        height: int,
        xs: tuple[float, float],
        ys: tuple[float, float],
        left: int = _LEFT,
    ) -> None:
        self.width, self.height, self.left = width, height, left
        self.xs, self.ys = xs, ys if ys[1] > ys[0] else (ys[0], ys[0] + 1.0)

    def x(self, value: float) -> float:
        low, high = self.xs
        return self.left + (self.width - self.left - _RIGHT) * (value - low) / ((high - low) or 1.0)

    def y(self, value: float) -> float:
        low, high = self.ys
        return self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * (value - low) / (high - low)

    def axes(self, x_name: str, y_name: str, y_ticks: bool = True) -> str:
        parts = []
        for tick in _ticks(*self.ys) if y_ticks else []:
            y = self.y(tick)
            parts.append(
                f'<line x1="{self.left}" x2="{self.width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_LINE}"/>'
                f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.4g}</text>'
            )
        base = self.height - _BOTTOM
        for tick in _ticks(*self.xs):
            x = self.x(tick)
            parts.append(f'<text x="{x:.1f}" y="{base + 14}" text-anchor="middle">{tick:.4g}</text>')
        parts.append(
            f'<line x1="{self.left}" x2="{self.width - _RIGHT}" y1="{base}" y2="{base}" stroke="{_GREY}"/>'
            f'<text x="{self.width - _RIGHT}" y="{self.height - 4}" text-anchor="end">{safe(x_name)}</text>'
            f'<text x="{self.left}" y="{self.height - 4}">{safe(y_name)}</text>'
        )
        return "".join(parts)

    def vertical(self, value: float) -> str:
        x = self.x(value)
        return (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{self.height - _BOTTOM}" stroke="{_GREY}" '
            'stroke-dasharray="3 3"/>'
        )

    def path(
        self, points: Sequence[tuple[float, float]], colour: str, *, opacity: float, width: float
    ) -> str:
        drawn = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return (
            f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-opacity="{opacity}" stroke-linejoin="round"/>'
        )

    def svg(self, name: str, body: Sequence[str]) -> str:
        # The report's style gives `figure text` to labels on photographs; charts speak in the page's own type.
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{safe(name)}" class="chart" '
            f'style="max-width:{self.width}px;width:100%">{"".join(body)}</svg>'
        )


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values inside the range: 1, 2 or 5 times a power of ten apart."""
    step = 10.0 ** np.floor(np.log10((high - low) / about))
    step *= min((1, 2, 5, 10), key=lambda m: abs((high - low) / (step * m) - about))
    first = np.ceil(low / step - 1e-9) * step
    return [float(round(tick, 10)) + 0.0 for tick in np.arange(first, high + step * 1e-6, step)]


def _round_range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(0.0, *values), max(values)
    return low, high + 0.05 * (high - low or 1.0)


def _mean_curve(curves: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    by_x: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in curve:
            by_x.setdefault(x, []).append(y)
    return [(x, sum(ys) / len(ys)) for x, ys in sorted(by_x.items()) if len(ys) == len(curves)]
