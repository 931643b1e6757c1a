"""Parses objects from JSON as models write it: fenced, after prose, cut off, with numbers as strings.

A tokeniser processes the text in one pass. No JSON library is used, since most faulty answers are not valid JSON.
It brings the fields of each `{...}` record in the order of the text; `record.py` says what they mean.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Mapping

from coord_codec.fields import ATTRIBUTES
from coord_eval.parse.builder import COORD, COORD_PATTERN, AnswerBuilder, Stated
from coord_eval.parse.escapes import FILLER
from coord_eval.parse.keys import ACTIONS, TEXTS, WEAK_LABELS, Keys
from coord_eval.parse.numbers import NUMBER, PERCENT, Value, read_value
from coord_eval.parse.orders import ORDER_KEYS, key_of_prose, stated_order
from coord_eval.parse.record import MAX_NUMBERS, Field, FieldRecord, add_record, as_corners, box_of_sides, sides_of
from coord_eval.parse.refusals import NOTHING, is_nothing, says_nothing
from coord_eval.parse.words import read_label

# A string ends at its quote, else at the end of the line: it always matches, so it never backtracks.
_LEXEME = re.compile(
    r'"(?P<double>(?:[^"\\\n]|\\.?)*)(?:"|(?=\n)|\Z)'
    r"|'(?P<single>(?:[^'\\\n]|\\.?)*)(?:'|(?=\n)|\Z)"
    r"|“(?P<curly>[^”\n]*)”?"
    rf"|(?P<coord>{COORD_PATTERN})"
    rf"|(?P<number>{NUMBER})(?P<percent>{PERCENT})?"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<mark>[{}\[\]:,;()\uff3b\uff3d\uff1a\uff0c])"
)
_MARKS = str.maketrans("\uff3b\uff3d\uff1a\uff0c();", "[]:,[],")
"""Full-width punctuation, as models write it outside strings after a Chinese prompt, and Python's tuples."""
# A record of a label and four numbers or tokens, as nearly all records of a good model are, is matched in one step.
_TOKEN = rf"\s*({COORD_PATTERN})\s*"
_SIDE = r"\s*(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*"
_FOUR = rf'"(?P<key>[^"\\\n]{{1,32}})"\s*:\s*\[(?:{",".join([_SIDE] * 4)}|{",".join([_TOKEN] * 4)})\]'
_LABEL = r'"([^"\\\n]{1,32})"\s*:\s*"([^"\\\n{}<]*)"'
FAULTLESS = re.compile(rf"\{{\s*(?:{_LABEL}\s*,\s*)?{_FOUR}\s*(?:,\s*{_LABEL}\s*)?\}}")
_MAX_OPEN = 1000
"""Maximum number of open records; a deeper one closes the outermost. Real answers have up to three."""
_IN_STRING = re.compile(
    rf"(?P<coord>{COORD_PATTERN})|(?P<number>{NUMBER})(?P<percent>{PERCENT})?|(?P<cut>[\[\](){{}};])"
)
_FORMAT_KEY = re.compile(r"(?:format|mode|order|type|convention)$", re.IGNORECASE)
"""Keys whose value may be the order of the boxes beside them."""
_INNER_QUOTES = re.compile(r"""(?=[^\S\n]*[^\s,:}\]])(?:[^"\n{}]|"(?!\s*[,:}\]\n])){1,200}"(?=\s*[,}\]])""")
"""The rest of a string with quotes inside that are not escaped: `"the "red" car"`."""
_NEXT_KEY = re.compile(r'\w{1,32}"\s*:')
_COLON = re.compile(r"\s{0,9}:")
_STRAY_QUOTE = re.compile(r"[\s{}\[\]:,;()]*[{}\[\]:,;()][\s{}\[\]:,;()]*|\s*[\[{:,\]}].*[0-9].*", re.DOTALL)
"""What stands between two strings: a quote before it is missing, so that it looks like a string."""
_OPEN_KEY = re.compile(r"(\w[\w -]{0,31}?)\s*(?=:\s*(?:[\[({0-9]|$)|[^\w\s]\W{0,9}[0-9]{1,9}\s*,)")
"""A key without its closing quote, and the beginning of its value."""
_END_OF_ANSWER = re.compile(r"\s*(?:\Z|\}\s*\Z|```)")
_NO_RECORDS = re.compile(r"\[\]+[\]}]*$")
"""The end of a list without records, within others."""
_NUMBERED_KEY = re.compile("[0-9]$")
_BARE_QUOTE = re.compile(r'(?<!\\)"')
_NAME_BEFORE = re.compile(r"(\w+)[ \t]*[:=][ \t]*$")
_WORDS_BEFORE = re.compile(r"[^{}\[\]]*(?<=[:=>\u2192])\s?$")
"""Words before a record on its line."""
_WORDS = re.compile(r"[^\W\d_]{3}|^[^\W\d_]+$")
ROWS = re.compile(
    rf"""\[\s*\[?\s*(?:(?:"[^"\n\[\]]{{1,80}}"|'[^'\n\[\]]{{1,80}}')\s*,\s*\[?\s*{NUMBER}\s*,\s*{NUMBER}\s*,"""
    rf"""|{NUMBER}(?:\s*,\s*{NUMBER}){{3}}\s*,\s*["'][^\W\d_])"""
)
"""The beginning of a list of rows with a label: `[["cat", 1, 2, 3, 4]]`."""
_NUMERIC = ("shape", "side", "corner", "centre", "size")


class JsonParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, units: Mapping[str, tuple[int, float]], keys: Keys) -> None:
        self.builder, self.units, self.keys = builder, units, keys
        self.stack: deque[_Open] = deque()
        self.order_key = ""
        self.texts: dict[tuple[int, str], list[tuple[int, dict[str, str]]]] = {}

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        position, self.text = begin, text
        opening = text.find("{", begin)
        self.order_key = key_of_prose(text[begin:opening]) if opening > begin + 16 else ""
        faultless, lexeme, find = FAULTLESS.match, _LEXEME.search, text.find
        while True:
            if not self.stack:
                # Quotes and brackets outside records are prose: go on with the next record.
                opening = find("{", position)
                rows = ROWS.search(text, position, opening if opening >= 0 else len(text))
                if rows is not None:  # [["cat", 1, 2, 3, 4]]
                    self.stack.append(_Open(FieldRecord(rows.start()), len(self.builder.objects), bare=True))
                    self.stack[-1].open_field("objects")
                    position = rows.start()
                    continue
                self._drop_stray(text, position, len(text) if opening < 0 else opening)
                if opening < 0:
                    break
                position = opening
                name = _NAME_BEFORE.search(text, max(begin, opening - 40), opening)
                if name is not None and self.keys.fact(name[1]) == "unit":  # `origin: {x: 1, y: 2}` of YAML
                    position = max(find("}", opening), opening + 1)
                    numbers = " ".join(re.findall(NUMBER, text[opening:position]))
                    self.builder.units.append((-1, len(text) + 1, {name[1]: numbers}))
                    continue
            match = faultless(text, position) if not self.order_key and text.startswith("{", position) else None
            if match is not None and self._add_faultless(match):
                position = match.end()
                continue
            match = lexeme(text, position)
            if match is None:
                break
            position = self._feed(match)
        self._finish(len(text))
        if not self.builder.objects and not self.builder.dropped:
            compact = re.sub(r"\s+|```(?:json)?|</?\w{1,20}>", "", text[begin:])
            self.builder.explicit_empty |= _NO_RECORDS.search(compact) is not None or is_nothing(text[begin:])

    def _add_faultless(self, match: re.Match[str]) -> bool:
        """Add a record of a label and a box; return False if it is not as simple as that."""
        name, label, key, x1, y1, x2, y2, a, b, c, d, last_name, last_label = match.groups()
        row, builder = self.keys.row_of_plain(name or last_name, key), self.builder
        if row is None or (name is not None and last_name is not None):
            return False
        label = last_label if label is None else label
        if "type" in (name, last_name) and ACTIONS.fullmatch(label):
            return False
        start_index = builder.start_count
        stated = Stated(label, match.span(), start_index)
        if x1 is not None:
            builder.add_numbers(stated, (float(x1), float(y1), float(x2), float(y2)), "box", row.order, row.scale)
        else:
            values = [self.units.get(token) for token in (a, b, c, d)]
            if None in values or row.order != "xyxy":
                return False
            bins, unit = zip(*values)  # noqa: B905
            builder.add(stated, bins, unit, builder.coord_count)
            builder.coord_count += 4
        builder.start_count = start_index + 1
        if self.stack:
            self.stack[-1].record.has_children = True
            self._place(self.stack[-1].key, *match.span())
        return True

    def _place(self, key: str, start: int, end: int, is_listed: bool = False) -> None:
        """Note that a record below a key such as `frame_1`, or in a list `frames`, is in that image."""
        if _NUMBERED_KEY.search(key) and self.keys.fact(key) == "place":
            self.builder.places.append((start, end, key))
        elif is_listed and self.keys.fact(key.removesuffix("s")) == "place":
            self.builder.places.append((start, end, f"{key} {start}"))

    def _drop_stray(self, text: str, start: int, end: int) -> None:
        """Count and drop coordinate tokens outside any record."""
        if end - start < 9:
            return
        tokens = [m for m in COORD.finditer(text, start, end) if m.group() in self.units]
        if tokens:
            self.builder.coord_count += len(tokens)
            self.builder.drop("stray_coordinates", tokens[0].start(), tokens[-1].end())

    def _feed(self, match: re.Match[str]) -> int:
        """Read one lexeme and return where the next one begins."""
        kind, word = match.lastgroup, match[0]
        if kind == "mark":
            self._mark(match)
            return match.end()
        record = self.stack[-1]
        if kind in ("double", "single", "curly"):
            return self._quoted(record, match, kind)
        if kind == "coord":
            self._coordinate(record, word)
        elif kind in ("number", "percent"):
            self._number(record, match, match.span())
        elif record.field is None:
            record.pending, record.key_end = word, -1
        elif self.keys[record.field.key].role != "label":
            record.field.invalid, record.field.text = True, word
        elif word.lower() in NOTHING:
            record.field.invalid = True
        else:
            self._string(record, word)  # a value without quotes
        return match.end()

    def _quoted(self, record: _Open, match: re.Match[str], kind: str) -> int:
        """Read a string, of whose quotes one may be missing, and return where the next lexeme begins."""
        text, end, raw, item = match.string, match.end(), match[kind], record.field
        if self._is_stray(match, item, raw):
            return match.start() + 1
        is_key = _COLON.match(text, end) is not None
        if item is None and not is_key and (open_key := _OPEN_KEY.match(raw)):
            record.pending = open_key[1]
            return match.start(kind) + open_key.end()
        if item is not None and is_key and not record.depth:
            record.close_field()  # the comma before a key is missing
            item = None
        if kind == "double" and item is not None and not record.depth and self.keys[item.key].role == "label":
            kept = raw.rstrip(" \t,{}[]")
            if len(kept) < len(raw.rstrip()) and _NEXT_KEY.match(text, end):
                self._string(record, kept)  # the quote that ends the value is missing
                return match.start(kind) + len(kept)
            rest = _INNER_QUOTES.match(text, end)
            if rest is not None and match[0].endswith('"'):
                raw, end = _BARE_QUOTE.sub(r'\\"', f'{raw}"{rest[0][:-1]}'), rest.end()
        self._string(record, raw)
        return end

    def _is_stray(self, match: re.Match[str], item: Field | None, raw: str) -> bool:
        """Return whether the quote before a string belongs to none, since one before it is too many or missing."""
        if match.lastgroup == "single" and not match[0].endswith("'", 1):
            return True
        role = self.keys[item.key].role if item is not None else ""
        if role == "labels" or (role == "label" and item is not None and item.text is None and not item.texts):
            return False
        return _STRAY_QUOTE.fullmatch(raw) is not None or (role not in ("", "label") and _is_cut(match, raw))

    def _mark(self, match: re.Match[str]) -> None:
        mark = match[0].translate(_MARKS)
        if mark == "{":
            self._open_record(match.start())
            return
        record = self.stack[-1]
        if mark == "}":
            self._close(match.end())
        elif mark == "[":
            if record.field is None:  # a colon, or the whole key, is missing
                record.open_field(record.pending or "")
            record.open_list()
        elif mark == "]":
            if not record.depth and record.record.fields and _END_OF_ANSWER.match(match.string, match.end()):
                self._close(match.start())  # the brace before the end of the list is missing
            else:
                record.close_list()
                if record.bare and not record.depth:
                    self._close(match.end())
        elif mark == "," and not record.depth:
            record.close_field()
        elif mark == ":" and not record.depth and record.pending is not None:
            if record.unread is not None and record.unread[1] == record.key_end:
                record.unread = None  # the number was a key without quotes
            record.open_field(record.pending)

    def _open_record(self, start: int) -> None:
        name = ""
        if self.stack and self.stack[-1].field is None and self.stack[-1].record.fields:
            self._close(start)  # the brace before it is missing
        if self.stack:
            self.stack[-1].record.has_children = True
            name = self.keys.label_of(self.stack[-1].key)
        elif found := _WORDS_BEFORE.match(self.text[max(self.text.rfind("\n", 0, start) + 1, start - 80) : start]):
            label = read_label(found[0]).text  # dog: {"x1": 1, ...}
            name = label if self.keys.label_of(label) and not self.keys.fact(label) else ""
        listed = bool(self.stack) and self.stack[-1].depth > 0
        self.stack.append(_Open(FieldRecord(start, name, listed=listed), len(self.builder.objects)))
        if len(self.stack) > _MAX_OPEN:
            self._emit(self.stack.popleft(), None, start, partial=True)

    def _close(self, end: int) -> None:
        """Close the innermost record."""
        record = self.stack.pop()
        self._emit(record, self.stack[-1] if self.stack else None, end, partial=False)

    def _string(self, record: _Open, raw: str) -> None:
        value, item = _unescape(raw), record.field
        if item is None:
            record.pending, record.key_end = value, -1
            self._count(value)
            return
        role = self.keys[item.key].role
        if (role == "other" or item.key == "type") and _FORMAT_KEY.search(item.key):
            order = value.lower() if value.lower() in ORDER_KEYS else stated_order(value)
            if order or "xyxy" in value:
                self.order_key = ORDER_KEYS.get(order, "")
                record.order = order
                return
        is_row = role in ("list", "other") or (role == "shape" and record.depth > 1)
        if record.depth and is_row and _WORDS.search(value) and not COORD.search(value):
            item.words = item.words or []
            place = len(item.groups[-1]) if item.groups else 0
            item.words.append((max(len(item.groups) - 1, 0), place, value))
            return
        if role == "labels" or (role in ("label", "score") and record.depth):
            if len(item.texts) < MAX_NUMBERS:
                item.texts.append(value)
        elif (
            not record.depth
            and item.text is None
            and (role in ("label", "score", "other") or item.key == "target" or self.keys.fact(item.key))
        ):
            item.text = value
        elif role in _NUMERIC:
            self._numbers_in(record, item, value)
            return
        self._count(value)

    def _count(self, value: str) -> None:
        """Count tokens outside shapes, so that indices of coordinate tokens stay correct."""
        if "<" in value:
            self.builder.coord_count += sum(part in self.units for part in COORD.findall(value))

    def _numbers_in(self, record: _Open, item: Field, value: str) -> None:
        """Read the numbers of a string."""
        before = record.count
        for part in _IN_STRING.finditer(value):
            if part.lastgroup == "cut":
                if item.groups and item.groups[-1] and record.count > before:
                    item.groups.append([])
            elif part.lastgroup == "coord":
                self._coordinate(record, part.group())
            else:
                self._number(record, part)
        if record.count == before:
            item.invalid = True
            item.text = value if says_nothing(value) else item.text

    def _coordinate(self, record: _Open, token: str) -> None:
        unit = self.units.get(token)
        if unit is not None:
            self.builder.coord_count += 1
        if record.field is None:
            return
        if unit is None:
            record.field.invalid = True
        else:
            record.add((unit[0], unit[1], self.builder.coord_count - 1))

    def _number(self, record: _Open, match: re.Match[str], span: tuple[int, int] = (0, 0)) -> None:
        digits, item = match["number"], record.field
        if item is None:  # a key without quotes, or no key has it
            record.pending, record.key_end = record.pending or digits, span[1]
            record.unread = (record.unread or span)[0], span[1]
            return
        value = read_value(digits, match["percent"] is not None)
        role = self.keys[item.key].role
        if role == "label" and not record.depth and item.text is None:
            item.text = digits
        elif role == "labels" and len(item.texts) < MAX_NUMBERS:
            item.texts.append(digits)
        elif math.isfinite(value[0]):
            record.add(value)
        else:
            item.invalid = True

    def _emit(self, closed: _Open, parent: _Open | None, end: int, partial: bool) -> None:
        """Turn a record into objects, or into the value of a key of its parent: `"box": {"x1": 1, ...}`."""
        record = closed.record
        if closed.unread is not None:
            self.builder.drop("unread_numbers", *closed.unread)
        if closed.field is not None and not partial:
            closed.close_field()
        if closed.order and record.has_children:
            self.builder.units.append((record.start, end, {"bbox_format": closed.order}))
        item = parent.field if parent is not None else None
        if parent is not None and item is not None and self._is_value(closed, parent, item, end, partial):
            return
        if self.order_key:
            for field in record.fields:
                row = self.keys[field.key].row
                if row is not None and row.order == "xyxy" and row.scale is None and row.kind == "box":
                    field.key = self.order_key
        before = len(self.builder.objects)
        add_record(record, self.builder, self.keys, end, partial)
        self._note_texts(record, parent, range(before, len(self.builder.objects)))
        if record.has_children and len(self.builder.objects) == before:
            self._name_inner(closed)

    def _note_texts(self, record: FieldRecord, parent: _Open | None, objects: range) -> None:
        """Note the texts of a record that may be the label of its objects, which have none of their own."""
        roles = [self.keys[item.key].role for item in record.fields if item.text or item.texts]
        texts = {item.key: item.text for item in record.fields if item.text and self.keys.may_label(item.key)}
        is_named = "label" in roles or "labels" in roles
        texts = {} if is_named else {key: text for key, text in texts.items() if key in TEXTS or _may_name(text)}
        listed = self.texts.setdefault((parent.record.start, parent.key) if parent else (-1, ""), [])
        listed += [(index, texts) for index in objects]

    def _name_by_texts(self) -> None:
        """Give the objects of each list, whose records have one more text each, that text as their label."""
        names = Counter(start for start, key in self.texts if self.keys.label_of(key))
        for (start, key), listed in self.texts.items():
            if not listed or (names[start] > 1 and self.keys.label_of(key)):  # {"cat": [{...}], "dog": [{...}]}
                continue
            keys = set.intersection(*(set(texts) for _, texts in listed))
            chosen = [key for key in TEXTS if key in keys] or [*keys][: len(keys) == 1]
            for index, texts in listed if chosen else ():
                self.builder.rename(index, texts[chosen[0]], "label_of_other_key")
            self.builder.label_keys += chosen[:1]

    def _is_value(self, closed: _Open, parent: _Open, item: Field, end: int, partial: bool) -> bool:
        """Give a record to the key of which it is the value; return False if it is an object of its own."""
        record, keys = closed.record, self.keys
        fields, role, fact = record.fields, keys[item.key].role, keys.fact(item.key)
        shapes = [field for field in fields if keys[field.key].role == "shape"]
        filled = [field for field in shapes if field.groups]
        loose = [field for field in fields if keys[field.key].role in ("other", "list") and field.groups]
        if role == "shape" and closed.order and len(loose) == 1 and not filled:
            loose[0].key, filled = item.key, loose  # "box": {"format": "xywh", "value": [...]}
        names = [field.text for field in fields if keys[field.key].role == "label" and field.text is not None]
        if not partial and not filled and not names:
            sides = sides_of(fields, keys)
            order, numbers = box_of_sides(sides)
            if sides and (role in ("centre", "size") or (role == "shape" and not numbers)):
                for field in fields if role == "centre" else ():
                    field.key = {"x": "cx", "y": "cy"}.get("".join(keys[field.key].sides), field.key)
                parent.record.fields += fields
                return True
            if role in ("shape", "corner") and numbers:  # "box": {"x1": 1, ...}
                row = keys[item.key].row
                is_plain = row is None or (row.scale is None and not keys[item.key].unit)
                if (
                    role == "shape"
                    and order in ("xywh", "cxcywh")
                    and is_plain
                    and (not item.values or row is keys[ORDER_KEYS[order]].row)
                ):
                    item.key = ORDER_KEYS[order]
                else:
                    if row is not None and row.order == "yxyx" and order != "xy":
                        item.key = "bbox"
                    numbers = numbers if order in ("xy", "xyxy") else as_corners(order, numbers)
                item.groups += [numbers, []]
                parent.record.fields += [field for field in fields if keys.fact(field.key)]
                return True
            if role == "score" or fact in ("turn", "unit"):  # "origin": {"x": 1, "y": 2}
                item.groups += [[value for field in fields for value in field.values]]
            if not parent.depth and not record.has_children:
                parent.record.fields += [field for field in fields if keys.fact(field.key)]
                if item.groups:
                    return True
        is_image = record.has_children and not names and not any(keys.fact(field.key) == "place" for field in fields)
        self._place(item.key, record.start, end, is_image)
        if names and not shapes and item.key.lower() in ATTRIBUTES and not parent.depth:
            parent.record.fields += fields  # "attributes": {"name": "cat"}
            return True
        texts = [field.text for field in fields if field.text and keys[field.key].role == "other"]
        if role == "label" and not names and len(texts) == 1:
            names = texts  # "label": {"text": "cat"}
        if names and role == "label" and not record.has_children:
            item.text = item.text or names[0]  # "category": {"id": 3, "name": "cat"}
            if not shapes:
                return True
        if role == "shape" and len(filled) == 1 and not (partial or parent.depth or any(names)):
            # "box": {"bbox": [1, 2, 3, 4], "unit": "px"}
            if closed.order and keys[filled[0].key].kind == "any":
                filled[0].key = "bbox"
            parent.record.fields.remove(item)
            parent.record.fields += fields
            return True
        return False

    def _name_inner(self, closed: _Open) -> None:
        """Give the label of a record to the objects below it that have none: `{"label": "cat", "data": {...}}`."""
        fields = [field for field in closed.record.fields if self.keys[field.key].role == "label" and field.text]
        names = [field.text for field in fields if field.key not in WEAK_LABELS and field.key != "name"]
        objects = self.builder.objects
        if len(objects) == closed.first + 1 and objects[-1].geometry != "point":  # no argument of a call
            names += [field.text for field in fields]
        for index in range(closed.first, len(objects)) if names else ():
            if not objects[index].desc:
                self.builder.rename(index, str(names[0]))

    def _finish(self, end: int) -> None:
        """Close the records that are open at the end of the text."""
        cut = bool(self.stack) and not _is_closed(self.text)
        self.builder.truncated |= cut
        while self.stack:
            self._emit(self.stack.pop(), self.stack[-1] if self.stack else None, end, partial=cut)
        self._name_by_texts()


