"""Reads and writes instance files, which have the record of one image per line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from coord_codec.arguments import expect
from coord_codec.files import atomic_write, numbered_lines
from coord_codec.problems import Problem, raise_for
from coord_codec.records import Instance, parse_record


@dataclass(frozen=True)
class InstanceFile:
    """The result of `read_instances`.

    Attributes:
        instances: the valid records, in the order of the file
        problems: the problems of the other records; a line may have several
    """

    instances: tuple[Instance, ...]
    problems: tuple[Problem, ...]

    @property
    def skipped(self) -> int:
        """Number of lines that were left out."""
        return len({problem.where for problem in self.problems})


def read_instances(path: str | os.PathLike[str], *, strict: bool = False) -> InstanceFile:
    r"""Read an instance file. Every invalid line is left out, and all its faults are listed.

    Args:
        path: the file, UTF-8. Blank lines are skipped
        strict: raise an error instead of leaving lines out

    Raises:
        OSError: if the file cannot be read
        InputError: if the file is an archive; in strict mode, if any line is invalid, with the first few problems

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
        >>> _ = path.write_text('{"image": "a.jpg", "objects": []}\n{"image": "b.jpg"}\n')
        >>> found = read_instances(path)
        >>> len(found.instances), found.skipped, found.problems[0].field
        (1, 1, 'objects')
    """
    expect("path", path, str, os.PathLike)
    with Path(path).open("rb") as file:
        parsed = [parse_record(line, f"{path}:{number}") for number, line in numbered_lines(file, path)]
    instances = tuple(instance for instance, _ in parsed if instance is not None)
    result = InstanceFile(instances, tuple(problem for _, problems in parsed for problem in problems))
    if strict:
        raise_for(result.problems, f"{result.skipped} invalid lines in {path}")
    return result


def write_instances(path: str | os.PathLike[str], instances: Iterable[Instance]) -> None:
    r"""Write an instance file atomically.

    Fields that were never set are not written. The folder must exist.

    Raises:
        OSError: if the file cannot be written; an existing file of that name stays as it was

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
        >>> write_instances(path, [Instance(image="a.jpg", objects=[])])
        >>> path.read_text()
        '{"image": "a.jpg", "objects": []}\n'
    """
    expect("path", path, str, os.PathLike)
    instances = list(instances) if isinstance(instances, Iterable) else instances
    expect("instances", instances, list)
    for i, instance in enumerate(instances):
        expect(f"instances[{i}]", instance, Instance)
    with atomic_write(path) as file:
        for instance in instances:
            file.write(instance_line(instance) + "\n")


def instance_line(instance: Instance) -> str:
    """Return the line of one record, without a line break.

    Example:
        >>> instance_line(Instance(image="a.jpg", objects=[]))
        '{"image": "a.jpg", "objects": []}'
    """
    return json.dumps(instance.model_dump(mode="json", exclude_unset=True), ensure_ascii=False)
