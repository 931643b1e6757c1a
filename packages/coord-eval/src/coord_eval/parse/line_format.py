"""Parses objects from lines without marks: YAML, XML, calls and lists, by one rule that refuses what is unsure.

`line_values` finds fields and numbers, `line_words` reads the words beside them; here both become records.
A value with a name is a field of a record, which may go over several lines; other numbers take the words beside them on
their line as their label, else the line of words above (or below, in an answer that begins with numbers). Where these
words are a clause, name several things or are left over, the object is a drop; the only object of an answer, which
needs no label, is kept without one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise

from coord_codec.fields import meaning_of
from coord_eval.parse.builder import AnswerBuilder
from coord_eval.parse.keys import ACTIONS, COLOUR, Keys
from coord_eval.parse.line_values import Line, Values
from coord_eval.parse.line_words import FIELD, Beside, key_at_end, read_beside, without_fields, without_score
from coord_eval.parse.numbers import is_quad, number_of, proper_boxes
from coord_eval.parse.orders import ORDER_KEYS, stated_order
from coord_eval.parse.record import (
    Field,
    FieldRecord,
    add_record,
    box_of_sides,
    place_beside_size,
    sides_of,
    stated_units,
)
from coord_eval.parse.words import NO_LABEL, REFUSED, Label, read_label, without_common_box, without_instance_numbers

_CUT_TAG = re.compile(r"\s*<[^<>]{0,40}")
"""The beginning of a tag at the end of a text."""
_MARKER = re.compile(r"\s*(?:[-*\u2022\u30fb+]\s*(?<=[\s\u30fb])|\(?[0-9]{1,3}[.)]\s*|#+\s+)")
_NAMES_OF_EACH = re.compile(r",\s*(?:and\s+)?|\s+(?:and|&)\s+")
_NESTED = re.compile(r"^([ \t]{0,40})(?:[-*+\u2022]|[0-9]{1,3}[.)])[ \t].*(?=\n\1[ \t]{1,40}[^\s])", re.MULTILINE)
"""An item of a list that goes on in a deeper line, so that each item is a record of its own."""
_SECTION = re.compile(r"[^\W\d_]+\s?#?[0-9]{1,4}")
"""A line that names one of several images: `Image 1`, `Frame 2`."""
_EXAMPLE = re.compile(r"(?:\bsuch as|\be\.g\.|\bfor (?:example|instance)|\bin the form(?:at)?)\W*$", re.IGNORECASE)
"""What stands before numbers that are an example of how a box is written."""
_MORE = re.compile(
    r"[0-9]\s?(?:\u00b0|deg)|\b(?:angle|rotat\w+|tilt\w*|turned)\W{1,3}(?:(?:of|by|is)\s)?[0-9]"
    r"|\b(?:image|frame|page|photo|picture)\s?#?[0-9]|\b(?:deleted|hidden|ignored?|removed|invisible|not visible)\b",
    re.IGNORECASE,
)
"""Words of a sentence that may turn, place or delete its box."""


@dataclass(slots=True)
class _Entry:
    """A record that is being read: where it stands, its label and its fields, and the indent of its first line.

    One without fields is a heading.
    """

    start: int
    end: int
    label: Label = NO_LABEL
    fields: list[Field] = field(default_factory=list)
    call: bool = False
    loose: bool = False
    indent: int = 0


class LineParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, keys: Keys) -> None:
        self.builder, self.keys = builder, keys
        self.entries: list[_Entry] = []
        self.open: _Entry | None = None
        self.pending_key = ""
        self.sections: list[tuple[int, str]] = []

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        self.values = Values(text, begin, self.keys)
        self.text = self.values.text
        self.nested = {len(item[1]) for item in _NESTED.finditer(self.text, begin)}
        for line in self.values.lines():
            if line.items:
                self._read_values(line)
            else:
                self._read_words(line)
        for (start, name), (end, _) in pairwise([*self.sections, (len(self.text), "")]):
            self.builder.places.append((start, end, name))
        self._name_by_headings()
        self._emit()

    # Lines become records.

    def _read_words(self, line: Line) -> None:
        """Read a line of words alone: fields, the key of the lines below, or a heading."""
        words, score = without_score(line.words[0])
        words, fields = without_fields(words, self.keys, False)
        key, before = key_at_end(words, self.keys)
        end = line.start + len(line.words[0])
        if fields or score:
            self._extend(line, [*fields, *score], line.start, end)
        elif key and not before.strip():
            self.pending_key = key
        elif not self._is_field(line, words):
            label = read_label(words, listed=True)
            if not label.says:
                return
            self.open = None
            if _SECTION.fullmatch(label.text) and self.keys.fact(label.text) == "place":
                self.sections.append((line.start, label.text))
                return
            role = self.keys[label.text.lower()].role
            is_name = len(label.text.split()) <= 6 and ": " not in label.text and not ACTIONS.fullmatch(label.text)
            is_heading = is_name and role in ("other", "side", "label") and not stated_order(words)
            self.entries.append(_Entry(line.start, end, label if is_heading else REFUSED))

    def _read_values(self, line: Line) -> None:
        """Give the items of a line their keys and labels, and add them to records."""
        items, count = line.items, len(line.items)
        beside = [self._read_beside(line, i) for i in range(count + 1)]
        self.pending_key = ""
        labels = [found.label for found in beside]
        after = not labels[0].says and any(label.says for label in labels[1:])
        own = labels[1:] if after else labels[:-1]
        if self._is_running(line, beside, after):
            touches = [found.words[-1:].isalnum() and not after for found in beside]
            own = [read_label(beside[i].words, phrase=True) if touches[i] else REFUSED for i in range(count)]
        named = [label.text for label in own if label.text]
        if count > 1 and len(named) == 1 and len(_NAMES_OF_EACH.split(named[0])) == count:
            own = [REFUSED] * count  # cat and dog: [1, 2, 3, 4], [5, 6, 7, 8]
        behind: list[list[Field]] = [list(found.content) for found in beside[1:]]
        if not any(item.key == "score" for item in beside[0].fields):
            for i in range(1, count):  # cat: [1, 2, 3, 4] (0.5), dog: [5, 6, 7, 8] (0.2)
                behind[i - 1] += [item for item in beside[i].fields if item.key == "score"]
                beside[i].fields = [item for item in beside[i].fields if item.key != "score"]
        for i, item in enumerate(items):
            if _EXAMPLE.search(beside[i].words):
                self.builder.drop("ambiguous", item.start, item.end)
                continue
            if COLOUR.fullmatch(own[i].text):  # rgb: [1, 2, 3, 4]
                self.builder.drop("unread_numbers", item.start, item.end)
                continue
            label = Label(item.label) if item.label else NO_LABEL if item.call else own[i]
            self._add(line, i, label, beside[i].fields, after)
            if behind[i]:
                self._extend(line, behind[i], item.start, item.end)
        if beside[-1].fields and self.open is not None:
            last = line.words[-1].rstrip()
            is_number = last.strip(" ,;|").replace(".", "", 1).isdigit()  # cat: [1, 2, 3, 4] 0.95
            self._extend(line, beside[-1].fields, items[-1].start, items[-1].end + is_number * len(last))

    def _read_beside(self, line: Line, i: int) -> Beside:
        item = line.items[i] if i < len(line.items) else None
        default = self.pending_key if i == 0 else ""
        beside = read_beside(line.words[i], self.keys, item, i > 0, default)
        if item is not None and not item.marked and item.field.key == "point" and self.text[item.start] == "(":
            item.field.key = "point_2d"
        return beside

    def _is_running(self, line: Line, beside: list[Beside], after: bool) -> bool:
        """Return whether a line is a sentence: words stand between its items, or after them, that no mark divides."""
        marked = any(item.marked for item in line.items)
        between = [found.words.strip() for found in beside[1:-1] if found.label.says]
        if after:
            return not marked and not all(words.endswith((",", ";", "|", "and", "&")) for words in between)
        divided = all(words.lstrip(")]} ").startswith((",", ";", "|", "and ", "&", "<")) for words in between)
        return beside[-1].label.says or not (divided or marked)

    def _add(self, line: Line, i: int, label: Label, fields: list[Field], after: bool) -> None:
        """Add an item, and the fields before it, to the open record or to another one."""
        item, record = line.items[i], self.open
        start = item.start - (len(line.words[i].lstrip()) if label.text and not after else 0)
        is_begun = record is not None and i > 0 and record.start >= line.start
        if record is not None and label.says:
            if is_begun and not self._is_whole(record):
                record.label, label = REFUSED, NO_LABEL  # words are left over
            else:
                self.open = None
        elif record is not None and (item.call or record.call):
            self.open = None
        if record is not None and is_begun and not label.says:
            label = record.label
        self._extend(line, [*fields, item.field], start, item.end, label)
        assert self.open is not None
        self.open.call |= item.call
        self.open.loose |= item.loose and not item.field.key

    def _extend(self, line: Line, fields: list[Field], start: int, end: int, label: Label = NO_LABEL) -> None:
        """Add fields to the open record; one that has such a field already, or another item of a list, ends it."""
        record, stem, indent = self.open, self.keys.stem, line.indent
        if record is not None:
            stems = {stem(item.key or "coordinates") for item in record.fields} - {""}
            repeats = any(stem(item.key or "coordinates") in stems for item in fields)
            repeats |= any(item.groups and not item.key for item in fields) and self._is_whole(record)
            is_deepest = indent < record.indent or (indent == record.indent and indent in self.nested)
            is_another = is_deepest and record.end < line.start and _MARKER.match(line.words[0]) is not None
            if repeats or (is_another and self._is_whole(record)):
                record = None
        if record is None:
            record = self.open = _Entry(start, end, label, indent=indent)
            self.entries.append(record)
        record.fields += fields
        record.end = max(record.end, end)

    def _is_whole(self, record: _Entry) -> bool:
        """Return whether the fields of a record contain a shape, or the four sides of a box."""
        shapes = [item for item in record.fields if not item.key or self.keys[item.key].role == "shape"]
        return any(any(item.groups) for item in shapes) or bool(box_of_sides(sides_of(record.fields, self.keys))[0])

    def _is_named(self, record: _Entry) -> bool:
        return any(self.keys[item.key].role == "label" for item in record.fields)

    def _is_field(self, line: Line, words: str) -> bool:
        """Return whether words are a field of the open record that says nothing of its label: `confidence: high`."""
        match = FIELD.fullmatch(words)
        if self.open is None or match is None or not match[2].strip() or line.indent < self.open.indent:
            return False
        if self._is_named(self.open) and not self._is_whole(self.open) and " " not in match[1].strip():
            return True
        return meaning_of(match[1]) != ""

    # Records become objects.

    def _name_by_headings(self) -> None:
        """Give records without a label that of the line of words before them, or after them if numbers come first."""
        first = next((entry for entry in self.entries if entry.fields), None)
        if first is None:
            return
        before = self.entries[: self.entries.index(first)]
        below = all(entry.label.refused for entry in before)
        below &= not (first.label.says or self._is_named(first) or first.call)
        heading: _Entry | None = None
        for entry in reversed(self.entries) if below else self.entries:
            if not entry.fields:
                heading = entry
            elif heading and not heading.label.refused and not entry.label.says and not entry.call:
                entry.label = heading.label
                entry.start, entry.end = min(entry.start, heading.start), max(entry.end, heading.end)
                heading = replace(heading, start=len(self.text), end=0)  # the span of one object alone has it
        named = [entry for entry in self.entries if entry.fields and entry.label.text]
        labels = without_instance_numbers(without_common_box([entry.label.text for entry in named]))
        for entry, text in zip(named, labels, strict=True):
            if text != entry.label.text:
                entry.label = Label(text, entry.label.repair or "label_trimmed")

    def _emit(self) -> None:
        """Add the objects or drops of all records."""
        records = []
        for entry in self.entries:
            is_whole = self._is_whole(entry)
            if entry.fields and not is_whole:
                place_beside_size(entry.fields, self.keys)
                is_whole = self._is_whole(entry)
            if entry.fields:
                records.append((entry, is_whole))
        count = sum(is_whole for _, is_whole in records)
        for record, is_whole in records:
            span = record.start, record.end
            if not is_whole and not sides_of(record.fields, self.keys).keys() - {"w", "h"}:
                if units := stated_units(record.fields, self.keys):
                    self.builder.units.append((-1, len(self.text) + 1, units))  # Units: percent
                if self.builder.objects and self._is_named(record):
                    self.builder.drop("no_coordinates", *span)
            elif record.loose and sum(len(item.values) for item in record.fields) == 2:
                self.builder.drop("unrecognised", *span)
            elif record.label.refused and (
                (count > 1 and self.builder.need_labels) or record.loose or self._says_more(record)
            ):
                self.builder.drop("unread_label", *span)
            else:
                self._emit_record(record, is_whole)

    def _says_more(self, record: _Entry) -> bool:
        """Return whether words on the lines of a record may turn, place or delete its box."""
        start = self.text.rfind("\n", 0, record.start) + 1
        end = self.text.find("\n", record.end)
        return _MORE.search(self.text, start, len(self.text) if end < 0 else end) is not None

    def _emit_record(self, record: _Entry, is_whole: bool) -> None:
        start, end, builder, text_end = record.start, record.end, self.builder, self.values.end
        cut = end >= text_end and any(item.groups and not item.done for item in record.fields)
        cut |= not is_whole and _CUT_TAG.fullmatch(self.text, end, text_end) is not None
        builder.truncated |= cut
        for item in record.fields:
            item.key = item.key or self._key_of(item)
            role, kind = self.keys[item.key].role, self.keys[item.key].kind
            if self.values.order and kind in ("box", "any") and role == "shape":
                item.key = ORDER_KEYS[self.values.order]
            if item.key == "":
                builder.drop("unrecognised" if len(item.values) < 4 else "wrong_arity", start, end)
        fields = [item for item in record.fields if item.key]
        repairs = (record.label.repair,) if record.label.repair else ()
        if any(self.keys[item.key].role in ("shape", "side", "corner", "centre") for item in fields):
            add_record(FieldRecord(start, record.label.text, fields, repairs=repairs), builder, self.keys, end, cut)

    def _key_of(self, item: Field) -> str:
        """Return a key for numbers without a name; "" where their number tells no shape."""
        for group in item.groups if item.done and self.builder.geometry == "box" else ():
            numbers = list(map(number_of, group))
            boxes = len(group) % 4 == 0 and proper_boxes(numbers)
            if not (len(group) in (2, 4) or boxes or (len(group) == 8 and is_quad(numbers))):
                return ""
        return "region"
