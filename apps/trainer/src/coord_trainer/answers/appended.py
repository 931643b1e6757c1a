"""Answers in a file that grows as they come, so that what is answered survives a stop at any moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coord_codec.files import parse_json_line, write_text
from coord_trainer.console import say


def cut_torn_lines(path: Path, is_record: Callable[[Mapping[str, Any]], bool] = bool) -> int:
    """Cut off the lines of a JSONL file that are no whole objects, or no records; returns how many there were."""
    lines = path.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n") and _holds(line, is_record)]
    if len(whole) != len(lines):
        write_text(path, b"".join(whole).decode())
    return len(lines) - len(whole)


def _holds(line: bytes, is_record: Callable[[Mapping[str, Any]], bool]) -> bool:
    try:
        return is_record(parse_json_line(line))
    except ValueError:
        return False


def append_answers(
    path: Path, depends_on: Mapping[str, Any], answer_from: Callable[[int], Iterator[dict[str, Any]]]
) -> int:
    """Write records to `path` through `path.part`, which a later call continues; returns how many there are.

    Args:
        path: replaced as a whole when the last record is written
        depends_on: what the records depend on; a part that was begun under something else is thrown away
        answer_from: yields the records from the given one on
    """
    part, told = part_of(path)
    if not (part.is_file() and told.is_file() and told.read_text(encoding="utf-8") == json.dumps(dict(depends_on))):
        part.unlink(missing_ok=True)
        write_text(told, json.dumps(dict(depends_on)))
        part.touch()
    cut_torn_lines(part)
    with part.open("rb") as file:
        count = sum(1 for _ in file)
    if count:
        say(f"{path.name}: {count} answers of an earlier call are there already")
    with part.open("a", encoding="utf-8") as file:
        for record in answer_from(count):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()
            count += 1
    part.replace(path)
    told.unlink()
    return count


def part_of(path: Path) -> tuple[Path, Path]:
    """Return the unfinished file of answers for `path`, and the file that says what it depends on."""
    return path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")


def unfinished(folder: Path) -> Path:
    """Return the file that an evaluation has in its folder until it has come to its end."""
    return folder / ".unfinished"
