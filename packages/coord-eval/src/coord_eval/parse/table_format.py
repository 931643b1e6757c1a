"""Parses tables with a header: CSV, TSV and Markdown. Each row is a record whose keys are the columns."""

from __future__ import annotations

import re

from coord_eval.parse.builder import AnswerBuilder
from coord_eval.parse.keys import Keys
from coord_eval.parse.numbers import NUMBER
from coord_eval.parse.orders import ORDER_KEYS, stated_order
from coord_eval.parse.record import FieldRecord, add_record, box_of_sides, field_of
from coord_eval.parse.words import unquoted

_RULE = frozenset("|-: \t+=")
_NO_COLUMN = re.compile(rf"[:=]|^{NUMBER}$|[0-9]{{2,}}")
_GAP = re.compile(r"\s{2,}|\t")
_HTML_ROW = re.compile(r"<tr\b[^<>]{0,200}>(.*?)(?:</tr>|(?=<tr\b)|\Z)", re.IGNORECASE | re.DOTALL)
_HTML_CELL = re.compile(r"<t[hd]\b[^<>]{0,200}>(.*?)(?=</?t[hdr]\b|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]{0,200}>")
_UNIT = re.compile(r"\s{0,9}[(\[].*")


class TableParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, keys: Keys) -> None:
        self.builder, self.keys = builder, keys

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        header: list[str] | None = None
        separator = ""
        position, text_end = begin, len(text.rstrip().rstrip("`").rstrip())
        for row in _HTML_ROW.finditer(text, begin) if "<tr" in text or "<TR" in text else ():
            cells = [_TAG.sub(" ", cell).strip() for cell in _HTML_CELL.findall(row[1])]
            if header is None:
                header = self._columns(cells)
            else:
                self._row(header, cells, row.start(), row.end(), text_end)
        header = None
        for line in text[begin:].split("\n"):
            start, position = position, position + len(line) + 1
            if not line.strip():
                header = None
            elif header is None:
                header, separator = self._header(line)
            elif not _RULE.issuperset(line):
                self._row(header, _cells(line, separator), start, start + len(line), text_end)

    def _header(self, line: str) -> tuple[list[str] | None, str]:
        """Return the columns of a line and its separator; None if it is no header of a table of shapes."""
        for separator in ("|", "\t", ";", ",", "  "):
            if separator in line and (columns := self._columns(_cells(line, separator))):
                return columns, separator
        return None, ""

    def _columns(self, cells: list[str]) -> list[str] | None:
        """Return the keys of the columns; None if the cells are no header of a table of shapes."""
        if len(cells) < 2 or any(_NO_COLUMN.search(cell) for cell in cells):
            return None
        names = [ORDER_KEYS.get(stated_order(cell)) or (_UNIT.sub("", cell) or cell).strip() for cell in cells]
        names = [name if self.keys.fact(name) else name.lower() for name in names]
        meanings = [self.keys[name] for name in names]
        roles = [meaning.role for meaning in meanings]
        sides = {side: (0.0, None, None) for meaning in meanings if meaning.role == "side" for side in meaning.sides}
        return names if "shape" in roles or roles.count("corner") > 1 or box_of_sides(sides)[0] else None

    def _row(self, header: list[str], cells: list[str], start: int, end: int, text_end: int) -> None:
        """Add the objects of one row; a last row with too few cells is cut off."""
        if len(cells) > len(header) or len(cells) < 2 or not any(map(str.isdigit, "".join(cells))):
            return
        record, keys = FieldRecord(start), self.keys
        roles = [keys[name].role for name in header]
        named = "label" in roles
        for name, role, cell in zip(header, roles, cells, strict=False):
            key = "point_2d" if name == "point" and cell.startswith("(") else name
            if not named and role in ("other", "list") and not (keys.fact(name) and cell):
                # The first column of words names the objects if no column says that it does.
                key, named = ("label", True) if any(map(str.isalpha, cell)) else (key, False)
            if (cell or role == "label") and (found := field_of(key, cell, keys)):
                record.fields.append(found)
        cut = end >= text_end and (len(cells) < len(header) or any(_is_open(cell) for cell in cells))
        self.builder.truncated |= cut
        if cut:
            self.builder.drop("truncated", start, end)
        else:
            add_record(record, self.builder, keys, end)


def _is_open(cell: str) -> bool:
    """Return whether a bracket of a cell is not closed."""
    return sum(map(cell.count, "([{")) > sum(map(cell.count, ")]}"))


def _cells(line: str, separator: str) -> list[str]:
    """Return the cells of a line; separators within quotes and brackets do not count."""
    if separator == "  ":  # columns of equal width
        return [unquoted(cell.strip("`* ")) for cell in _GAP.split(line.strip())]
    cells, depth, quoted, begin = [], 0, False, 0
    line = line.strip().strip("|") if separator == "|" else line
    for position, mark in enumerate(line):
        if mark == '"' and (quoted or not line[begin:position].strip()):  # 12" vinyl has no quotes
            quoted = not quoted
        elif quoted:
            continue
        elif mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth = max(depth - 1, 0)
        elif mark == separator and (depth == 0 or separator == "|"):
            cells.append(line[begin:position])
            begin = position + 1
    cells.append(line[begin:])
    return [_bare(cell.strip()) for cell in cells]


def _bare(cell: str) -> str:
    """Return a cell without quotes and marks around it; two quotes within quotes are one."""
    if len(cell) > 1 and cell[0] == cell[-1] == '"':
        return cell[1:-1].replace('""', '"').strip()
    return unquoted(cell.strip("`* "))