class _Open:
    """A record that is not closed yet, and the value that is being read."""

    __slots__ = ("bare", "count", "depth", "field", "first", "key_end", "order", "pending", "record", "unread")

    def __init__(self, record: FieldRecord, first: int, bare: bool = False) -> None:
        self.record, self.first, self.order, self.bare = record, first, "", bare
        self.pending: str | None = None
        self.field: Field | None = None
        self.depth = self.count = 0
        self.unread: tuple[int, int] | None = None
        self.key_end = -1

    @property
    def key(self) -> str:
        """The key of the value, "" without one."""
        return self.field.key if self.field is not None else ""

    def open_field(self, key: str) -> None:
        """Begin the value of a key."""
        self.pending, self.field = None, Field(key)
        self.record.fields.append(self.field)

    def close_field(self) -> None:
        """End the value of a key."""
        if self.field is not None and self.field.groups:
            self.field.done = True
        self.pending = self.field = None

    def open_list(self) -> None:
        """Begin a list."""
        self.depth += 1
        item = self.field
        if item is not None and (not item.groups or item.groups[-1]):
            item.groups.append([])

    def close_list(self) -> None:
        """End a list: several lists of lists are several values."""
        self.depth = max(self.depth - 1, 0)
        item = self.field
        if item is not None:
            if item.groups and item.groups[-1]:
                item.groups.append([])
            elif self.depth and item.groups and (not item.breaks or item.breaks[-1] != len(item.groups)):
                item.breaks.append(len(item.groups))
        if not self.depth:
            self.close_field()

    def add(self, value: Value) -> None:
        """Add a number to the value."""
        item = self.field
        assert item is not None
        if not item.groups:
            item.groups.append([])
        self.count += 1
        if self.count <= MAX_NUMBERS:
            item.groups[-1].append(value)


