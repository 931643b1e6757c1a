"""Parses objects from JSON as models write it: fenced, after prose, cut off, with numbers as strings.

One tokeniser makes one pass. The text is never given to a JSON library, since most faulty answers are not JSON; objects
are the innermost `{...}` records with a label and a geometry.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coord_eval.parse.answer import COORD, COORD_PATTERN, AnswerBuilder, Geometry

BOX_KEYS = frozenset({"bbox_2d", "bbox", "box", "bounding_box"})
POINT_KEYS = frozenset({"point_2d", "point"})
POLYGON_KEYS = frozenset({"poly", "polygon", "polygon_2d"})
LABEL_KEYS = frozenset(
    {
        *("label", "desc", "description", "name", "category", "class", "ref", "text_content"),
        *("class_name", "category_name", "label_name", "object", "object_name", "phrase"),
        *("标签", "类别", "名称", "物体"),
    }
)
_GEOMETRY: dict[str, Geometry] = {
    **dict.fromkeys(BOX_KEYS, "box"),
    **dict.fromkeys(POINT_KEYS, "point"),
    **dict.fromkeys(POLYGON_KEYS, "polygon"),
}
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
# A string runs to its quote, else to the end of its line: it cannot fail, so it never backtracks.
_LEXEME = re.compile(
    r'"(?P<double>(?:[^"\\\n]|\\.?)*)(?:"|(?=\n)|\Z)'
    r"|'(?P<single>(?:[^'\\\n]|\\.?)*)(?:'|(?=\n)|\Z)"
    rf"|(?P<coord>{COORD_PATTERN})"
    rf"|(?P<number>{_NUMBER})"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<mark>[{}\[\]:,])"
)
_SHORT = r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?"
_NAMED = rf'"(?:{"|".join(sorted(LABEL_KEYS))})"\s*:\s*"([^"\\\n{{}}<]*)"'
# A record without any fault, as nearly all records of a good model are, is matched in one step.
_WHOLE = re.compile(
    rf"\{{\s*(?:{_NAMED}\s*,\s*)?"
    rf'"(?:{"|".join(sorted(BOX_KEYS))})"\s*:\s*\['
    rf"\s*(?:(?P<numbers>{_SHORT}(?:\s*,\s*{_SHORT}){{3}})"
    rf"|(?P<tokens>{COORD_PATTERN}(?:\s*,\s*{COORD_PATTERN}){{3}}))\s*\]"
    rf"\s*(?:,\s*{_NAMED}\s*)?\}}"
)
_IN_STRING = re.compile(rf"(?P<coord>{COORD_PATTERN})|(?P<number>{_NUMBER})")


_Group = list[tuple[float, float | None, int | None]]
"""Numbers of one shape: the value, the same in [0, 1] and the ordinal of its token, both None for plain numbers."""


_MAX_OPEN = 1000
"""Records that may be open at once; a deeper one ends the outermost. Answers nest three deep."""
_MAX_NUMBERS = 100_000
"""Numbers of one record that are kept; a record with more has another arity than any shape."""


@dataclass(slots=True)
class _Record:
    """One `{...}` being read."""

    start: int
    end: int = -1
    key: str | None = None
    pending: str | None = None
    label: str | None = None
    geometry: Geometry | None = None
    depth: int = 0
    done: bool = False
    groups: list[_Group] = field(default_factory=list)
    count: int = 0
    invalid: bool = False
    repairs: tuple[str, ...] = ()
    has_children: bool = False
    other_numbers: int = 0

    @property
    def reads_geometry(self) -> bool:
        return self.key in _GEOMETRY and not self.done

    def repair(self, name: str) -> None:
        """Note a repair once, however often the text needs it."""
        if name not in self.repairs:
            self.repairs = (*self.repairs, name)


class JsonParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, units: Mapping[str, tuple[int, float]]) -> None:
        self.builder = builder
        self.units = units
        self.stack: deque[_Record] = deque()

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        position = begin
        while True:
            if not self.stack:
                # Quotes and brackets of prose mean nothing: look for the next record.
                opening = text.find("{", position)
                self._stray(text, position, len(text) if opening < 0 else opening)
                if opening < 0:
                    break
                position = opening
            if text.startswith("{", position) and (whole := _WHOLE.match(text, position)) and self._take(whole):
                position = whole.end()
                continue
            match = _LEXEME.search(text, position)
            if match is None:
                break
            self._feed(match)
            position = match.end()
        self._finish(len(text))
        if not self.builder.objects and not self.builder.dropped:
            compact = re.sub(r"\s+|```(?:json)?", "", text[begin:])
            self.builder.explicit_empty = compact.endswith(("[]", "[]}"))

    def _take(self, match: re.Match[str]) -> bool:
        """Add a faultless record; False when a token of it is not on the grid."""
        builder = self.builder
        span, start_index = match.span(), builder.start_count
        desc = match[1] if match[1] is not None else match[4] or ""
        if match["numbers"]:
            numbers = [float(n) for n in match["numbers"].split(",")]
            builder.add_numbers(desc, numbers, span, start_index=start_index)
        else:
            tokens = COORD.findall(match["tokens"])
            if not all(token in self.units for token in tokens):
                return False
            bins, unit = zip(*(self.units[token] for token in tokens), strict=True)
            first = builder.coord_count
            builder.add_box(desc, bins, unit, span, first_coord_index=first, start_index=start_index)
            builder.coord_count += 4
        builder.start_count += 1
        if self.stack:
            self.stack[-1].has_children = True
        return True

    def _stray(self, text: str, start: int, end: int) -> None:
        """Count coordinate tokens outside any record."""
        found = [m for m in COORD.finditer(text, start, end) if m.group() in self.units]
        if found:
            self.builder.coord_count += len(found)
            self.builder.drop("stray_coordinates", found[0].start(), found[-1].end())

    def _feed(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if kind == "mark":
            self._mark(match)
            return
        record = self.stack[-1]
        if kind in ("double", "single"):
            self._string(record, match.group(kind))
        elif kind == "coord":
            self._coordinate(record, match.group())
        elif kind == "number":
            if record.reads_geometry:
                self._number(record, match.group())
            else:
                record.other_numbers += 1
        elif record.reads_geometry:
            record.invalid = True  # null, NaN, Infinity, None
        elif record.key is None:
            record.pending = match.group()

    def _mark(self, match: re.Match[str]) -> None:
        mark = match.group()
        if mark == "{":
            if self.stack:
                self.stack[-1].has_children = True
            self.stack.append(_Record(match.start()))
            if len(self.stack) > _MAX_OPEN:
                self._emit(self.stack.popleft(), match.start(), partial=True)
            return
        record = self.stack[-1]
        if mark == "}":
            self.stack.pop()
            self._emit(record, match.end(), partial=False)
        elif mark == ":" and record.depth == 0 and record.pending is not None:
            record.key, record.pending = record.pending, None
            if record.key in _GEOMETRY and record.geometry is None:
                record.geometry = _GEOMETRY[record.key]
            elif record.key in _GEOMETRY and record.done:
                record.repair("second_geometry")  # the first one stands
        elif mark == "[":
            record.depth += 1
            if record.reads_geometry and (not record.groups or record.groups[-1]):
                record.groups.append([])
        elif mark == "]":
            record.depth = max(record.depth - 1, 0)
            if record.depth == 0:
                self._close_value(record)
        elif mark == "," and record.depth == 0:
            self._close_value(record)

    def _close_value(self, record: _Record) -> None:
        if record.reads_geometry and record.groups:
            record.done = True
        record.key = record.pending = None

    def _string(self, record: _Record, raw: str) -> None:
        value = _unescape(raw)
        if record.key is None:
            record.pending = value
        elif record.key in LABEL_KEYS and record.label is None:
            record.label = value
        if record.reads_geometry:
            parts = list(_IN_STRING.finditer(value))
            if not parts:
                record.invalid = True
            if record.depth == 0 and len(parts) > 1:
                record.repair("numbers_in_string")
            for part in parts:
                if part.lastgroup == "coord":
                    self._coordinate(record, part.group())
                else:
                    self._number(record, part.group())
        else:
            # Tokens in a string that is no geometry are counted, so that ordinals stay right.
            self.builder.coord_count += sum(part in self.units for part in COORD.findall(value))

    def _coordinate(self, record: _Record, token: str) -> None:
        unit = self.units.get(token)
        if unit is not None:
            self.builder.coord_count += 1
        if not record.reads_geometry:
            return
        if unit is None:
            record.invalid = True
            return
        self._value(record, (unit[0], unit[1], self.builder.coord_count - 1))

    def _number(self, record: _Record, digits: str) -> None:
        number = float(digits)
        if not math.isfinite(number):
            record.invalid = True
            return
        self._value(record, (number, None, None))

    def _value(self, record: _Record, value: tuple[float, float | None, int | None]) -> None:
        if not record.groups:
            record.groups.append([])
        record.count += 1
        if record.count <= _MAX_NUMBERS:
            record.groups[-1].append(value)

    def _finish(self, end: int) -> None:
        """Close what the text left open."""
        if self.stack:
            self.builder.truncated = True
        while self.stack:
            self._emit(self.stack.pop(), end, partial=True)

    def _emit(self, record: _Record, end: int, partial: bool) -> None:
        """Turn a closed or cut-off record into objects or a drop."""
        builder, span = self.builder, (record.start, end)
        groups = [group for group in record.groups if group]
        if record.geometry is None or not (groups or record.invalid):
            if record.geometry is None and record.has_children:
                return
            if partial:
                builder.drop("truncated", *span)
            elif record.geometry is not None or record.label is not None:
                builder.drop("no_coordinates", *span)
            elif record.other_numbers >= 4:
                builder.drop("unrecognised", *span)
            return
        builder.start_count += 1
        flat = [value for group in groups for value in group]
        tokens = sum(value[1] is not None for value in flat)
        if partial and not record.done and (record.invalid or not tokens or len(flat) != 4):
            builder.drop("truncated", *span)
        elif record.count > _MAX_NUMBERS:
            builder.drop("wrong_arity", *span)
        elif record.invalid or tokens not in (0, len(flat)):
            builder.drop("invalid_coordinate", *span)
        else:
            for group in _split(record.geometry, groups):
                self._add(record, record.geometry, group, span, partial)

    def _add(self, record: _Record, geometry: Geometry, group: _Group, span: tuple[int, int], partial: bool) -> None:
        numbers = [value[0] for value in group]
        unit = [value[1] for value in group if value[1] is not None]
        details: dict[str, Any] = {
            "geometry": geometry,
            "start_index": self.builder.start_count - 1,
            "repairs": record.repairs,
            "partial": partial,
        }
        if unit:
            first = group[0][2]
            self.builder.add_shape(record.label or "", numbers, unit, span, first_coord_index=first, **details)
        else:
            self.builder.add_numbers(record.label or "", numbers, span, **details)


def _split(geometry: Geometry, groups: list[_Group]) -> list[_Group]:
    """Return the number lists of the single shapes: a list of boxes or points is several of them."""
    arity = {"box": 4, "point": 2}.get(geometry)
    if arity and len(groups) > 1 and all(len(group) == arity for group in groups):
        return groups
    return [[value for group in groups for value in group]]


def _unescape(raw: str) -> str:
    """Decode JSON escapes; a broken escape stays as written."""
    if "\\" not in raw:
        return raw
    try:
        quoted = raw.replace("\\'", "'")  # Python's way of quoting, which JSON does not know
        value = str(json.loads(f'"{quoted}"', strict=False))
    except ValueError:
        return raw
    # A lone surrogate cannot be written to any file.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
