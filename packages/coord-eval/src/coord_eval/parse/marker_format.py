"""Parses objects between marker tokens: those of this project, and the two pairs of Qwen checkpoints.

A regular expression of bounded alternatives splits the text into markers, coordinate tokens and complete objects, which
a state machine processes. Each character is processed at most twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from coord_codec import Geometry, MarkerFamily
from coord_eval.parse.builder import COORD_PATTERN, AnswerBuilder, Stated, shape_order
from coord_eval.parse.formats import names_after
from coord_eval.parse.numbers import NUMBER, PERCENT, number_of, read_groups, split_shapes
from coord_eval.parse.refusals import says_nothing

_OUTSIDE, _DESC, _GAP, _COORDS, _AFTER = range(5)
_MARKS = ("start", "ref_end", "box_start", "end", "coord")
"""Groups of the lexer; the method that reads each has its name."""
_ONE = rf"({NUMBER})(?:{PERCENT})?"
_PLAIN_PAIR = r"\(([0-9]{1,9}),([0-9]{1,9})\)"
_BETWEEN_PAIRS = frozenset(" ,\t\n")
_BETWEEN_SHAPES = frozenset(" ,;\t\n")


@lru_cache(maxsize=8)
def _bracket(step: int) -> re.Pattern[str]:
    """Return the pattern of numbers in one bracket, such as `(x,y)`."""
    numbers = r"\s*,\s*".join([_ONE] * step)
    return re.compile(rf"\(\s*{numbers}\s*\)")


def well_formed(tokens: tuple[str, ...]) -> str:
    """Return the pattern of a well-formed box in these markers: its description, four tokens, or four numbers."""
    start, *middle, end = [re.escape(token) for token in tokens]
    desc = r"[^<]*" if middle else r"[^<(]*"
    inside = rf"(?:{rf'({COORD_PATTERN})' * 4}|{_PLAIN_PAIR},{_PLAIN_PAIR})"
    return rf"{start}({desc}){''.join(middle)}{inside}{end}"


@lru_cache(maxsize=8)
def _lexer(tokens: tuple[str, ...], boxes: bool) -> re.Pattern[str]:
    names = _MARKS[:4] if len(tokens) == 4 else ("start", "end")
    marks = [rf"(?P<{name}>{re.escape(token)})" for name, token in zip(names, tokens, strict=True)]
    # The first alternative matches a well-formed object in one step; nearly all objects of a good model are.
    whole = [rf"(?P<well_formed>{well_formed(tokens)})"] if boxes else []
    return re.compile("|".join([*whole, *marks, rf"(?P<coord>{COORD_PATTERN})"]))


@dataclass(slots=True)
class _Run:
    """Coordinate tokens without a comma between them: those of one shape."""

    first: int
    bins: list[int] = field(default_factory=list)
    unit: list[float] = field(default_factory=list)
    invalid: bool = False
    end: int = 0


class MarkerParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(
        self, builder: AnswerBuilder, family: MarkerFamily, units: Mapping[str, tuple[int, float]], kind: Geometry
    ) -> None:
        # Without an end marker, a shape is known to be complete only if its geometry has a fixed length.
        self.full_length = kind.most if kind.fixed else None
        self.kind = kind
        self.order = shape_order(kind.name)
        self.step, self.brackets = kind.step, _bracket(kind.step)
        self.builder = builder
        self.units = units
        self.four_marks = len(family.tokens) == 4
        self.tokens = family.tokens
        self.state = _OUTSIDE
        self.opened_at = 0
        self.start_index: int | None = None
        self.desc_start = 0
        self.desc: str | None = None
        self.repairs: tuple[str, ...] = ()
        self.stray: tuple[int, int] | None = None
        self._clear_box()

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        self.text = text
        handlers = {name: getattr(self, f"_{name}") for name in ("well_formed", *_MARKS)}
        self.last_end = begin
        self.names_after = self.four_marks and names_after(text, begin, self.tokens)
        self.named = len(self.builder.objects)
        lexer = _lexer(self.tokens, self.kind.is_box and not self.names_after)
        for match in lexer.finditer(text, begin):
            handlers[match.lastgroup](match)  # type: ignore[index]
            self.last_end = match.end()
        if self.state not in (_OUTSIDE, _AFTER):
            before = len(self.builder.objects)
            self._break_off(len(text), "truncated")
            self.builder.truncated |= self.state != _GAP or len(self.builder.objects) == before
        self._flush_stray()

    def _clear_box(self) -> None:
        self.runs: list[_Run] = []
        self.stray_text = False

    def _well_formed(self, match: re.Match[str]) -> None:
        if self.stray is not None or self.state not in (_OUTSIDE, _AFTER):
            self._leave(match.start())
        builder, units = self.builder, self.units
        _, desc, token_a, token_b, token_c, token_d, a, b, c, d, *_ = match.groups()
        start_index = builder.start_count
        builder.start_count = start_index + 1
        if token_a is None:
            numbers = (float(a), float(b), float(c), float(d))
            builder.add_numbers(Stated(desc, match.span(), start_index), numbers)
        else:
            first = builder.coord_count
            try:
                (a, x1), (b, y1), (c, x2), (d, y2) = units[token_a], units[token_b], units[token_c], units[token_d]
            except KeyError:
                builder.coord_count = first + sum(token in units for token in (token_a, token_b, token_c, token_d))
                builder.drop("invalid_coordinate", *match.span())
            else:
                builder.coord_count = first + 4
                builder.add(Stated(desc, match.span(), start_index), (a, b, c, d), (x1, y1, x2, y2), first)
        self.desc, self.start_index = desc, start_index
        self.state = _AFTER if self.four_marks else _OUTSIDE
        if self.runs or self.stray_text:
            self._clear_box()

    def _start(self, match: re.Match[str]) -> None:
        self._leave(match.start())
        self.state, self.opened_at, self.desc_start = _DESC, match.start(), match.end()
        self.desc, self.repairs = None, ()
        self.start_index = self.builder.start_count
        self.builder.start_count += 1
        self._clear_box()

    def _ref_end(self, match: re.Match[str]) -> None:
        if self.state == _DESC and self.names_after:
            for index in range(self.named, len(self.builder.objects)):
                self.builder.rename(index, self.text[self.desc_start : match.start()], start_index=self.start_index)
            self.named, self.state = len(self.builder.objects), _OUTSIDE
        elif self.state == _DESC:
            self.desc, self.state = self.text[self.desc_start : match.start()], _GAP

    def _box_start(self, match: re.Match[str]) -> None:
        if self.state == _COORDS:
            self._break_off(match.start(), "nested_start")
            self.opened_at = match.start()
        elif self.state == _DESC:
            self.desc, self.repairs = self.text[self.desc_start : match.start()], ("missing_marker",)
        elif self.state in (_AFTER, _OUTSIDE):
            self._flush_stray()
            if self.state == _OUTSIDE or not _BETWEEN_SHAPES.issuperset(self.text[self.last_end : match.start()]):
                self.desc, self.start_index = "", None
            self.repairs = ()
            self.opened_at = match.start()
        self.state = _COORDS
        self._clear_box()

    def _end(self, match: re.Match[str]) -> None:
        if self.state in (_OUTSIDE, _AFTER):
            return
        if self.state == _DESC and not self.four_marks:
            # Plain numbers instead of tokens follow the description directly.
            self._numbers(self.desc_start, *match.span(), partial=False)
        elif self.state == _COORDS and not self.runs:
            self._numbers(self.last_end, *match.span(), partial=False)
        elif self.state in (_DESC, _GAP):
            self.builder.drop("no_coordinates", self.opened_at, match.end())
        else:
            self.stray_text |= not _BETWEEN_SHAPES.issuperset(self.text[self.last_end : match.start()])
            self._close(match.end())
        self.state = _AFTER if self.four_marks else _OUTSIDE
        self._clear_box()

    def _coord(self, match: re.Match[str]) -> None:
        value = self.units.get(match.group())
        if self.state in (_OUTSIDE, _AFTER):
            start = match.start() if self.stray is None else self.stray[0]
            self.stray = (start, match.end())
            self.builder.coord_count += value is not None
            return
        if self.state == _DESC:
            self.desc = self.text[self.desc_start : match.start()]
            self.repairs = ("missing_marker",) if self.four_marks else ()
            self.state = _COORDS
        elif self.state == _GAP:
            self.repairs, self.state = ("missing_marker",), _COORDS
        elif self.last_end != match.start() and (gap := self.text[self.last_end : match.start()].strip()):
            if _BETWEEN_SHAPES.issuperset(gap) and self.runs:
                self.runs.append(_Run(self.builder.coord_count))
            else:
                self.stray_text = True
        if not self.runs:
            self.runs.append(_Run(self.builder.coord_count))
        run = self.runs[-1]
        run.end = match.end()
        if value is None:
            run.invalid = True
            return
        self.builder.coord_count += 1
        run.bins.append(value[0])
        run.unit.append(value[1])

    def _close(self, end: int, partial: bool = False, reason: str = "wrong_arity") -> None:
        """Add the shapes of the open object; `reason` is that of a drop for a last one that is not complete."""
        runs, span = self.runs, (self.opened_at, end)
        for run in runs:
            if run.invalid:
                self.builder.drop("invalid_coordinate", *span)
            elif self.stray_text:
                self.builder.drop("stray_text", *span)
            elif run is runs[-1] and partial and not self.kind.fits(len(run.bins)):
                self.builder.drop(reason, *span)
            else:
                stated = Stated(self.desc or "", span, self.start_index, self.repairs, partial)
                is_box = self.kind.name == "point" and len(run.bins) == 4
                shape = ("box", "xyxy") if is_box else (self.kind.name, self.order)
                self.builder.add_numbers(stated, run.bins, *shape, None, run.unit, run.first)

    def _leave(self, position: int) -> None:
        """Finish the open object before a start marker."""
        self._flush_stray()
        if self.state in (_DESC, _GAP, _COORDS):
            self._break_off(position, "no_coordinates" if self.state == _GAP else "nested_start")

    def _break_off(self, position: int, reason: str) -> None:
        """Keep an object that lacks only its end marker, else drop it."""
        runs = self.runs
        if runs and ((self.full_length and len(runs[0].bins) >= self.full_length) or any(run.invalid for run in runs)):
            # Words after the last coordinate replace the end marker.
            self._close(self.last_end, partial=True, reason=reason if len(runs) > 1 else "wrong_arity")
            return
        # Plain numbers follow the description in families of two markers, and are on their own in those of four.
        in_desc = self.state == _DESC and not self.four_marks
        start = self.desc_start if in_desc else self.last_end
        pairs = self._pairs(start, position) if (in_desc or self.state in (_GAP, _COORDS)) and not runs else []
        if pairs and self.full_length and self.step * len(pairs) % self.full_length == 0:
            self.repairs = ("missing_marker",) if self.state == _GAP else self.repairs
            self._numbers(start, position, position, partial=True)
            if any(map(str.isdigit, self.text[pairs[-1].end() : position])):
                self.builder.drop(reason, pairs[-1].end(), position)
        else:
            self.builder.drop(reason, self.opened_at, position)

    def _pairs(self, start: int, stop: int) -> list[re.Match[str]]:
        """Return the last consecutive brackets of numbers, `(x,y)`, of a range of the text."""
        pairs = list(self.brackets.finditer(self.text, start, stop))
        first = max(len(pairs) - 1, 0)
        while first > 0 and _BETWEEN_PAIRS.issuperset(self.text[pairs[first - 1].end() : pairs[first].start()]):
            first -= 1
        return pairs[first:]

    def _numbers(self, start: int, stop: int, end: int, partial: bool) -> None:
        """Parse `desc(x1,y1),(x2,y2)`, or the numbers alone if the description is already known."""
        span, desc = (self.opened_at, end), self.desc
        if pairs := self._pairs(start, stop):
            if desc is None:
                desc = self.text[start : pairs[0].start()]
                start = pairs[0].start()
            if partial:
                stop = pairs[-1].end()
        elif desc is None:
            found = read_groups(self.text, start, stop)
            numbers = sum(len(group.values) for group in found.groups)
            if not numbers or len(found.groups[-1].values) != 4 or not found.groups[-1].depth:
                self.builder.drop("unrecognised" if numbers >= 4 else "no_coordinates", *span)
                return
            start, desc = found.groups[-1].outer, self.text[start : found.groups[-1].outer]
        inside = self.text[start:stop]
        found = read_groups(inside, 0, len(inside))
        groups = [group.values for group in found.groups]
        if not groups and says_nothing(inside):
            self.builder.explicit_empty = True
            return
        if not groups:
            self.builder.drop("no_coordinates", *span)
            return
        is_pair = len(groups) == 1 and len(groups[0]) == 2
        is_box = self.kind.name == "point" and sum(map(len, groups)) == 4  # the box of a click
        kind = "box" if is_box or (self.kind.is_box and not is_pair) else "any"
        per_shape = [self.step * part.count("(") for part in inside.split(";")]
        if pairs and (found.words or (len(per_shape) > 1 and {*per_shape} != {self.full_length})):
            self.builder.drop("stray_text", *span)
            return
        for geometry, values in split_shapes(groups, kind, self.kind.name, number_of):
            if found.words:
                self.builder.drop("stray_text" if self.kind.fits(len(values)) else "wrong_arity", *span)
                continue
            stated = Stated(desc, span, self.start_index, self.repairs, partial)
            self.builder.add_values(stated, values, geometry)

    def _flush_stray(self) -> None:
        if self.stray is not None:
            self.builder.drop("stray_coordinates", *self.stray)
            self.stray = None
