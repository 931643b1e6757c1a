"""Parses the objects of a format that a regular expression describes (`TextFormat.pattern`), in one pass."""

from __future__ import annotations

import re
from itertools import pairwise

from coord_codec import GEOMETRIES
from coord_eval.parse.answer import AnswerBuilder, Geometry, shape_order
from coord_eval.parse.formats import TextFormat

_BETWEEN = frozenset(" ,;\t\r\n[](){}")
_NOTHING = re.compile("none|null", re.IGNORECASE)
_MAX_LABEL = 400
"""Number of characters before an object that are searched for its label."""
_Number = tuple[float, int, int]
"""A coordinate as written, and its start and end in the text."""


class PatternParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, row: TextFormat) -> None:
        self.builder, self.row = builder, row
        self.number, self.noise = re.compile(row.number), re.compile(row.noise)
        self.opening = re.compile(row.opening) if row.opening else None
        self.has_end = "end" in row.compiled.groupindex

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        self.text, self.text_end = text, len(text.rstrip())
        self.label = ""
        self.start_index: int | None = None
        last_end = begin
        for match in self.row.compiled.finditer(text, begin):
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
            cut = last and following == end
            self.builder.truncated |= cut
            self.builder.drop("truncated" if cut else "no_coordinates", position, following)

    def _name(self, match: re.Match[str], last_end: int) -> int:
        """Set the label of an object, and return the position at which the object begins."""
        start = match.start()
        if self.row.label == "before":
            written = self.text[max(last_end, start - _MAX_LABEL) : start] if start > last_end else ""
            shares = bool(self.start_index is not None and set(written) <= _BETWEEN)
            lines = [line for line in self.noise.sub(" ", written).splitlines() if line.strip()] if not shares else []
            label = lines[-1] if lines else ""
        else:
            label_group = match.groupdict().get("label")
            shares = label_group is None and self.start_index is not None and start - last_end <= _MAX_LABEL
            shares = shares and set(self.text[last_end:start]) <= _BETWEEN
            label = label_group or ""
            label = self.noise.sub("", label) if self.row.noise else label
        if not shares:
            self.label = label
            self.start_index = self.builder.start_count
            self.builder.start_count += 1
        return start if shares or self.row.label == "inside" else max(last_end, start - len(written))

    def _object(self, match: re.Match[str], last_end: int) -> None:
        builder, row = self.builder, self.row
        at_end = match.end() >= self.text_end
        partial = self.has_end and not match["end"].strip()
        cut = at_end and (partial or not self.has_end)
        start, end = self._name(match, last_end), match.end()
        numbers, last = self._numbers(match, at_end and partial)
        first = builder.coord_count
        if row.bins is not None:
            builder.coord_count += len(numbers)
        if not numbers:
            is_none = bool(_NOTHING.search(match["box"]))
            builder.explicit_empty |= is_none
            if not is_none:
                self._drop_incomplete(at_end and partial, start, end)
            return
        geometry: Geometry = "polygon" if match.groupdict().get("polygon") else "box"
        count = 0
        for shape, group in self._groups(numbers, geometry, cut):
            index = first + count if row.bins is not None else None
            count += len(group)
            values = [value for value, *_ in group]
            if row.bins is not None and any(value >= row.bins for value in values):
                builder.drop("invalid_coordinate", start, end)
            elif count == len(numbers) and (last or (cut and shape == "box" and len(group) < row.arity)):
                self._drop_incomplete(True, start, end)
            else:
                self._add(values, shape, (start, end), index, partial)
        builder.truncated |= at_end and partial

    def _add(
        self, values: list[float], geometry: Geometry, span: tuple[int, int], index: int | None, partial: bool
    ) -> None:
        builder, row = self.builder, self.row
        order = row.order if GEOMETRIES[geometry].is_box else shape_order(geometry)
        if row.bins is None:
            builder.add_numbers(
                self.label,
                values,
                span,
                geometry=geometry,
                order=order,
                own_scale=row.scale,
                start_index=self.start_index,
                partial=partial,
            )
        elif row.decode and len(values) == row.arity:
            builder.add_box(
                self.label,
                values,
                row.decode(values),
                span,
                first_coord_index=index,
                start_index=self.start_index,
                partial=partial,
                order="",
            )
        else:
            scale = row.scale or row.bins
            unit = [min((value + row.offset) / scale, 1.0) for value in values]
            builder.add_shape(
                self.label,
                values,
                unit,
                span,
                geometry=geometry,
                order=order,
                first_coord_index=index,
                start_index=self.start_index,
                partial=partial,
            )

    def _drop_incomplete(self, cut: bool, start: int, end: int) -> None:
        self.builder.truncated |= cut
        self.builder.drop("truncated" if cut else "no_coordinates", start, end)

    def _numbers(self, match: re.Match[str], partial: bool) -> tuple[list[_Number], bool]:
        """Return the coordinates, and whether the last plain number may be cut off by the end of the text."""
        numbers: list[_Number] = []
        box = match.span("box")
        for part in self.number.finditer(self.text, *box):
            groups = range(1, part.re.groups + 1) if part.re.groups else (0,)
            numbers += [(float(part[g]), *part.span()) for g in groups]
        open_number = partial and self.row.bins is None and bool(numbers) and numbers[-1][2] == self.text_end
        return numbers, open_number

    def _groups(self, numbers: list[_Number], geometry: Geometry, cut: bool) -> list[tuple[Geometry, list[_Number]]]:
        """Split coordinates into objects: tokens at other text between them, and all by the number of coordinates."""
        runs: list[list[_Number]] = []
        for number in numbers:
            joined = runs and (self.row.bins is None or runs[-1][-1][2] == number[1])
            runs[-1].append(number) if joined else runs.append([number])
        if not GEOMETRIES[geometry].fixed:
            return [(geometry, run) for run in runs]
        groups: list[tuple[Geometry, list[_Number]]] = []
        shape: Geometry = "point" if self.row.order == "xy" else "box"
        for run in runs:
            if self.row.by_count and len(run) != 4:
                groups.append(("point" if len(run) == 2 else "polygon" if len(run) > 4 else "box", run))
            elif len(run) % self.row.arity and not cut:
                groups.append((shape, run))
            else:
                groups += [(shape, run[i : i + self.row.arity]) for i in range(0, len(run), self.row.arity)]
        return groups
