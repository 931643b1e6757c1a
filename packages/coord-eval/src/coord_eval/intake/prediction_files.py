"""Readers of files and folders of predictions, by the suffix of their names."""

from __future__ import annotations

import csv
import io
import json
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from coord_codec.files import InputError, parse_json_line, read_json, read_json_lines, read_text
from coord_codec.json_stream import stream_list
from coord_eval.intake.objects_as_records import records_of
from coord_eval.intake.records import SourceRecords, in_parts
from coord_eval.intake.text_files import read_text_files


def records_in_file(path: str | Path) -> SourceRecords:
    """Return the records of a file or a folder; `-` is standard input.

    Raises:
        InputError: naming file and line
    """
    if str(path) == "-":
        lines = ((n, line) for n, line in enumerate(sys.stdin, 1) if line.strip())
        return _lines(((n, _json_line(line, f"standard input, line {n}")) for n, line in lines), "-")
    path = Path(path)
    if path.is_file() and not path.stat().st_size:
        raise InputError(f"{path}: the file is empty: expected predictions")
    if path.is_dir():
        return read_text_files(path)
    return _READERS.get(path.suffix.lower(), _json_lines)(path)


def _json(path: Path) -> SourceRecords:
    if not _begins_with_a_bracket(path):
        return records_of(read_json(path), str(path))
    parts = ((range(first, first + len(rows)), rows) for first, rows in stream_list(path))
    return SourceRecords(parts, lambda n: f"{path}[{n}]")


def _json_lines(path: Path) -> SourceRecords:
    return _lines(read_json_lines(path), str(path))


def _lines(lines: Iterable[tuple[int, dict[str, Any]]], source: str) -> SourceRecords:
    empty = f"{source}: empty: expected an answer or a result on each line"
    return SourceRecords(in_parts(lines), lambda number: f"{source}, line {number}", empty=empty)


def _begins_with_a_bracket(path: Path) -> bool:
    """Return whether a file seems to hold a JSON list, which may be read in parts."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(64).removeprefix(BOM_UTF8).lstrip().startswith(b"[")
    return False


def _json_line(line: str, where: str) -> dict[str, Any]:
    try:
        return parse_json_line(line)
    except ValueError as error:
        raise InputError(f"{where}: {error}; write one object per line") from error


def _csv_records(path: Path) -> Iterator[dict[str, Any]]:
    text = read_text(path)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # an answer may be longer than 131,072 characters
    rows = csv.reader(io.StringIO(text, newline=""))
    columns = next(rows, [])
    if not {"text", "bbox"} & set(columns):
        raise InputError(
            f"{path}: expected the columns image_id (or image) and text, or image_id, category_id, bbox "
            f'("[x, y, width, height]") and score, found {", ".join(columns):.80}'
        )
    for cells in filter(None, rows):
        if len(cells) != len(columns):
            raise InputError(
                f"{path}, line {rows.line_num}: expected {len(columns)} cells, found {len(cells)}; repair it"
            )
        yield _csv_record(dict(zip(columns, cells, strict=True)))


def _csv_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a CSV file: empty cells are missing; others than texts and names may be JSON."""
    record: dict[str, Any] = {}
    for key, cell in row.items():
        if cell == "":
            continue
        record[key] = cell
        if key not in ("text", "image", "finish_reason", "label"):
            with suppress(ValueError):
                record[key] = json.loads(cell)
    return record


def _parquet_records(path: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(f"{path}: parquet files need pyarrow; pip install pyarrow") from error
    try:
        records: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        fault = "no such file" if not path.exists() else str(error).splitlines()[0]
        raise InputError(f"{path}: no readable Parquet file ({fault}); write it again") from error
    return records


_READERS: Mapping[str, Callable[[Path], SourceRecords]] = {
    ".json": _json,
    ".csv": lambda path: SourceRecords.listed(list(_csv_records(path)), str(path)),
    ".parquet": lambda path: SourceRecords.listed(_parquet_records(path), str(path)),
    ".txt": read_text_files,
}
"""The reader of each suffix; any other file has JSON lines."""
