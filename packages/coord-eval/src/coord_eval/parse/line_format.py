"""Parses objects from text without marks: YAML, XML, calls of agents, lists and sentences.

Each line is words and items (`line_items.py`) in turn. Values with a name are the fields of a record, which may go over
several lines; numbers without one take the words before them as their label, or those after them in an answer that
begins with numbers, or the line of words above (or below).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from coord_eval.parse.answer import Geometry
from coord_eval.parse.builder import AnswerBuilder, Scale
from coord_eval.parse.labels import NO_LABEL, Label, clean_label, is_heading, without_instance_numbers
from coord_eval.parse.line_items import ORDER_KEYS, Item, find_items, mark_certain, stated_order
from coord_eval.parse.numbers import NUMBER, is_quad, proper_boxes, split_shapes
from coord_eval.parse.record import SCORE_KEYS, WEAK_LABELS, Field, Keys, Record, add_record, box_of_sides, sides_of

_WIDTHS = str.maketrans("\uff08\uff09\uff3b\uff3d\u3010\u3011\uff0c\uff1a\uff1b\uff1d", "()[][],:;=")
"""Full-width punctuation, after a Chinese prompt; one character for one, so that positions stay."""
_JOINT = re.compile(r"\s*[\"'*`]*\s*(?:,|;|to|->|[-\u2013\u2014\u2192~]|\u81f3|\u5230)?\s*[\"'*`]*\s*", re.IGNORECASE)
"""What may stand between the two corners of a box."""
_CORNER = re.compile(
    r"[\s\"'*_`(-]*\b(?:the\s+)?(top|upper|bottom|lower)[\s_-]*(left|right)\b"
    r"(?:\s+(?:corner|point|is|at|of)\b[^.,;:()\n0-9]{0,30})?[\s\"'*_`:=(-]*$",
    re.IGNORECASE,
)
_SEGMENT = re.compile(r"[^,;|(\u2013\u2014]+")
_MARKER = re.compile(r"\s*(?:[-*\u2022\u30fb+]\s*(?<=[\s\u30fb])|\(?[0-9]{1,3}[.)]\s*|#+\s+)")
_FIELD = re.compile(r"[\s\"'*_`({-]*([^\W\d][\w \-]{0,28}?)[\"'*_`]*\s*[:=]\s*(.*)", re.DOTALL)
_SCORE_NAMES = "|".join(key for key in SCORE_KEYS if key.isascii())
_SCORES = (
    re.compile(
        rf"[(\[,;|]?\s*(?:with\s+)?(?:a\s+)?(?:{_SCORE_NAMES})\s*(?:of\s*)?[:=]?\s*({NUMBER})\s*(%?)\s*[)\]]?", re.I
    ),
    re.compile(r"\(\s*(0?\.[0-9]{1,9}|1\.0{1,9}|[0-9]{1,3}(?:\.[0-9]{1,9})?(?=\s*%))\s*(%?)\s*\)"),
    re.compile(
        r"(?<=[^\W\d_])[\s:,]+(0?\.[0-9]{2,9}|1\.00{1,8}|[0-9]{1,3}(?:\.[0-9]{1,3})?(?=\s?%))\s?(%?)\s*[:,]?\s*$"
    ),
)
"""A confidence with its name, in brackets, or after a label: `person 0.98`."""
_KEY_NOISE = re.compile(r"^[\s\"'*_`(\[{>|.-]+|[\s\"'*_`:=)-]+$|\bthe\b", re.IGNORECASE)
_SYMBOLS = re.compile(r"[\[(]?\s*[xywhc]\w{0,9}(?:\s*,\s*[xywhc]\w{0,9}){3}\s*[\])]?\s*[=:]?\s*$", re.IGNORECASE)
"""The names of four numbers, before them."""
_MAX_WORDS = 400
"""Number of characters beside numbers that are searched for their label, for linear time."""
_PIXELS = re.compile(r"(?<=[0-9])\s?px\b")
_PERCENT = re.compile(rf"{NUMBER}\s?%(?:[^%\n]{{1,30}}?\b{NUMBER}\s?%){{3}}")
"""Four percentages next to each other."""
_CUT_TAG = re.compile(r"\s*<[^<>]{0,20}")
"""The beginning of a tag at the end of a text."""
_CONTENT = re.compile(r"\s*/?>\s*(?:<\w{1,20}>)?\s*([^<>]{1,80}?)\s*</")
"""The text of an element, after its attributes."""
_UNREAD = re.compile(rf"(?:.*[^\w.])?{NUMBER}(?:[^\w\n]{{1,4}}{NUMBER}){{2,}}")
"""Numbers among words that are no label, and what stands before them."""
_EXAMPLE = re.compile(r"(?:\bsuch as|\be\.g\.|\bfor (?:example|instance)|\bin the form(?:at)?)\W*$", re.IGNORECASE)
"""What stands before numbers that are an example of how a box is written."""
_RUNNING = re.compile(r"\s*[^\W\d]|[\s*]*[.\u3002]\s*$")
"""What follows an item within a sentence."""


@dataclass(slots=True)
class _Line:
    """One line: its words and items in turn; `words[i]` stands before `items[i]`, the last words after all of them."""

    start: int
    words: list[str]
    items: list[Item] = field(default_factory=list)
    end: int = 0


@dataclass(slots=True)
class _Entry:
    """What one or more lines bring: the fields of a record, items with one label, or words alone.

    Attributes:
        start: first character
        end: character after the last
        label: label of the items, or the words
        record: the record, if it is one
        items: items without a name
        score: confidence of the items
        call: whether the items are arguments of a call
        named: whether a field of the record is a label that names the object for certain
        shaped: whether the fields contain a shape
        sides: names of the sides of a box among the fields
    """

    start: int
    end: int
    label: Label = NO_LABEL
    record: Record | None = None
    items: list[Item] = field(default_factory=list)
    score: float | None = None
    call: bool = False
    named: bool = False
    shaped: bool = False
    sides: dict[str, float] = field(default_factory=dict)


class LineParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, keys: Keys) -> None:
        self.builder, self.keys = builder, keys
        self.entries: list[_Entry] = []
        self.open: _Entry | None = None
        self.indent = 0
        self.bullets_only = True
        self.pending_key = ""
        self.order = ""

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        text = text.replace("\\n", " \n")  # of a string
        self.text = _PIXELS.sub(_blank, text.translate(_WIDTHS))
        if "%" in text and _PERCENT.search(self.text, begin):
            self.text = _PERCENT.sub(lambda found: found[0].replace("%", " "), self.text)
            self.builder.scale = Scale(100.0, 100.0)
        self.text_end = len(text.rstrip(", \t\n"))
        self.order = stated_order(self.text[begin:])
        lines = self._lines(begin)
        first = next((line for line in lines if any(not item.key for item in line.items)), None)
        self.after = first is not None and not self._is_name(first.words[0]) and self._is_name(first.words[-1])
        for line in lines:
            self._read(line)
        self._name_entries()
        for entry in self.entries:
            if entry.record is not None:
                self._emit_record(entry, entry.record)
            elif entry.items:
                self._emit_items(entry)

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

    def _is_name(self, words: str) -> bool:
        label = clean_label(_without_score(words)[0])
        return any(map(str.isalpha, label.text)) and not self._key_at_end(words)[0]

    # From lines to entries.

    def _read(self, line: _Line) -> None:
        """Turn one line into fields of a record, items with labels, or a line of words."""
        found: list[Field | Item] = []
        names: list[str] = []
        score: float | None = None
        pending, self.pending_key = self.pending_key, ""
        is_call = any(item.call for item in line.items)
        for i, written in enumerate(line.words):
            item = line.items[i] if i < len(line.items) else None
            unread = _UNREAD.search(written)
            if unread and i == 0:
                line.start += unread.end()
            elif unread:
                self.builder.drop("unread_numbers", at := line.items[i - 1].end, at + unread.end())
            words, stated = _without_score(written[unread.end() :] if unread else written)
            score = stated if score is None else score
            words = self._fields_in(words, found, before_item=item is not None)
            if item is not None:
                words = self._name_item(item, words, is_call, pending if i == 0 else "")
                found.append(item.as_field() if item.key else item)
            names.append("" if is_call else words)
        if any(isinstance(part, Field) for part in found):
            fields = [part if isinstance(part, Field) else part.as_field() for part in found]
            self._read_fields(line, fields, names, score)
        elif line.items:
            self.open = None
            self._read_items(line, names, score)
        else:
            self._read_words(line, names[0])

    def _name_item(self, item: Item, words: str, is_call: bool, pending: str) -> str:
        """Set the key of an item from the words before it, or from the line above; return the words without it."""
        if "," in words:
            words = _SYMBOLS.sub(" ", words)
        if is_call:
            item.call, item.key = True, "" if self.keys[item.key].role == "shape" else item.key
        elif not item.key and item.kind == "any":
            key, words = self._key_at_end(words)
            key = key or (pending if not words.strip() else "")
            item.key = "point_2d" if key == "point" and self.text[item.start] == "(" else key
        if item.key and self.order and self.keys[item.key].kind == "box":
            item.key = ORDER_KEYS[self.order]
        return words

    def _key_at_end(self, words: str) -> tuple[str, str]:
        """Return the key that names the numbers after these words, "" if none does, and the words before it."""
        if corner := _CORNER.search(words):
            return f"{corner[1]}_{corner[2]}".lower(), words[: corner.start()]
        segments = _SEGMENT.findall(words)
        key = _KEY_NOISE.sub("", segments[-1]).strip() if segments else ""
        last = words.rstrip().rpartition(" ")[2].strip("\"'*_`:=(")
        if ("_" in last or words.rstrip().endswith("=")) and self.keys[last].role == "shape":
            return last, words[: words.rfind(last)]  # cat: box_2d [1, 2, 3, 4]
        for name in (key, key.lower()):
            if self.keys[name].role in ("shape", "corner", "centre", "size"):
                return name, words[: words.rfind(segments[-1])].rstrip(" ,;|")
        return "", words

    def _fields_in(self, words: str, fields: list[Field | Item], before_item: bool) -> str:
        """Move `label: cat`, `confidence: 0.9` and the text of an element to fields; return what is left."""
        if fields and (content := _CONTENT.match(words)):
            fields.append(Field("alt", text=content[1], done=True))
            words = words[content.end() :]
        kept, segments = [], _SEGMENT.findall(words)
        for number, segment in enumerate(segments):
            match = _FIELD.fullmatch(segment)
            value = match[2].strip(" \t\"'*`.]}") if match else ""
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
        label = clean_label(words)
        if any(map(str.isalpha, label.text)) and not words.lstrip().startswith("|"):
            self.open = None
            self.entries.append(_Entry(line.start, line.end, label))

    def _read_fields(self, line: _Line, fields: list[Field], names: list[str], score: float | None) -> None:
        """Add the fields of one line to the open record, or begin another one."""
        label = clean_label(names[0])
        if not label.text and len(names) > 1:
            label = clean_label(names[-1])
            if not is_heading(label.text) or any(map(str.isdigit, label.text)):
                label = NO_LABEL
        roles = [self.keys[item.key].role for item in fields]
        entry, is_bullet = self.open, _MARKER.match(line.words[0]) is not None
        indent = len(line.words[0]) - len(line.words[0].lstrip())
        if entry is not None:
            begins = is_bullet and (indent < self.indent or (indent == self.indent and not self.bullets_only))
            another = begins or (is_bullet and "label" in roles and entry.named)
            if (label.text and "label" not in roles) or (self._is_whole(entry) and another):
                entry = None
        if entry is None:
            self.indent, self.bullets_only = indent, True
            entry = self.open = _Entry(line.start, line.end, record=Record(line.start))
            self.entries.append(entry)
        elif not is_bullet or indent > self.indent:
            self.bullets_only = False
        if label.text and "label" not in roles:
            fields.insert(0, Field("label", text=label.text, done=True))
            entry.label = Label("", label.repair)
        if score is not None:
            fields.append(Field("score", [[(score, None, None)]], done=True))
        entry.call |= any(item.call for item in line.items)
        entry.end = line.end
        self._extend(entry, fields)

    def _extend(self, entry: _Entry, fields: Sequence[Field]) -> None:
        """Add fields to the record of an entry."""
        assert entry.record is not None
        entry.record.fields += fields
        for item in fields:
            meaning = self.keys[item.key]
            entry.named |= meaning.role == "label" and item.key.lower() not in WEAK_LABELS
            entry.shaped |= meaning.role == "shape" and any(item.groups)
            entry.sides |= dict.fromkeys(_SIDES_OF_ROLE.get(meaning.role, (meaning.side,) if meaning.side else ()), 0.0)
            if meaning.role == "corner":
                entry.sides |= dict.fromkeys(("x2", "y2") if "x1" in entry.sides else ("x1", "y1"), 0.0)

    def _is_whole(self, entry: _Entry) -> bool:
        """Return whether the fields of an entry contain a shape, or the four sides of a box."""
        return entry.shaped or len(box_of_sides(entry.sides)) == 4

    def _read_items(self, line: _Line, names: list[str], score: float | None) -> None:
        """Give items the words before (or after) them; items without words between them share a label."""
        items, after = line.items, self.after
        running = any(_RUNNING.match(words) for words in names[1:]) and not after
        if running and len(items) % 2 == 0 and all(item.is_pair and len(item.groups) == 1 for item in items):
            for item in items:  # starts at (1, 2) and ends at (3, 4)
                item.certain = False
        labels = [clean_label(name, running, after) for name in names]
        made: list[_Entry] = []
        for i in reversed(range(len(items))) if after else range(len(items)):
            item = items[i]
            if _EXAMPLE.search(names[i]):
                item.kind = "example"
            label = labels[i + after] if item.label is None else Label(item.label)
            named = any(map(str.isalnum, label.text))
            if not made or named or label.repair:
                start = line.start if i == 0 and not after else item.start
                made.append(_Entry(start, item.end, label if named else Label("", label.repair), score=score))
            made[-1].items.append(item)
        for entry in made:
            entry.items.sort(key=lambda item: item.start)
            entry.start = min(entry.start, entry.items[0].start)
            entry.end = entry.items[-1].end
        self.entries += sorted(made, key=lambda entry: entry.start)

    # From entries to objects.

    def _name_entries(self) -> None:
        """Give entries without a label that of the line of words before them, or after them if numbers come first."""
        self._free_labels()
        below = len(self.entries) > 1 and bool(self.entries[0].items) and not self.entries[0].label.text
        heading = NO_LABEL
        for entry in reversed(self.entries) if below else self.entries:
            if entry.record is not None:
                if heading.text and not (entry.call or entry.named):
                    entry.record.name, entry.label = heading.text, heading
            elif not entry.items:
                heading = entry.label if is_heading(entry.label.text) else NO_LABEL
            elif heading.text and not entry.label.text and not any(item.call for item in entry.items):
                entry.label = heading
        named = [entry for entry in self.entries if entry.items and entry.label.text]
        for entry, text in zip(named, without_instance_numbers([e.label.text for e in named]), strict=True):
            if text != entry.label.text:
                entry.label = Label(text, entry.label.repair or "label_trimmed")

    def _free_labels(self) -> None:
        """Turn records of a label alone into lines of words where the numbers beside them have no name."""
        for entry, beside in [*pairwise(self.entries), *pairwise(self.entries[::-1])]:
            if entry.record is None or not beside.items or beside.label.text or self._is_whole(entry):
                continue
            texts = [item.text for item in entry.record.fields if self.keys[item.key].role == "label"]
            if texts and len(texts) == len(entry.record.fields):
                entry.label, entry.record = Label(texts[0] or ""), None

    def _emit_record(self, entry: _Entry, record: Record) -> None:
        """Add the objects or drops of a record."""
        last, keys = record.fields[-1], self.keys
        start = _first(self.text, entry.start, entry.end)
        partial = keys[last.key].role == "shape" and not last.done and entry.end >= self.text_end
        if not partial and _CUT_TAG.fullmatch(self.text, entry.end, self.text_end):
            # The last object of several may lack its shape.
            labels = [i for i, field in enumerate(record.fields) if keys[field.key].role == "label"]
            part = _Entry(entry.start, entry.end, record=Record(entry.start))
            self._extend(part, record.fields[labels[-1] if labels else 0 :])
            partial = not self._is_whole(part)
        self.builder.truncated |= partial
        sides = sides_of(record.fields, keys)
        if partial or self._is_whole(entry) or box_of_sides(sides):
            record.start, record.repairs = start, (entry.label.repair,) if entry.label.repair else ()
            add_record(record, self.builder, keys, max(entry.end, start + 1), partial)
        elif sides.keys() - {"w", "h"} or any(keys[item.key].role == "corner" for item in record.fields):
            self.builder.drop("wrong_arity", start, entry.end)
        elif self.builder.objects and entry.named:
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
            elif cut:
                builder.drop("stray_text", start, item.end)
            else:
                self._emit_shapes(item, item.groups, entry, start, start_index)
        builder.start_count += len(builder.objects) > before

    def _emit_shapes(self, item: Item, groups: list[list[float]], entry: _Entry, start: int, start_index: int) -> None:
        """Add the shapes of one item."""
        builder = self.builder
        repairs = (entry.label.repair,) if entry.label.repair else ()
        for geometry, numbers in _divide(item, groups, builder.geometry):
            if geometry:
                order = self.order if geometry == "box" else ""
                span, text, score = (start, item.end), entry.label.text, entry.score
                builder.add_numbers(text, numbers, span, geometry, order, None, repairs, start_index, False, score)
            else:
                reason = "unrecognised" if len(numbers) < 4 else "wrong_arity"
                two_ways = item.kind == "example" or (item.is_pair and len(numbers) > 4)
                builder.drop("ambiguous" if two_ways else reason, start, item.end)


_SIDES_OF_ROLE = {"centre": ("cx", "cy"), "size": ("w", "h")}
"""Sides that one field of a role states."""


def _without_score(words: str) -> tuple[str, float | None]:
    """Return words without the confidences among them, and the first of these."""
    score: float | None = None
    for pattern in _SCORES:
        if found := pattern.search(words):
            value = float(found[1]) / (100 if found[2] or float(found[1]) > 1 else 1)
            score = value if score is None and value <= 1 else score
            words = pattern.sub(" ", words)
    return words, score


def _blank(found: re.Match[str]) -> str:
    """Return spaces for a piece of text, so that positions stay."""
    return " " * len(found[0])


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
            if not joint.strip(" ,") or len(last.groups) == 1:
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
    if item.kind == "example":
        return [("", flat)]
    if item.call and requested == "box" and item.kind != "box":
        if [len(group) for group in groups] == [4]:
            near, far = flat[:2], flat[2:]
            return [("point", near)] if near == far else [("point", near), ("point", far)]
        return [("point" if len(group) == 2 else "", group) for group in groups]
    if item.kind == "box" and len(flat) == 4 and flat[:2] == flat[2:]:
        return [("point", flat[:2])]  # Seed writes the box of a click so
    if item.kind != "any":
        return split_shapes(groups, item.kind, requested)
    if requested != "box":
        return split_shapes(groups, "any", requested)
    if groups and all(len(group) == 2 for group in groups):
        return _divide_pairs(item, groups, flat)
    shapes = split_shapes(groups, "any", requested)
    return [
        (geometry if len(numbers) == 4 or geometry == "point" or _is_certain(numbers) else "", numbers)
        for geometry, numbers in shapes
        if len(numbers) > 1
    ]


def _divide_pairs(item: Item, groups: list[list[float]], flat: list[float]) -> list[tuple[Geometry, list[float]]]:
    """Divide pairs: two corners are a box, other pairs points, unless they may be the corners of several boxes."""
    if len(groups) == 1:
        return [("point" if item.certain else "", flat)]
    if item.nested:
        if len(groups) == 2 and proper_boxes(flat):
            return [("box", flat)]
        return [("point", group) for group in groups]
    return split_shapes(groups, "any", "box")


def _is_certain(numbers: Sequence[float]) -> bool:
    """Return whether numbers of unknown geometry are an outline for certain: the corners of a quadrilateral."""
    return len(numbers) == 8 and is_quad(numbers)


def _first(text: str, start: int, end: int) -> int:
    """Return the first character that is no white space."""
    while start < end - 1 and text[start].isspace():
        start += 1
    return start
