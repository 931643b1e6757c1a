"""Divides a text into lines, and each into values (fields, elements, calls, brackets of numbers) and words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from coord_codec.fields import pattern_of
from coord_eval.parse.keys import SIDES, Keys
from coord_eval.parse.numbers import NUMBER, PERCENT, NumberGroup, Value, proper_boxes, read_groups, values_in
from coord_eval.parse.orders import setting_of, stated_order
from coord_eval.parse.record import Field, field_of

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
_CELLS = frozenset("td th tr li p div span b i em strong code pre ref".split())
"""Tags of HTML that name no object."""
_OF_VOC = frozenset(
    "filename folder path source database pose truncated difficult occluded segmented depth action".split()
)
"""Elements of Pascal VOC, and of calls, that are neither label nor shape."""
_SIDE_NAMES = "|".join(sorted(SIDES, key=len, reverse=True))
_FACT_NAME = rf"{pattern_of('turn', 'place', 'unit', 'setting', 'deleted', 'aside')}|t"
_COORDINATE = rf"{NUMBER}(?:{PERCENT})?"
_NUMBER = re.compile(_COORDINATE)
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
    | (?P<setting>{setting_of(NUMBER)})
    | (?P<call>(?<![\w])(?i:{_VERB})\s?
        \((?P<arguments>[^()\n]{{0,400}}(?:\([^()\n]{{0,99}}\)[^()\n]{{0,400}}){{0,9}})\))
    | (?<![\w])(?<!<invoke\ )(?P<attribute>(?P<name>:?[^\W\d][\w:.-]{{0,30}})\s*=\s*
        (?P<quote>["'])(?P<value>[^"'<>\n]{{0,400}})(?P=quote))
    | (?<![\w.])(?P<side>(?P<side_name>{_SIDE_NAMES})["'`*]{{0,3}}\s*[:=]\s*["'`*]{{0,3}}(?P<number>{_COORDINATE})["']?
        (?![\w.]?[0-9]|\s*(?:\.\.|-|\u2013|to\b)\s*[0-9]|[ \t]+(?!(?:{_SIDE_NAMES})["'`*]{{0,3}}\s*[:=])[^\W\d]))
    | (?<![\w.-])(?P<fact>(?P<fact_name>{_FACT_NAME})["'`*]{{0,3}}\s{{0,9}}[:=]\s{{0,9}}["'`*]{{0,3}}
        (?P<stated>{NUMBER}(?:\s?(?:deg|rad)[a-z]*|\s?\u00b0|\b)|[a-z][\w-]{{0,30}})["'`*]{{0,3}}
        (?=\s*(?:[,;|)\]}}/>.]|$))(?!\s*,\s*[0-9]))
    | (?P<block>^[ \t]*-[ \t]+{_COORDINATE}[ \t]*(?:\n[ \t]*-[ \t]+{_COORDINATE}[ \t]*){{1,7}}$)
    | (?P<run>[\[({{][\[\](){{}}\s,;0-9.%+\u2212-]*)
    | (?P<pair>^[ \t]*{_COORDINATE}[ \t]*[, \t][ \t]*{_COORDINATE}[ \t]*\.?$)
    | (?P<bare>(?<![\w.%\u00b0+\u2212-]){_COORDINATE}(?P<gap>[ \t]*[,|;][ \t]*|[ \t]+){_COORDINATE}
        (?:(?P=gap){_COORDINATE}){{2,4}}(?!(?P=gap)[0-9])(?!\w))
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_TWO_POINTS = re.compile(r"drag|swipe|scroll|move", re.IGNORECASE)
"""Calls whose four numbers are two points; those of a click are a box."""
_ARGUMENT = re.compile(r"(?:(\w+)\s*[=:]\s*)?(\"[^\"]*\"|'[^']*'|[\[(][^\])]*[\])]+|[^,\s]+)")
_ANY_TAG = re.compile(r"<[^<>]{0,40}>")
_LABEL_ATTRIBUTE = re.compile(r"(?:mention|label|alt|name)\s*=\s*[\"']([^\"']*)")
_JOINT = re.compile(r"[\s\"'*`]*(?:,|to|->|[-\u2013\u2014\u2192~]|\u81f3|\u5230|\uff0c)?[\s\"'*`]*", re.IGNORECASE)
"""What may stand between the two corners of a box."""


@dataclass(slots=True)
class Item:
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

    @property
    def is_pair(self) -> bool:
        """Whether it is pairs of numbers without a name, each in its own bracket."""
        groups = self.field.groups
        return not self.field.key and bool(groups) and len(groups[0]) == len(groups[-1]) == 2


@dataclass(slots=True)
class Line:
    """One line: its words and items in turn; `words[i]` stands before `items[i]`, the last words after all of them."""

    start: int
    words: list[str] = field(default_factory=lambda: [""])
    items: list[Item] = field(default_factory=list)

    @property
    def indent(self) -> int:
        """Number of blanks before the words."""
        return len(self.words[0]) - len(self.words[0].lstrip())


class Values:
    """The values of a text.

    Attributes:
        text: the text, as long as that which is given, in which full-width punctuation is plain
        end: character after the last that is neither blank nor comma
        order: order of boxes that the words state, "" for corners
    """

    def __init__(self, text: str, begin: int, keys: Keys) -> None:
        self.begin, self.keys = begin, keys
        self.written = text.replace("\\n", " \n")  # of a string
        self.text = _PIXELS.sub(lambda found: " " * len(found[0]), self.written.translate(_WIDTHS))
        self.end = len(text.rstrip(", \t\n"))
        self.order = stated_order(self.text[begin:])

    def lines(self) -> list[Line]:
        """Return the lines of words and items; a value over several lines belongs to its first."""
        lines, position = [Line(self.begin)], self.begin
        for item in self._items(self.begin, len(self.text)):
            is_joint = self._add_words(lines, position, item.start)
            position, line = item.end, lines[-1]
            last = line.items[-1] if is_joint and line.items else None
            if last is not None and last.is_pair and item.is_pair:  # (1, 2) to (3, 4)
                last.field.groups += item.field.groups
                last.field.done = item.field.done
                last.end, line.words[-1] = item.end, ""
            else:
                line.items.append(item)
                line.words.append("")
        self._add_words(lines, position, len(self.text))
        for line in lines:
            line.words = [w if len(w) <= 2 * _MAX_WORDS else f"{w[:_MAX_WORDS]} {w[-_MAX_WORDS:]}" for w in line.words]
        return [line for line in lines if line.items or line.words[0].strip()]

    def _add_words(self, lines: list[Line], start: int, end: int) -> bool:
        """Add the words of a range to the last line and to new ones; return whether they join two corners."""
        first, *rest = self.written[start:end].split("\n")
        lines[-1].words[-1] += first
        start += len(first) + 1
        for words in rest:
            lines.append(Line(start, [words]))
            start += len(words) + 1
        return not rest and _JOINT.fullmatch(first) is not None

    def _items(self, begin: int, end: int) -> Iterator[Item]:
        for match in _VALUE.finditer(self.text, begin, end):
            start, stop = match.span()
            match match.lastgroup:
                case "tagged":
                    yield self._tagged(match)
                case "element":
                    yield from self._element(match)
                case "setting" if self.keys.requested != "point":  # else it is a point of this name
                    written = match["setting_numbers"]
                    numbers = " ".join(re.findall(NUMBER, written))
                    yield Item(start, stop, Field(match["setting_name"], values_in(written), numbers, done=True))
                case "setting":
                    yield from self._items(*match.span("setting_numbers"))
                case "call":
                    yield from self._call(match)
                case "attribute":
                    if found := field_of(match["name"], match["value"], self.keys):
                        yield Item(start, stop, found)
                case "side":
                    yield Item(start, stop, Field(match["side_name"], values_in(match["number"]), done=True))
                case "fact" if self.keys.fact(match["fact_name"]):
                    yield Item(start, stop, Field(match["fact_name"], text=match["stated"], done=True))
                case "block":
                    yield Item(start, stop, Field("", values_in(match["block"]), done=True))
                case "run":
                    position = start
                    for item in self._bracketed(start, stop):
                        yield from self._between(position, item.start)
                        yield item
                        position = item.end
                    yield from self._between(position, stop)
                case "pair" if self.keys.requested == "point":
                    yield Item(start, stop, Field("point_2d", values_in(match["pair"]), done=True))
                case "bare":
                    yield from self._bare(match)

    def _tagged(self, match: re.Match[str]) -> Item:
        """Return the numbers of a tag such as `<point label="cat">1, 2</point>`."""
        item = Field(_TAGS[match["tag"].lower()], values_in(match["inner"]), done=match["open_tag"] is None)
        values = item.values
        if len(values) == 4 and item.key != "point_2d":
            is_point = values[:2] == values[2:]
            item.key, item.groups = ("point_2d", [values[:2]]) if is_point else ("bbox", [values])
        label = _LABEL_ATTRIBUTE.search(match["attributes"])
        return Item(*match.span(), item, label[1] if label else "", marked=True)

    def _element(self, match: re.Match[str]) -> Iterator[Item]:
        """Yield the value of an element, or those within it."""
        name, content, span = match["leaf"], match["content"], match.span()
        groups = values_in(content)
        is_list = len(groups) == 1 and len(groups[0]) == 4 and not any(map(str.isalpha, content))
        if name in _OF_VOC and not (name == "action" and groups):
            yield Item(*span, Field(name, text=content, done=True))
        elif found := field_of(name, content, self.keys):
            yield Item(*span, found, marked=bool(found.groups))
        elif is_list and name.lower() not in _CELLS:
            yield Item(*span, Field("bbox", groups, done=True), self.keys.label_of(name), marked=True)
        else:
            yield from self._items(*match.span("content"))

    def _call(self, match: re.Match[str]) -> Iterator[Item]:
        """Yield the points or boxes that a call has as arguments: `x=1, y=2`, `1, 2`, `start_box='[1, 2, 3, 4]'`."""
        sides: dict[str, Value] = {}
        alone: list[Value] = []
        shapes: list[tuple[str, list[Value]]] = []
        for name, written in _ARGUMENT.findall(_ANY_TAG.sub(" ", match["arguments"])):
            groups = values_in(written)
            values = groups[0] if len(groups) == 1 else []
            if name.lower() in ("x", "y") and len(values) == 1:
                sides[name.lower()] = values[0]
            elif not name and len(values) == 1:
                alone += values
            elif len(values) in (2, 4):
                shapes += _of_click(values, "" if name.lower().endswith("box") else match["call"])
        if len(sides) == 2:
            shapes.append(("point_2d", [sides["x"], sides["y"]]))
        shapes += _of_click(alone[: len(alone) // 2 * 2], match["call"])
        for key, values in shapes:
            yield Item(*match.span(), Field(key, [values], done=True), call=True)

    def _bracketed(self, start: int, end: int) -> Iterator[Item]:
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
            if len(flat) < 2 and (whole or stop < self.end):
                continue
            pairs = all(len(group.values) == 2 for group in groups)
            nested = pairs and (len(groups) > 2 or (len(groups) == 2 and not proper_boxes(flat)))
            loose = len(flat) == 2 and max(flat) < 10 and not any(number % 1 for number in flat)
            values, key = [group.values for group in groups], "points_2d" if nested else ""
            if not whole and len(groups) > 1:
                yield Item(first, groups[-2].end, Field(key, values[:-1], done=True))
                yield Item(last.start, stop, Field(key, values[-1:]), loose=loose)
            else:
                yield Item(first, stop, Field(key, values, done=whole), loose=loose)

    def _between(self, start: int, end: int) -> Iterator[Item]:
        """Yield four numbers without brackets that stand beside some with brackets: `[1, 2, 3, 4]; 5, 6, 7, 8`."""
        for match in _VALUE.finditer(self.text, start, end) if end - start > 6 else ():
            if match.lastgroup == "bare":
                yield from self._bare(match, is_divided=True)

    def _bare(self, match: re.Match[str], is_divided: bool = False) -> Iterator[Item]:
        """Yield four numbers without brackets that end or begin a line, or a cell; five or six in a row of YOLO.

        `is_divided`: what stands beside them on their line are other numbers.
        """
        start, end = match.span()
        before = self.text[self.text.rfind("\n", 0, start) + 1 : start].rstrip(" \t")
        after = self.text[end:].partition("\n")[0] if end - start < _MAX_WORDS else ""
        alone = not after.strip(" \t.;|,`)") or not before.strip(" \t-*|`(")
        if before.endswith((">", "<")) and not before.endswith(("->", "=>")):
            alone = after.lstrip().startswith(("<", ">"))  # within an element
        alone |= is_divided and not after.lstrip()[:1].isalnum()
        if not alone and not after.lstrip().startswith(("]", ")")):
            return
        values = [value for group in values_in(match["bare"]) for value in group]
        if self.order and len(values) in (5, 6) and not before:
            yield from self._row(start, end, values)
        elif len(values) == 4:
            yield Item(start, end, Field("", [values], done=True), loose=True)

    def _row(self, start: int, end: int, values: list[Value]) -> Iterator[Item]:
        """Yield the box of a row of YOLO, the class before it, and the confidence or number of a track behind it."""
        numbers = [value[0] for value in values]
        is_last_share = values[-1][1] is not None or 0 <= numbers[-1] <= 1
        first = 1
        if numbers[0] % 1 or (len(numbers) == 5 and is_last_share and max(numbers[1:4]) > 1):
            first = 0  # no class
        if len(numbers) > first + 5 or not (is_last_share or numbers[-1] % 1 == 0):
            return
        stop = [found.end() for found in _NUMBER.finditer(self.text, start, end)][first + 3]
        yield Item(start, stop, Field("", [values[first : first + 4]], done=True), f"{numbers[0]:g}" if first else "")
        if len(numbers) == first + 5 and is_last_share:
            yield Item(stop, end, Field("score", [values[-1:]], done=True))


def _of_click(values: list[Value], call: str) -> list[tuple[str, list[Value]]]:
    """Return the keys and numbers of the shapes that are arguments of a call: a box, or points."""
    is_box = len(values) == 4 and values[:2] != values[2:] and not _TWO_POINTS.search(call.partition("(")[0])
    if is_box:
        return [("bbox", values)]
    points = [("point_2d", values[i : i + 2]) for i in range(0, len(values), 2)]
    return points[:1] if values[:2] == values[2:] else points
