"""Line charts as SVG, in as few words as our pictures need.

Numbers are rounded to a tenth of a pixel, so that a picture drawn again is the same file; colours read on light and
dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

GREY = "#888888"
COLOURS = ["#1f77b4", "#e4572e", "#2a9d5c", "#9467bd"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 380, 260, 48, 12, 30, 64


@dataclass
class Panel:
    """One chart.

    Attributes:
        title: Above it.
        x_label: Below the axis.
        x_range: What the axis shows.
        y_range: Likewise.
        x_ticks: Values written at the axis.
        y_ticks: Likewise.
    """

    title: str
    x_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]
    shapes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def line(self, name: str, xs: Sequence[float], ys: Sequence[float], dash: str = "") -> None:
        """A curve with a place in the legend."""
        colour = COLOURS[len(self.names)]
        points = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in zip(xs, ys, strict=True))
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.shapes.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}/>'
        )
        self.names.append(name)

    def bars(self, name: str, xs: Sequence[float], ys: Sequence[float], width: float) -> None:
        """Bars of a given width in units of x, with a place in the legend."""
        colour = COLOURS[len(self.names)]
        for x, y in zip(xs, ys, strict=True):
            left, right, top = self._x(x - width / 2), self._x(x + width / 2), self._y(y)
            self.shapes.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                f'height="{self._y(0) - top:.1f}" fill="{colour}" fill-opacity="0.75"/>'
            )
        self.names.append(name)

    def between(self, name: str, xs: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> None:
        """The area between two curves, with a place in the legend."""
        colour = COLOURS[len(self.names)]
        there = [f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in zip(xs, upper, strict=True)]
        back = [f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in zip(xs, lower, strict=True)][::-1]
        self.shapes.append(
            f'<polygon points="{" ".join(there + back)}" fill="{colour}" fill-opacity="0.25"/>'
        )
        self.names.append(name)

    def _x(self, x: float) -> float:
        low, high = self.x_range
        return LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def _y(self, y: float) -> float:
        low, high = self.y_range
        return HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def svg(self, offset: int) -> str:
        """The panel as a group, shifted to the right."""
        parts = [f'<g transform="translate({offset},0)">', _text(WIDTH / 2, 16, self.title, weight="bold")]
        left, right, bottom, top = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, TOP
        for tick in self.y_ticks:
            y = self._y(tick)
            parts.append(f'<path d="M{left},{y:.1f}H{right}" stroke="{GREY}" stroke-opacity="0.3"/>')
            parts.append(_text(left - 6, y + 4, f"{tick:g}", anchor="end"))
        parts += [_text(self._x(tick), bottom + 16, f"{tick:g}") for tick in self.x_ticks]
        parts.append(f'<path d="M{left},{top}V{bottom}H{right}" fill="none" stroke="{GREY}"/>')
        parts.append(_text((left + right) / 2, bottom + 33, self.x_label))
        parts += self.shapes
        at = float(left)
        for name, colour in zip(self.names, COLOURS, strict=False):
            parts.append(f'<rect x="{at:.1f}" y="{HEIGHT - 20}" width="14" height="5" fill="{colour}"/>')
            parts.append(_text(at + 19, HEIGHT - 14, name, anchor="start"))
            at += 32 + 6.3 * len(name)
        return "\n".join([*parts, "</g>"])


def picture(description: str, panels: Sequence[Panel]) -> str:
    """A whole SVG of panels side by side; the description is for those who cannot see it."""
    body = "\n".join(panel.svg(WIDTH * i) for i, panel in enumerate(panels))
    width = WIDTH * len(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" role="img" '
        f'font-family="sans-serif" font-size="11.5" fill="{GREY}">\n<title>{escape(description)}</title>\n'
        f"{body}\n</svg>\n"
    )


def _text(x: float, y: float, words: str, anchor: str = "middle", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
    )
