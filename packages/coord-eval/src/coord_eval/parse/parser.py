"""Parses the text of an answer: recognises its format and calls the parser of that format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from coord_codec import CoordGrid, Geometry, MarkerFamily, geometry_of
from coord_codec.arguments import expect, plain
from coord_codec.thoughts import blanked, find_thoughts
from coord_eval.parse.answer import Answer, Drop, ParsedObject, Status
from coord_eval.parse.builder import COORD, COORD_START, AnswerBuilder, UnitScale, token_units
from coord_eval.parse.escapes import without_escapes
from coord_eval.parse.formats import FORMATS, LISTS, TABLE
from coord_eval.parse.json_format import ROWS, JsonParser
from coord_eval.parse.keys import PLACES, Keys
from coord_eval.parse.marker_format import MarkerParser
from coord_eval.parse.numbers import NUMBER
from coord_eval.parse.plain_answers import plain_answer
from coord_eval.parse.refusals import says_nothing
from coord_eval.parse.unread import unread_numbers

_FLOW = re.compile(r"^[ \t]{0,40}(?:-[ \t]{1,9})?\w{1,40}:(?:[ \t]|$)", re.MULTILINE)
"""A line of YAML."""
_FLOW_PAIR = re.compile(
    r"(?P<key>\b[a-z][a-z_]{0,30}[ \t]?[:=][ \t]{0,9})"
    rf"""\{{(?P<first>\s*["']?(?:x|cx|w|width)["']?\s*:\s*)(?P<a>{NUMBER})\s*,"""
    rf"""(?P<second>\s*["']?(?:y|cy|h|height)["']?\s*:\s*)(?P<b>{NUMBER})\s*\}}""",
    re.IGNORECASE,
)
"""Two numbers of YAML that may be a part of a box: `position: {x: 1, y: 2}`."""
_BUILT_IN = len(FORMATS)
_EMPTY_LIST = re.compile(r"\[\s*\]")
_TURN = re.compile(
    r"<\|im_start\|>assistant\b|<start_of_turn>model\b|<\|turn>model\b|<[|\uff5c]assistant[|\uff5c]>|\[/INST\]"
    r"|<\|start_header_id\|>assistant<\|end_header_id\|>|<\|im_assistant\|>\w{0,20}<\|im_middle\|>"
    r"|^\W{0,5}(?:user|human|question|instruction)(?: ?:|$)(?s:.{0,4000}?)"
    r"(?:^\W{0,5}(?:assistant|gpt|model|answer|response)(?: ?:|$)|\s(?-i:ASSISTANT:))",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of the answer in a text that repeats the question."""
_FINAL = re.compile(
    r"(?:^|(?<=[.!?;]\s))\W{0,4}(?:(?:my|the)\s+)?(?:final|corrected|revised|updated)\s+answers?(?:\W{0,4}:|\s+is\b)",
    re.IGNORECASE | re.MULTILINE,
)
_FOUR = re.compile(r"[0-9](?:[^0-9\n]{1,12}[0-9.]+){3}")
_NEXT_TURN = re.compile(
    r"<\|im_(?:start|user)\|>|<start_of_turn>|<\|turn>|<[|\uff5c]user[|\uff5c]>|<\|start_header_id\|>|\[INST\]",
    re.IGNORECASE,
)
_SPEAKS = ("ssistant", "SSISTANT", "nswer", "NSWER", "start_of_turn", "<|turn>", "/INST]", "esponse", "\nmodel")
"""What a text contains that has turns, or a final answer."""
_UNUSUAL = re.compile("|".join(map(re.escape, (*_SPEAKS, "\u25c1", "&"))))
"""What a label of a plain answer does not contain, since it may be a mark or an escape."""


def parse_answer(
    text: str,
    format: str | MarkerFamily = "auto",
    *,
    scale: float | Literal["pixels"] | None = None,
    image_size: tuple[float, float] | None = None,
    grid: CoordGrid = CoordGrid(),
    keep_flat: bool = False,
    preferred: Sequence[str] = (),
    geometry: str = "box",
    aspect: float | None = None,
    need_labels: bool = True,
) -> Answer:
    """Parse the objects of one answer.

    Parsing takes one pass in linear time, and no text raises an error: unparsable pieces are in `dropped` with a
    reason, which is `unrecognised` if no format matches. Thoughts (`<think>`) are skipped, all else counts. A box needs
    exactly four valid coordinates, another geometry its own number. Of nested start markers the inner one counts.
    Repeats are kept and counted; swapped corners and missing labels are listed as repairs.

    Args:
        text: the answer, including special tokens
        format: a name of `FORMATS`, your own marker family, or `auto`: the format whose tokens the text contains, and
            among several the one with the most objects
        scale: divisor of plain numbers; `"pixels"` for pixels of `image_size`; None assumes that of the grid (1000) and
            sets `scale_assumed`. It does not affect coordinate tokens
        image_size: `(width, height)` of the image that the model was given, for `scale="pixels"`
        grid: the grid of the coordinate tokens
        keep_flat: keep boxes without area, which are otherwise dropped, for callers that replace the sides
        preferred: formats of the whole set, the most frequent first; `auto` chooses the first of them that has objects
        geometry: geometry that the coordinates between markers describe, a name of `coord_codec.GEOMETRIES`; in JSON
            the keys determine it, and those of keypoints count only if named here
        aspect: width of the image divided by its height, for boxes with an angle; that of `image_size` for pixels.
            None takes the image as square, which such a box says (`square_assumed`); NaN drops it
        need_labels: drop a box beside words that name nothing for certain, which else has no label

    Raises:
        ValueError: for an unknown format or geometry or an invalid scale, never because of the text

    Example:
        >>> answer = parse_answer('[{"bbox_2d": [250, 200, 750, 800], "label": "dog"}, {"bbox_2d": [10, 20')
        >>> answer.format, answer.objects[0].desc, answer.objects[0].box
        ('json', 'dog', (0.25, 0.2, 0.75, 0.8))
        >>> [drop.reason for drop in answer.dropped], answer.truncated
        (['truncated'], True)
    """
    expect("text", text, str)
    scale, image_size = plain(scale), plain(image_size)
    expect("grid", grid, CoordGrid)
    expect("preferred", preferred, Sequence)
    for name in preferred:
        expect("preferred", name, str)
    resolved, kind = _resolve_scale(scale, image_size, grid), geometry_of(geometry)
    if resolved.x != resolved.y and not kind.has_points:
        raise ValueError(
            f"scale: the lengths and angles of the geometry {kind.name} are no pixels of width or height: name one "
            "number, or leave it out"
        )
    if format != "auto" and not isinstance(format, MarkerFamily) and (type(format) is not str or format not in FORMATS):
        raise ValueError(f"format: expected auto, {', '.join(FORMATS)} or a MarkerFamily, found {format!r}")
    if aspect is None and image_size is not None and (sides := _sides(image_size)) is not None:
        aspect = sides[0] / sides[1]
    if kind.is_box and not keep_flat and isinstance(format, str):
        keys = _keys("box", "json", tuple(FORMATS))
        if (plainly := plain_answer(text, format, resolved, token_units(grid), keys, _UNUSUAL)) is not None:
            return plainly
    parse = _Parse(text, resolved, grid, kind, keep_flat, aspect, need_labels)
    if format != "auto":
        return parse.with_left_out(parse.with_unread(parse.with_format(format)))
    answer, names = parse.with_any_format(preferred)
    answer = parse.with_left_out(parse.with_unread(answer, others=True))
    return replace(answer, formats=tuple(names)) if len(names) > 1 else answer


class _Parse:
    """One text, and what does not depend on the format."""

    def __init__(
        self,
        text: str,
        scale: UnitScale,
        grid: CoordGrid,
        kind: Geometry,
        keep_flat: bool,
        aspect: float | None,
        need_labels: bool,
    ) -> None:
        if "\\" in text or "&" in text or '""' in text:
            text = without_escapes(text)
        if "{" in text and text.find("{", text.find("{") + 1) > 0:
            text = _with_lists(text, _keys(kind.name, "json", tuple(FORMATS)))
        self.text, self.scale, self.kind, self.keep_flat = text, scale, kind, keep_flat
        self.units, self.aspect, self.need_labels = token_units(grid), aspect, need_labels
        self.begin, self.end = 0, len(text)
        self.withdrawn: list[tuple[int, int]] = []
        self.hidden: list[tuple[int, str]] = []
        thoughts, self.thought = find_thoughts(text)
        if thoughts or self.thought is not None:
            self._hide(thoughts)
        if any(map(text.__contains__, _SPEAKS)):
            self._begin_at_answer()

    def _hide(self, thoughts: list[tuple[int, int]]) -> None:
        """Leave out the thoughts: those before and behind all words by the range, others by blanks in their place."""
        text = self.text
        self.end = len(text) if self.thought is None else self.thought
        while thoughts and not text[self.begin : thoughts[0][0]].strip():
            self.begin = thoughts.pop(0)[1]
        while thoughts and not text[thoughts[-1][1] : self.end].strip():
            self.end = thoughts.pop()[0]
        self.hidden = [(end, text[start:end]) for start, end in thoughts]
        self.text = blanked(text, thoughts)

    def _begin_at_answer(self) -> None:
        """Leave out the question before the answer; what the model wrote before it or a final answer is withdrawn."""
        text, begin = self.text, self.begin
        for turn in _TURN.finditer(text, begin, self.end):
            asked = _NEXT_TURN.search(text, begin, turn.start())
            self.withdrawn.append((begin, asked.start() if asked else turn.start()))
            begin = turn.end()
        if begin > self.begin and (following := _NEXT_TURN.search(text, begin, self.end)):
            self.end = following.start()
        finals = [at for at in _FINAL.finditer(text, begin, self.end) if _FOUR.search(text, at.end(), self.end)]
        if finals:
            self.withdrawn.append((begin, finals[-1].start()))
            begin = finals[-1].end()
        self.withdrawn = [(start, end) for start, end in self.withdrawn if _FOUR.search(text, start, end)]
        self.begin = begin

    def with_left_out(self, answer: Answer) -> Answer:
        """Return an answer with a drop for each object, or piece, that the text withdraws, and for an open thought."""
        drops: list[Drop] = []
        for start, end in self.withdrawn:
            part = copy(self)
            part.begin, part.end = start, end
            earlier = part.with_unread(part.with_any_format()[0], others=True)
            drops += [Drop("withdrawn", item.span) for item in earlier]
            drops += [Drop("withdrawn", drop.span) for drop in earlier.dropped]
        if self.thought is not None:
            drops.append(Drop("unclosed_thought", (self.thought, len(self.text))))
        if not drops:
            return answer
        return replace(
            answer,
            dropped=tuple(sorted((*answer.dropped, *drops), key=lambda drop: drop.span)),
            status="partial" if answer.objects else "failed",
            truncated=answer.truncated or self.thought is not None,
        )

    def with_any_format(self, preferred: Sequence[str] = ()) -> tuple[Answer, Sequence[str]]:
        """Parse the text in the formats whose tokens it contains; return the best answer and these formats."""
        names = _candidates(self.text, self.begin, self.end)
        answers = [self.with_format(name) for name in names]
        if len(answers) == 1 and answers[0].objects:
            if names[0] == "json" and not any(item.desc for item in answers[0]) and _FLOW.search(self.text):
                by_lines = self.with_format(LISTS.name)  # labels around `bbox: {x1: 1, ...}` are in YAML
                if [item.box for item in by_lines] == [item.box for item in answers[0]]:
                    answers.append(by_lines)
        elif not any(map(_is_match, answers)):
            # Numbers without marks can mean anything, so that these formats are tried last.
            for row in (TABLE, LISTS):
                if row.name not in names and not any(answer.objects or _has_meaning(answer) for answer in answers):
                    answers.append(self.with_format(row.name))
        return _best(answers, preferred) if len(answers) > 1 else answers[0], names

    def with_unread(self, answer: Answer, others: bool = False) -> Answer:
        """Return an answer that accounts for every number: what it leaves out is read in `others`, or a drop."""
        spans = [*(item.span for item in answer.objects), *answer.zeros, *(drop.span for drop in answer.dropped)]
        if not (left := unread_numbers(self.text, self.begin, self.end, spans)):
            return answer
        objects, left_out, truncated = list(answer.objects), list(answer.dropped), answer.truncated
        if others and answer.objects:
            parse = copy(self)
            parse.text, parse.thought = _without(self.text, spans), None
            rest, _ = parse.with_any_format()
            known = {(item.bins, item.order) for item in objects}
            if rest.objects:
                for item in rest:
                    if (item.bins, item.order) not in known:  # else words about an object that is known
                        index = None if item.start_index is None else item.start_index + answer.start_count
                        objects.append(item._replace(start_index=index, first_coord_index=None))
                left_out += [drop for drop in rest.dropped if drop.reason != "unrecognised"]
                truncated |= rest.truncated
                spans += [item.span for item in rest.objects] + [drop.span for drop in rest.dropped]
                left = unread_numbers(self.text, self.begin, self.end, spans)
        left_out += [Drop("unread_numbers", span) for span in left]
        kept = tuple(sorted(objects, key=lambda item: item.span[0]))
        dropped = tuple(sorted(left_out, key=lambda drop: drop.span[0]))
        status: Status = "failed" if not kept else "partial" if dropped else "ok"
        return replace(answer, objects=kept, dropped=dropped, status=status, truncated=truncated)

    def with_format(self, name: str | MarkerFamily, fractions: bool = False) -> Answer:
        """Parse the text in one format; if nothing is recognised, it is dropped as a whole."""
        text, begin, end = self.text, self.begin, self.end
        row = None if isinstance(name, MarkerFamily) else FORMATS.get(name)
        family = name if isinstance(name, MarkerFamily) else row and row.markers
        label = "json" if row and row.keys else name.name if isinstance(name, MarkerFamily) else name
        builder = AnswerBuilder(label, self.scale, self.kind.name, self.keep_flat, fractions, self.aspect)
        builder.text, builder.need_labels = text, self.need_labels
        # Token indices count the whole text, including its reasoning, like the lists of log-probabilities.
        builder.coord_count = self._tokens(0, begin)
        if end < len(text):
            text = text[:end]
        if family:
            builder.start_count = text.count(family.tokens[0], 0, begin)
            MarkerParser(builder, family, self.units, self.kind).parse(text, begin)
        elif row and row.pattern:
            from coord_eval.parse.pattern_format import PatternParser

            PatternParser(builder, row).parse(text, begin)
        elif row:
            keys = _keys(self.kind.name, row.name if row.keys else "json", tuple(FORMATS))
            if row.keys:
                JsonParser(builder, self.units, keys).parse(text, begin)
            elif row.reader == "table":
                from coord_eval.parse.table_format import TableParser

                TableParser(builder, keys).parse(text, begin)
            else:
                from coord_eval.parse.line_format import LineParser

                LineParser(builder, keys).parse(text, begin)
        if builder.fractions and builder.ones and not fractions:
            return self.with_format(name, fractions=True)  # [0, 0, 1, 1] among fractions is the whole image
        if not (builder.objects or builder.dropped or builder.explicit_empty):
            stripped = text[begin:].strip()
            if says_nothing(stripped):
                builder.explicit_empty = True
            elif stripped:
                start = text.index(stripped, begin)
                builder.drop("unrecognised", start, start + len(stripped))
        builder.coord_count += self._tokens(end, len(self.text))
        answer = builder.build(text[begin:])
        return self._with_hidden(answer, family.tokens[0] if family else "") if self.hidden else answer

    def _with_hidden(self, answer: Answer, start_token: str) -> Answer:
        """Return an answer whose indices and counts include the tokens of the thoughts between its objects."""
        for end, thought in self.hidden:
            tokens = sum(token in self.units for token in COORD.findall(thought))
            starts = thought.count(start_token) if start_token else 0
            items = [item if item.span[0] < end else _moved(item, tokens, starts) for item in answer]
            answer = replace(
                answer,
                objects=tuple(items),
                coord_count=answer.coord_count + tokens,
                start_count=answer.start_count + starts,
            )
        return answer

    def _tokens(self, start: int, stop: int) -> int:
        """Return the number of coordinate tokens in a range of the text."""
        return sum(token in self.units for token in COORD.findall(self.text, start, stop))


def _moved(item: ParsedObject, tokens: int, starts: int) -> ParsedObject:
    """Return an object whose indices count some more coordinate tokens and start marks before it."""
    first, start = item.first_coord_index, item.start_index
    return item._replace(
        first_coord_index=None if first is None else first + tokens,
        start_index=None if start is None else start + starts,
    )


def _with_lists(text: str, keys: Keys) -> str:
    """Return a text, as long as it was, with `position: [1, 2]` for the YAML `position: {x: 1, y: 2}` of a box."""
    found = list(_FLOW_PAIR.finditer(text))
    names = [match["key"].rstrip(" \t:=") for match in found]
    parts = [name in PLACES or keys[name].role in ("corner", "centre", "size") for name in names]
    if len({name for name, is_part in zip(names, parts, strict=True) if is_part}) < 2:
        return text
    pieces, last = [], 0
    for match, is_part in zip(found, parts, strict=True):
        if is_part:
            values = f"[{' ' * len(match['first'])}{match['a']},{' ' * len(match['second'])}{match['b']}"
            pieces += [text[last : match.end("key")], values.ljust(match.end() - match.end("key") - 1), "]"]
            last = match.end()
    return "".join([*pieces, text[last:]])


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return a text with line breaks for some of its ranges."""
    parts, last = [], 0
    for start, stop in sorted(spans):
        parts += [text[last:start], "\n" * (stop - max(start, last))]
        last = max(last, stop)
    return "".join([*parts, text[last:]])


@lru_cache(maxsize=64)
def _keys(geometry: str, name: str, state: tuple[str, ...]) -> Keys:
    """Return the meanings of keys, which are found once for each state of the registry."""
    return Keys(geometry, FORMATS[name] if name != "json" else None)


def _is_match(answer: Answer) -> bool:
    """Return whether parsing with a format gave objects, faulty objects or an empty list."""
    return answer.status == "empty" or any(drop.reason != "unrecognised" for drop in answer.dropped) or bool(answer)


def _has_meaning(answer: Answer) -> bool:
    """Return whether an answer has boxes that are drops for what a field of theirs says."""
    return any(drop.reason in ("turned", "other_unit", "out_of_range", "deleted") for drop in answer.dropped)


def _best(answers: Sequence[Answer], preferred: Sequence[str]) -> Answer:
    """Return the answer of the first preferred format with objects, else the one with the most objects and labels."""
    rank = {name: place for place, name in enumerate(preferred)}

    def cost(answer: Answer) -> tuple[bool, int, int, int, bool, int]:
        place, labels = rank.get(answer.format, len(rank)), sum(bool(item.desc) for item in answer.objects)
        return (
            not answer.objects, place, -len(answer.objects), -labels, not _is_match(answer), len(answer.dropped)
        )  # fmt: skip

    return min(answers, key=cost)


def _candidates(text: str, begin: int, end: int) -> list[str]:
    """Return the formats whose tokens a range of a text contains, the preferred one first, `none` if there are none."""
    text = text if begin == 0 and end == len(text) else text[begin:end]
    formats = []
    has_rows = "[" in text and ('"' in text or "'" in text) and ROWS.search(text) is not None
    if "{" in text or has_rows or ("[" in text and _EMPTY_LIST.search(text)):
        formats.append("json")
    for name, row in FORMATS.items() if "<" in text or len(FORMATS) > _BUILT_IN else ():
        if row.markers:
            found = row.markers.tokens[0] in text or row.markers.tokens[-2] in text
        elif row.pattern:
            found = not row.needs
            for piece in row.needs:
                found = found or piece in text
            found = found and row.shown.search(text) is not None
        else:
            continue
        if found:
            formats.append(name)
    if len(formats) > 1:
        formats.sort(key=[*FORMATS].index)
    return formats or ["obj" if COORD_START in text else "none"]


def _sides(image_size: object) -> tuple[float, float] | None:
    """Return width and height, None if they are not two positive numbers."""
    sides = list(map(plain, image_size)) if isinstance(image_size, list | tuple) else []
    is_size = len(sides) == 2 and all(type(side) in (int, float) and side > 0 for side in sides)
    return (sides[0], sides[1]) if is_size else None


def _resolve_scale(scale: float | str | None, image_size: tuple[float, float] | None, grid: CoordGrid) -> UnitScale:
    if scale is None and image_size is None:
        return UnitScale(grid.scale, grid.scale, assumed=True)
    if scale is None or scale == "pixels":
        sides = _sides(image_size)
        if sides is None:
            raise ValueError(f"image_size: expected width and height for scale='pixels', found {image_size!r}")
        return UnitScale(float(sides[0]), float(sides[1]), pixels=True)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < float("inf"):
        raise ValueError(f"scale: expected a positive number, 'pixels' or None, found {scale!r}")
    return UnitScale(scale, scale)
