"""Colours of labels and series: nine that remain distinct with the common kinds of colour blindness."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

PALETTE = ("#2563eb", "#d97706", "#0f766e", "#b91c5c", "#6d28d9", "#0284c7", "#65a30d", "#78350f", "#475569")
"""Colours of series, in order; distinguishable with colour blindness (after Okabe and Ito 2008, darkened)."""
ON_DARK = ("#7aa5ff", "#f2a33c", "#3fc7b5", "#f27ba8", "#b697ff", "#5cc8f5", "#a4d65e", "#d9a27c", "#a9b6c6")
"""The same colours for pages with a dark background."""


def label_slots(labels: Iterable[str]) -> dict[str, int]:
    """Return the place of each label's colour in `PALETTE`.

    It depends on the text of the label, so that a label usually has one colour on all pages. Labels that share a place
    move on to the next free one, in the order in which they are given, until all nine are taken.

    Example:
        >>> len(set(label_slots(["cat", "dog", "cow"]).values()))
        3
    """
    slots: dict[str, int] = {}
    for label in dict.fromkeys(labels):
        first = zlib.crc32(label.encode("utf-8", "surrogatepass")) % len(PALETTE)
        taken = set(slots.values())
        places = [(first + step) % len(PALETTE) for step in range(len(PALETTE))]
        slots[label] = next((place for place in places if place not in taken), first)
    return slots
