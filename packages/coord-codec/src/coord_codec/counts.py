"""Numbers with their nouns, for messages."""

from __future__ import annotations

import re

_NOUN = (
    "annotation|area|box|circle|ellipse|file|image|label|line|object|outline|path|point|polygon|prediction|record|row"
)
_NOUNS = re.compile(rf"\b({_NOUN})(?:e?s)\b((?: (?:and|or) [\w ]{{0,20}}?\b(?:{_NOUN})(?:e?s)\b)?)")
_LAST = re.compile(rf"\b({_NOUN})(?:e?s)$")

_SINGULAR = {
    "are": "is",
    "have": "has",
    "were": "was",
    "their": "its",
    "state": "states",
    "them": "it",
    "become": "becomes",
}
"""Words that follow a noun in the plural, and in the singular."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, and a verb if there is one; the plural is by default the noun with an s.

    Example:
        >>> counted(1, "box", "boxes"), counted(2, "box", "boxes"), counted(0, "image")
        ('1 box', '2 boxes', '0 images')
        >>> counted(1, "image has", "images have")
        '1 image has'
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def counted_note(count: int, note: str) -> str:
    """Return a number with the note that it counts, written for several; its first noun and verb are those of 1.

    Example:
        >>> counted_note(1, "boxes that are not around their outline"), counted_note(2, "truncated objects, kept")
        ('1 box that is not around its outline', '2 truncated objects, kept')
        >>> counted_note(1, "polygons or rotated boxes, read as the box around them")
        '1 polygon or rotated box, read as the box around it'
    """
    if count != 1:
        return f"{count:,} {note}"
    single = _NOUNS.sub(lambda noun: noun[1] + _LAST.sub(r"\1", noun[2]), note, count=1)
    for plural, singular in _SINGULAR.items() if single != note else ():
        single = re.sub(rf"\b{plural}\b", singular, single, count=1)
    return f"1 {single}"


def fixed(value: float, decimals: int, sign: str = "") -> str:
    """Return a number with a fixed number of decimals; what is rounded to 0 has no minus.

    Example:
        >>> fixed(-0.001, 2), fixed(-0.006, 2), fixed(0.25, 3, "+")
        ('0.00', '-0.01', '+0.250')
    """
    return f"{round(value, decimals) + 0.0:{sign}.{decimals}f}"
