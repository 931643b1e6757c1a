"""Reads the records on the lines of an instance file as a stream, by all processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, TypeVar

from coord_codec import Problem
from coord_codec.boxes import OnBadBox
from coord_codec.files import BACKSLASHES, name_on_disk, parse_json_line
from coord_codec.records import UniqueIds, is_plain, parse_objects
from coord_data.large.part import LinesPart
from coord_data.processes import in_processes
from coord_data.records import Row, row_of

PIECE = 512
"""Number of records that a process checks at a time."""

_RECORD_KEYS = frozenset({"image", "width", "height", "image_id", "objects"})
_OBJECT_KEYS = frozenset({"desc", "bbox", "iscrowd", "area"})

_Item = TypeVar("_Item")


def pieces(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield the items in lists of at most `PIECE`."""
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        yield piece


def stream_lines(
    file: IO[bytes],
    path: Path,
    on_bad_box: OnBadBox,
    problems: list[Problem],
    notes: Counter[str],
    names: set[str],
    part: LinesPart,
    folder: Path,
) -> Iterator[Row]:
    """Yield the valid records of an instance file, in its order.

    Args:
        file: the file, at its beginning
        path: its path, for messages
        on_bad_box: how a refused object affects its image, see `OnBadBox`
        problems: extended by the problems of what is left out
        notes: updated with counts of notes
        names: updated with the descriptions of the objects
        part: receives every line, to keep a subset
        folder: folder that image paths are relative to
    """
    ids = UniqueIds()
    lines = ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    parse = partial(_parse, path=path, on_bad_box=on_bad_box)
    for piece, parsed in in_processes(parse, pieces(lines)):
        part.see(piece)
        for (number, _), (row, faults) in zip(piece, parsed, strict=True):
            problems += faults
            if row is None:
                continue
            if repeated := ids.fault(row.image_id, f"{path}:{number}"):
                problems.append(repeated)
                continue
            names.update(row.desc)
            name = name_on_disk(folder, row.image)
            notes[BACKSLASHES] += name != row.image
            yield row if name == row.image else row._replace(image=name)


def _parse(
    lines: Sequence[tuple[int, bytes]], path: Path, on_bad_box: OnBadBox
) -> list[tuple[Row | None, list[Problem]]]:
    """Return the row of each numbered line, None if it is left out, and its problems."""
    return [_parse_line(line, f"{path}:{number}", on_bad_box) for number, line in lines]


def _parse_line(line: bytes, where: str, on_bad_box: OnBadBox) -> tuple[Row | None, list[Problem]]:
    row = plain_row(line)
    if row is not None:
        return row, []
    instance, faults = parse_objects(line, where, on_bad_box)
    return None if instance is None else row_of(instance), faults


def plain_row(line: bytes) -> Row | None:
    """Return the row of a plainly valid line; None if the full parser must check the line.

    The row equals `row_of` of the parsed instance, in a fraction of the time.
    """
    try:
        record = parse_json_line(line)
    except ValueError:
        return None
    if not is_plain(record):
        return None
    objects = record["objects"]
    areas = [item.get("area") for item in objects]
    extra = {} if record.keys() <= _RECORD_KEYS else {k: v for k, v in record.items() if k not in _RECORD_KEYS}
    extras = [
        {} if item.keys() <= _OBJECT_KEYS else {k: item[k] for k in item if k not in _OBJECT_KEYS} for item in objects
    ]
    return Row(
        record["image"],
        record.get("width"),
        record.get("height"),
        record.get("image_id"),
        [item["desc"] for item in objects],
        [side for item in objects for side in item["bbox"]],
        [item.get("iscrowd", False) for item in objects],
        [None if area is None else float(area) for area in areas],
        (extra, extras) if extra or any(extras) else None,
    )
