"""An image with boxes as SVG: colours state the label, line styles the fate, and no label covers another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from coord_codec.geometry import Geometry
from coord_codec.pages.elements import outline_svg, safe
from coord_codec.pages.palette import PALETTE

Fate = Literal["plain", "truth", "crowd", "missed", "hit", "false"]
"""What became of an object: drawn alone, found, in a crowd region, missed; a box that hits, a false one."""
MAX_SIDE = 480
"""Longer side of a drawing, in units of the SVG."""
MEANINGS: dict[str, str] = {
    "hit": "predicted, IoU ≥ .50 with an object of its label",
    "false": "predicted, false",
    "truth": "ground truth, found",
    "missed": "ground truth, missed",
}
"""Meaning of the line styles of a page that compares answers with the ground truth."""
_HIDDEN = " hidden"
_MARKS = {"false": "✗ ", "missed": "missed: "}
_LONGEST = 28
_LETTER, _WIDE_LETTER, _LINE = 6.9, 12.5, 14.0
_FINE = 40
"""Boxes of one image above which lines are thinner."""


@dataclass(frozen=True)
class Drawn:
    """One box or outline to draw.

    Attributes:
        label: its label, any text
        box: corners `(x1, y1, x2, y2)` in [0, 1]
        fate: the style of its line
        tip: text of its tooltip
        slot: its place from `label_slots`: the colour, and above nine labels a number in the corner of the box
        named: whether its label is written beside it
        points: points in [0, 1] that outline another shape than a box
        kind: geometry of these points
        above: it is drawn at thresholds of the score above this one alone
        up_to: and at those up to this one
    """

    label: str
    box: Sequence[float]
    fate: Fate = "plain"
    tip: str = ""
    slot: int = 0
    named: bool = True
    points: Sequence[tuple[float, float]] = ()
    kind: Geometry | None = None
    above: float | None = None
    up_to: float | None = None

    def is_drawn(self, threshold: float) -> bool:
        """Return whether it is drawn at a threshold of the score."""
        return (self.above is None or self.above < threshold) and (self.up_to is None or threshold <= self.up_to)

    def bounds(self, threshold: float) -> str:
        """Return the attributes by which a page draws it at these thresholds alone; at this one it is hidden or not."""
        if self.above is None and self.up_to is None:
            return ""
        above = "" if self.above is None else f' data-above="{self.above:.6g}"'
        up_to = "" if self.up_to is None else f' data-up-to="{self.up_to:.6g}"'
        return f"{above}{up_to}{'' if self.is_drawn(threshold) else _HIDDEN}"


def image_svg(
    name: str, size: tuple[float, float], boxes: Sequence[Drawn], data: str | None = None, threshold: float = -math.inf
) -> str:
    """Return an image with boxes.

    Labels are placed beside their boxes, those of errors first; one that finds no room is hidden until the image is
    enlarged, and its tooltip stays.

    The width and height of the image are in any unit, `name` is for screen readers, and without the image
    itself, a data URL, the background is plain. What is drawn at some thresholds alone is hidden unless this is one.

    Example:
        >>> image_svg("a.jpg", (64, 48), [Drawn("cat", (0.1, 0.1, 0.5, 0.5))])[:4]
        '<svg'
    """
    zoom = MAX_SIDE / max(size)
    w, h = (max(round(side * zoom), 1) for side in size)
    order = [
        (box, box.bounds(threshold))
        for box in sorted(boxes, key=lambda drawn: -(drawn.box[2] - drawn.box[0]) * (drawn.box[3] - drawn.box[1]))
    ]
    fine = " fine" if sum(not bounds.endswith(_HIDDEN) for _, bounds in order) > _FINE else ""
    parts = [
        f'<svg class="overlay{fine}" viewBox="0 0 {w} {h}" role="img" aria-label="{safe(name)}">'
        f'<rect class="ground" width="{w}" height="{h}"/>'
    ]
    if data:
        parts.append(f'<image width="{w}" height="{h}" href="{safe(data)}"/>')
    rings: dict[str, str] = {}
    for box, bounds in order:
        if not box.points:
            x1, y1, x2, y2 = box.box
            ring = f"M{x1 * w:.0f} {y1 * h:.0f}H{x2 * w:.0f}V{y2 * h:.0f}H{x1 * w:.0f}z"
            rings[bounds] = rings.get(bounds, "") + ring
    parts += [f'<path class="casing" d="{path}"{bounds}/>' for bounds, path in rings.items()]
    parts += [_outline(box, w, h, bounds) for box, bounds in order]
    for box, bounds in order:
        again, colour = divmod(box.slot, len(PALETTE))
        if again:  # the number that tells apart the labels of one colour, in the lower left corner
            x, y = box.box[0] * w + 3, box.box[3] * h - 3
            place = f'x="{x:.0f}" y="{y:.0f}"{bounds}'
            parts.append(f'<text class="number c{colour}" {place}>{again + 1}</text>')
    return "".join([*parts, *_labels(order, w, h), "</svg>"])


def fate_legend(fates: Sequence[str] = tuple(MEANINGS)) -> str:
    """Return the meaning of the line styles, with a sample of each."""
    items = (
        f'<span><svg viewBox="0 0 26 16" aria-hidden="true"><rect class="{fate} key" x="2" y="2" width="22" '
        f'height="12"/></svg>{safe(MEANINGS[fate])}</span>'
        for fate in fates
    )
    return f'<p class="key">{"".join(items)}<span>Colours stand for labels.</span></p>'


def _outline(drawn: Drawn, w: int, h: int, bounds: str) -> str:
    x1, y1, x2, y2 = drawn.box
    shape = f'<rect x="{x1 * w:.1f}" y="{y1 * h:.1f}" width="{(x2 - x1) * w:.1f}" height="{(y2 - y1) * h:.1f}"'
    tag = "rect"
    if drawn.points and drawn.kind is not None:
        shape = outline_svg([(x * w, y * h) for x, y in drawn.points], drawn.kind)
        tag = shape[1:].partition(" ")[0]
    shape += f' class="{drawn.fate} c{drawn.slot % len(PALETTE)}"{bounds}'
    return f"{shape}><title>{safe(drawn.tip or drawn.label)}</title></{tag}>"


def label_key(slots: Mapping[str, int], most: int = 60, folded: bool = True) -> str:
    """Return the colours and numbers of at most `most` labels, from `label_slots`; empty for fewer than two."""
    if len(slots) < 2:
        return ""
    items = "".join(
        f'<span><i style="background:var(--s{slot % len(PALETTE)})"></i>'
        f"{'' if slot < len(PALETTE) else f'{slot // len(PALETTE) + 1}: '}{safe(label)}</span>"
        for label, slot in list(slots.items())[:most]
    )
    more = f"<span>… and {len(slots) - most:,} more</span>" if len(slots) > most else ""
    opened = "" if folded else " open"
    return f'<details class="key"{opened}><summary>Colours of labels</summary>{items}{more}</details>'


def _labels(order: Sequence[tuple[Drawn, str]], w: int, h: int) -> list[str]:
    """Place the labels, those that are not hidden and of these errors first, where they overlap no other."""
    urgency = {"missed": 0, "false": 1}
    placed: list[tuple[float, float, float, float]] = []
    texts = []
    named = (item for item in order if item[0].named)
    for drawn, bounds in sorted(named, key=lambda item: (item[1].endswith(_HIDDEN), urgency.get(item[0].fate, 2))):
        text = _MARKS.get(drawn.fate, "") + (drawn.label.strip() or "(no label)")
        text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        # East Asian characters are about twice as wide as Latin ones.
        width = sum(_WIDE_LETTER if ord(c) > 0x2E7F else _LETTER for c in text) + 4
        free = next((place for place in _places(drawn, width, w, h) if _is_free(place, placed)), None)
        if free is not None:
            placed.append(free)
        x, y = (free or next(_places(drawn, width, w, h)))[:2]
        hidden = "" if free is not None else " over"
        texts.append(
            f'<text class="c{drawn.slot % len(PALETTE)}{hidden}" x="{x + 2:.0f}" y="{y + 11:.0f}"'
            f"{bounds}>{safe(text)}</text>"
        )
    return texts


def _places(drawn: Drawn, width: float, w: int, h: int) -> Iterator[tuple[float, float, float, float]]:
    """Yield rectangles for a label inside the drawing: above, inside or below the box, to its left or right."""
    x1, y1, x2, y2 = (v * side for v, side in zip(drawn.box, (w, h, w, h), strict=True))
    lefts, tops = (x1, x2 - width, (x1 + x2 - width) / 2), (y1 - _LINE, y1 + 1, y2, y2 - _LINE - 1)
    xs = [min(max(left, 0.0), max(w - width, 0.0)) for left in lefts]
    for top in tops:
        y = min(max(top, 0.0), max(h - _LINE, 0.0))
        yield from ((x, y, x + width, y + _LINE) for x in xs)


def _is_free(place: tuple[float, float, float, float], placed: list[tuple[float, float, float, float]]) -> bool:
    left, top, right, bottom = place
    for x1, y1, x2, y2 in placed:  # noqa: SIM110 (`any` over a generator takes three times as long)
        if left < x2 and x1 < right and top < y2 and y1 < bottom:
            return False
    return True
