"""Colours of labels and series: nine that remain distinct with the common kinds of colour blindness."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

PALETTE = ("#2563eb", "#d97706", "#0f766e", "#b91c5c", "#6d28d9", "#0284c7", "#65a30d", "#78350f", "#475569")
"""Colours of series, in order; distinguishable with colour blindness (after Okabe and Ito 2008, darkened)."""
ON_DARK = ("#7aa5ff", "#f2a33c", "#3fc7b5", "#f27ba8", "#b697ff", "#5cc8f5", "#a4d65e", "#d9a27c", "#a9b6c6")
"""The same colours for pages with a dark background."""


def label_slots(labels: Iterable[str]) -> dict[str, int]:
    """Return the place of each label, which states its colour, `PALETTE[place % 9]`, and a number, `place // 9`.

    The colour depends on the text of the label, so that a label usually has one colour on all pages. Labels that share
    a colour move on to the next free one, in the order in which they are given. When all nine are taken, they are given
    again, with a number that is written into the box.

    Example:
        >>> len(set(label_slots(["cat", "dog", "cow"]).values()))
        3
        >>> len(set(label_slots(map(str, range(20))).values()))
        20
    """
    colours = len(PALETTE)
    slots: dict[str, int] = {}
    taken: set[int] = set()
    for label in dict.fromkeys(labels):
        begun = len(slots) // colours * colours
        first = zlib.crc32(label.encode("utf-8", "surrogatepass")) % colours
        slots[label] = next(
            place for step in range(colours) if (place := begun + (first + step) % colours) not in taken
        )
        taken.add(slots[label])
    return slots
