"""Parses objects from JSON as models write it: fenced, after prose, cut off, with numbers as strings.

A tokeniser processes the text in one pass. No JSON library is used, since most faulty answers are not valid JSON.
Objects are the innermost `{...}` records with a label and a geometry.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Mapping

from coord_codec import GEOMETRIES, Geometry
from coord_codec.geometry import GeometryName
from coord_eval.parse.answer import COORD, COORD_PATTERN, AnswerBuilder
from coord_eval.parse.formats import REGISTRY, TextFormat
from coord_eval.parse.json_record import LABEL_KEYS, LISTS, MAX_NUMBERS, POLYGON_KEYS, SCORE_KEYS, SIDES, Record

_NUMBER = r"-?[0-9\uff10-\uff19]+(?:\.[0-9\uff10-\uff19]+)?(?:[eE][-+]?[0-9]+)?"
# A string ends at its quote, else at the end of the line: it always matches, so it never backtracks.
_LEXEME = re.compile(
    r'"(?P<double>(?:[^"\\\n]|\\.?)*)(?:"|(?=\n)|\Z)'
    r"|'(?P<single>(?:[^'\\\n]|\\.?)*)(?:'|(?=\n)|\Z)"
    r"|“(?P<curly>[^”\n]*)”?"
    rf"|(?P<coord>{COORD_PATTERN})"
    rf"|(?P<number>{_NUMBER})"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<mark>[{}\[\]:,\uff3b\uff3d\uff1a\uff0c])"
)
_FULL_WIDTH = str.maketrans("\uff3b\uff3d\uff1a\uff0c", "[]:,")
"""Full-width punctuation, as models write it outside strings after a Chinese prompt."""
_SHORT = r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?"
_NAMED = rf'"(?:{"|".join(sorted(LABEL_KEYS))})"\s*:\s*"([^"\\\n{{}}<]*)"'
# A faultless record, as nearly all records of a good model are, is matched in one step.
_FAULTLESS = re.compile(
    rf"\{{\s*(?:{_NAMED}\s*,\s*)?"
    rf'"(?:{"|".join(sorted(REGISTRY["json"].keys))})"\s*:\s*\['
    rf"\s*(?:(?P<numbers>{_SHORT}(?:\s*,\s*{_SHORT}){{3}})"
    rf"|(?P<tokens>{COORD_PATTERN}(?:\s*,\s*{COORD_PATTERN}){{3}}))\s*\]"
    rf"\s*(?:,\s*{_NAMED}\s*)?\}}"
)
_MAX_OPEN = 1000
"""Maximum number of open records; a deeper one closes the outermost. Real answers have up to three."""
_SHORT_NUMBER = re.compile(rf"\s*{_SHORT}\s*")
_IN_STRING = re.compile(rf"(?P<coord>{COORD_PATTERN})|(?P<number>{_NUMBER})")


class JsonParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(
        self,
        builder: AnswerBuilder,
        units: Mapping[str, tuple[int, float]],
        row: TextFormat | None = None,
        kind: Geometry = GEOMETRIES["box"],
    ) -> None:
        self.builder = builder
        self.units = units
        self.stack: deque[Record] = deque()
        rows = [*REGISTRY.values(), *([row] if row else [])]
        self.formats = {key: row for row in rows for key in row.keys}
        # Keys of other geometries count only if theirs is asked for: else they may have another meaning.
        self.shapes: dict[str, GeometryName] = dict.fromkeys(POLYGON_KEYS, "polygon")
        self.shapes |= {key: kind.name for key in kind.keys if key not in self.formats}
        # Other spellings of the keys of boxes; a class may be named "Box" or "Region", none "BBox".
        written = {key.lower(): row for key, row in self.formats.items()}
        self.spellings = {key: row for key, row in written.items() if "box" in key and key not in ("box", "boxes")}
        self.plain = all(self.formats[key] is REGISTRY["json"] for key in REGISTRY["json"].keys)

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        position = begin
        while True:
            if not self.stack:
                # Quotes and brackets outside records are prose: go on with the next record.
                opening = text.find("{", position)
                self._drop_stray(text, position, len(text) if opening < 0 else opening)
                if opening < 0:
                    break
                position = opening
            if (
                self.plain
                and text.startswith("{", position)
                and (faultless := _FAULTLESS.match(text, position))
                and self._add_faultless(faultless)
            ):
                position = faultless.end()
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

    def _add_faultless(self, match: re.Match[str]) -> bool:
        """Add a faultless record; return False if one of its tokens is not on the grid."""
        builder = self.builder
        span, start_index = match.span(), builder.start_count
        desc = next((label for label in (match[1], match[4]) if label is not None), self._parent_key())
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

    def _drop_stray(self, text: str, start: int, end: int) -> None:
        """Count and drop coordinate tokens outside any record."""
        tokens = [m for m in COORD.finditer(text, start, end) if m.group() in self.units]
        if tokens:
            self.builder.coord_count += len(tokens)
            self.builder.drop("stray_coordinates", tokens[0].start(), tokens[-1].end())

    def _feed(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if kind == "mark":
            self._mark(match)
            return
        record = self.stack[-1]
        if kind in ("double", "single", "curly"):
            self._string(record, match.group(kind))
        elif kind == "coord":
            self._coordinate(record, match.group())
        elif kind == "number":
            self._number(record, match.group())
        elif record.reads_geometry:
            record.invalid = True  # null, NaN, Infinity, None
        elif record.key is None:
            record.pending = match.group()

    def _mark(self, match: re.Match[str]) -> None:
        mark = match.group().translate(_FULL_WIDTH)
        if mark == "{":
            if self.stack:
                self.stack[-1].has_children = True
            self.stack.append(Record(match.start(), name=self._parent_key()))
            if len(self.stack) > _MAX_OPEN:
                self._emit(self.stack.popleft(), match.start(), partial=True)
            return
        record = self.stack[-1]
        if mark == "}":
            self.stack.pop()
            self._emit(record, match.end(), partial=False)
        elif mark == ":" and record.depth == 0 and record.pending is not None:
            record.key, record.pending = record.pending, None
            self._key(record, str(record.key))
        elif mark == "[":
            record.depth += 1
            if record.reads_geometry and (not record.groups or record.groups[-1]):
                record.groups.append([])
            elif record.key is not None and record.key not in SIDES and not record.reads_geometry:
                groups = record.named.setdefault(record.key, [[]])
                if groups[-1]:
                    groups.append([])
        elif mark == "]":
            record.depth = max(record.depth - 1, 0)
            if record.depth == 0:
                self._close_value(record)
        elif mark == "," and record.depth == 0:
            self._close_value(record)

    def _parent_key(self) -> str:
        """Return the open key of the innermost record as the label of its value, "" if the key has another meaning."""
        record = self.stack[-1] if self.stack else None
        key = record.key if record else None
        is_no_label = key is None or key in LISTS or key in self.formats or key in LABEL_KEYS or key in self.shapes
        return "" if is_no_label else str(key)

    def _key(self, record: Record, key: str) -> None:
        row = self.formats.get(key) or self.spellings.get(key.lower())
        is_geometry = row is not None or key in self.shapes
        if is_geometry and record.geometry is None:
            record.geometry = self.shapes[key] if row is None else "point" if row.order == "xy" else "box"
            record.format = row
        elif is_geometry and record.done:
            record.repair("second_geometry")  # the first one is kept
        record.reads_geometry = is_geometry and not record.done

    def _close_value(self, record: Record) -> None:
        if record.reads_geometry and record.groups:
            record.done = True
        record.key = record.pending = None
        record.reads_geometry = False

    def _string(self, record: Record, raw: str) -> None:
        value, key = _unescape(raw), (record.key or "").lower()
        if record.key is None:
            record.pending = value
        elif key in LABEL_KEYS and record.label is None:
            record.label = value
        elif record.key == "labels" and len(record.labels) < MAX_NUMBERS:
            record.labels.append(value)
        elif key in SCORE_KEYS:
            self._score(record, value)
        elif key in SIDES and _SHORT_NUMBER.fullmatch(value):
            record.sides.setdefault(SIDES[key], float(value))
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
            # Tokens in other strings are counted, so that indices of coordinate tokens stay correct.
            self.builder.coord_count += sum(part in self.units for part in COORD.findall(value))

    def _coordinate(self, record: Record, token: str) -> None:
        unit = self.units.get(token)
        if unit is not None:
            self.builder.coord_count += 1
        if not record.reads_geometry:
            return
        if unit is None:
            record.invalid = True
            return
        record.add((unit[0], unit[1], self.builder.coord_count - 1))

    def _number(self, record: Record, digits: str) -> None:
        number, key = float(digits), (record.key or "").lower()
        if not record.reads_geometry:
            record.other_numbers += 1
            if record.depth and record.key in record.named and record.other_numbers <= MAX_NUMBERS:
                record.named[record.key][-1].append((number, None, None))
            elif key in SIDES and not record.depth:
                record.sides.setdefault(SIDES[key], number)
            elif key in SCORE_KEYS:
                self._score(record, digits)
        elif math.isfinite(number):
            record.add((number, None, None))
        else:
            record.invalid = True

    def _score(self, record: Record, written: str) -> None:
        """Record a confidence, given as a share or in per cent."""
        digits, percent = written.strip().removesuffix("%"), written.strip().endswith("%")
        if record.score is None and _SHORT_NUMBER.fullmatch(digits):
            value = float(digits) / (100 if percent or float(digits) > 1 else 1)
            record.score = value if 0 <= value <= 1 else None

    def _emit(self, record: Record, end: int, partial: bool) -> None:
        record.emit(self.builder, self.stack[-1] if self.stack else None, end, partial)

    def _finish(self, end: int) -> None:
        """Close the records that are open at the end of the text."""
        if self.stack:
            self.builder.truncated = True
        while self.stack:
            self._emit(self.stack.pop(), end, partial=True)


def _unescape(raw: str) -> str:
    """Decode JSON escapes; a broken escape stays as written."""
    if "\\" not in raw:
        return raw
    try:
        quoted = raw.replace("\\'", "'")  # an escape of Python that is invalid in JSON
        value = str(json.loads(f'"{quoted}"', strict=False))
    except ValueError:
        return raw
    # A lone surrogate cannot be encoded in UTF-8.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
