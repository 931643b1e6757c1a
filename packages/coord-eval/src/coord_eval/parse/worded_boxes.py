"""Boxes whose four numbers stand apart, among words that say what they are: `x=120 to 560, y=240 to 680`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from coord_eval.parse.numbers import NUMBER

Corners = list[float]


def _pattern(template: str) -> str:
    """Return a pattern from its template: `#` is a number, `~` and `_` are optional and necessary white space.

    White space is bounded, so that searching takes linear time.
    """
    for mark, meaning in (("~", r"\s{0,3}"), ("_", r"\s{1,3}"), ("#", rf"({NUMBER}(?:\s?(?:px|%))?)")):
        template = template.replace(mark, meaning)
    return template


def _range(axis: str, adverb: str) -> str:
    """Return the template of the two ends of a box on one axis: `x=120 to 560`, `from 12 to 56 horizontally`."""
    to = r"~(?:to|and|through|until|up_to|bis|hasta|-|\u2013|\u2014|\.\.\.?|,|:)~"
    ends = rf"[\[(]?~#{to}(?:{axis}~=~)?#~[\])]?"
    name = rf"\b{axis}\b(?:[ \x5f-]?(?:range|axis|coordinates?|values?))?|\b{adverb}"
    words = r"~(?:[:=\u2208]|\bin\b|\b(?:ranges?|goe?s?|spans?|is|runs?)\b)?~(?:from|between|von|desde)?~"
    return rf"(?:(?:{name}){words}{ends}|(?:from|between)_{ends}_{adverb}(?![ :,]{{0,3}}[0-9]))"


_X, _Y = _range("x", r"horizontal(?:ly)?\b"), _range("y", r"vertical(?:ly)?\b")
_BETWEEN = r"[\s,;]{0,4}(?:and|while|by)?~(?:is_|its_)?(?:(?:from|between)_)?"
_AND = r"[,;\s]{1,4}(?:and_)?(?:(?:its|the)_)?"


def _edges(*sides: str) -> str:
    return _AND.join(rf"\b{side}\b(?:_(?:edge|side|border))?~(?:[:=]|at|of|is)?~#" for side in sides)


def _corner_and_size(x: float, y: float, w: float, h: float) -> Corners:
    return [x, y, x + w, y + h]


_SIZE = (
    r"[\s,;]{0,4}(?:and|with|has|having|of)?(?:_(?:has|with))?~(?:an?_)?width~(?:of|is|[:=])?~#[\s,;]{0,4}(?:and|with)?"
)
_FORMS: tuple[tuple[str, str, Callable[[float, float, float, float], Corners]], ...] = (
    ("x", f"{_X}{_BETWEEN}{_Y}", lambda x1, x2, y1, y2: [x1, y1, x2, y2]),
    ("y", f"{_Y}{_BETWEEN}{_X}", lambda y1, y2, x1, x2: [x1, y1, x2, y2]),
    ("left", _edges("left", "top", "right", "bottom"), lambda x1, y1, x2, y2: [x1, y1, x2, y2]),
    ("left", _edges("top", "left", "bottom", "right"), lambda y1, x1, y2, x2: [x1, y1, x2, y2]),
    (
        "left",
        rf"#_from_(?:the_)?left(?:_edge)?{_AND}#_from_(?:the_)?top(?:_edge)?{_AND}(?:with_)?#_wide{_AND}"
        r"#_(?:tall|high)\b",
        _corner_and_size,
    ),
    ("width", rf"\(~#~,~#~\){_SIZE}~(?:an?_)?height~(?:of|is|[:=])?~#", _corner_and_size),
)
"""A word without which the form does not occur, its template, and the corners of its four numbers in their order."""
_COMPILED = [(word, re.compile(_pattern(form), re.IGNORECASE), corners) for word, form, corners in _FORMS]
_CENTRE = re.compile(r"\bcent(?:er|re)(?:e?d)?\b[^.\n]{0,30}$", re.IGNORECASE)
_PAIR = rf"\(\s{{0,3}}{NUMBER}\s?%\s{{0,3}},\s{{0,3}}{NUMBER}\s?%\s{{0,3}}\)"
_PERCENT = re.compile(
    rf"{NUMBER}\s?%(?:[\s,;|]{{1,9}}(?:and\s+)?(?:[A-Za-z_]\w{{0,12}}\s*[:=]\s*)?{NUMBER}\s?%){{3}}"
    rf"|{_PAIR}[^()0-9\n]{{0,40}}{_PAIR}"
)
"""Four percentages next to each other."""


def worded_boxes(text: str, begin: int) -> Iterator[tuple[int, int, Corners]]:
    """Yield start, end and corners of each box.

    Example:
        >>> list(worded_boxes("cat: x from 10 to 30, y from 20 to 40", 0))
        [(5, 37, [10.0, 20.0, 30.0, 40.0])]
    """
    lowered = text.lower()
    axes = "horizontal" in lowered or "vertical" in lowered
    for word, pattern, corners in _COMPILED:
        if word not in lowered and not (axes and len(word) == 1):
            continue
        for found in pattern.finditer(text, begin):
            box = corners(*(float(part.rstrip("px% ")) for part in found.groups() if part is not None))
            if word == "width" and _CENTRE.search(text, max(found.start() - 60, begin), found.start()):
                half = [(box[2] - box[0]) / 2, (box[3] - box[1]) / 2]
                box = [side - half[i % 2] for i, side in enumerate(box)]
            yield *found.span(), box


def without_percent(text: str, begin: int) -> str | None:
    """Return a text with blanks for the signs of coordinates in per cent; None if it has no such coordinates."""
    if "%" not in text:
        return None
    spans: Sequence[tuple[int, int]] = [
        *(found.span() for found in _PERCENT.finditer(text, begin)),
        *((start, end) for start, end, _ in worded_boxes(text, begin)),
    ]
    signs = {place for start, end in spans for place in range(start, end) if text[place] == "%"}
    return "".join(" " if place in signs else mark for place, mark in enumerate(text)) if signs else None
