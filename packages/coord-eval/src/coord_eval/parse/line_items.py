"""Finds what holds numbers in text without marks: brackets, tags, attributes, named sides, calls, bare lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from coord_eval.parse.numbers import NUMBER, read_groups
from coord_eval.parse.record import LABEL_KEYS, SIDES, Field, Keys

_TAGS = {
    **dict.fromkeys(("point", "points", "click", "pt", "pointer"), "point"),
    **dict.fromkeys(("bbox", "box", "bounding_box", "bndbox", "rect", "bbox_2d"), "box"),
    **dict.fromkeys(("coordinate", "coordinates", "position", "location", "loc"), "any"),
    **dict.fromkeys(("polygon", "poly", "quad"), "polygon"),
}
"""Tags around numbers, and what they say about their geometry."""
_SIDE_NAMES = "|".join(sorted(SIDES, key=len, reverse=True))
_LABEL_NAMES = "|".join(sorted((key for key in LABEL_KEYS if key.isascii()), key=len, reverse=True))
_FOUR = rf"{NUMBER}(?:[ \t]*[,|\t ][ \t]*{NUMBER}){{3}}"
_ITEM = re.compile(
    rf"""
      <(?P<tag>{"|".join(_TAGS)})(?P<attributes>(?:\s[^<>]{{0,300}})?)>
      (?P<inner>[-+\s.,;()\[\]]{{0,99}}[0-9][-+\s0-9.,;()\[\]]{{0,4000}})(?:</(?P=tag)\s*>|(?P<open_tag>\Z))
    | <(?:parameter(?:=|\s+name="))?(?P<leaf>coordinate|action(?![^<>]{{0,20}}>[^<>]{{0,60}}\()|box_2d
        |{_SIDE_NAMES}|{_LABEL_NAMES})"?>
      (?P<text>[^<>]{{0,400}})</(?:(?P=leaf)|parameter)\s*>
    | <(?P<named>[^\W\d][\w\ -]{{0,30}})>\s{{0,20}}[\[(]?\s{{0,20}}(?P<content>{_FOUR})
      \s{{0,20}}[\])]?\s{{0,20}}</(?P=named)\s*>
    | <\s*(?P<angle>{NUMBER}(?:\s*[,;]\s*{NUMBER}){{3}})\s*>
    | (?<![\w])(?<!<invoke\ )(?P<attribute>[A-Za-z_:][\w:.-]{{0,30}})\s*=\s*
      (?P<quote>["'])(?P<value>[^"'<>\n]{{0,400}})(?P=quote)
    | (?<![\w.])(?P<side>{_SIDE_NAMES})["'`*]{{0,3}}(?:\s*[:=]\s*["'`*]{{0,3}}|\s)\s*(?P<number>{NUMBER})
      (?:\s?(?:px|%))?["']?(?![\w.]?[0-9]|\s*(?:\.\.|-|\u2013|to\b)\s*[0-9])
    | ^[ \t]*-[ \t]*(?P<block>{NUMBER}[ \t]*(?:\n[ \t]*-[ \t]*{NUMBER}[ \t]*){{1,7}})$
    | (?P<run>[\[({{][\[\](){{}}\s,;0-9.+-]*)
    | (?:^[ \t]*|(?<=[:=|\t\u2192\u27f6\u21d2])[ \t]{{0,20}}|(?<=[^\W\d],)[ \t]{{0,20}})
      (?P<bare>{_FOUR})[ \t]*[.;|]?[ \t]*$
    | ^[ \t]*(?P<leading>{_FOUR})[ \t]*[,;|\t ][ \t]*(?=(?!(?:or|and|to|of|in|px|pixels)\b)[^\W\d][\w '-]{{0,60}}$)
    | (?<=>)\s{{0,9}}(?P<between>{_FOUR})\s{{0,9}}(?=<)
    | (?<=[^\W\d_])[ \t]+(?P<row>{NUMBER}(?:[ \t]+{NUMBER}){{3}})[ \t]*$
    | (?<=["'],)[ \t]*(?P<listed>{_FOUR})[ \t]*(?=[\])])
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_CLASS_ROW = re.compile(
    rf"^[ \t]*(?P<label>[0-9]{{1,4}})[ \t]+(?P<box>{NUMBER}(?:[ \t]+{NUMBER}){{3}})(?:[ \t]+{NUMBER})?[ \t]*$",
    re.MULTILINE,
)
_NUMBERS = re.compile(NUMBER)
_CELLS = frozenset(("td", "th", "tr", "li", "p", "div", "span", "b", "i", "em", "strong", "code", "pre"))
"""Tags of HTML that name no object."""
_ORDER = re.compile(
    r"(?P<box_2d>\bbox_2d\b)|(?P<cxcywh>\byolo\b|x_?cent(?:er|re)>?\s+<?y_?cent(?:er|re)>?\s+<?w(?:idth)?>?\s+<?h(?:eight)?\b)"
    r"|(?P<yxyx>\by_?(?:min|1|0)\s*,\s*x_?(?:min|1|0)\s*,\s*y_?(?:max|2|1)\s*,\s*x_?(?:max|2|1)\b)"
    r"|(?P<centre_size>\b(?:c_?x|x_?c|x_?cent(?:er|re)|cent(?:er|re)_?x)\s*,\s*\w{1,9}\s*,\s*w(?:idth)?\s*,\s*h(?:eight)?\b)"
    r"|\b(?:format|as|in|order|mode)\W{1,4}(?:(?P<y_first>yxyx)|(?P<centre>cxcywh)|(?P<size>xywh))\b"
    r"|(?P<xywh>\bx\w{0,4}\s*,\s*y\w{0,4}\s*,\s*w(?:idth)?\s*,\s*h(?:eight)?\b)",
    re.IGNORECASE,
)
_NAMES = {"box_2d": "yxyx", "y_first": "yxyx", "centre": "cxcywh", "centre_size": "cxcywh", "size": "xywh"}
ORDER_KEYS = {"yxyx": "box_2d", "xywh": "bbox_xywh", "cxcywh": "bbox_cxcywh"}
"""Keys of boxes in each order that a text may state in words."""
_LABEL_ATTRIBUTE = re.compile(r"(?:mention|label|alt|name)\s*=\s*[\"']([^\"']*)")
_CALL = re.compile(
    r"(?<![\w])(?:\w{1,30}\.)?(?:left|right|double|middle|triple|long|mouse)?_?(?:click|tap|press|move_?to|hover|drag|"
    r"scroll|swipe|point|touch|locate|(?<=left_)double|(?<=right_)single)(?:_?\w{0,12})?(?:\(|</\w{1,20}>)?$",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(r"\(\s*\w{1,30}\s*=\s*[\"']?$")
_IN_CALL = re.compile(r"\b\w{1,30}\((?:[^()\n]{0,200},)?\s*\w{1,30}\s*=\s*[\"']?$")
_BOX_ARGUMENT = re.compile(r"[(,]\s*(?:start_|end_)?(?:bbox|box)\s*=\s*[\"']?$")
_PLACED = re.compile(
    r"\b(?:coordinates?|coords?|points?|positions?|locations?|located|moved?|go|click|tap|cent(?:er|re)|at|x\s*,\s*y)\b[^.]{0,24}$",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(?<![,\w] )\b[xy](?:[ \x5f-]\w{1,12})?\s*[:=\u2208]\s*$", re.IGNORECASE)
"""The name of one axis before the two ends of a box along it."""


@dataclass(slots=True)
class Item:
    """Numbers or a named value in the text.

    Attributes:
        start: first character
        end: character after the last
        key: key that names the value, "" for numbers without a name
        groups: the numbers of each innermost list
        kind: what the text says about their geometry
        text: the value if it is a word
        label: a label in the same tag
        certain: whether two numbers are surely a point
        call: whether they are arguments of a call
        closed: whether the last bracket is closed
        nested: whether one bracket is around several lists
    """

    start: int
    end: int
    key: str = ""
    groups: list[list[float]] = field(default_factory=list)
    kind: str = "any"
    text: str | None = None
    label: str | None = None
    certain: bool = False
    call: bool = False
    closed: bool = True
    nested: bool = False

    @property
    def is_pair(self) -> bool:
        """Whether this is one pair of numbers in its own bracket, or several such pairs that were joined."""
        plain = not (self.key or self.call or self.nested) and self.kind == "any"
        return plain and bool(self.groups) and len(self.groups[0]) == len(self.groups[-1]) == 2

    def as_field(self) -> Field:
        """Return the item as a field of a record; numbers without a name take one that says what they are."""
        kind = "box" if self.kind == "polygon" and sum(map(len, self.groups)) == 4 else self.kind
        key = self.key or {"point": "point_2d", "box": "bbox", "polygon": "polygon"}.get(kind, "coordinates")
        return Field(
            key, [[(number, None, None) for number in group] for group in self.groups], self.text, done=self.closed
        )


def stated_order(words: str) -> str:
    """Return the order of a box that words state, other than both corners; "" if they state none.

    Example:
        >>> stated_order("in the format [ymin, xmin, ymax, xmax]"), stated_order("[x, y, width, height]")
        ('yxyx', 'xywh')
    """
    found = _ORDER.search(words)
    if found is None or ("xyxy" in words and found.lastgroup in ("y_first", "centre", "size")):
        return ""
    return _NAMES.get(name := str(found.lastgroup), name)


def find_items(text: str, begin: int, keys: Keys, order: str = "") -> Iterator[Item]:
    """Yield the items of a text in order; rows of YOLO, with the number of a class, only if it states an `order`."""
    for row in _CLASS_ROW.finditer(text, begin) if order else ():
        yield from _items_between(text, begin, row.start(), keys)
        yield Item(*row.span(), groups=[_flat(text, row, "box")], kind="box", label=row["label"])
        begin = row.end()
    yield from _items_between(text, begin, len(text), keys)


def _items_between(text: str, begin: int, end: int, keys: Keys) -> Iterator[Item]:
    for match in _ITEM.finditer(text, begin, end):
        start, end = match.span()
        match match.lastgroup:
            case "inner" | "open_tag":
                label = _LABEL_ATTRIBUTE.search(match["attributes"])
                yield Item(
                    start,
                    end,
                    groups=_numbers(text, match, "inner"),
                    kind=_TAGS[match["tag"].lower()],
                    label=label and label[1],
                    certain=True,
                    closed=match["open_tag"] is None,
                )
            case "text":
                yield Item(start, end, match["leaf"], _numbers(text, match, "text"), text=match["text"])
            case "value":
                name, role = match["attribute"], keys[match["attribute"]].role
                if role == "label":
                    yield Item(start, end, name, text=match["value"])
                elif role in ("shape", "side") and (groups := _numbers(text, match, "value")):
                    yield Item(start, end, name, groups, certain=True)
            case "number":
                yield Item(start, end, match["side"], _numbers(text, match, "number"))
            case "block":
                numbers = [float(line.strip().removeprefix("-")) for line in match["block"].splitlines()]
                yield Item(start, end, groups=[numbers])
            case "run":
                yield from _bracketed(text, start, end)
            case "content":
                name = "" if match["named"].lower() in _CELLS else keys.label_of(match["named"])
                yield Item(start, end, groups=[_flat(text, match, "content")], kind="box", label=name or None)
            case "angle":
                yield Item(start, end, groups=[_flat(text, match, "angle")])
            case "bare" | "listed" | "row" | "leading" | "between" as name:
                yield Item(*match.span(name), groups=[_flat(text, match, name)])


def _numbers(text: str, match: re.Match[str], name: str) -> list[list[float]]:
    return [group.numbers for group in read_groups(text, *match.span(name)).groups]


def _flat(text: str, match: re.Match[str], name: str) -> list[float]:
    return list(map(float, _NUMBERS.findall(text, *match.span(name))))


def _bracketed(text: str, start: int, end: int) -> Iterator[Item]:
    """Yield an item for each outermost bracket of a run of brackets and numbers."""
    items: list[tuple[int, Item]] = []
    for group in read_groups(text, start, end, bare=False).groups:
        if items and items[-1][0] == group.outer:
            item = items[-1][1]
            item.groups.append(group.numbers)
            item.end, item.closed, item.nested = group.end, group.closed, True
        else:
            items.append((group.outer, Item(group.outer, group.end, groups=[group.numbers], closed=group.closed)))
            items[-1][1].nested = group.depth > 1
        if text[end : end + 1] in ("'", '"') and len(group.numbers) >= 4:  # [1, 2, 3, 4, "cat"]
            items[-1][1].closed = True
    for position, (_, item) in enumerate(items):
        if sum(map(len, item.groups)) > 1 or (not item.closed and not text[end:].strip()):
            stop = items[position + 1][1].start if position + 1 < len(items) else end
            while item.nested and item.end < stop and text[item.end] in "])} \t\n,":
                item.end += 1
            item.end -= len(text[item.start : item.end]) - len(text[item.start : item.end].rstrip(" \t\n,"))
            yield item


def mark_certain(item: Item, before: str) -> None:
    """Find out from the words before an item whether it belongs to a call, and whether two numbers are a point."""
    argument = before.rstrip("\"' ").endswith("=")
    if (item.key.endswith("box") or (argument and _BOX_ARGUMENT.search(before))) and [
        len(group) for group in item.groups
    ] == [4]:
        item.kind = "box"  # click(start_box='[1, 2, 3, 4]'): an element, not the two ends of a stroke
    words = before.split()
    if argument and not item.key and [len(group) for group in item.groups] == [2] and _IN_CALL.search(before):
        item.call = item.certain = True  # do(action="Tap", element=[1, 2])
    elif _CALL.search(before := _ARGUMENT.sub("(", before)) or (
        words and words[-1].isupper() and _CALL.search(words[-1])
    ):
        item.call = item.certain = True
    elif not item.key and item.kind == "any":
        numbers = [number for group in item.groups for number in group]
        fraction = any(number % 1 for number in numbers)
        named = _PLACED.search(before) is not None or before.rstrip().endswith(":")
        item.certain |= (fraction or (named and max(numbers) >= 10)) and not _RANGE.search(before)
