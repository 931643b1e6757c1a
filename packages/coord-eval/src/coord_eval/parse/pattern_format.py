"""Parses the objects of a format that a regular expression describes (`TextFormat.pattern`), in one pass."""

from __future__ import annotations

import re
from itertools import pairwise

from coord_codec import GEOMETRIES
from coord_eval.parse.answer import Geometry
from coord_eval.parse.builder import AnswerBuilder, Stated
from coord_eval.parse.formats import TextFormat, names_after
from coord_eval.parse.numbers import is_quad, proper_boxes, read_number, split_shapes

_BETWEEN = frozenset(" ,;\t\r\n[](){}")
_TAGS = re.compile(r"</?[a-z_]+>|<delim>")
_OTHER_TAG = re.compile(r"<|\w>")
_NOTHING = re.compile("none|null", re.IGNORECASE)
_MAX_LABEL = 400
"""Number of characters before an object that are searched for its label."""
_BREAK_OF_TOKENS, _BREAK_OF_NUMBERS = re.compile(r"[^\s]"), re.compile(r"[\[\](){};]")
_CUT_TOKEN = re.compile(r"[\s,;]*<[^<>\s]{0,20}")
"""The beginning of a token at the end of a text."""
_CLOSED = re.compile(r"[0-9][^<]*(?:<[0-9][^<]*)*<(?:/[^<>]*|\|/[^<>]*|\|[a-z]+_end\|)>$")
"""Numbers and an end mark at the end of a text."""


class PatternParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, row: TextFormat) -> None:
        self.builder, self.row = builder, row
        self.number = re.compile(row.number)
        self.noise = re.compile(row.noise) if row.noise else None
        self.opening = re.compile(row.opening) if row.opening else None
        self.names = row.compiled.groupindex
        self.stated: list[Geometry] = [name for name in ("polygon", "point") if name in self.names]
        self.is_token = row.bins is not None or row.number.startswith("<")
        self.units = row.units
        self.percent, self.turn = False, 0.0

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        self.text, self.text_end = text, len(text.rstrip())
        self.label = ""
        self.start_index: int | None = None
        last_end = begin
        self.is_after = bool(self.row.marks) and names_after(text, begin, self.row.marks)
        pattern = re.compile(self.row.pattern_after) if self.is_after else self.row.compiled
        for match in pattern.finditer(text, begin):
            if self.opening is not None and last_end < match.start():
                self._between(last_end, match.start())
            self._object(match, last_end)
            last_end = match.end()
        self._between(last_end, len(text), last=True)

    def _between(self, start: int, end: int, last: bool = False) -> None:
        """Drop each start of an object without coordinates."""
        if self.opening is None:
            return
        starts = [match.start() for match in self.opening.finditer(self.text, start, end)]
        for position, following in pairwise([*starts, end]):
            cut = last and following == end and _CLOSED.search(self.text, position, self.text_end) is None
            self._drop_incomplete(cut, position, following)

    def _name(self, match: re.Match[str], last_end: int) -> int:
        """Set the label of an object, and return the position at which the object begins."""
        start = begin = match.start()
        between = self.text[max(last_end, start - _MAX_LABEL) : start] if last_end < start else ""
        if self.row.label == "before":
            begin = start - len(between)
            shares = self.start_index is not None and _BETWEEN.issuperset(between)
            label = "" if shares else self.noise.sub(" ", between) if self.noise is not None else between
            label = label.strip().rpartition("\n")[2]
        else:
            written = match["label"] if "label" in self.names else None
            if written is None and "label_of_all" in self.names:
                written = match["label_of_all"]
            has_name = self.start_index is not None and not self.is_after
            shares = written is None and has_name and start - last_end <= _MAX_LABEL
            if shares and between:
                shares = _BETWEEN.issuperset(_TAGS.sub("", between) if "<" in between else between)
            label = written or ""
            if self.noise is not None:
                label = self.noise.sub("", label) if "<" in label else label
        if not shares:
            self.label = label
            self.start_index = self.builder.start_count
            self.builder.start_count += 1
        return begin if not shares else start

    def _object(self, match: re.Match[str], last_end: int) -> None:
        builder, row = self.builder, self.row
        start, end = self._name(match, last_end), match.end()
        has_end = "end" in self.names
        partial = has_end and not match["end"].strip()
        is_cut = self.is_token and self.text_end - end < 24 and _CUT_TOKEN.fullmatch(self.text, end, self.text_end)
        at_end = end >= self.text_end or bool(is_cut)
        cut = at_end and (partial or not has_end)
        box_start, box_end = match.span("box")
        written = self.text[box_start:box_end]
        geometry = next((name for name in reversed(self.stated) if match[name]), None)
        first = builder.coord_count
        if row.bins:
            builder.coord_count += len(self.number.findall(written)) if self.is_token else 0
        if row.label == "before" and _OTHER_TAG.search(self.label):  # the tokens of another format
            builder.drop("stray_text", start, end)
            return
        groups, last = self._groups(box_start, box_end)
        open_number = at_end and partial and not self.is_token and last == self.text_end
        if row.groups is not None:
            groups = row.groups(written)
        if not groups:
            if _NOTHING.search(written):
                builder.explicit_empty = True
            else:
                self._drop_incomplete(at_end and partial, start, end)
            return
        count = sum(map(len, groups))
        self.percent = "%" in written
        self.turn = float(match["angle"] or 0) if "angle" in self.names else 0.0
        if self.percent and written.count("%") < count:
            builder.drop("invalid_coordinate", start, end)  # percentages and plain numbers in one shape
            return
        for shape, values in self._shapes(groups, geometry, cut):
            index = first if row.bins else None
            first += len(values)
            count -= len(values)
            if not count and (open_number or (cut and shape == "box" and len(values) < row.arity)):
                self._drop_incomplete(True, start, end)
            else:
                self._add(values, shape, (start, end), index, partial)
        builder.truncated |= at_end and partial

    def _add(
        self, values: list[float], geometry: Geometry, span: tuple[int, int], index: int | None, partial: bool
    ) -> None:
        builder, row = self.builder, self.row
        own_order = geometry == "box" or (geometry == "point" and len(row.order) == 2)
        stated = Stated(self.label, span, self.start_index, (), partial)
        placed = stated, values, geometry, row.order if own_order else "", row.scale
        if not row.bins:
            builder.add_numbers(*placed, [number / 100 for number in values] if self.percent else ())
        elif max(values) >= row.bins:
            builder.drop("invalid_coordinate", *span)
        elif row.decode and len(values) == row.arity:
            builder.add(stated, tuple(values), row.decode(values), index, order="")
        else:
            builder.add_numbers(*placed, [self.units[int(k)] for k in values], index, self.turn)

    def _drop_incomplete(self, cut: bool, start: int, end: int) -> None:
        self.builder.truncated |= cut
        self.builder.drop("truncated" if cut else "no_coordinates", start, end)

    def _groups(self, start: int, end: int) -> tuple[list[list[float]], int]:
        """Return the numbers of each innermost list or run of tokens, and where the last number ends."""
        groups: list[list[float]] = []
        breaks = _BREAK_OF_TOKENS if self.is_token else _BREAK_OF_NUMBERS
        last = start
        convert = int if self.row.bins else read_number
        for part in self.number.finditer(self.text, start, end):
            if not groups or breaks.search(self.text, last, part.start()):
                groups.append([])
            groups[-1] += map(convert, part.groups() or (part[0],))
            last = part.end()
        return groups, last

    def _shapes(
        self, groups: list[list[float]], stated: Geometry | None, cut: bool
    ) -> list[tuple[Geometry, list[float]]]:
        """Divide groups into shapes, by the geometry that the text states or the caller expects, or by their length."""
        row, requested = self.row, self.builder.geometry
        shape: Geometry = "point" if row.kind == "point" else "box"
        flat = [value for group in groups for value in group]
        if stated is not None:
            if stated == "polygon" and not cut and len(flat) == 4:
                return [("box", flat)]  # Hunyuan's lines: two corners
            return split_shapes(groups, stated, requested)
        if row.groups is not None:
            return [(shape, group) for group in groups]
        if row.kind == "point" or row.decode:
            return [(shape, flat[i : i + row.arity]) for i in range(0, len(flat), row.arity)]
        if row.kind == "any" and self.is_token:
            return [shape for group in groups for shape in self._by_count(group)]
        if not self.is_token:
            # One pair in the marks of a box is a point; several are corners.
            is_box = requested == "point" and len(flat) == 4  # the box of a click
            kind = "any" if row.order == "xyxy" and not is_box and (len(groups) == 1 or requested != "box") else "box"
            return split_shapes(groups, kind, requested)
        return [shape for group in groups for shape in self._run(group, cut)]

    def _by_count(self, run: list[float]) -> list[tuple[Geometry, list[float]]]:
        requested = self.builder.geometry
        if requested not in ("box", "point") and GEOMETRIES[requested].fits(len(run)):
            return [(requested, run)]
        return [("point" if len(run) == 2 else "polygon" if len(run) > 4 and len(run) % 2 == 0 else "box", run)]

    def _run(self, run: list[float], cut: bool) -> list[tuple[Geometry, list[float]]]:
        """Divide tokens without anything between them: shapes that are expected, else quadrilaterals, else boxes."""
        requested, arity = self.builder.geometry, self.row.arity
        if requested not in ("box", "point"):
            kind = GEOMETRIES[requested]
            if kind.fixed and len(run) % kind.most == 0:
                return [(requested, run[i : i + kind.most]) for i in range(0, len(run), kind.most)]
            if kind.fits(len(run)) and len(run) > 4:
                return [(requested, run)]
        if len(run) % 8 == 0 and not proper_boxes(run):
            quads = [run[i : i + 8] for i in range(0, len(run), 8)]
            if all(map(is_quad, quads)):
                return [("polygon", quad) for quad in quads]
        if len(run) % arity and not cut:
            return [("box", run)]
        return [("box", run[i : i + arity]) for i in range(0, len(run), arity)]