def _may_name(text: str) -> bool:
    """Return whether a text may be a label: no clause and no name of an action."""
    return not (ACTIONS.fullmatch(text) or read_label(text, listed=True).refused)


def _is_cut(match: re.Match[str], raw: str) -> bool:
    """Return whether a value is no string of its own, since a quote before it is too many or missing."""
    if not any(map(str.isdigit, raw)):
        return False
    open_, closed = (sum(map(raw.count, marks)) for marks in ("[({", "])}"))
    return open_ != closed or (open_ > 0 and match.string[match.end() : match.end() + 1].isalnum())


def _is_closed(text: str) -> bool:
    """Return whether a text ends with the bracket with which it begins, and at most one bracket is missing."""
    first = next((mark for mark in text if mark in "[{"), "")
    last = text.rstrip().rstrip("`").rstrip()[-1:]
    return first + last in ("[]", "{}") and sum(map(text.count, "[{")) - sum(map(text.count, "]}")) <= 1


def _unescape(raw: str) -> str:
    """Decode JSON escapes; a broken escape stays as written."""
    if "\\" not in raw:
        return raw
    try:
        # an escape of Python that is invalid in JSON, and a quote that is none there
        quoted = _BARE_QUOTE.sub(r'\\"', raw.replace(FILLER, "").replace("\\'", "'"))
        value = str(json.loads(f'"{quoted}"', strict=False))
    except ValueError:
        return raw
    # A lone surrogate cannot be encoded in UTF-8.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
