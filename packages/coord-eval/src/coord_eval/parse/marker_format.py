"""Parses objects between marker tokens: those of this project, and the two pairs of Qwen checkpoints.

A regular expression of bounded alternatives splits the text into markers, coordinate tokens and complete objects, which
a state machine processes. Each character is processed at most twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from coord_codec import GEOMETRIES, Geometry, MarkerFamily
from coord_eval.parse.answer import COORD, COORD_PATTERN, AnswerBuilder, shape_order

_OUTSIDE, _DESC, _GAP, _COORDS, _AFTER = range(5)
_ONE = r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)"
_PLAIN_PAIR = r"\([0-9]{1,9},[0-9]{1,9}\)"
_DIGITS = re.compile(r"[0-9]+")
_BETWEEN_PAIRS = frozenset(" ,\t\n")


@lru_cache(maxsize=8)
def _bracket(step: int) -> re.Pattern[str]:
    """Return the pattern of numbers in one bracket, such as `(x,y)`."""
    numbers = r"\s*,\s*".join([_ONE] * step)
    return re.compile(rf"\(\s*{numbers}\s*\)")


@lru_cache(maxsize=8)
def _lexer(tokens: tuple[str, ...], boxes: bool) -> re.Pattern[str]:
    marks = [re.escape(token) for token in tokens]
    if len(marks) == 2:
        (start, end), middle, desc = marks, "", r"[^<(]*"
        rest = rf"(?P<start>{start})|(?P<end>{end})"
    else:
        start, ref_end, box_start, end = marks
        middle, desc = ref_end + box_start, "[^<]*"
        rest = rf"(?P<start>{start})|(?P<ref_end>{ref_end})|(?P<box_start>{box_start})|(?P<end>{end})"
    # The first alternative matches a well-formed object in one step; nearly all objects of a good model are.
    inside = rf"(?:(?P<four>(?:{COORD_PATTERN}){{4}})|(?P<pairs>{_PLAIN_PAIR},{_PLAIN_PAIR}))"
    well_formed = rf"(?P<well_formed>{start}(?P<desc>{desc}){middle}{inside}{end})"
    return re.compile((rf"{well_formed}|" if boxes else "") + rf"{rest}|(?P<coord>{COORD_PATTERN})")


class MarkerParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(
        self,
        builder: AnswerBuilder,
        family: MarkerFamily,
        units: Mapping[str, tuple[int, float]],
        kind: Geometry = GEOMETRIES["box"],
    ) -> None:
        # Without an end marker, a shape is known to be complete only if its geometry has a fixed length.
        self.full_length = kind.most if kind.fixed else None
        self.shape: dict[str, Any] = {"geometry": kind.name, "order": shape_order(kind.name)}
        self.step, self.brackets = kind.step, _bracket(kind.step)
        self.builder = builder
        self.units = units
        self.four_marks = len(family.tokens) == 4
        self.lexer = _lexer(family.tokens, kind.is_box)
        self.state = _OUTSIDE
        self.opened_at = 0
        self.start_index: int | None = None
        self.desc_start = 0
        self.desc: str | None = None
        self.repairs: tuple[str, ...] = ()
        self._clear_box()

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        self.text = text
        handlers = {
            "well_formed": self._well_formed,
            "start": self._start,
            "ref_end": self._ref_end,
            "box_start": self._box_start,
            "end": self._end,
            "coord": self._coord,
        }
        self.last_end = begin
        for match in self.lexer.finditer(text, begin):
            handlers[str(match.lastgroup)](match)
            self.last_end = match.end()
        if self.state not in (_OUTSIDE, _AFTER):
            self.builder.truncated = True
            self._break_off(len(text), "truncated")
        self._flush_stray()

    def _clear_box(self) -> None:
        self.bins: list[int] = []
        self.unit: list[float] = []
        self.first: int | None = None
        self.invalid = False
        self.stray_text = False
        self.stray: tuple[int, int] | None = None

    def _well_formed(self, match: re.Match[str]) -> None:
        self._leave(match.start())
        builder, span = self.builder, match.span()
        if match["pairs"]:
            numbers = [float(digits) for digits in _DIGITS.findall(match["pairs"])]
            builder.add_numbers(match["desc"], numbers, span, start_index=builder.start_count)
            builder.start_count += 1
            self._remember(match["desc"])
            return
        values = [self.units.get(token) for token in COORD.findall(match["four"])]
        first = builder.coord_count
        builder.coord_count += sum(value is not None for value in values)
        builder.start_count += 1
        if None in values:
            builder.drop("invalid_coordinate", *span)
        else:
            bins, unit = zip(*values, strict=True)
            builder.add_box(
                match["desc"], bins, unit, span, first_coord_index=first, start_index=builder.start_count - 1
            )
        self._remember(match["desc"])

    def _remember(self, desc: str) -> None:
        """Close a complete object; further boxes may share its description."""
        self.state, self.desc = (_AFTER if self.four_marks else _OUTSIDE), desc
        self.start_index = self.builder.start_count - 1
        self._clear_box()

    def _start(self, match: re.Match[str]) -> None:
        self._leave(match.start())
        self.state, self.opened_at, self.desc_start = _DESC, match.start(), match.end()
        self.desc, self.repairs = None, ()
        self.start_index = self.builder.start_count
        self.builder.start_count += 1
        self._clear_box()

    def _ref_end(self, match: re.Match[str]) -> None:
        if self.state == _DESC:
            self.desc, self.state = self.text[self.desc_start : match.start()], _GAP

    def _box_start(self, match: re.Match[str]) -> None:
        if self.state == _COORDS:
            self._break_off(match.start(), "nested_start")
            self.opened_at = match.start()
        elif self.state == _DESC:
            self.desc, self.repairs = self.text[self.desc_start : match.start()], ("missing_marker",)
        elif self.state in (_AFTER, _OUTSIDE):
            self._flush_stray()
            if self.state == _OUTSIDE or not set(self.text[self.last_end : match.start()]) <= _BETWEEN_PAIRS:
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
            self._numbers(self.desc_start, match)
        elif self.state == _COORDS and not self.bins and not self.invalid:
            self._numbers(self.last_end, match)
        elif self.state in (_DESC, _GAP):
            self.builder.drop("no_coordinates", self.opened_at, match.end())
        else:
            self.stray_text |= not self._blank(match.start())
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
        else:
            self.stray_text |= not self._blank(match.start())
        if value is None:
            self.invalid = True
            return
        if self.first is None:
            self.first = self.builder.coord_count
        self.builder.coord_count += 1
        self.bins.append(value[0])
        self.unit.append(value[1])

    def _blank(self, end: int) -> bool:
        """Return whether there is only white space between the last lexeme and `end`."""
        return self.last_end == end or not self.text[self.last_end : end].strip()

    def _close(self, end: int, partial: bool = False) -> None:
        span = (self.opened_at, end)
        if self.invalid:
            self.builder.drop("invalid_coordinate", *span)
        elif self.stray_text:
            self.builder.drop("stray_text", *span)
        else:
            self.builder.add_shape(
                self.desc or "",
                self.bins,
                self.unit,
                span,
                first_coord_index=self.first,
                start_index=self.start_index,
                repairs=self.repairs,
                partial=partial,
                **self.shape,
            )

    def _leave(self, position: int) -> None:
        """Finish the open object before a start marker."""
        self._flush_stray()
        if self.state == _GAP:
            self.builder.drop("no_coordinates", self.opened_at, position)
        elif self.state in (_DESC, _COORDS):
            self._break_off(position, "nested_start")

    def _break_off(self, position: int, reason: str) -> None:
        """Keep an object that lacks only its end marker, else drop it."""
        if (self.full_length and len(self.bins) >= self.full_length) or self.invalid:
            # Words after the last coordinate replace the end marker.
            self._close(self.last_end, partial=True)
            return
        # Plain numbers follow the description in families of two markers, and are on their own in those of four.
        in_desc = self.state == _DESC and not self.four_marks
        start = self.desc_start if in_desc else self.last_end
        pairs = self._pairs(start, position) if (in_desc or self.state == _COORDS) and not self.bins else []
        if pairs and self.step * len(pairs) == self.full_length:
            self._numbers(start, None, position)
        else:
            self.builder.drop(reason, self.opened_at, position)

    def _pairs(self, start: int, stop: int) -> list[re.Match[str]]:
        """Return the last consecutive brackets of numbers, `(x,y)`, of a range of the text."""
        pairs = list(self.brackets.finditer(self.text, start, stop))
        first = max(len(pairs) - 1, 0)
        while first > 0 and set(self.text[pairs[first - 1].end() : pairs[first].start()]) <= _BETWEEN_PAIRS:
            first -= 1
        return pairs[first:]

    def _numbers(self, start: int, match: re.Match[str] | None, position: int = 0) -> None:
        """Parse `desc(x1,y1),(x2,y2)`, or the pairs alone if the description is already known."""
        stop, end = match.span() if match else (position, position)
        span = (self.opened_at, end)
        pairs = self._pairs(start, stop)
        if not pairs:
            digits = any(c.isdigit() for c in self.text[start:stop]) and self.state == _COORDS
            self.builder.drop("wrong_arity" if digits else "no_coordinates", *span)
            return
        head = self.text[start : pairs[0].start()]
        if (match and self.text[pairs[-1].end() : stop].strip()) or (self.desc is not None and head.strip()):
            self.builder.drop("stray_text", *span)
            return
        self.builder.add_numbers(
            head if self.desc is None else self.desc,
            [float(number) for pair in pairs for number in pair.groups()],
            span,
            start_index=self.start_index,
            repairs=self.repairs,
            partial=match is None,
            **self.shape,
        )

    def _flush_stray(self) -> None:
        if self.stray is not None:
            self.builder.drop("stray_coordinates", *self.stray)
            self.stray = None
