"""JSON and JSON lines from disk, with errors that name file, line and field."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coord_eval.errors import InputError


def read_text(path: Path) -> str:
    """Read a UTF-8 file, with or without byte order mark.

    Raises:
        InputError: When the file is missing, unreadable or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        InputError: When the file cannot be read or is not JSON.
    """
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}); repair the file") from error
    except RecursionError as error:
        raise InputError(f"{path}: JSON nested too deeply; repair the file") from error


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line number, record)`` for each line that is not blank.

    Raises:
        InputError: When the file cannot be read or a line is not a JSON object.
    """
    text = read_text(path)
    # Not splitlines(): a description may hold U+2028 and its kin, which JSON leaves unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: not JSON ({error}); one object a line") from error
        if not isinstance(record, dict):
            raise InputError(f"{path}, line {number}: expected a JSON object, found {type(record).__name__}")
        yield number, record


_NUMERIC = frozenset({int, float})


def finite_numbers(value: object, count: int | None, where: str) -> tuple[float, ...]:
    """Return a list of finite numbers as floats.

    Args:
        value: What the file holds.
        count: How many numbers are expected, None for any.
        where: File, line and field for the message.

    Raises:
        InputError: On another type, another length, NaN or infinity.
    """
    if not isinstance(value, list | tuple) or (count is not None and len(value) != count):
        wanted = "a list of numbers" if count is None else f"{count} numbers"
        raise InputError(f"{where}: expected {wanted}, found {value!r:.80}")
    for number in value:
        # By type and not isinstance: bool is an int to the latter, and this runs millions of times.
        if type(number) not in _NUMERIC or not math.isfinite(number):
            raise InputError(f"{where}: expected finite numbers, found {number!r:.80}")
    return tuple(map(float, value))


def identifier(value: object, where: str) -> int | str:
    """Return an image or category id, ``42.0`` as 42.

    Raises:
        InputError: When it is neither a whole number nor text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise InputError(f"{where}: expected a whole number or text, found {value!r:.80}")
