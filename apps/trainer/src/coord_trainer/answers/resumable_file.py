"""Appends answers to a file as they are generated, so that finished answers survive an interruption at any moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coord_codec.counts import counted
from coord_codec.files import InputError, parse_json_line, write_text
from coord_trainer.console import say


def cut_torn_lines(path: Path, is_record: Callable[[Mapping[str, Any]], bool] = bool) -> int:
    """Remove incomplete lines of a JSONL file and lines that `is_record` rejects; returns how many were removed."""
    lines = path.read_bytes().splitlines(keepends=True)
    complete = [line for line in lines if line.endswith(b"\n") and _is_valid(line, is_record)]
    if len(complete) != len(lines):
        write_text(path, b"".join(complete).decode())
    return len(lines) - len(complete)


def _is_valid(line: bytes, is_record: Callable[[Mapping[str, Any]], bool]) -> bool:
    try:
        return is_record(parse_json_line(line))
    except ValueError:
        return False


def append_answers(
    path: Path, depends_on: Mapping[str, Any], answer_from: Callable[[int], Iterator[dict[str, Any]]]
) -> int:
    """Write records to `path` through `path.part`, which a later call continues; returns the number of records.

    Args:
        path: replaced atomically at the end
        depends_on: what the records depend on; a part that was begun with other values is deleted
        answer_from: yields the records from the given index on
    """
    part, begun_with = part_of(path)
    values = json.dumps(dict(depends_on))
    if not (part.is_file() and begun_with.is_file() and begun_with.read_text(encoding="utf-8") == values):
        part.unlink(missing_ok=True)
        write_text(begun_with, values)
        part.touch()
    cut_torn_lines(part)
    with part.open("rb") as file:
        count = sum(1 for _ in file)
    if count:
        say(f"{path.name}: {counted(count, 'answer')} of an earlier call kept")
    with part.open("a", encoding="utf-8") as file:
        for record in answer_from(count):
            file.write(json_line(record))
            file.flush()
            count += 1
    part.replace(path)
    begun_with.unlink()
    return count


def json_line(record: Mapping[str, Any]) -> str:
    """Return a record as a JSON line; one with lone surrogates, of a file name or an answer, is escaped to ASCII."""
    line = json.dumps(record, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        line = json.dumps(record)
    return f"{line}\n"


def make_folder(folder: Path) -> None:
    """Create a folder of results if it is missing.

    Raises:
        InputError: a file has its name, or the name of a folder around it
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder}: it is a file, or is below one; name another folder") from None


def part_of(path: Path) -> tuple[Path, Path]:
    """Return the unfinished file of answers for `path`, and the file that records what the answers depend on."""
    return path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")


def unfinished(folder: Path) -> Path:
    """Return the file that marks the folder of an evaluation which has not finished."""
    return folder / ".unfinished"
