"""Parses objects from text without marks: tables, YAML, XML, calls of agents, lists and sentences.

One regular expression finds what holds numbers; the words of a line around it are its label. Where a line holds both,
they belong together; whether labels stand before or after the numbers is decided over the whole answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from coord_eval.parse.answer import Geometry
from coord_eval.parse.builder import AnswerBuilder, shape_order
from coord_eval.parse.labels import clean_label, is_heading, without_instance_numbers
from coord_eval.parse.numbers import NUMBER, NumberGroup, is_quad, proper_boxes, read_groups, split_shapes
from coord_eval.parse.record import (
    LABEL_KEYS,
    SCORE_KEYS,
    SIDES,
    Field,
    Keys,
    Record,
    Value,
    add_record,
    box_of_sides,
    sides_of,
)

_WIDTHS = str.maketrans("\uff08\uff09\uff3b\uff3d\u3010\u3011\uff0c\uff1a\uff1b\uff1d", "()[][],:;=")
"""Full-width punctuation, after a Chinese prompt; one character for one, so that positions stay."""
_TAGS = {
    **dict.fromkeys(("point", "points", "click", "pt", "pointer"), "point"),
    **dict.fromkeys(("bbox", "box", "bounding_box", "bndbox", "rect", "bbox_2d"), "box"),
    **dict.fromkeys(("quad", "coordinate", "coordinates", "position", "location", "loc"), "any"),
    **dict.fromkeys(("polygon", "poly"), "polygon"),
}
"""Tags around numbers, and what they say about their geometry."""
_SIDE_NAMES = "|".join(sorted(SIDES, key=len, reverse=True))
_LABEL_NAMES = "|".join(sorted((k for k in LABEL_KEYS if k.isascii()), key=len, reverse=True))
_ITEM = re.compile(
    rf"""
      <(?P<tag>{"|".join(_TAGS)})(?P<attributes>(?:\s[^<>]{{0,300}})?)>(?P<inner>[-+\s0-9.,;()\[\]]{{0,4000}})
      (?:</(?P=tag)\s*>|(?P<open_tag>\Z))
    | <(?P<leaf>{_SIDE_NAMES}|{_LABEL_NAMES})>(?P<text>[^<>]{{0,400}})</(?P=leaf)\s*>
    | <\s*(?P<angle>{NUMBER}(?:\s*[,;]\s*{NUMBER}){{3}})\s*>
    | (?<![\w])(?P<attribute>[A-Za-z_:][\w:.-]{{0,30}})\s*=\s*(?P<quote>["'])(?P<value>[^"'<>\n]{{0,400}})(?P=quote)
    | (?<![\w.])(?P<side>{_SIDE_NAMES})["'`*]{{0,3}}\s*[:=]\s*["'`*]{{0,3}}\s*(?P<number>{NUMBER})
      (?:\s?(?:px|%))?["']?(?![\w.]?[0-9])
    | ^[ \t]*-[ \t]*(?P<block>{NUMBER}[ \t]*(?:\n[ \t]*-[ \t]*{NUMBER}[ \t]*){{1,7}})$
    | (?P<run>[\[({{][\[\](){{}}\s,;0-9.+-]*)
    | (?:^[ \t]*|(?<=[:=|\t])[ \t]*|(?<=[^\W\d],)[ \t]*)
      (?P<bare>{NUMBER}(?:[ \t]*[,|\t ][ \t]*{NUMBER}){{3}})[ \t]*[.;|]?[ \t]*$
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_VERBS = (
    r"(?:\w*\.)?(?:left_|right_|double_|middle_|triple_|long_|mouse_|left|right|double|middle|triple|long)?_?"
    r"(?:click|tap|press|move_?to|hover|drag(?:_?to|_?rel)?|scroll|swipe|point|type|select|touch|locate)(?:_?\w{0,12})?"
)
_CALL = re.compile(rf"(?:^|[\s.:=\"'`(])({_VERBS})\s*\($|(?:^|[\s.:=\"'`(])({_VERBS})$", re.IGNORECASE)
_JOINT = re.compile(
    r"\s*[\"'*`]*\s*(?:,|;|to|through|->|[-\u2013\u2014\u2192~]|至|到|and(?:\s+ends?\s+at)?)\s*[\"'*`]*\s*",
    re.IGNORECASE,
)
_FROM = re.compile(r"\b(?:from|between|corners?|spans?|extends?)\b", re.IGNORECASE)
_PLACE_WORD = re.compile(
    r"\b(?:coordinates?|coords?|points?|positions?|locations?|located|click|tap|cent(?:er|re)|at|x\s*,\s*y)\b[^.]{0,24}$",
    re.IGNORECASE,
)
_SYMBOLS = re.compile(
    r"\(?\s*(x_?(?:1|min|0)\s*,\s*y_?(?:1|min|0))\s*\)?\s*[=:]?\s*$|\(?\s*(x_?(?:2|max)\s*,\s*y_?(?:2|max))\s*\)?\s*[=:]?\s*$",
    re.IGNORECASE,
)
_SEGMENT = re.compile(r"[^,;|]+")
_MARKER = re.compile(r"[ \t]*(?:[-*•+]\s+|\(?[0-9]{1,3}[.)]\s*|#+\s+)")
_FIELD = re.compile(r"[\s\"'*_`({-]*([^\W\d][\w \-]{0,28}?)[\"'*_`]*\s*[:=]\s*(.*)", re.DOTALL)
_SCORE_NAMES = "|".join(key for key in SCORE_KEYS if key.isascii())
_SCORED = re.compile(
    rf"[(\[,;|]?\s*(?:with\s+)?(?:a\s+)?(?:{_SCORE_NAMES})\s*(?:of\s*)?[:=]?\s*({NUMBER})\s*(%?)\s*[)\]]?",
    re.IGNORECASE,
)
_KEY_NOISE = re.compile(r"^[\s\"'*_`({>|.-]+|[\s\"'*_`:=)-]+$|\b(?:corner|the)\b", re.IGNORECASE)
_LIST_NUMBER = re.compile(r"^\s*(?:[-*•]\s*|\(?[0-9]{1,3}[.)]\s*)+")


@dataclass(slots=True)
class _Item:
    """Numbers or a named value in the text.

    Attributes:
        start: first character
        end: character after the last
        key: key that names the value, "" for numbers without a name
        groups: the numbers
        kind: what the text says about their geometry
        text: the value if it is a word
        label: a label in the same tag
        certain: whether two numbers are a point
        call: whether they are arguments of a call
        closed: whether the last bracket is closed
    """

    start: int
    end: int
    key: str = ""
    groups: list[NumberGroup] = field(default_factory=list)
    kind: str = "any"
    text: str | None = None
    label: str | None = None
    certain: bool = False
    call: bool = False
    closed: bool = True


@dataclass(slots=True)
class _Line:
    """One line: its words and items in turn; `words[i]` stands before `items[i]`, the last words after all of them."""

    start: int
    words: list[str] = field(default_factory=lambda: [""])
    items: list[_Item] = field(default_factory=list)
    end: int = 0


@dataclass(slots=True)
class _Entry:
    """What one or more lines bring: a record, items with a label, items without, or words."""

    record: Record | None = None
    items: list[_Item] = field(default_factory=list)
    label: str | None = None
    trimmed: bool = False
    score: float | None = None
    start: int = 0
    end: int = 0


class LineParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, keys: Keys) -> None:
        self.builder, self.keys = builder, keys
        self.entries: list[_Entry] = []
        self.record: _Entry | None = None
        self.indent = 0
        self.bulleted = True

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        self.text = text.translate(_WIDTHS)
        self.text_end = len(text.rstrip())
        lines = self._lines(begin)
        after = self._labels_follow(lines)
        for line in lines:
            self._line(line, after)
        self._name_entries()
        for entry in self.entries:
            self._emit(entry)
        builder = self.builder
        if not builder.objects and len(builder.dropped) == 1 and builder.dropped[0].reason == "unrecognised":
            builder.dropped.clear()  # the whole text is the drop

    # Items and lines.

    def _lines(self, begin: int) -> list[_Line]:
        """Divide the text into lines of words and items; a list over several lines belongs to the first."""
        text, position = self.text, begin
        lines = [_Line(begin)]
        for match in _ITEM.finditer(text, begin):
            items = self._items(match)
            if not items:
                continue
            for item in items:
                self._words(lines, text[position : item.start], position)
                line = lines[-1]
                self._finish_item(item, line.words[-1])
                line.items.append(item)
                line.words.append("")
                line.end = position = item.end
        self._words(lines, text[position:], position)
        for line in lines:
            self._join_pairs(line)
        return [line for line in lines if line.items or line.words[0].strip()]

    def _words(self, lines: list[_Line], words: str, start: int) -> None:
        first, *rest = words.split("\n")
        lines[-1].words[-1] += first
        position = start + len(first)
        for following in rest:
            lines[-1].end = max(lines[-1].end, position)
            lines.append(_Line(position + 1, [following]))
            position += 1 + len(following)
        lines[-1].end = max(lines[-1].end, position)

    def _items(self, match: re.Match[str]) -> list[_Item]:
        """Return the items of one match."""
        text, (start, end) = self.text, match.span()
        if match["tag"]:
            groups = read_groups(text, *match.span("inner")).groups
            tag = match["tag"].lower()
            label = re.search(r"(?:mention|label|alt|name)\s*=\s*[\"']([^\"']*)", match["attributes"])
            item = _Item(start, end, "", groups, _TAGS[tag], label=label and label[1], certain=True)
            item.closed = match["open_tag"] is None
            return [item] if groups else []
        if match["leaf"]:
            return [_Item(start, end, match["leaf"], read_groups(text, *match.span("text")).groups, text=match["text"])]
        if match["attribute"]:
            role = self.keys[match["attribute"]].role
            if role not in ("shape", "side", "label"):
                return []
            groups = read_groups(text, *match.span("value")).groups
            if role == "label":
                return [_Item(start, end, match["attribute"], text=match["value"])]
            return [_Item(start, end, match["attribute"], groups, certain=True)] if groups else []
        if match["side"]:
            return [_Item(start, end, match["side"], read_groups(text, *match.span("number")).groups)]
        for name in ("angle", "bare"):
            if match[name]:
                groups = read_groups(text, *match.span(name)).groups
                numbers = [number for group in groups for number in group.numbers]
                start, end = match.span(name) if name == "bare" else (start, end)
                return [_Item(start, end, "", [NumberGroup(numbers, start, end, 0, start)])]
        if match["block"]:
            return [_Item(start, end, "", [NumberGroup(self._block(match["block"]), start, end, 0, start)])]
        return self._run_items(start, end)

    def _block(self, written: str) -> list[float]:
        """Return the numbers of a YAML list of one number a line."""
        return [float(line.strip().removeprefix("-").strip()) for line in written.splitlines()]

    def _run_items(self, start: int, end: int) -> list[_Item]:
        """Return an item for each outermost bracket, and one for pairs that follow each other on a line."""
        text = self.text
        groups = read_groups(text, start, end, bare=False).groups
        items: list[_Item] = []
        for group in groups:
            last = items[-1] if items else None
            if last is not None and last.groups[-1].outer == group.outer:
                last.groups.append(group)
                last.end = max(last.end, group.end)
                last.closed = group.closed
                continue
            items.append(_Item(group.outer, group.end, "", [group], closed=group.closed))
        for item in items:
            # The closing brackets of lists of lists belong to the item.
            while item.end < end and item.groups[0].depth > 1 and text[item.end] in " \n\t,])}":
                if text[item.end] in "])}":
                    item.groups[0].depth -= 1
                item.end += 1
                if item.groups[0].depth <= 1:
                    break
        return [item for item in items if sum(len(g.numbers) for g in item.groups) > 1]

    def _finish_item(self, item: _Item, before: str) -> None:
        """Find what the words before an item say about it."""
        if item.key or item.kind != "any":
            return
        if _CALL.search(before):
            item.call = item.certain = True
            return
        numbers = [number for group in item.groups for number in group.numbers]
        if _PLACE_WORD.search(before) or any(number % 1 for number in numbers) or before.rstrip().endswith(":"):
            item.certain = max(numbers) >= 10 or any(number % 1 for number in numbers)

    def _join_pairs(self, line: _Line) -> None:
        """Join two pairs that are the corners of one box: `(1, 2) to (3, 4)`."""
        i = 0
        while i + 1 < len(line.items):
            first, second = line.items[i], line.items[i + 1]
            words = line.words[i + 1]
            joint = words == "" or words.isspace() or _JOINT.fullmatch(words)
            lone = _is_pair(first) and _is_pair(second)
            if lone and joint and ("and" not in words.lower() or _FROM.search(line.words[i])):
                first.groups += second.groups
                first.end, first.closed = second.end, second.closed
                del line.items[i + 1], line.words[i + 1]
            elif lone and not words.strip(" ,") and len(first.groups) > 1:
                first.groups += second.groups
                first.end = second.end
                del line.items[i + 1], line.words[i + 1]
            else:
                i += 1

    # Labels.

    def _labels_follow(self, lines: Sequence[_Line]) -> bool:
        """Return whether labels stand after their numbers: on no line before them, and on some after them."""
        leading = trailing = False
        for line in lines:
            if line.items and all(not item.key for item in line.items):
                leading |= self._is_name(line.words[0])
                trailing |= self._is_name(line.words[-1])
        return trailing and not leading

    def _is_name(self, words: str) -> bool:
        label = clean_label(_SCORED.sub("", words))[0]
        return any(map(str.isalpha, label)) and self._key_of(words) is None

    def _key_of(self, words: str) -> str | None:
        """Return the key that words before numbers are as a whole, None if they are none: `Bounding box:`."""
        segments = _SEGMENT.findall(words)
        words = _LIST_NUMBER.sub("", segments[-1]) if segments else ""
        words = _KEY_NOISE.sub("", words).strip()
        if not words or len(words) > 40:
            return None
        if self.keys[words].role in ("shape", "corner", "centre", "size"):
            return words
        lower = words.lower()
        return lower if self.keys[lower].role in ("shape", "corner", "centre", "size") else None

    def _line(self, line: _Line, after: bool) -> None:
        """Turn one line into entries."""
        fields: list[Field] = []
        names: list[str] = []
        score: float | None = None
        anonymous: list[tuple[int, _Item]] = []
        for i, written in enumerate(line.words):
            words = written
            found = _SCORED.search(words)
            if found and i:
                value = float(found[1]) / (100 if found[2] or float(found[1]) > 1 else 1)
                score = value if score is None and 0 <= value <= 1 else score
                words = _SCORED.sub(" ", words)
            item = line.items[i] if i < len(line.items) else None
            words = self._fields_in(words, fields, keep_last=item is not None)
            if item is not None and not item.key and item.kind == "any" and not item.call:
                if key := self._key_of(words):
                    words = words[: words.rfind(_SEGMENT.findall(words)[-1])]
                    words = words.rstrip(" ,;|")
                    bracket = item.end > item.start and self.text[item.start] == "["
                    item.key = "point_2d" if key == "point" and not bracket else key
                    item.certain = True
                elif symbols := _SYMBOLS.search(words):
                    item.key = "top_left" if symbols[1] else "bottom_right"
                    words = words[: symbols.start()]
            names.append(words)
            if item is None:
                continue
            if item.call or (item.key and _CALL.search(words)):
                item.call = True
                names[-1] = ""
            if item.label is not None:
                names[-1] = item.label
            if item.key:
                fields.append(self._field(item))
            else:
                anonymous.append((i, item))
                fields.append(Field(""))  # keeps the place
        if any(item.call for item in line.items):
            names = [""] * len(names)
        real = [f for f in fields if f.key]
        is_bullet = _MARKER.match(line.words[0]) is not None
        if real:
            self._record_line(line, real, anonymous, names, score, is_bullet)
        elif anonymous:
            self._flush()
            self._label_items(line, [item for _, item in anonymous], names, after, score)
        elif any(map(str.isalpha, names[0])) and not names[0].lstrip().startswith("|"):
            self._flush()
            label, trimmed = clean_label(names[0])
            self.entries.append(_Entry(label=label, trimmed=trimmed, start=line.start, end=line.end))

    def _fields_in(self, words: str, fields: list[Field], keep_last: bool) -> str:
        """Move `label: cat` and `confidence: 0.9` from words to fields; return what is left."""
        if ":" not in words and "=" not in words:
            return words
        kept, found = [], False
        segments = _SEGMENT.findall(words)
        for number, segment in enumerate(segments):
            match = _FIELD.fullmatch(_LIST_NUMBER.sub("", segment))
            role = self.keys[match[1]].role if match else "other"
            value = match[2].strip(" \t\"'*`.") if match else ""
            if (
                match
                and role == "label"
                and value
                and not (keep_last and number == len(segments) - 1 and value.endswith(":"))
            ) or (match and role == "score" and value):
                fields.append(Field(match[1], text=value, done=True))
                found = True
            else:
                kept.append(segment)
        return ",".join(kept) if found else words

    def _field(self, item: _Item) -> Field:
        groups: list[list[Value]] = [[(number, None, None) for number in group.numbers] for group in item.groups]
        return Field(item.key, groups, text=item.text, done=item.closed)

    def _record_line(
        self,
        line: _Line,
        fields: list[Field],
        anonymous: list[tuple[int, _Item]],
        names: list[str],
        score: float | None,
        is_bullet: bool,
    ) -> None:
        """Add the fields of one line to the open record, or begin another one."""
        indent = len(line.words[0]) - len(line.words[0].lstrip())
        label, trimmed = clean_label(names[0])
        if not label and len(names) > 1:
            last, last_trimmed = clean_label(names[-1])
            if is_heading(last) and not any(map(str.isdigit, last)):
                label, trimmed = last, last_trimmed
        entry = self.record
        has_label = any(self.keys[f.key].role == "label" for f in fields)
        if entry is not None and entry.record is not None:
            open_fields = entry.record.fields
            begins = is_bullet and (indent < self.indent or (indent == self.indent and not self.bulleted))
            whole = self._has_shape(open_fields)
            if (
                whole
                and (
                    begins
                    or label
                    or (is_bullet and has_label and any(self.keys[f.key].role == "label" for f in open_fields))
                )
            ) or (not whole and label):
                self._flush()
            entry = self.record
        if entry is None:
            self.indent, self.bulleted = indent, True
            entry = self.record = _Entry(record=Record(line.start), start=line.start)
            self.entries.append(entry)
        elif not is_bullet or indent > self.indent:
            self.bulleted = False
        assert entry.record is not None
        if label and not has_label:
            entry.record.fields.append(Field("label", text=label, done=True))
            entry.trimmed |= trimmed
        for _, item in anonymous:
            fields.append(
                Field(
                    "points_2d" if item.kind == "point" else "bbox" if item.kind == "box" else "coordinates",
                    self._field(item).groups,
                    done=item.closed,
                )
            )
        entry.record.fields += fields
        if score is not None:
            entry.record.fields.append(Field("score", [[(score, None, None)]], done=True))
        entry.end = line.end

    def _has_shape(self, fields: Sequence[Field]) -> bool:
        return (
            any(self.keys[f.key].role == "shape" and f.groups for f in fields)
            or len(box_of_sides(sides_of(fields, self.keys))) == 4
        )

    def _flush(self) -> None:
        self.record = None

    def _label_items(self, line: _Line, items: list[_Item], names: list[str], after: bool, score: float | None) -> None:
        """Give the items of one line the words before (or after) them; items without words between share a label."""
        labels = [clean_label(name) for name in names]
        use_after = after or (len(items) == 1 and not labels[0][0] and bool(labels[1][0]))
        order = range(len(items) - 1, -1, -1) if use_after else range(len(items))
        entry: _Entry | None = None
        made: list[_Entry] = []
        for i in order:
            label, trimmed = labels[i + 1] if use_after else labels[i]
            item = items[i]
            has_words = any(map(str.isalnum, label))
            if item.label is not None:
                label, trimmed, has_words = item.label, False, True
            if entry is None or has_words:
                entry = _Entry(
                    label=label if has_words else "",
                    trimmed=trimmed,
                    start=line.start if not i else item.start,
                    score=score,
                )
                entry.items = []
                made.append(entry)
            entry.items.append(item)
        for entry in made:
            entry.items.sort(key=lambda item: item.start)
            entry.start = min(entry.start, entry.items[0].start)
            entry.end = entry.items[-1].end
        self.entries += sorted(made, key=lambda e: e.items[0].start)

    def _name_entries(self) -> None:
        """Give entries without a label that of the line of words before them, or after them in the whole answer."""
        kinds = [
            "w" if not e.items and e.record is None else "s" for e in self.entries if e.items or e.record or e.label
        ]
        shapes, words = kinds.count("s"), kinds.count("w")
        follow = bool(kinds) and kinds[0] == "s" and kinds[-1] == "w" and shapes == words
        heading, trimmed = "", False
        for entry in reversed(self.entries) if follow else self.entries:
            if not entry.items and entry.record is None:
                label = entry.label or ""
                heading, trimmed = (label, entry.trimmed) if is_heading(label) else ("", False)
            elif entry.record is not None:
                if heading and not any(self.keys[f.key].role == "label" for f in entry.record.fields):
                    entry.record.name = heading
                    entry.trimmed |= trimmed
            elif not entry.label and heading and not any(item.call for item in entry.items):
                entry.label, entry.trimmed = heading, trimmed
        labelled = [entry for entry in self.entries if entry.items and entry.label]
        for entry, label in zip(labelled, without_instance_numbers([e.label or "" for e in labelled]), strict=True):
            entry.trimmed |= label != entry.label
            entry.label = label

    # Objects.

    def _emit(self, entry: _Entry) -> None:
        """Add the objects or drops of one entry."""
        builder = self.builder
        if entry.record is not None:
            last = entry.record.fields[-1]
            partial = (
                not last.done
                and bool(last.groups)
                and entry.end >= self.text_end
                and self.keys[last.key].role == "shape"
            )
            builder.truncated |= partial
            if (
                self._has_shape(entry.record.fields)
                or box_of_sides(sides_of(entry.record.fields, self.keys))
                or partial
            ):
                entry.record.start = _first(self.text, entry.start, entry.end)
                entry.record.repairs = ("label_trimmed",) if entry.trimmed else ()
                add_record(entry.record, builder, self.keys, max(entry.end, entry.record.start + 1), partial)
            else:
                numbers = [f for f in entry.record.fields if f.groups and self.keys[f.key].role != "score"]
                if len(numbers) > 1:
                    builder.drop("wrong_arity", _first(self.text, entry.start, entry.end), entry.end)
            return
        if not entry.items:
            return
        start_index = builder.start_count
        counted = False
        for item in entry.items:
            span = (entry.start if item is entry.items[0] else item.start, item.end)
            span = (_first(self.text, *span), span[1])
            if not item.closed:
                if item.end >= self.text_end:
                    builder.truncated = True
                    self._add_closed(item, entry, span, start_index)
                    builder.drop("truncated", *span)
                elif item.call:
                    self._shapes(item, entry, span, start_index)
                elif sum(len(g.numbers) for g in item.groups) > 2:
                    builder.drop("stray_text", *span)
                continue
            counted |= self._shapes(item, entry, span, start_index)
        builder.start_count += counted

    def _add_closed(self, item: _Item, entry: _Entry, span: tuple[int, int], start_index: int) -> None:
        """Add the shapes of a cut-off list that are complete."""
        item.groups = [group for group in item.groups if group.closed]
        if item.groups:
            self._shapes(item, entry, span, start_index)

    def _shapes(self, item: _Item, entry: _Entry, span: tuple[int, int], start_index: int) -> bool:
        """Add the shapes of one item; return whether there was an object."""
        builder, requested = self.builder, self.builder.geometry
        groups = [group.numbers for group in item.groups]
        found = len(builder.objects)
        for geometry, numbers in _divide(item, groups, requested):
            if geometry == "":
                builder.drop(_reason(numbers), *span)
                continue
            repairs = ("label_trimmed",) if entry.trimmed and entry.label else ()
            builder.add_numbers(
                entry.label or "",
                numbers,
                span,
                geometry,
                shape_order(geometry),
                None,
                repairs,
                start_index,
                False,
                entry.score,
            )
        return len(builder.objects) > found


def _reason(numbers: Sequence[float]) -> str:
    return "unrecognised" if len(numbers) < 4 else "wrong_arity"


def _first(text: str, start: int, end: int) -> int:
    """Return the first character that is no white space."""
    while start < end - 1 and text[start].isspace():
        start += 1
    return start


def _is_pair(item: _Item) -> bool:
    return (
        not item.key
        and item.kind == "any"
        and not item.call
        and all(len(group.numbers) == 2 and group.depth == 1 for group in item.groups)
    )


def _divide(item: _Item, groups: list[list[float]], requested: Geometry) -> list[tuple[Geometry, list[float]]]:
    """Divide the numbers of one item into shapes; "" is the geometry of numbers whose meaning is not certain."""
    flat = [number for group in groups for number in group]
    if item.call and requested == "box":
        if len(flat) == 4 and len(groups) == 1:
            return [("point", flat[:2]), ("point", flat[2:])]
        return [("point" if len(group) == 2 else "", group) for group in groups]
    if item.kind == "box" and len(flat) == 4 and flat[:2] == flat[2:]:
        return [("point", flat[:2])]
    if item.kind in ("point", "polygon", "box"):
        return split_shapes(groups, item.kind, requested)
    lengths = {len(group) for group in groups}
    if requested == "box" and lengths == {2}:
        if len(groups) == 1:
            return [("point" if item.certain else "", groups[0])]
        if len(groups) % 2 == 0 and (
            proper_boxes(flat) if len(groups) > 2 else proper_boxes(flat) or item.groups[0].depth == 1
        ):
            if len(groups) == 2 or item.groups[0].depth == 1:
                return split_shapes(groups, "box", requested)
        elif len(groups) % 2 == 0 and item.groups[0].depth == 1:
            return [("", group) for group in groups]
        return [("point", group) for group in groups]
    shapes = split_shapes(groups, "any", requested, pairs_are_boxes=False)
    return [
        (geometry if len(numbers) == 4 or requested != "box" or is_quad_of(geometry, numbers) else "", numbers)
        for geometry, numbers in shapes
        if len(numbers) > 1
    ]


def is_quad_of(geometry: Geometry, numbers: Sequence[float]) -> bool:
    """Return whether a shape of unknown geometry is certain: a pair of a list, or the corners of a quadrilateral."""
    return (geometry == "point" and len(numbers) == 2) or (len(numbers) == 8 and is_quad(numbers))


class TableParser:
    """Parser of tables with a header: CSV, TSV and Markdown."""

    def __init__(self, builder: AnswerBuilder, keys: Keys) -> None:
        self.builder, self.keys = builder, keys

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        header: list[str] | None = None
        separator = ""
        position = begin
        for line in text[begin:].split("\n"):
            start, position = position, position + len(line) + 1
            if not line.strip():
                header = None
                continue
            if header is None:
                header, separator = self._header(line)
            elif set(line) <= set("|-: \t+="):
                continue
            else:
                self._row(header, self._cells(line, separator), start, start + len(line), text)

    def _header(self, line: str) -> tuple[list[str] | None, str]:
        """Return the columns of a header and its separator; None if the line is no header of a table of shapes."""
        for separator in ("|", "\t", ";", ","):
            cells = self._cells(line, separator)
            if len(cells) < 2 or any(re.fullmatch(NUMBER, cell) for cell in cells):
                continue
            names = [re.sub(r"\s*[(\[].*", "", cell).strip() or cell for cell in cells]
            roles = [self.keys[name.lower()].role for name in names]
            sides = {
                self.keys[name.lower()].side: 0.0 for name, role in zip(names, roles, strict=True) if role == "side"
            }
            if "shape" in roles or box_of_sides(sides):
                return [name.lower() for name in names], separator
        return None, ""

    def _cells(self, line: str, separator: str) -> list[str]:
        if separator == "|":
            cells = line.strip().strip("|").split("|") if "|" in line else [line]
        else:
            cells = re.split(rf"{separator}(?![^\[(\"]*[\])\"])", line)
        return [cell.strip().strip("\"'`* ") for cell in cells]

    def _row(self, header: list[str], cells: list[str], start: int, end: int, text: str) -> None:
        builder, keys = self.builder, self.keys
        if len(cells) > len(header) or len(cells) < 2 or not any(map(str.isdigit, "".join(cells))):
            return
        partial = end >= len(text.rstrip()) and (len(cells) < len(header) or not text.endswith("\n"))
        record = Record(start)
        named = any(keys[name].role == "label" for name in header)
        for name, cell in zip(header, cells, strict=False):
            role = keys[name].role
            groups = read_groups(cell, 0, len(cell)).groups if role != "label" else []
            values: list[list[Value]] = [[(number, None, None) for number in group.numbers] for group in groups]
            if role == "label":
                record.fields.append(Field(name, text=cell, done=True))
            elif role in ("other", "list") and not named and any(map(str.isalpha, cell)):
                record.fields.append(Field("label", text=cell, done=True))
                named = True
            elif values:
                record.fields.append(Field(name, values, text=cell if role == "score" else None, done=True))
        cut = partial and len(cells) < len(header)
        builder.truncated |= cut
        add_record(record, builder, keys, end, cut)
