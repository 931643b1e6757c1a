"""Finds the numbers of an answer that no object, no drop and no name accounts for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from coord_eval.parse.orders import setting_of

_DIGIT = re.compile("[0-9]")
_NUMBER = re.compile(
    r"(?:(?:loc_?|coord_|index_|\b[xy]_)|(?<!\w)(?<!\w\.)|(?<=[0-9][^\W\d_xX]))[0-9]+(?:\.[0-9]+)?", re.IGNORECASE
)
"""A number, also within a token; digits of a name (`bbox_2d`, `x1`) are none."""
_NEAR = re.compile(
    r"(?:</\w{1,20}><\w{1,20}>)?[^\w\n*+/\\]{0,12}(?:[A-Za-z]\w{0,15}[\"'`*]{0,3}\s?[:=][^\w\n]{0,6})?"
    r"(?:(?:to|and|px|x|[xywh][12]?|_|\|?>?<?\|?)[^\w\n]{0,6})?"
)
"""What may stand between the numbers of one object."""
_BESIDE = 80
"""Number of characters beside a number that may say what it is."""
_WORD = re.compile(r"[^\W\d_]{2}")
_SIDE = re.compile(r"\b(?:width|height|wide|tall|left|right|top|bottom|[xy])\b", re.IGNORECASE)
_NAMED = re.compile(
    r"""^[ \t]*[-*\#(]*[0-9]{1,3}[.):](?=\s)                              # the number of a list
      | (?<![\w.,:=([])[0-9]{1,3}["'\u2033](?=[ \t]+[^\W\d_]{3})           # 5" wide
      | (?<![\w.,:=([])[0-9]{1,6}(?:st|nd|rd|th)?[ \t]+(?=[^\W\d_]{3})    # 2 objects
      | \(\s*[01]?\.[0-9]+\s*%?\s*\) | \b[0-9]{1,3}(?:\.[0-9]+)?\s?%      # a confidence
      | \b(?:size|resolution|dimensions?|image|id|index|count|score|conf(?:idence)?|probability|frame|page|total)
        (?:_\w{1,12})?["']?\s{0,3}(?:(?:is|of)\s)?[:=]?\s{0,3}[\[(]?\s{0,3}
        [0-9.]+(?:\s?(?:[x\u00d7*,]|by)\s{0,3}[0-9.]+){0,2}
      | ["'](?!(?:[xy]_?(?:[0-9]|min|max)?|[wh]|left|right|top|bottom|c[xy])["'])[A-Za-z_]\w{0,30}["']\s{0,3}[:=]\s{0,3}
        (?:"[^"\n\[\](){}<>]{0,400}"|-?[0-9.]+)(?=\s{0,9}(?:[,}\n]|$))        # "count": 2
      | """
    + setting_of(r"0(?:\.0+)?")
    + r"""
      | ["'][0-9]{1,4}["']\s{0,3}: | \b0\s?(?:-|\u2013|to)\s?1(?:0{2,3})?\b
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
"""Numbers whose meaning the words beside them name."""


def unread_numbers(text: str, begin: int, end: int, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans of numbers in a range of a text that lie in none of `spans` and are not named.

    Example:
        >>> unread_numbers("I see 2 cats: [1, 2, 3, 4], [5, 6, 7, 8]", 0, 40, [(0, 26)])
        [(29, 39)]
    """
    if not _gaps(text, begin, end, spans):  # nearly always; in another order than the text's, gaps are larger
        return []
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return [cluster for gap in _gaps(text, begin, end, merged) for cluster in _clusters(text, *gap)]


def _gaps(text: str, begin: int, end: int, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges between spans in which digits stand; a few characters cannot hold an object."""
    starts, stops = zip(*spans, strict=True) if spans else ((), ())
    wide = [(a, b) for a, b in zip((begin, *stops), (*starts, end), strict=True) if b - a > 3]
    return [gap for gap in wide if _DIGIT.search(text, *gap)]


def _clusters(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers that stand together; one alone only where no words say what it is."""
    part = _NAMED.sub(lambda named: " " * len(named[0]), text[start:stop])
    together: list[tuple[int, int, int]] = []
    for number in _NUMBER.finditer(part):
        a, b = number.span()
        if together and _NEAR.fullmatch(part, together[-1][1], a):
            a, _, count = together.pop()
            together.append((a, b, count + 1))
        else:
            together.append((a, b, 1))
    for a, b, count in together:
        before = part[max(a - _BESIDE, 0) : a].rpartition("\n")[2]
        after = part[b : b + _BESIDE].partition("\n")[0]
        alone = count == 1 and (_WORD.search(before) or _WORD.search(after))
        if not alone or _SIDE.search(before[-16:]) or _SIDE.search(after[:12]):
            yield start + a, start + b
