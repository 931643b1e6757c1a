"""Checks of many records, piece by piece; what they find is put together in the file's order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from coord_codec import CoordGrid, Problem
from coord_codec.boxes import OnBadBox
from coord_codec.files import BACKSLASHES, name_on_disk, parse_json_line
from coord_codec.records import check_description, parse_objects
from coord_trainer.data.large.records import Row, row_of
from coord_trainer.data.usable.classes import OTHER
from coord_trainer.data.usable.image import look_at

PIECE = 512
"""Records that a process is given at a time."""

_A_BIN = 2 / CoordGrid().scale
_OF_RECORD = frozenset({"image", "width", "height", "image_id", "objects"})
_OF_OBJECT = frozenset({"desc", "bbox", "iscrowd", "area"})


@dataclass(frozen=True)
class Rules:
    """What decides which records are left out.

    Attributes:
        root: folder of the images
        base: folder that images may not leave; None for any
        on_bad_box: what a refused object does to its image
        classes: the descriptions that are kept; None for all
    """

    root: Path
    base: Path | None
    on_bad_box: OnBadBox
    classes: Sequence[str] | None


@dataclass
class Checked:
    """What the check of a piece found.

    Attributes:
        rows: the good records
        problems: what was left out
        notes: counted facts
        names: descriptions of the objects, before a class list is applied
        ids: id of each record and its line, images that cannot be used included
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
    """Return a row with objects of these classes alone, and count the others."""
    kept = [n for n, desc in enumerate(row.desc) if desc in classes]
    notes[OTHER] += len(row.desc) - len(kept)
    return row if len(kept) == len(row.desc) else row.of_objects(kept)


def check_images(
    images: Sequence[tuple[str, int | None, int | None]], rules: Rules
) -> tuple[list[Problem | None], Counter[str]]:
    """Return what is wrong with each image, given with its stated width and height, and counted facts."""
    notes: Counter[str] = Counter()
    return [_look(image, rules, notes) for image in images], notes


def _look(image: tuple[str, int | None, int | None], rules: Rules, notes: Counter[str]) -> Problem | None:
    name, width, height = image
    return look_at(rules.root, rules.base, name, (width, height), decode=False, notes=notes)


def check_lines(
    lines: Sequence[tuple[int, bytes]], path: Path, rules: Rules, taken: Mapping[int, int] | None = None
) -> Checked:
    """Check lines of an instance file, and their images.

    Args:
        lines: their numbers and bytes
        path: the file, for the problems
        rules: what is left out
        taken: lines whose id is that of another line, which is named
    """
    found = Checked()
    for number, line in lines:
        where = f"{path}:{number}"
        row = plain_row(line)
        if row is None:
            instance, faults = parse_objects(line, where, rules.on_bad_box)
            found.problems += faults
            if instance is None:
                continue
            row = row_of(instance)
        if row.image_id is not None:
            found.ids.append((row.image_id, number))
            if taken and number in taken:
                message = f"expected an id of its own, found {row.image_id!r}, which {path}:{taken[number]} has already"
                found.problems.append(Problem(where, "image_id", message))
                continue
        if (name := name_on_disk(rules.root, row.image)) != row.image:
            row = row._replace(image=name)
            found.notes[BACKSLASHES] += 1
        found.take(row, _look(row[:3], rules, found.notes), rules)
    return found


def plain_row(line: bytes) -> Row | None:
    """Return the row of a line that is right in every respect and holds nothing unusual; None asks for a closer look.

    It is what `row_of` makes of the instance that the codec makes of the line, at a fraction of the time.
    """
    try:
        record = parse_json_line(line)
        image, image_id, objects = record["image"], record.get("image_id"), record["objects"]
        sides = (record.get("width"), record.get("height"))
        if not (
            type(image) is str
            and image
            and image.isascii()
            and all(side is None or (type(side) is int and side > 0) for side in sides)
            and (image_id is None or type(image_id) is int or (type(image_id) is str and image_id.isascii()))
            and "coord_space" not in record
            and type(objects) is list
        ):
            return None
        columns: tuple[list[Any], ...] = ([], [], [], [])
        more = []
        for found in objects:
            (x1, y1, x2, y2), desc, crowd, area = found["bbox"], found["desc"], found.get("iscrowd"), found.get("area")
            if not (
                type(x1) is type(y1) is type(x2) is type(y2) is float
                and x1 >= 0
                and y1 >= 0
                and x2 <= 1
                and y2 <= 1
                and x2 - x1 > _A_BIN
                and y2 - y1 > _A_BIN
                and type(desc) is str
                and _is_description(desc)
                and "geometry" not in found
                and (crowd is False or crowd is True or "iscrowd" not in found)
                and (area is None or (type(area) in (int, float) and 0 <= area < math.inf))
            ):
                return None
            columns[0].append(desc)
            columns[1].extend((x1, y1, x2, y2))
            columns[2].append(bool(crowd))
            columns[3].append(None if area is None else float(area))
            more.append({} if found.keys() <= _OF_OBJECT else {k: v for k, v in found.items() if k not in _OF_OBJECT})
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    extra = {} if record.keys() <= _OF_RECORD else {k: v for k, v in record.items() if k not in _OF_RECORD}
    return Row(image, *sides, image_id, *columns, (extra, more) if extra or any(more) else None)


@lru_cache(maxsize=10_000)
def _is_description(desc: str) -> bool:
    try:
        check_description(desc)
    except ValueError:
        return False
    return True


_Item = TypeVar("_Item")


def pieces(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield the items in lists of `PIECE`."""
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        yield piece
