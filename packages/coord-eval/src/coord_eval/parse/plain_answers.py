"""Reads answers of well-formed boxes alone, as nearly all of a trained model are, by one regular expression.

The result is that of the parsers of all formats, or None where anything is unusual: other text, a number outside the
image, swapped corners, fractions, a key of another meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from coord_codec import MARKERS, MarkerFamily
from coord_eval.parse.answer import OVERSHOOT, Answer, ParsedObject
from coord_eval.parse.builder import ROW_IN_LABEL, UnitScale
from coord_eval.parse.formats import FORMATS, TextFormat
from coord_eval.parse.json_format import FAULTLESS
from coord_eval.parse.keys import ACTIONS, Keys
from coord_eval.parse.marker_format import well_formed

_HEAD = re.compile(r"\s*(?:```(?:json)?\s*)?\[?\s*")
_TAIL = re.compile(r"\s*\]?\s*(?:```\s*)?")
_BETWEEN = frozenset((", ", ",\n", ",", ",\n  ", ",\n\t", ",\n    "))
_BUILT_IN = tuple(FORMATS)
_TOKEN_ROWS = [row for row in FORMATS.values() if row.plain]
Units = Mapping[str, tuple[int, float]]


def plain_answer(
    text: str, format: str, scale: UnitScale, units: Units, keys: Keys, speaks: re.Pattern[str]
) -> Answer | None:
    """Return the answer that a text of well-formed boxes alone is, None for any other text.

    Args:
        text: the answer
        format: `auto`, or the name of a format
        scale: divisors of plain numbers
        units: bin and coordinate of each coordinate token
        keys: the meanings of keys of JSON
        speaks: what a text contains that has turns, thoughts, escapes or a final answer
    """
    if tuple(FORMATS) != _BUILT_IN:
        return None
    for name in ("obj", "qwen"):
        if text.startswith(MARKERS[name].tokens[0]):
            return _of_markers(text, name, scale, units, speaks) if format in ("auto", name) else None
    for row in _TOKEN_ROWS if "<" in text and format != "json" else ():
        if row.needs[0] in text and format in ("auto", row.name) and (found := _of_tokens(text, row, scale, speaks)):
            return found
    return _of_json(text, scale, units, keys, speaks) if format in ("auto", "json") else None


def _of_json(text: str, scale: UnitScale, units: Units, keys: Keys, speaks: re.Pattern[str]) -> Answer | None:
    head = _HEAD.match(text)
    assert head is not None
    boxes = _Boxes(scale, units)
    add_numbers, add_tokens = boxes.add_numbers, boxes.add_tokens
    position = first = head.end()
    known: set[tuple[str | None, str, str | None]] = set()
    for match in FAULTLESS.finditer(text, first):
        start, end = match.span()
        if start != position and (position == first or text[position:start] not in _BETWEEN):
            return None
        name, label, key, x1, y1, x2, y2, a, b, c, d, last_name, last_label = match.groups()
        if (name, key, last_name) not in known:
            row = keys.row_of_plain(name or last_name, key)
            if row is None or row.order != "xyxy" or row.scale is not None or (name is None) == (last_name is None):
                return None
            known.add((name, key, last_name))
        label = last_label if label is None else label
        span = (start, end)
        if not (add_numbers(label, (x1, y1, x2, y2), span) if a is None else add_tokens(label, (a, b, c, d), span)):
            return None
        position = end
    if position == first or _TAIL.fullmatch(text, position) is None:
        return None
    if any("type" in (name, last) for name, _, last in known) and any(map(ACTIONS.fullmatch, boxes.labels)):
        return None
    return boxes.answer("json", speaks)


def _of_markers(text: str, name: str, scale: UnitScale, units: Units, speaks: re.Pattern[str]) -> Answer | None:
    if "{" in text or "[" in text:
        return None
    boxes = _Boxes(scale, units)
    add_numbers, add_tokens = boxes.add_numbers, boxes.add_tokens
    position = 0
    for match in _pattern(name).finditer(text):
        start, end = match.span()
        if start != position:
            return None
        desc, a, b, c, d, x1, y1, x2, y2 = match.groups()
        span = (start, end)
        if not (add_numbers(desc, (x1, y1, x2, y2), span) if a is None else add_tokens(desc, (a, b, c, d), span)):
            return None
        position = end
    return boxes.answer(name, speaks) if position == len(text) else None


def _of_tokens(text: str, row: TextFormat, scale: UnitScale, speaks: re.Pattern[str]) -> Answer | None:
    boxes = _Boxes(scale, {})
    units, y_first, label_first = row.units, row.order == "yxyx", row.label == "before"
    position = 0
    for match in re.finditer(row.plain, text):
        start, end = match.span()
        if start != position and text[position:start] != " ":
            return None
        label, *written = match.groups() if label_first else match.groups()[-1:] + match.groups()[:-1]
        bins = tuple(map(int, written))
        if max(bins) >= len(units):
            return None
        a, b, c, d = map(units.__getitem__, bins)
        x1, y1, x2, y2 = corners = (b, a, d, c) if y_first else (a, b, c, d)
        if not (x1 < x2 and y1 < y2):
            return None
        boxes.add(label, corners, bins, (start, end), boxes.tokens, row.order)
        boxes.tokens += 4
        position = end
    return boxes.answer(row.name, speaks) if position and not text[position:].strip() else None


@lru_cache(maxsize=8)
def _pattern(name: str) -> re.Pattern[str]:
    family: MarkerFamily = MARKERS[name]
    return re.compile(well_formed(family.tokens))


class _Boxes:
    """Boxes of one answer in the order of the text."""

    def __init__(self, scale: UnitScale, units: Units) -> None:
        self.scale, self.units = scale, units
        self.objects: list[ParsedObject] = []
        self.labels: set[str] = set()
        self.seen: set[tuple[str, tuple[float, ...]]] = set()
        self.tokens = 0
        self.least = 1 + OVERSHOOT if scale.assumed else 1.0 if scale.x > 1 else 0.0

    def add_tokens(self, label: str, tokens: tuple[str, str, str, str], span: tuple[int, int]) -> bool:
        """Add a box of coordinate tokens; return False where it is unusual."""
        a, b, c, d = tokens
        units = self.units
        try:
            (i, x1), (j, y1), (k, x2), (m, y2) = units[a], units[b], units[c], units[d]
        except KeyError:
            return False
        first, self.tokens = self.tokens, self.tokens + 4
        return 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1 and self.add(label, (x1, y1, x2, y2), (i, j, k, m), span, first)

    def add_numbers(self, label: str, sides: tuple[str, str, str, str], span: tuple[int, int]) -> bool:
        """Add a box of plain numbers; return False where it is unusual."""
        a, b, c, d = bins = tuple(map(float, sides))
        if c <= self.least and d <= self.least:
            return False  # fractions, or one of the few boxes in the corner
        scale = self.scale
        x1, y1, x2, y2 = a / scale.x, b / scale.y, c / scale.x, d / scale.y
        return 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1 and self.add(label, (x1, y1, x2, y2), bins, span, None)

    def add(
        self,
        label: str,
        box: tuple[float, float, float, float],
        bins: tuple[float, ...],
        span: tuple[int, int],
        first: int | None,
        order: str = "xyxy",
    ) -> bool:
        """Add a box; return True."""
        desc = label.strip()
        self.labels.add(desc)
        self.seen.add((desc, bins))
        objects = self.objects
        divisors = (self.scale.x, self.scale.y) if first is None else None
        values = desc, box, bins, span, "complete", first, len(objects), (), "box", (), order, None, (), divisors
        objects.append(tuple.__new__(ParsedObject, (*values, None, "")))
        return True

    def answer(self, format: str, speaks: re.Pattern[str]) -> Answer | None:
        """Return the answer, None if its labels contain what is unusual, or it mixes tokens and numbers."""
        labels, count = self.labels, len(self.objects)
        if "" in labels or speaks.search("\n".join(labels)) or any(map(ROW_IN_LABEL.search, labels)):
            return None
        if self.tokens not in (0, 4 * count):
            return None
        plain = not self.tokens
        return Answer(
            objects=tuple(self.objects),
            dropped=(),
            status="ok",
            format=format,
            scale=(self.scale.x, self.scale.y) if plain else None,
            scale_assumed=plain and self.scale.assumed,
            coord_count=self.tokens,
            start_count=count,
            repeats=count - len(self.seen),
        )
