"""Instance files: one JSON record a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coord_codec.instances import Instance

_SHOWN = 5  # how many problems a strict error lists


@dataclass(frozen=True)
class Problem:
    """Something wrong with a record.

    Attributes:
        where: file and line, `train.jsonl:12`.
        field: the field, `objects[3].bbox`; empty where the line as a whole is meant.
        message: what was expected and what was found.
    """

    where: str
    field: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.field, self.message) if part)


@dataclass(frozen=True)
class InstanceFile:
    """What `read_instances` found.

    Attributes:
        instances: the good records, in the order of the file.
        problems: what is wrong with the others; a line may have several.
    """

    instances: tuple[Instance, ...]
    problems: tuple[Problem, ...]

    @property
    def skipped(self) -> int:
        """How many lines were left out."""
        return len({problem.where for problem in self.problems})


def read_instances(path: str | os.PathLike[str], *, strict: bool = False) -> InstanceFile:
    """Read an instance file. A line with anything wrong is left out whole, and every fault in it is listed.

    Args:
        path: the file, UTF-8. Blank lines are passed over.
        strict: raise instead of leaving lines out.

    Raises:
        OSError: if the file cannot be read.
        ValueError: in strict mode, if any line is bad; lists the first few problems.
    """
    instances: list[Instance] = []
    problems: list[Problem] = []
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                instances.append(Instance.model_validate(_parse_line(line, first=number == 1)))
            except ValidationError as error:
                problems += [Problem(where, _field(e["loc"]), _message(e)) for e in error.errors()]
            except ValueError as error:
                problems.append(Problem(where, "", str(error)))
    found = InstanceFile(tuple(instances), tuple(problems))
    if strict and problems:
        more = f"\nand {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        listed = "\n".join(str(problem) for problem in problems[:_SHOWN])
        raise ValueError(f"{found.skipped} bad lines in {path}:\n{listed}{more}")
    return found


def write_instances(path: str | os.PathLike[str], instances: Iterable[Instance]) -> None:
    """Write an instance file; under its name it is whole or not there at all.

    Fields that were never set are not written. The folder must exist.

    Raises:
        OSError: if the file cannot be written; an older file of that name is left as it was.
    """
    target = Path(path).resolve()
    # A device or a pipe is written to, never replaced by a file.
    in_place = target.exists() and not target.is_file()
    partial = target if in_place else target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with partial.open("w", encoding="utf-8") as file:
            for instance in instances:
                record = instance.model_dump(mode="json", exclude_unset=True)
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        if not in_place:
            partial.replace(target)
    except BaseException:
        if not in_place:
            partial.unlink(missing_ok=True)
        raise


def _parse_line(line: bytes, first: bool) -> dict[str, Any]:
    try:
        text = line.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected UTF-8 text, found {error.object[error.start : error.end]!r}") from None
    try:
        record = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(
            f"expected a JSON object on one line, found text that is not JSON: {error}"
        ) from None
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, found {type(record).__name__}")
    return record


def _field(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _message(error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        return "expected a value, found none"
    return f"{error['msg']}, found {error['input']!r}"
