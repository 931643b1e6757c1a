"""Parses objects from text without marks: YAML, XML, calls of agents, lists and sentences.

The words of a line around numbers are their label: where a line holds both, they belong together. Whether labels stand
before or after the numbers is decided over the whole answer. Named values of several lines are the fields of a record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from coord_eval.parse.answer import Geometry
from coord_eval.parse.builder import AnswerBuilder, Scale, shape_order
from coord_eval.parse.labels import clean_label, is_heading, is_phrase, phrase_of_caption, without_instance_numbers
from coord_eval.parse.line_items import ORDER_KEYS, Item, find_items, mark_certain, stated_order
from coord_eval.parse.numbers import NUMBER, is_quad, proper_boxes, split_shapes
from coord_eval.parse.record import (
    SCORE_KEYS,
    WEAK_LABELS,
    Field,
    Keys,
    Record,
    Value,
    add_record,
    box_of_sides,
    sides_of,
)
from coord_eval.parse.worded_boxes import without_percent

_WIDTHS = str.maketrans("\uff08\uff09\uff3b\uff3d\u3010\u3011\uff0c\uff1a\uff1b\uff1d", "()[][],:;=")
"""Full-width punctuation, after a Chinese prompt; one character for one, so that positions stay."""
_JOINT = re.compile(
    r"\s*[\"'*`]*\s*(?:(?:in|at)\s+(?:the\s+)?(?:top|upper|bottom|lower)[\s-](?:left|right)(?:\s+corner)?\s*)?(?:,|;|to|through|->|[-\u2013\u2014\u2192~]|\u81f3|\u5230|and"
    r"|(?:and\s+)?(?:ends?|extends?|runs?|goes|stretches|continues)\s+(?:at|to|in))?\s*[\"'*`]*\s*",
    re.IGNORECASE,
)
_CORNERS_FOLLOW = re.compile(r"\b(?:from|between|within|corners?|spans?|extends?|starts?|begins?)\b", re.IGNORECASE)
_CORNER = re.compile(
    r"[\s\"'*_`(-]*\b(?:the\s+)?(?P<first>top|upper|bottom|lower|left|right)[\s_-]*(?P<second>left|right|top|bottom)?"
    r"(?:(?:\s+(?:corner|point|coordinates?))?\s+of\s+(?:the\s+)?(?!(?:image|it|picture|box|bounding|object)\b)"
    r"(?P<owner>[^,;:()\n]{1,40}?))?"
    r"(?:\s+(?:corner|point|coordinates?|is|are|at|about|around|approximately|roughly|located|of|it|lies))*[\s\"'*_`:=(-]*$"
    r"|(?P<chinese>[\u5de6\u53f3][\u4e0a\u4e0b])\u89d2?[\s:=(]*$"
    r"|\(?\s*(?P<near>x_?(?:1|min|0)\s*,\s*y_?(?:1|min|0))\s*\)?\s*[=:]?\s*$"
    r"|\(?\s*(?P<far>x_?(?:2|max)\s*,\s*y_?(?:2|max))\s*\)?\s*[=:]?\s*$",
    re.IGNORECASE,
)
_SEGMENT = re.compile(r"[^,;|]+")
_MARKER = re.compile(r"\s*(?:[-*\u2022\u30fb+]\s*(?<=[\s\u30fb])|\(?[0-9]{1,3}[.)]\s*|#+\s+)")
_LIST_NUMBER = re.compile(r"^\s*(?:[-*\u2022\u30fb]\s*|\(?[0-9]{1,3}[.)]\s*)+")
_FIELD = re.compile(r"[\s\"'*_`({-]*([^\W\d][\w \-]{0,28}?)[\"'*_`]*\s*[:=]\s*(.*)", re.DOTALL)
_SCORE_NAMES = "|".join(key for key in SCORE_KEYS if key.isascii())
_SCORED = re.compile(
    rf"[(\[,;|]?\s*(?:with\s+)?(?:a\s+)?(?:{_SCORE_NAMES})\s*(?:of\s*)?[:=]?\s*({NUMBER})\s*(%?)\s*[)\]]?",
    re.IGNORECASE,
)
_BARE_SCORE = re.compile(r"\(\s*(0?\.[0-9]{1,9}|1\.0{1,9}|[0-9]{1,3}(?:\.[0-9]{1,9})?(?=\s*%))\s*(%?)\s*\)")
_LAST_SCORE = re.compile(
    r"(?<=[^\W\d_])[\s:,]+(0?\.[0-9]{2,9}|1\.00{1,8}|[0-9]{1,3}(?:\.[0-9]{1,3})?(?=\s?%))\s?(%?)\s*[:,]?\s*$"
)
"""A confidence after a label: `person 0.98`."""
_KEY_NOISE = re.compile(r"^[\s\"'*_`({>|.-]+|[\s\"'*_`:=)-]+$|\bthe\b", re.IGNORECASE)
_SYMBOLS = re.compile(r"[\[(]?\s*[xywhc]\w{0,9}(?:\s*,\s*[xywhc]\w{0,9}){3}\s*[\])]?\s*[=:]?\s*$", re.IGNORECASE)
"""The names of four numbers, before them."""
_MAX_WORDS = 400
"""Number of characters beside numbers that are searched for their label, for linear time."""
_PIXELS = re.compile(r"(?<=[0-9])\s?px\b")
_CORNER_AXES = re.compile(
    rf"((?:left|right|top|bottom)(?:\s+corner)?\b[^\n0-9=]{{0,20}}?)\bx\s{{0,3}}=\s{{0,3}}({NUMBER})"
    rf"\s{{0,3}},?\s{{0,3}}(?:and\s)?y\s{{0,3}}=\s{{0,3}}({NUMBER})",
    re.IGNORECASE,
)
"""A corner as `x = 1, y = 2`."""
_CUT_TAG = re.compile(r"\s*<[^<>]{0,20}")
"""The beginning of a tag at the end of a text."""
_RUNNING = re.compile(r"[^:;=|0-9]*")
"""Words between two objects of one sentence."""
_SENTENCE = re.compile(r"[^\W\d]\s+[^\W\d]")
_FAR = re.compile(r"\b(?:to|ends?|until|through)\b", re.IGNORECASE)
_CONTENT = re.compile(r"\s*/?>\s*(?:<\w{1,20}>)?\s*([^<>]{1,80}?)\s*</")
"""The text of an element, after its attributes."""
_POSSESSIVE = re.compile(r"^\s*(?:the\s+)?(.*)['\u2019]s\s*$", re.IGNORECASE | re.DOTALL)
_HOCR = re.compile(
    r"(?:\bclass=[\"']ocrx?_\w{1,20}[\"']\s[^<>\"']{0,20}(?:id=[\"']\w{1,40}[\"']\s)?)?\btitle=([\"'])[^\"'<>]{0,200}?\bbbox((?:\s+[0-9]+){4})[^<>]{0,200}?\1"
)
"""A box among the properties of an element, as OCR writes it."""
_SHAPES = ("shape", "corner", "centre", "size")


@dataclass(slots=True)
class _Line:
    """One line: its words and items in turn; `words[i]` stands before `items[i]`, the last words after all of them."""

    start: int
    words: list[str]
    items: list[Item] = field(default_factory=list)
    end: int = 0


@dataclass(slots=True)
class _Entry:
    """What one or more lines bring: the fields of a record, items with one label, or words alone."""

    start: int
    end: int
    label: str = ""
    trimmed: bool = False
    record: Record | None = None
    items: list[Item] = field(default_factory=list)
    score: float | None = None
    call: bool = False


class LineParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, keys: Keys, set_labels_follow: bool | None = None) -> None:
        self.builder, self.keys = builder, keys
        self.set_labels_follow = set_labels_follow
        self.labels_follow: bool | None = None
        self.entries: list[_Entry] = []
        self.open: _Entry | None = None
        self.indent = 0
        self.bullets_only = True
        self.pending_key = ""
        self.order = ""

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        self.text = _PIXELS.sub(_blank, text.translate(_WIDTHS))
        if (in_hundredths := without_percent(self.text, begin)) is not None:
            self.text = in_hundredths
            self.builder.scale = Scale(100.0, 100.0)
        if "=" in self.text:
            self.text = _CORNER_AXES.sub(_as_pair, self.text)
        if "bbox " in self.text:
            self.text = _HOCR.sub(lambda found: f"bbox='{found[2]}'".ljust(len(found[0])), self.text)
        self.text_end = len(text.rstrip(", \t\n"))
        self.order = stated_order(self.text[begin:])
        lines = self._lines(begin)
        self.labels_follow = self._labels_follow(lines)
        after = bool(self.set_labels_follow if self.labels_follow is None else self.labels_follow)
        for line in lines:
            self._read(line, after)
        self._name_entries()
        for entry in self.entries:
            if entry.record is not None:
                self._emit_record(entry, entry.record)
            elif entry.items:
                self._emit_items(entry)
        builder = self.builder
        if not builder.objects and [drop.reason for drop in builder.dropped] == ["unrecognised"]:
            builder.dropped.clear()  # the whole text is dropped instead

    # Lines of words and items.

    def _lines(self, begin: int) -> list[_Line]:
        """Divide the text into lines of words and items; a list over several lines belongs to its first."""
        position, lines = begin, [_Line(begin, [""])]
        for item in find_items(self.text, begin, self.keys, self.order):
            _add_words(lines, self.text[position : item.start], position)
            line = lines[-1]
            mark_certain(item, line.words[-1][-_MAX_WORDS:])
            line.items.append(item)
            line.words.append("")
            line.end = position = item.end
        _add_words(lines, self.text[position:], position)
        if len(lines) == 1 and len(lines[0].items) == 1 and not any(map(str.strip, lines[0].words)):
            lines[0].items[0].certain = True  # two numbers that are the whole answer
        for line in lines:
            line.words = [words if len(words) <= 2 * _MAX_WORDS else _ends(words) for words in line.words]
            _join_pairs(line)
        return [line for line in lines if line.items or line.words[0].strip()]

    def _labels_follow(self, lines: Sequence[_Line]) -> bool | None:
        """Return whether labels stand after their numbers; None if words stand on both sides, or on neither."""
        leading = trailing = False
        for line in lines:
            if line.items and not any(item.key for item in line.items):
                leading |= self._is_name(line.words[0])
                trailing |= self._is_name(line.words[-1])
        return None if leading == trailing else trailing

    def _is_name(self, words: str) -> bool:
        label = clean_label(_SCORED.sub("", words))[0]
        return any(map(str.isalpha, label)) and not self._key_at_end(words)[0]

    # From lines to entries.

    def _read(self, line: _Line, after: bool) -> None:
        """Turn one line into fields of a record, items with labels, or a line of words."""
        found: list[Field | Item] = []
        names: list[str] = []
        far, axes = False, set[str]()
        score: float | None = None
        pending, self.pending_key = self.pending_key, ""
        is_call = any(item.call for item in line.items)
        for i, written in enumerate(line.words):
            item = line.items[i] if i < len(line.items) else None
            words = written
            for pattern in (_SCORED, _BARE_SCORE, _LAST_SCORE):
                if scored := pattern.search(words):
                    value = float(scored[1]) / (100 if scored[2] or float(scored[1]) > 1 else 1)
                    score = value if score is None and value <= 1 else score
                    words = pattern.sub(" ", words)
            if item is not None and "," in words:
                words = _SYMBOLS.sub(" ", words)
            words = self._fields_in(words, found, before_item=item is not None)
            if item is not None and item.key in ("x", "y"):
                far |= i > 0 and _FAR.search(words) is not None
                axis = item.key
                item.key += "2" if far and axis in axes else ""
                axes.add(axis)
            if item is not None and is_call:
                item.call, item.key = True, "" if self.keys[item.key].role == "shape" else item.key
            elif item is not None and not item.key and item.kind == "any":
                key, words = self._key_at_end(words)
                if not key and not words.strip() and i == 0:
                    key = pending
                if key:
                    round_bracket = self.text[item.start] == "("
                    item.key = "point_2d" if key == "point" and round_bracket else key
            if item is not None and item.key and self.order and self.keys[item.key].kind == "box":
                item.key = ORDER_KEYS[self.order]
            names.append("" if is_call else words)
            if item is None:
                continue
            if item.key:
                groups: list[list[Value]] = [[(number, None, None) for number in group] for group in item.groups]
                found.append(Field(item.key, groups, text=item.text, done=item.closed))
            else:
                found.append(item)
        if any(isinstance(part, Field) for part in found):
            self._read_fields(line, found, names, score)
        elif found:
            self.open = None
            self._read_items(line, names, after, score)
        else:
            self._read_words(line, names[0])

    def _key_at_end(self, words: str) -> tuple[str, str]:
        """Return the key that names the numbers after these words, "" if none does, and the words before it."""
        if corner := _CORNER.search(words):
            found = corner.groupdict()
            if found["near"] or found["far"]:
                return "top_left" if found["near"] else "bottom_right", words[: corner.start()]
            if chinese := found["chinese"]:
                vertical = "top" if chinese[1] == "\u4e0a" else "bottom"
                return f"{vertical}_{'left' if chinese[0] == chr(0x5DE6) else 'right'}", words[: corner.start()]
            if found["second"]:
                before = found["owner"] or _POSSESSIVE.sub(r"\1", words[: corner.start()])
                return f"{found['first']}_{found['second']}".lower(), before
        segments = _SEGMENT.findall(words)
        key = _KEY_NOISE.sub("", _LIST_NUMBER.sub("", segments[-1])).strip() if segments else ""
        if not key or len(key) > 40:
            return "", words
        last = words.rstrip().rpartition(" ")[2].strip("\"'*_`:=(")
        if ("_" in last or words.rstrip().endswith("=")) and self.keys[
            last
        ].role == "shape":  # cat: box_2d [1, 2, 3, 4]
            return last, words[: words.rfind(last)]
        for name in (key, key.lower()):
            if self.keys[name].role in _SHAPES:
                return name, words[: words.rfind(segments[-1])].rstrip(" ,;|")
        return "", words

    def _fields_in(self, words: str, fields: list[Field | Item], before_item: bool) -> str:
        """Move `label: cat`, `confidence: 0.9` and the text of an element to fields; return what is left."""
        if fields and (content := _CONTENT.match(words)):
            fields.append(Field("alt", text=content[1], done=True))
            words = words[content.end() :]
        if ":" not in words and "=" not in words:
            return words
        kept, segments = [], _SEGMENT.findall(words)
        for number, segment in enumerate(segments):
            match = _FIELD.fullmatch(_LIST_NUMBER.sub("", segment))
            value = match[2].strip(" \t\"'*`.") if match else ""
            names_item = before_item and number == len(segments) - 1 and value.endswith((":", "="))
            if match and value and not names_item and self.keys[match[1]].role in ("label", "score"):
                fields.append(Field(match[1], text=value, done=True))
            else:
                kept.append(segment)
        return ",".join(kept) if len(kept) < len(segments) else words

    def _read_words(self, line: _Line, words: str) -> None:
        """Read a line of words alone: the key of the lines below, or a heading."""
        key, before = self._key_at_end(words)
        if key and not before.strip():
            self.pending_key = key
            return
        label, trimmed = clean_label(words)
        if any(map(str.isalpha, label)) and not words.lstrip().startswith("|"):
            self.open = None
            self.entries.append(_Entry(line.start, line.end, label, trimmed))

    def _read_fields(self, line: _Line, found: Sequence[Field | Item], names: list[str], score: float | None) -> None:
        """Add the fields of one line to the open record, or begin another one."""
        fields = [part if isinstance(part, Field) else _as_field(part) for part in found]
        label, trimmed = clean_label(names[0])
        if not label and len(names) > 1:
            label, trimmed = clean_label(names[-1])
            if not is_heading(label) or any(map(str.isdigit, label)):
                label, trimmed = "", False
        has_label = any(self.keys[item.key].role == "label" for item in fields)
        entry, is_bullet = self.open, _MARKER.match(line.words[0]) is not None
        indent = len(line.words[0]) - len(line.words[0].lstrip())
        if entry is not None and entry.record is not None:
            whole, labelled = self._has_shape(entry.record.fields), self._has_label(entry.record.fields)
            begins = is_bullet and (indent < self.indent or (indent == self.indent and not self.bullets_only))
            if (label and not has_label) or (whole and (begins or (is_bullet and has_label and labelled))):
                entry = None
        if entry is None or entry.record is None:
            self.indent, self.bullets_only = indent, True
            entry = self.open = _Entry(line.start, line.end, record=Record(line.start))
            self.entries.append(entry)
        elif not is_bullet or indent > self.indent:
            self.bullets_only = False
        assert entry.record is not None
        if label and not has_label:
            entry.record.fields.append(Field("label", text=label, done=True))
            entry.trimmed |= trimmed
        entry.record.fields += fields
        entry.call |= any(item.call for item in line.items)
        if score is not None:
            entry.record.fields.append(Field("score", [[(score, None, None)]], done=True))
        entry.end = line.end

    def _has_label(self, fields: Sequence[Field]) -> bool:
        return any(self.keys[item.key].role == "label" and item.key.lower() not in WEAK_LABELS for item in fields)

    def _has_shape(self, fields: Sequence[Field]) -> bool:
        if any(self.keys[item.key].role == "shape" and any(item.groups) for item in fields):
            return True
        return len(box_of_sides(sides_of(fields, self.keys))) == 4

    def _read_items(self, line: _Line, names: list[str], after: bool, score: float | None) -> None:
        """Give items the words before (or after) them; items without words between them share a label."""
        labels = [clean_label(name) for name in names]
        items = line.items
        if len(items) > 1 and not after and (is_phrase(labels[0][0]) or (labels[0][1] and _SENTENCE.search(names[0]))):
            with_article = is_phrase(labels[0][0])
            for i, (label, trimmed) in enumerate(labels[1:], 1):
                if not _RUNNING.fullmatch(names[i]):  # a list of labels
                    continue
                phrase = phrase_of_caption(clean_label(phrase_of_caption(label))[0], with_article)
                labels[i] = (phrase, trimmed or phrase != label)
        after = after or (len(items) == 1 and not labels[0][0] and bool(labels[1][0]))
        made: list[_Entry] = []
        for i in reversed(range(len(items))) if after else range(len(items)):
            item = items[i]
            label, trimmed = (item.label, False) if item.label is not None else labels[i + after]
            named = any(map(str.isalnum, label))
            if not made or named:
                start = line.start if i == 0 and not after else item.start
                made.append(_Entry(start, item.end, label if named else "", trimmed, score=score))
            made[-1].items.append(item)
        for entry in made:
            entry.items.sort(key=lambda item: item.start)
            entry.start = min(entry.start, entry.items[0].start)
            entry.end = entry.items[-1].end
        self.entries += sorted(made, key=lambda entry: entry.start)

    # From entries to objects.

    def _name_entries(self) -> None:
        """Give entries without a label that of the line of words before them, or after them in the whole answer."""
        self._free_labels()
        follow = self._labels_below()
        heading, trimmed = "", False
        for entry in reversed(self.entries) if follow else self.entries:
            if entry.record is not None:
                if heading and not (entry.call or self._has_label(entry.record.fields)):
                    entry.record.name = heading
                    entry.trimmed |= trimmed
            elif not entry.items:
                heading, trimmed = (entry.label, entry.trimmed) if is_heading(entry.label) else ("", False)
            elif not entry.label and not any(item.call for item in entry.items):
                entry.label, entry.trimmed = heading, trimmed
        named = [entry for entry in self.entries if entry.items and entry.label]
        for entry, label in zip(named, without_instance_numbers([e.label for e in named]), strict=True):
            entry.trimmed |= label != entry.label
            entry.label = label

    def _free_labels(self) -> None:
        """Turn records of a label alone into lines of words where the numbers beside them have no name."""
        for entry, beside in [*pairwise(self.entries), *pairwise(self.entries[::-1])]:
            if entry.record is None or not beside.items or beside.label or self._has_shape(entry.record.fields):
                continue
            texts = [item.text for item in entry.record.fields if self.keys[item.key].role == "label"]
            if texts and len(texts) == len(entry.record.fields):
                entry.label, entry.record = texts[0] or "", None

    def _labels_below(self) -> bool:
        """Return whether lines of words name the numbers above them: over the whole answer, or in each paragraph."""
        beside: Counter[str] = Counter()
        kinds = ""
        last: _Entry | None = None
        for entry in self.entries:
            kind = "I" if entry.record is not None or entry.items else "W" if is_heading(entry.label) else ""
            if (
                last is not None
                and kind
                and kinds[-1] != kind
                and "\n" not in self.text[last.end : entry.start].strip(" \t")[1:]
            ):
                beside[kind] += 1
            if kind:
                kinds, last = kinds + kind, entry
        if beside["W"] and not beside["I"]:
            return True
        return re.fullmatch(r"(?:I+W)+", kinds) is not None and (kinds.count("W") > 1 or len(kinds) == 2)

    def _emit_record(self, entry: _Entry, record: Record) -> None:
        """Add the objects or drops of a record."""
        last, keys = record.fields[-1], self.keys
        start = _first(self.text, entry.start, entry.end)
        partial = keys[last.key].role == "shape" and not last.done and entry.end >= self.text_end
        cut = _CUT_TAG.fullmatch(self.text, entry.end, self.text_end) is not None
        if cut and not partial:  # the last object of several may lack its shape
            labels = [i for i, field in enumerate(record.fields) if keys[field.key].role == "label"]
            partial = not self._has_shape(record.fields[labels[-1] if labels else 0 :])
        self.builder.truncated |= partial
        sides = sides_of(record.fields, keys)
        if partial or self._has_shape(record.fields) or box_of_sides(sides):
            record.start, record.repairs = start, ("label_trimmed",) if entry.trimmed else ()
            add_record(record, self.builder, keys, max(entry.end, start + 1), partial)
        elif sides.keys() - {"w", "h"} or any(keys[item.key].role == "corner" for item in record.fields):
            self.builder.drop("wrong_arity", start, entry.end)
        elif self.builder.objects and self._has_label(record.fields):
            self.builder.drop("no_coordinates", start, entry.end)

    def _emit_items(self, entry: _Entry) -> None:
        """Add the objects or drops of items with one label."""
        builder, start_index, before = self.builder, self.builder.start_count, len(self.builder.objects)
        for item in entry.items:
            start = _first(self.text, entry.start if item is entry.items[0] else item.start, item.end)
            cut = not item.closed and not item.call
            if cut and item.end >= self.text_end:
                builder.truncated = True
                self._emit_shapes(item, item.groups[:-1], entry, start, start_index)
                builder.drop("truncated", start, item.end)
            elif cut and sum(map(len, item.groups)) > 2:
                builder.drop("stray_text", start, item.end)
            else:
                self._emit_shapes(item, item.groups, entry, start, start_index)
        builder.start_count += len(builder.objects) > before

    def _emit_shapes(self, item: Item, groups: list[list[float]], entry: _Entry, start: int, start_index: int) -> None:
        """Add the shapes of one item."""
        builder = self.builder
        repairs = ("label_trimmed",) if entry.trimmed and entry.label else ()
        for geometry, numbers in _divide(item, groups, builder.geometry):
            if geometry:
                order = self.order if self.order and geometry == "box" else shape_order(geometry)
                span, score = (start, item.end), entry.score
                builder.add_numbers(
                    entry.label, numbers, span, geometry, order, None, repairs, start_index, False, score
                )
            else:
                builder.drop("unrecognised" if len(numbers) < 4 else "wrong_arity", start, item.end)


def _as_field(item: Item) -> Field:
    """Return numbers without a name as a field."""
    groups: list[list[Value]] = [[(number, None, None) for number in group] for group in item.groups]
    kind = "box" if item.kind == "polygon" and sum(map(len, groups)) == 4 else item.kind
    key = {"point": "point_2d", "box": "bbox", "polygon": "polygon"}.get(kind, "coordinates")
    return Field(key, groups, done=item.closed)


def _blank(found: re.Match[str]) -> str:
    """Return spaces for a piece of text, so that positions stay."""
    return " " * len(found[0])


def _as_pair(found: re.Match[str]) -> str:
    """Return `x = 1, y = 2` as `(1,2)` of the same length, so that positions stay."""
    pair = f"({found[2]},{found[3]})"
    return found[1] + pair.ljust(len(found[0]) - len(found[1]))


def _add_words(lines: list[_Line], words: str, start: int) -> None:
    """Add words to the last line, and begin a line after each line break."""
    first, *rest = words.split("\n")
    lines[-1].words[-1] += first
    position = start + len(first)
    lines[-1].end = max(lines[-1].end, position)
    for following in rest:
        lines.append(_Line(position + 1, [following], end=position + 1 + len(following)))
        position += 1 + len(following)


def _ends(words: str) -> str:
    """Return the first and the last of many words."""
    return f"{words[:_MAX_WORDS]} {words[-_MAX_WORDS:]}"


def _join_pairs(line: _Line) -> None:
    """Join the pairs of one line that are corners of boxes: `(1, 2) to (3, 4)`."""
    items: list[Item] = []
    words = [line.words[0]]
    for item, following in zip(line.items, line.words[1:], strict=True):
        joint = words[-1]
        if items and items[-1].is_pair and item.is_pair and _JOINT.fullmatch(joint):
            last = items[-1]
            if (not joint.strip(" ,") or len(last.groups) == 1) and (
                "and" not in joint.lower() or _CORNERS_FOLLOW.search(words[-2])
            ):
                last.groups += item.groups
                last.end, last.closed = item.end, item.closed
                words[-1] = following
                continue
        items.append(item)
        words.append(following)
    line.items, line.words = items, words


def _divide(item: Item, groups: list[list[float]], requested: Geometry) -> list[tuple[Geometry, list[float]]]:
    """Divide the numbers of one item into shapes; "" is the geometry of numbers whose meaning is not certain."""
    flat = [number for group in groups for number in group]
    if item.call and requested == "box" and item.kind != "box":
        if [len(group) for group in groups] == [4]:
            near, far = flat[:2], flat[2:]
            return [("point", near)] if near == far else [("point", near), ("point", far)]
        return [("point" if len(group) == 2 else "", group) for group in groups]
    if item.kind == "box" and len(flat) == 4 and flat[:2] == flat[2:]:
        return [("point", flat[:2])]  # Seed writes the box of a click so
    if item.kind == "polygon" and len(flat) == 4:
        return [("box", flat)]  # Hunyuan's lines of text: two corners
    if item.kind != "any":
        return split_shapes(groups, item.kind, requested)
    if requested != "box":
        return split_shapes(groups, "any", requested)
    if groups and all(len(group) == 2 for group in groups):
        return _divide_pairs(item, groups, flat)
    shapes = split_shapes(groups, "any", requested, pairs_are_boxes=False)
    return [
        (geometry if len(numbers) == 4 or geometry == "point" or _is_certain(numbers) else "", numbers)
        for geometry, numbers in shapes
        if len(numbers) > 1
    ]


def _divide_pairs(item: Item, groups: list[list[float]], flat: list[float]) -> list[tuple[Geometry, list[float]]]:
    """Divide pairs: a list of two corners is a box, other lists are points; elsewhere pairs are corners of boxes."""
    if len(groups) == 1:
        return [("point" if item.certain else "", flat)]
    if item.nested:
        if len(groups) == 2 and proper_boxes(flat):
            return [("box", flat)]
        return [("point", group) for group in groups]
    if len(groups) == 2 or (len(groups) % 2 == 0 and proper_boxes(flat)):
        return [("box", flat[i : i + 4]) for i in range(0, len(flat), 4)]
    return [("point" if len(groups) % 2 else "", group) for group in groups]


def _is_certain(numbers: Sequence[float]) -> bool:
    """Return whether numbers of unknown geometry are an outline for certain: the corners of a quadrilateral."""
    return len(numbers) == 8 and is_quad(numbers)


def _first(text: str, start: int, end: int) -> int:
    """Return the first character that is no white space."""
    while start < end - 1 and text[start].isspace():
        start += 1
    return start
