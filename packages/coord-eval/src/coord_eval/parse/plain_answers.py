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

    `speaks` is what a text contains that has turns, thoughts, escapes or a final answer.
    """
    if tuple(FORMATS) != _BUILT_IN:
        return None
    for name in ("obj", "qwen"):
        if text.startswith(MARKERS[name].tokens[0]):
            boxes = _Boxes(text, scale, units)
            return boxes.answer(name, speaks) if format in ("auto", name) and boxes.read_markers(name) else None
    for row in _TOKEN_ROWS if "<" in text and format != "json" else ():
        if row.needs[0] in text and format in ("auto", row.name):
            boxes = _Boxes(text, scale, units)
            if boxes.read_tokens(row) and (found := boxes.answer(row.name, speaks)):
                return found
    boxes = _Boxes(text, scale, units)
    return boxes.answer("json", speaks) if format in ("auto", "json") and boxes.read_json(keys) else None


@lru_cache(maxsize=8)
def _pattern(name: str) -> re.Pattern[str]:
    family: MarkerFamily = MARKERS[name]
    return re.compile(well_formed(family.tokens))


class _Boxes:
    """Boxes of one answer in the order of the text; what reads them returns False where anything is unusual."""

    def __init__(self, text: str, scale: UnitScale, units: Units) -> None:
        self.text, self.scale, self.units = text, scale, units
        self.divisors = (scale.x, scale.y)
        self.objects: list[ParsedObject] = []
        self.labels: set[str] = set()
        self.seen: set[tuple[str, tuple[float, ...]]] = set()
        self.tokens = 0
        self.least = 1 + OVERSHOOT if scale.assumed else 1.0 if scale.x > 1 else 0.0

    def read_json(self, keys: Keys) -> bool:
        """Read records of a label and a box."""
        text, add_numbers, add_tokens = self.text, self._add_numbers, self._add_tokens
        head = _HEAD.match(text)
        assert head is not None
        position = first = head.end()
        known: set[tuple[str | None, str, str | None]] = set()
        for match in FAULTLESS.finditer(text, first):
            start, end = match.span()
            if start != position and (position == first or text[position:start] not in _BETWEEN):
                return False
            name, label, key, x1, y1, x2, y2, a, b, c, d, last_name, last_label = match.groups()
            if (name, key, last_name) not in known:
                row = keys.row_of_plain(name or last_name, key)
                if row is None or row.order != "xyxy" or row.scale is not None or (name is None) == (last_name is None):
                    return False
                known.add((name, key, last_name))
            label = last_label if label is None else label
            span = (start, end)
            if not (add_numbers(label, (x1, y1, x2, y2), span) if a is None else add_tokens(label, (a, b, c, d), span)):
                return False
            position = end
        if position == first or _TAIL.fullmatch(text, position) is None:
            return False
        is_call = any("type" in (name, last) for name, _, last in known)
        return not (is_call and any(map(ACTIONS.fullmatch, self.labels)))

    def read_markers(self, name: str) -> bool:
        """Read boxes between the markers of a family."""
        text, add_numbers, add_tokens, position = self.text, self._add_numbers, self._add_tokens, 0
        if "{" in text or "[" in text:
            return False
        for match in _pattern(name).finditer(text):
            start, end = match.span()
            label, a, b, c, d, x1, y1, x2, y2 = match.groups()
            span = (start, end)
            if start != position:
                return False
            if not (add_numbers(label, (x1, y1, x2, y2), span) if a is None else add_tokens(label, (a, b, c, d), span)):
                return False
            position = end
        return position == len(text)

    def read_tokens(self, row: TextFormat) -> bool:
        """Read a label and four tokens of a format, or these and a label."""
        text, units, position = self.text, row.units, 0
        y_first, label_first = row.order == "yxyx", row.label == "before"
        for match in re.finditer(row.plain, text):
            start, end = match.span()
            if start != position and text[position:start] != " ":
                return False
            label, *written = match.groups() if label_first else match.groups()[-1:] + match.groups()[:-1]
            bins = tuple(map(int, written))
            if max(bins) >= len(units):
                return False
            a, b, c, d = map(units.__getitem__, bins)
            x1, y1, x2, y2 = corners = (b, a, d, c) if y_first else (a, b, c, d)
            if not (x1 < x2 and y1 < y2):
                return False
            self._add(label, corners, bins, (start, end), self.tokens, row.order)
            self.tokens += 4
            position = end
        return position > 0 and not text[position:].strip()

    def _add_tokens(self, label: str, tokens: tuple[str, str, str, str], span: tuple[int, int]) -> bool:
        a, b, c, d = tokens
        units = self.units
        try:
            (i, x1), (j, y1), (k, x2), (m, y2) = units[a], units[b], units[c], units[d]
        except KeyError:
            return False
        first, self.tokens = self.tokens, self.tokens + 4
        return 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1 and self._add(label, (x1, y1, x2, y2), (i, j, k, m), span, first)

    def _add_numbers(self, label: str, sides: tuple[str, str, str, str], span: tuple[int, int]) -> bool:
        a, b, c, d = bins = tuple(map(float, sides))
        if c <= self.least and d <= self.least:
            return False  # fractions, or one of the few boxes in the corner
        x, y = self.divisors
        x1, y1, x2, y2 = a / x, b / y, c / x, d / y
        return 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1 and self._add(label, (x1, y1, x2, y2), bins, span, None)

    def _add(
        self, label: str, box: tuple[float, float, float, float], bins: tuple[float, ...], span: tuple[int, int],
        first: int | None, order: str = "xyxy",
    ) -> bool:  # fmt: skip
        desc, objects = label.strip(), self.objects
        self.labels.add(desc)
        self.seen.add((desc, bins))
        divisors = self.divisors if first is None else None
        values = (
            desc, box, bins, span, "complete", first, len(objects), (), "box", (), order, None, (), divisors, None, ""
        )  # fmt: skip
        objects.append(tuple.__new__(ParsedObject, values))
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
            scale=self.divisors if plain else None,
            scale_assumed=plain and self.scale.assumed,
            coord_count=self.tokens,
            start_count=count,
            repeats=count - len(self.seen),
        )
