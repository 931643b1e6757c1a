"""Parses objects from lines without marks: YAML, XML, calls and lists, by one rule that refuses what is unsure.

A value with a name is a field of a record, which may go over several lines; other numbers take the words beside them on
their line as their label, else the line of words above (or below, in an answer that begins with numbers). Where these
words are a clause, name several things or are left over, the object is a drop; the only object of an answer, which
needs no label, is kept without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from coord_codec.fields import meaning_of, pattern_of
from coord_eval.parse.builder import AnswerBuilder
from coord_eval.parse.keys import ACTIONS, KEYS, SIDES, Keys
from coord_eval.parse.numbers import NUMBER, PERCENT, NumberGroup, Value, is_quad, proper_boxes, read_groups
from coord_eval.parse.orders import ORDER_KEYS, stated_order
from coord_eval.parse.record import Field, FieldRecord, add_record, box_of_sides, sides_of, stated_units
from coord_eval.parse.words import NO_LABEL, REFUSED, Label, as_written, read_label, without_instance_numbers

_WIDTHS = str.maketrans("\uff08\uff09\uff3b\uff3d\u3010\u3011\uff0c\uff1a\uff1b\uff1d", "()[][],:;=")
"""Full-width punctuation, after a Chinese prompt; one character for one, so that positions stay."""
_PIXELS = re.compile(r"(?<=[0-9])\s?px\b")
_MAX_WORDS = 400
"""Number of characters beside numbers that are searched for their label, for linear time."""
_TAGS = {
    **dict.fromkeys(("point", "points", "click", "pt", "pointer"), "point_2d"),
    **dict.fromkeys(("bbox", "box", "bounding_box", "bndbox", "rect", "bbox_2d"), "bbox"),
    **dict.fromkeys(("polygon", "poly", "quad"), "polygon"),
}
"""Tags around numbers, and the key that says the same."""
_CELLS = frozenset(("td", "th", "tr", "li", "p", "div", "span", "b", "i", "em", "strong", "code", "pre", "ref"))
"""Tags of HTML that name no object."""
_FACTS = frozenset(
    {
        *("filename", "folder", "path", "source", "database", "pose", "truncated", "difficult", "occluded"),
        *("segmented", "depth"),
    }
)
"""Elements of Pascal VOC that are neither label nor shape."""
_SIDE_NAMES = "|".join(sorted(SIDES, key=len, reverse=True))
_FACT_NAME = rf"{pattern_of('turn', 'place', 'unit', 'setting', 'deleted', 'aside')}|t"
_COORDINATE = rf"{NUMBER}(?:{PERCENT})?"
_VERB = (
    r"(?:\w{1,30}\.){0,3}(?:left|right|double|middle|triple|long|mouse)?_?(?:click|tap|press|move_?to|hover|drag|scroll"
    r"|swipe|touch|locate|(?<=left_)double|(?<=right_)single)(?:_?(?:at|to))?|\w{1,30}(?=\([^()\n]{0,60}\baction\s?=)"
)
_VALUE = re.compile(
    rf"""
      (?P<tagged><(?P<tag>{"|".join(_TAGS)})(?P<attributes>(?:\s[^<>]{{0,300}})?)>
        (?P<inner>[-+\s.,;()\[\]]{{0,99}}[0-9][-+\s0-9.,;%()\[\]]{{0,4000}})(?:</(?P=tag)\s*>|(?P<open_tag>\Z)))
    | (?P<element><(?:parameter(?:=|\s+name="))?(?P<leaf>[^\W\d][\w-]{{0,30}})"?>
        \s{{0,99}}(?P<content>[^<>]{{0,400}}?)\s{{0,99}}</(?:(?P=leaf)|parameter)\s*>)
    | (?P<call>(?<![\w])(?i:{_VERB})\s?
        \((?P<arguments>[^()\n]{{0,400}}(?:\([^()\n]{{0,99}}\)[^()\n]{{0,400}}){{0,9}})\))
    | (?<![\w])(?<!<invoke\ )(?P<attribute>(?P<name>:?[^\W\d][\w:.-]{{0,30}})\s*=\s*
        (?P<quote>["'])(?P<value>[^"'<>\n]{{0,400}})(?P=quote))
    | (?<![\w.])(?P<side>(?P<side_name>{_SIDE_NAMES})["'`*]{{0,3}}\s*[:=]\s*["'`*]{{0,3}}(?P<number>{_COORDINATE})["']?
        (?![\w.]?[0-9]|\s*(?:\.\.|-|\u2013|to\b)\s*[0-9]|[ \t]+(?!(?:{_SIDE_NAMES})["'`*]{{0,3}}\s*[:=])[^\W\d]))
    | (?<![\w.-])(?P<fact>(?P<fact_name>{_FACT_NAME})["'`*]{{0,3}}\s{{0,9}}[:=]\s{{0,9}}["'`*]{{0,3}}
        (?P<stated>{NUMBER}(?:\s?(?:deg|rad)[a-z]*|\s?\u00b0|\b)|[a-z][\w-]{{0,30}})["'`*]{{0,3}}(?=\s*(?:[,;|)\]}}/>.]|$))(?!\s*,\s*[0-9]))
    | (?P<block>^[ \t]*-[ \t]+{_COORDINATE}[ \t]*(?:\n[ \t]*-[ \t]+{_COORDINATE}[ \t]*){{1,7}}$)
    | (?P<run>[\[({{][\[\](){{}}\s,;0-9.%+\u2212-]*)
    | (?P<bare>(?<![\w.%\u00b0+\u2212-]){_COORDINATE}(?P<gap>[ \t]*[,|;][ \t]*|[ \t]+){_COORDINATE}
        (?:(?P=gap){_COORDINATE}){{2,4}}(?!(?P=gap)[0-9])(?!\w))
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_ARGUMENT = re.compile(r"(?:(\w+)\s*=\s*)?(\"[^\"]*\"|'[^']*'|[\[(][^\])]*[\])]+|[^,\s]+)")
_CUT_TAG = re.compile(r"\s*<[^<>]{0,40}")
"""The beginning of a tag at the end of a text."""
_ANY_TAG = re.compile(r"<[^<>]{0,40}>")
_LABEL_ATTRIBUTE = re.compile(r"(?:mention|label|alt|name)\s*=\s*[\"']([^\"']*)")
_CONTENT = re.compile(r"\s*/?>\s*(?:<\w{1,20}>)?\s*([^<>]{1,80}?)\s*</[\w.-]{0,30}\s*>?")
"""The text of an element, after its attributes."""
_JOINT = re.compile(r"[\s\"'*`]*(?:,|to|->|[-\u2013\u2014\u2192~]|\u81f3|\u5230|\uff0c)?[\s\"'*`]*", re.IGNORECASE)
"""What may stand between the two corners of a box."""
_CORNER = re.compile(
    r"[\s\"'*_`(-]*\b(?:the\s+)?(top|upper|bottom|lower)[\s_-]*(left|right)\b"
    r"(?:\s+(?:corner|point|is|at|of)\b[^.,;:()\n0-9]{0,30})?[\s\"'*_`:=(-]*$",
    re.IGNORECASE,
)
_SEGMENT = re.compile(r"[^,;|(\u2013\u2014]+")
_PIECE = re.compile(r"[,;|(\u2013\u2014]?[^,;|(\u2013\u2014]*")
_MARKER = re.compile(r"\s*(?:[-*\u2022\u30fb+]\s*(?<=[\s\u30fb])|\(?[0-9]{1,3}[.)]\s*|#+\s+)")
_FIELD = re.compile(r"[\s\"'*_`({-]*([^\W\d][\w \-]{0,28}?)[\"'*_`]*\s*[:=]\s*(.*)", re.DOTALL)
_SCORE_NAMES = "|".join(KEYS["score"])
_SHARE = rf"(?:[0-9]{{1,3}},[0-9]{{1,4}}(?![\w.]|,[0-9])|{NUMBER})"
_SCORES = (
    re.compile(
        rf"[(\[,;|]?\s*(?:with\s+)?(?:a\s+)?\b(?:{_SCORE_NAMES})\s*(?:of\s*)?[:=]?\s*\[?\s*({_SHARE})\s*(%?)\s*[)\]]?",
        re.IGNORECASE,
    ),
    re.compile(r"\(\s*(0?\.[0-9]{1,9}|1\.0{1,9}|[0-9]{1,3}(?:\.[0-9]{1,9})?(?=\s*%))\s*(%?)\s*\)"),
    re.compile(r"(?<=[^\W\d_])[\s:,|]+(0?\.[0-9]{2,9}|1\.00{1,8})\s?(%?)\s*[:,|]?\s*$"),
)
"""A confidence with its name, in brackets, or after a label: `person 0.98`."""
_NOISE = re.compile(r"^[\s\"'*_`(\[{>|.-]+|[\s\"'*_`:=)({\[-]+$|\bthe\b", re.IGNORECASE)
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
_SYMBOLS = re.compile(r"[\[(]?\s*[xywhc]\w{0,9}(?:\s*,\s*[xywhc]\w{0,9}){3}\s*[\])]?\s*[=:]?\s*", re.IGNORECASE)
"""The names of four numbers, beside them."""


@dataclass(slots=True)
class _Item:
    """A value in the text: a field, whose key is "" for numbers without a name.

    Attributes:
        start: first character
        end: character after the last
        field: the key and the value
        label: a label in the same tag
        call: whether it is an argument of a call
        marked: whether marks enclose it
        loose: whether numbers without a name look like many others: no bracket is around them, or they are small
    """

    start: int
    end: int
    field: Field
    label: str = ""
    call: bool = False
    marked: bool = False
    loose: bool = False


@dataclass(slots=True)
class _Line:
    """One line: its words and items in turn; `words[i]` stands before `items[i]`, the last words after all of them."""

    start: int
    words: list[str] = field(default_factory=lambda: [""])
    items: list[_Item] = field(default_factory=list)
    after: bool = False


@dataclass(slots=True)
class _Beside:
    """What the words beside an item are: a label, named values, a confidence, the text of the element before them."""

    words: str
    label: Label
    fields: list[Field]
    score: Field | None
    content: list[Field]


@dataclass(slots=True)
class _Open:
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
        self.entries: list[_Open] = []
        self.open: _Open | None = None
        self.pending_key, self.pending_indent = "", 0
        self.sections: list[tuple[int, str]] = []

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        self.written = text.replace("\\n", " \n")  # of a string
        self.text = _PIXELS.sub(lambda found: " " * len(found[0]), self.written.translate(_WIDTHS))
        self.text_end = len(text.rstrip(", \t\n"))
        self.order = stated_order(self.text[begin:])
        self.nested = {len(item[1]) for item in _NESTED.finditer(self.text, begin)}
        for line in self._lines(begin):
            if line.items:
                self._read_values(line)
            else:
                self._read_words(line)
        for (start, name), (end, _) in pairwise([*self.sections, (len(self.text), "")]):
            self.builder.places.append((start, end, name))
        self._name_by_headings()
        self._emit()

    # Values, and the words between them.

    def _values(self, begin: int, end: int) -> Iterator[_Item]:
        for match in _VALUE.finditer(self.text, begin, end):
            start, stop = match.span()
            match match.lastgroup:
                case "tagged":
                    label = _LABEL_ATTRIBUTE.search(match["attributes"])
                    key, groups = _TAGS[match["tag"].lower()], self._groups(match, "inner")
                    flat = [value for group in groups for value in group]
                    if len(flat) == 4 and key != "point_2d":
                        key, groups = ("point_2d", [flat[:2]]) if flat[:2] == flat[2:] else ("bbox", [flat])
                    item = Field(key, groups, done=match["open_tag"] is None)
                    yield _Item(start, stop, item, label[1] if label else "", marked=True)
                case "element":
                    yield from self._element(match)
                case "call":
                    yield from self._call(match)
                case "attribute":
                    role = "label" if self.keys.fact(match["name"]) else self.keys[match["name"]].role
                    groups = self._groups(match, "value") if role in ("shape", "side", "score") else []
                    if groups or role == "label":
                        text = match["value"] if role == "label" else None
                        yield _Item(start, stop, Field(match["name"], groups, text, done=True))
                case "side":
                    yield _Item(start, stop, Field(match["side_name"], self._groups(match, "number"), done=True))
                case "fact" if self.keys.fact(match["fact_name"]):
                    yield _Item(start, stop, Field(match["fact_name"], text=match["stated"], done=True))
                case "block":
                    yield _Item(start, stop, Field("", self._groups(match, "block"), done=True))
                case "run":
                    yield from self._bracketed(start, stop)
                case "bare":
                    yield from self._bare(match)

    def _groups(self, match: re.Match[str], name: str) -> list[list[Value]]:
        return [group.values for group in read_groups(self.text, *match.span(name)).groups]

    def _element(self, match: re.Match[str]) -> Iterator[_Item]:
        """Yield the value of an element, or those within it."""
        name, content, (start, end) = match["leaf"], match["content"], match.span()
        role = self.keys[name].role
        groups = self._groups(match, "content")
        is_list = len(groups) == 1 and len(groups[0]) == 4 and not any(map(str.isalpha, content))
        if role == "label" or name in _FACTS or self.keys.fact(name) or (name == "action" and not groups):
            yield _Item(start, end, Field(name, text=content, done=True))
        elif role in ("side", "score", "corner", "shape") and groups:
            yield _Item(start, end, Field(name, groups, content if role == "score" else None, done=True), marked=True)
        elif is_list and name.lower() not in _CELLS:
            yield _Item(start, end, Field("bbox", groups, done=True), self.keys.label_of(name), marked=True)
        else:
            yield from self._values(*match.span("content"))

    def _call(self, match: re.Match[str]) -> Iterator[_Item]:
        """Yield the points or boxes that a call has as arguments: `x=1, y=2`, `1, 2`, `start_box='[1, 2, 3, 4]'`."""
        sides: dict[str, Value] = {}
        alone: list[Value] = []
        shapes: list[tuple[str, list[Value]]] = []
        for name, written in _ARGUMENT.findall(_ANY_TAG.sub(" ", match["arguments"])):
            groups = read_groups(written, 0, len(written)).groups
            values = groups[0].values if len(groups) == 1 else []
            if name.lower() in ("x", "y") and len(values) == 1:
                sides[name.lower()] = values[0]
            elif not name and len(values) == 1:
                alone += values
            elif len(values) == 4 and name.lower().endswith("box") and values[:2] != values[2:]:
                shapes.append(("bbox", values))
            elif len(values) in (2, 4):
                shapes += [("point_2d", values[i : i + 2]) for i in range(0, len(values), 2)][: 1 + (name == "")]
        if len(sides) == 2:
            shapes.append(("point_2d", [sides["x"], sides["y"]]))
        shapes += [("point_2d", alone[i : i + 2]) for i in range(0, len(alone) - 1, 2)]
        for key, values in shapes:
            yield _Item(*match.span(), Field(key, [values], done=True), call=True)

    def _bracketed(self, start: int, end: int) -> Iterator[_Item]:
        """Yield an item for each outermost bracket of a run of brackets and numbers."""
        outer: dict[int, list[NumberGroup]] = {}
        for group in read_groups(self.text, start, end, bare=False).groups:
            outer.setdefault(group.outer, []).append(group)
        for first, groups in outer.items():
            last, flat = groups[-1], [number for group in groups for number in group.numbers]
            stop = last.end
            while last.depth > 1 and stop < end and self.text[stop] in "])} \t\n":
                stop += 1
            stop = first + len(self.text[first:stop].rstrip(" \t\n,"))
            quoted = self.text[end : end + 1] in ("'", '"') and len(last.values) >= 4  # [1, 2, 3, 4, "cat"]
            whole = last.closed or quoted
            if len(flat) < 2 and (whole or stop < self.text_end):
                continue
            pairs = all(len(group.values) == 2 for group in groups)
            nested = pairs and (len(groups) > 2 or (len(groups) == 2 and not proper_boxes(flat)))
            loose = len(flat) == 2 and max(flat) < 10 and not any(number % 1 for number in flat)
            values, key = [group.values for group in groups], "points_2d" if nested else ""
            if not whole and len(groups) > 1:
                yield _Item(first, groups[-2].end, Field(key, values[:-1], done=True))
                yield _Item(last.start, stop, Field(key, values[-1:]), loose=loose)
            else:
                yield _Item(first, stop, Field(key, values, done=whole), loose=loose)

    def _bare(self, match: re.Match[str]) -> Iterator[_Item]:
        """Yield four numbers without brackets that end or begin a line, or a cell; five in a row of YOLO."""
        start, end = match.span()
        before = self.text[self.text.rfind("\n", 0, start) + 1 : start].rstrip(" \t")
        after = self.text[end:].partition("\n")[0] if end - start < _MAX_WORDS else ""
        alone = not after.strip(" \t.;|,`)") or not before.strip(" \t-*|`(")
        if before.endswith((">", "<")) and not before.endswith(("->", "=>")):
            alone = after.lstrip().startswith(("<", ">"))  # within an element
        if not alone and not after.lstrip().startswith(("]", ")")):
            return
        values = [value for group in read_groups(self.text, start, end).groups for value in group.values]
        if self.order and len(values) in (5, 6) and not before:
            yield _Item(start, end, Field("", [values[1:5]], done=True), f"{values[0][0]:g}")
        elif len(values) == 4:
            yield _Item(start, end, Field("", [values], done=True), loose=True)

    def _lines(self, begin: int) -> list[_Line]:
        """Divide the text into lines of words and items; a value over several lines belongs to its first."""
        lines, position = [_Line(begin)], begin
        ends = _Item(len(self.text), len(self.text), Field(""))
        for item in (*self._values(begin, len(self.text)), ends):
            first, *rest = self.written[position : item.start].split("\n")
            joint = lines[-1].items and not rest and _JOINT.fullmatch(first)
            lines[-1].words[-1] += first
            at = position + len(first) + 1
            for words in rest:
                lines.append(_Line(at, [words]))
                at += len(words) + 1
            position = item.end
            if item is ends:
                break
            last = lines[-1].items[-1].field if joint else None
            if last is not None and _is_pair(last) and _is_pair(item.field):  # (1, 2) to (3, 4)
                last.groups += item.field.groups
                lines[-1].items[-1].end, last.done, lines[-1].words[-1] = item.end, item.field.done, ""
                continue
            lines[-1].items.append(item)
            lines[-1].words.append("")
        for line in lines:
            line.words = [w if len(w) <= 2 * _MAX_WORDS else f"{w[:_MAX_WORDS]} {w[-_MAX_WORDS:]}" for w in line.words]
        return [line for line in lines if line.items or line.words[0].strip()]

    # Lines become records.

    def _read_words(self, line: _Line) -> None:
        """Read a line of words alone: fields, the key of the lines below, or a heading."""
        fields: list[Field] = []
        words, score = _without_score(line.words[0])
        words = self._fields_in(words, fields, False)
        key, before = self._key_at_end(words, words.rstrip().endswith((":", "=")))
        fields += [score] if score else []
        if fields:
            self._extend(line, fields, line.start, line.start + len(line.words[0]))
        elif key and not before.strip():
            self.pending_key, self.pending_indent = key, _indent(line)
        elif self._is_field(line, words):
            return
        else:
            label = read_label(words, listed=True)
            if _SECTION.fullmatch(label.text) and self.keys.fact(label.text) == "place":
                self.open = None
                self.sections.append((line.start, label.text))
                return
            role = self.keys[label.text.lower()].role
            is_name = len(label.text.split()) <= 6 and ": " not in label.text and not ACTIONS.fullmatch(label.text)
            if label.text or label.refused:
                self.open = None
                label = label if is_name and role in ("other", "side", "label") else REFUSED
                self.entries.append(_Open(line.start, line.start + len(line.words[0]), label))

    def _read_values(self, line: _Line) -> None:
        """Give the items of a line their keys and labels, and add them to records."""
        count = len(line.items)
        self._read_setting(line)
        beside = [self._read_beside(line, i) for i in range(count + 1)]
        labels = [found.label for found in beside]
        if not (self.keys.fact(self.pending_key) and _indent(line) > self.pending_indent):
            self.pending_key = ""
        line.after = not _says(labels[0]) and any(map(_says, labels[1:]))
        own = labels[1:] if line.after else labels[:-1]
        if self._is_running(line, beside) and not any(item.call for item in line.items):
            touches = [found.words[-1:].isalnum() and not line.after for found in beside]
            own = [read_label(beside[i].words, phrase=True) if touches[i] else REFUSED for i in range(count)]
        named = [label.text for label in own if label.text]
        if count > 1 and len(named) == 1 and len(_NAMES_OF_EACH.split(named[0])) == count:
            own = [REFUSED] * count  # cat and dog: [1, 2, 3, 4], [5, 6, 7, 8]
        for i, item in enumerate(line.items):
            if _EXAMPLE.search(beside[i].words):
                self.builder.drop("ambiguous", item.start, item.end)
                continue
            label = Label(item.label) if item.label else NO_LABEL if item.call else own[i]
            score = beside[i].score
            self._add(line, i, item, label, [*beside[i].fields, *([score] if score else [])])
            if beside[i + 1].content:
                self._extend(line, beside[i + 1].content, item.start, item.end)
        last = beside[-1]
        left = [*last.fields, *([last.score] if last.score else [])]
        if left and self.open is not None:
            self._extend(line, left, line.items[-1].start, line.items[-1].end)

    def _read_beside(self, line: _Line, i: int) -> _Beside:
        """Read the words before an item, or after the last one, and set the key that they give it."""
        words, content, fields = line.words[i], list[Field](), list[Field]()
        if i and ">" in words and (inner := _CONTENT.match(words)):
            content.append(Field("alt", text=inner[1], done=True))
            words = words[inner.end() :]
        words, score = _without_score(words)
        item = line.items[i] if i < len(line.items) else None
        words = self._fields_in(words, fields, item is not None)
        if "," in words:
            words = _SYMBOLS.sub(" ", words)
        if item is not None and not item.marked:
            few = sum(map(len, item.field.groups)) <= 2 and self.builder.geometry != "point"
            key, words = self._key_at_end(words, few)
            key = key or (self.pending_key if i == 0 and not words.strip() else "")
            if not item.field.key or (item.field.key == "points_2d" and self.keys[key].kind != "any"):
                item.field.key = key or item.field.key
            if item.field.key == "point" and self.text[item.start] == "(":
                item.field.key = "point_2d"
        label = read_label(words, listed=item is not None and item.loose)
        return _Beside(words, NO_LABEL if ACTIONS.fullmatch(label.text) else label, fields, score, content)

    def _is_running(self, line: _Line, beside: list[_Beside]) -> bool:
        """Return whether a line is a sentence: words stand between its items, or after them, that no mark divides."""
        marked = any(item.marked for item in line.items)
        between = [found.words.strip() for found in beside[1:-1] if _says(found.label)]
        if line.after:
            return not marked and not all(words.endswith((",", ";", "|", "and", "&")) for words in between)
        divided = all(words.lstrip(")]} ").startswith((",", ";", "|", "and ", "&", "<")) for words in between)
        return _says(beside[-1].label) or not (divided or marked)

    def _add(self, line: _Line, i: int, item: _Item, label: Label, fields: list[Field]) -> None:
        """Add an item, and the fields before it, to the open record or to another one."""
        start = item.start - (len(line.words[i].lstrip()) if label.text and not line.after else 0)
        record = self.open
        if record is not None and _says(label):
            if i and not self._is_whole(record) and record.start >= line.start:
                record.label, label = REFUSED, NO_LABEL  # words are left over
            else:
                self.open = None
        elif record is not None and (item.call or record.call):
            self.open = None
        same = record is not None and record.start >= line.start and i > 0
        carried = record.label if record is not None and same and not item.call else NO_LABEL
        self._extend(line, [*fields, item.field], start, item.end, label if _says(label) else carried)
        assert self.open is not None
        self.open.call |= item.call
        self.open.loose |= item.loose and not item.field.key

    def _extend(self, line: _Line, fields: list[Field], start: int, end: int, label: Label = NO_LABEL) -> None:
        """Add fields to the open record; one that has such a field already, or another item of a list, ends it."""
        record, keys = self.open, self.keys
        indent = _indent(line)
        is_bullet = _MARKER.match(line.words[0]) is not None
        if record is not None:
            stems = {keys.stem(item.key or "coordinates") for item in record.fields} - {""}
            another = is_bullet and (indent < record.indent or (indent == record.indent and indent in self.nested))
            repeats = any(keys.stem(item.key or "coordinates") in stems for item in fields)
            if record.end >= line.start:
                another = False  # on the same line
            if repeats or (another and self._is_whole(record)):
                record = None
        if record is None:
            record = self.open = _Open(start, end, label, indent=indent)
            self.entries.append(record)
        record.fields += fields
        record.end = max(record.end, end)

    def _is_whole(self, record: _Open) -> bool:
        """Return whether the fields of a record contain a shape, or the four sides of a box."""
        shapes = [item for item in record.fields if not item.key or self.keys[item.key].role == "shape"]
        return any(any(item.groups) for item in shapes) or bool(box_of_sides(sides_of(record.fields, self.keys)))

    def _read_setting(self, line: _Line) -> None:
        """Give `x` and `y` the key around them: `origin: {x: 1, y: 2}`, or `origin:` on a line above."""
        key = self.pending_key if _indent(line) > self.pending_indent else ""
        if line.words[0].rstrip().endswith("{"):
            key, before = self._key_at_end(line.words[0].rstrip(" {"), setting=True)
            line.words[0] = before if self.keys.fact(key) else line.words[0]
        for item in line.items if self.keys.fact(key) else ():
            if self.keys[item.field.key].role == "side":
                item.field.key = key

    def _is_field(self, line: _Line, words: str) -> bool:
        """Return whether words are a field of the open record that says nothing of its label: `confidence: high`."""
        match = _FIELD.fullmatch(words)
        if self.open is None or match is None or not match[2].strip() or _indent(line) < self.open.indent:
            return False
        if self._named(self.open) and not self._is_whole(self.open) and " " not in match[1].strip():
            return True
        return self.keys[match[1]].role == "score" or meaning_of(match[1]) != ""

    def _key_at_end(self, words: str, setting: bool = False) -> tuple[str, str]:
        """Return the key that names the numbers after these words, "" if none does, and the words before it.

        `setting` allows keys of an origin or a scale, which have one or two numbers.
        """
        if corner := _CORNER.search(words):
            return f"{corner[1]}_{corner[2]}".lower(), words[: corner.start()]
        segments = _SEGMENT.findall(words)
        key = _NOISE.sub("", segments[-1]).strip() if segments else ""
        last = words.rstrip().rpartition(" ")[2].strip("\"'*_`:=(")
        if ("_" in last or words.rstrip().endswith("=")) and self.keys[last].role == "shape":
            return last, words[: words.rfind(last)]  # cat: box_2d [1, 2, 3, 4]
        for name in (key, key.lower()):
            is_setting = setting and self.keys.fact(name) == "unit"
            if is_setting or self.keys[name].role in ("shape", "corner", "centre", "size"):
                return name, words[: words.rfind(segments[-1])].rstrip(" ,;|")
        return "", words

    def _fields_in(self, words: str, fields: list[Field], before_item: bool) -> str:
        """Move `label: cat` to fields, each with all that follows up to the next name; return what is left."""
        if ":" not in words and "=" not in words:
            return words
        kept: list[str] = []
        segments = list(filter(None, _PIECE.findall(words)))
        for number, segment in enumerate(segments):
            match = _FIELD.fullmatch(segment.lstrip(",;|(\u2013\u2014"))
            names_item = before_item and number == len(segments) - 1 and segment.rstrip(" \"'`*").endswith((":", "="))
            if match and match[2].strip() and not names_item and self.keys[match[1]].role == "label":
                fields.append(Field(match[1], text=match[2], done=True))
            elif fields and not match and not names_item and not kept and segment.strip():
                fields[-1].text = f"{fields[-1].text}{segment}"
            else:
                kept.append(segment)
        for item in fields:
            item.text = as_written(item.text or "")
        return "".join(kept)

    # Records become objects.

    def _name_by_headings(self) -> None:
        """Give records without a label that of the line of words before them, or after them if numbers come first."""
        first = next((entry for entry in self.entries if entry.fields), None)
        before = self.entries[: self.entries.index(first)] if first else []
        below = first is not None and all(entry.label.refused for entry in before)
        below &= first is not None and not (_says(first.label) or self._named(first) or first.call)
        heading: _Open | None = None
        for entry in reversed(self.entries) if below else self.entries:
            if not entry.fields:
                heading = entry
            elif heading and not heading.label.refused and not _says(entry.label) and not entry.call:
                entry.label = heading.label
                entry.start, entry.end = min(entry.start, heading.start), max(entry.end, heading.end)
                heading = replace(heading, start=len(self.text), end=0)  # the span of one object alone has it
        named = [entry for entry in self.entries if entry.fields and entry.label.text]
        for entry, text in zip(named, without_instance_numbers([e.label.text for e in named]), strict=True):
            if text != entry.label.text:
                entry.label = Label(text, entry.label.repair or "label_trimmed")

    def _named(self, record: _Open) -> bool:
        return any(self.keys[item.key].role == "label" for item in record.fields)

    def _emit(self) -> None:
        """Add the objects or drops of all records."""
        records = [entry for entry in self.entries if entry.fields]
        whole = [self._is_whole(record) for record in records]
        for record, has_shape in zip(records, whole, strict=True):
            sides = sides_of(record.fields, self.keys)
            if not has_shape and not sides.keys() - {"w", "h"}:
                if self.builder.objects and self._named(record):
                    self.builder.drop("no_coordinates", record.start, record.end)
                if units := stated_units(record.fields, self.keys):
                    self.builder.units.append((-1, len(self.text) + 1, units))  # Units: percent
            elif record.loose and sum(len(group) for item in record.fields for group in item.groups) == 2:
                self.builder.drop("unrecognised", record.start, record.end)
            elif record.label.refused and (sum(whole) > 1 or record.loose or self._says_more(record)):
                self.builder.drop("unread_label", record.start, record.end)
            else:
                self._emit_record(record)

    def _says_more(self, record: _Open) -> bool:
        """Return whether words on the lines of a record may turn, place or delete its box."""
        start = self.text.rfind("\n", 0, record.start) + 1
        end = self.text.find("\n", record.end)
        return _MORE.search(self.text, start, len(self.text) if end < 0 else end) is not None

    def _emit_record(self, record: _Open) -> None:
        start, end, builder = record.start, record.end, self.builder
        open_field = next((item for item in record.fields if item.groups and not item.done), None)
        cut = open_field is not None and end >= self.text_end
        cut |= not self._is_whole(record) and _CUT_TAG.fullmatch(self.text, end, self.text_end) is not None
        builder.truncated |= cut
        for item in record.fields:
            item.key = item.key or self._key_of(item)
            if self.order and self.keys[item.key].kind in ("box", "any") and self.keys[item.key].role == "shape":
                item.key = ORDER_KEYS[self.order]
            if item.key == "":
                few = sum(map(len, item.groups)) < 4
                builder.drop("unrecognised" if few else "wrong_arity", start, end)
        repairs = (record.label.repair,) if record.label.repair else ()
        whole = FieldRecord(start, record.label.text, [item for item in record.fields if item.key], repairs=repairs)
        if any(self.keys[item.key].role in ("shape", "side", "corner", "centre") for item in whole.fields):
            add_record(whole, builder, self.keys, end, cut)

    def _key_of(self, item: Field) -> str:
        """Return a key for numbers without a name; "" where their number tells no shape."""
        if self.builder.geometry != "box":
            return "coordinates"
        for group in item.groups:
            numbers = [number for number, _, _ in group]
            boxes = len(group) % 4 == 0 and proper_boxes(numbers)
            if item.done and not (len(group) in (2, 4) or boxes or (len(group) == 8 and is_quad(numbers))):
                return ""
        return "coordinates"


def _indent(line: _Line) -> int:
    return len(line.words[0]) - len(line.words[0].lstrip())


def _says(label: Label) -> bool:
    return bool(label.text) or label.refused


def _is_pair(item: Field) -> bool:
    """Return whether a value is pairs of numbers without a name, each in its own bracket."""
    return not item.key and bool(item.groups) and len(item.groups[0]) == len(item.groups[-1]) == 2


def _without_score(words: str) -> tuple[str, Field | None]:
    """Return words without the confidences among them, and the first of these."""
    score: Field | None = None
    for pattern in _SCORES if any(map(str.isdigit, words)) else ():
        if found := pattern.search(words):
            score = score or Field("score", text=f"{found[1]}{found[2]}", done=True)
            words = pattern.sub(" ", words)
    return words, score
