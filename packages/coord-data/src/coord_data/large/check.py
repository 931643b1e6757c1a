"""Checks many records in chunks, whose results are merged in the order of the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from coord_codec import Problem
from coord_codec.boxes import OnBadBox
from coord_codec.files import BACKSLASHES, name_on_disk, parse_json_line
from coord_codec.records import is_plain, parse_objects
from coord_data.classes import OTHER
from coord_data.image_file import look_inside, problem_of
from coord_data.large.records import Row, row_of

PIECE = 512
"""Number of records that a process checks at a time."""

_RECORD_KEYS = frozenset({"image", "width", "height", "image_id", "objects"})
_OBJECT_KEYS = frozenset({"desc", "bbox", "iscrowd", "area"})


@dataclass(frozen=True)
class Rules:
    """Settings that decide which records are left out.

    Attributes:
        root: folder of the images
        base: folder that images must lie in; None for any
        on_bad_box: how a refused object affects its image
        classes: descriptions to keep; None for all
        max_side_ratio: of an image that is kept; None for any
    """

    root: Path
    base: Path | None
    on_bad_box: OnBadBox
    classes: Sequence[str] | None
    max_side_ratio: float | None


@dataclass
class Checked:
    """Result of checking a chunk of records.

    Attributes:
        rows: the valid records
        problems: problems of the records that were left out
        notes: counts of notes
        names: descriptions of the objects, before a class list is applied
        ids: id and line of each record, including those with unusable images
    """

    rows: list[Row] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    ids: list[tuple[int | str, int]] = field(default_factory=list)

    def take(self, row: Row, fault: Problem | None, rules: Rules) -> None:
        """Take a record in unless its image has a fault."""
        if fault is not None:
            self.problems.append(fault)
            return
        self.names.update(row.desc)
        self.rows.append(row if rules.classes is None else _of_classes(row, rules.classes, self.notes))


def _of_classes(row: Row, classes: Sequence[str], notes: Counter[str]) -> Row:
    """Return a row with only the objects of these classes, and count the others."""
    kept = [n for n, desc in enumerate(row.desc) if desc in classes]
    notes[OTHER] += len(row.desc) - len(kept)
    return row if len(kept) == len(row.desc) else row.of_objects(kept)


def check_images(
    images: Sequence[tuple[str, int | None, int | None]], rules: Rules
) -> tuple[list[Problem | None], Counter[str]]:
    """Return the problem (or None) of each image, given as path, stated width and stated height, and note counts."""
    notes: Counter[str] = Counter()
    return [_check_image(image, rules, notes) for image in images], notes


def _check_image(image: tuple[str, int | None, int | None], rules: Rules, notes: Counter[str]) -> Problem | None:
    name, width, height = image
    path = rules.root / name
    file = look_inside(path, rules.base, decode=False)
    return problem_of(file, path, (width, height), notes, rules.max_side_ratio)


def check_lines(
    lines: Sequence[tuple[int, bytes]], path: Path, rules: Rules, taken: Mapping[int, int] | None = None
) -> Checked:
    """Check lines of an instance file, and their images.

    Args:
        lines: line numbers and bytes
        path: path of the file, for error messages
        rules: settings that decide which records are left out
        taken: lines whose id is already used, with the line that uses it
    """
    checked = Checked()
    for number, line in lines:
        where = f"{path}:{number}"
        row = plain_row(line)
        if row is None:
            instance, faults = parse_objects(line, where, rules.on_bad_box)
            checked.problems += faults
            if instance is None:
                continue
            row = row_of(instance)
        if row.image_id is not None:
            checked.ids.append((row.image_id, number))
            if taken and number in taken:
                message = f"expected an id of its own, found {row.image_id!r}, which {path}:{taken[number]} has already"
                checked.problems.append(Problem(where, "image_id", message))
                continue
        if (name := name_on_disk(rules.root, row.image)) != row.image:
            row = row._replace(image=name)
            checked.notes[BACKSLASHES] += 1
        checked.take(row, _check_image(row[:3], rules, checked.notes), rules)
    return checked


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


_Item = TypeVar("_Item")


def pieces(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield the items in lists of at most `PIECE`."""
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        yield piece
