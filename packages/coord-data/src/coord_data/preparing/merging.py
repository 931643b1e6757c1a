"""Merges parts of a large set that `prepare` wrote one by one, as if it had written all of them at once."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import InputError, Problem
from coord_codec.arguments import expect
from coord_codec.files import read_json
from coord_data.formats.coco import SUMMARY, records_of
from coord_data.formats.registry import open_source
from coord_data.inspection.numbers.without_pixels import REREAD
from coord_data.looking.image_file import ImageFolder
from coord_data.looking.looks import Looks
from coord_data.preparing.choice import Choice
from coord_data.preparing.preparation import (
    LOOKS,
    PART,
    RECORDS,
    has_boxes,
    looks_by_name,
    with_paths_from,
    with_unique_ids,
    write_chosen,
    written_to,
)
from coord_data.reading.rules import ReadingRules
from coord_data.records import Records


def merge_prepared(parts: Sequence[str | Path], out: str | Path, split: float | None = None, **chosen: Any) -> None:
    """Write parts as one set, in the order of the paths of its images, without looking at an image again.

    The result does not depend on the order and the grouping of the parts. Images are chosen from the whole: copies in
    different parts are found, and stay on one side of a split.

    `parts` are folders that `prepare` or this function wrote with `as_part`; the others are fields of `Choice`.

    Raises:
        InputError: a folder is no such part, is named twice, was read by other rules or is damaged; there is no box; or
            `out` exists.
        RunError: `out` cannot be written.

    Example:
        >>> merge_prepared([], Path("merged"))
        Traceback (most recent call last):
        coord_codec.files.InputError: parts: expected folders written by prepare --as-part, found none
    """
    expect("parts", parts, Sequence)
    for i, part in enumerate(parts):
        expect(f"parts[{i}]", part, str, Path)
    expect("out", out, str, Path)
    out = Path(out)
    if taken := [place for place in written_to(out) if place.exists()]:
        raise InputError(f"out: {taken[0]} exists already; choose another name or move it away")
    choice = Choice(split, **chosen)
    folder = choice.folder_of(out)
    read = [_Part.read(Path(part)) for part in parts]
    _require_fit(read)
    moved = [with_paths_from(part.folder.resolve(), folder, part.records) for part in read]
    records, has_ids = with_unique_ids(moved, have_ids=all(part.facts[PART]["has_ids"] for part in read))
    lines = list(records.lines())
    records = records.take(sorted(range(len(lines)), key=lines.__getitem__))
    looked_at = [name for part in moved for name in dict.fromkeys(part.names)]
    names, looks = looks_by_name(looked_at, [part.looks for part in read])
    place = {name: i for i, name in enumerate(names)}
    names = list(dict.fromkeys(records.names))
    looks = looks.take(np.array([place[name] for name in names], np.int64))
    if not choice.as_part and not has_boxes(records):
        raise InputError(f"{', '.join(str(part.folder) for part in read)}: expected boxes, found none")
    problems = sorted((problem for part in read for problem in part.problems), key=astuple)
    write_chosen(out, records, names, looks, _merged_facts(read, folder, has_ids, choice.as_part), problems, choice)


@dataclass(frozen=True)
class _Part:
    """A folder that `prepare` wrote as a part."""

    folder: Path
    records: Records
    looks: Looks
    facts: dict[str, Any]
    problems: tuple[Problem, ...]

    @classmethod
    def read(cls, folder: Path) -> _Part:
        """Read a part."""
        file = folder / RECORDS
        facts = read_json(file.with_suffix(SUMMARY)) if file.with_suffix(SUMMARY).is_file() else {}
        if PART not in facts:
            raise InputError(f"{folder}: expected a folder written by prepare --as-part; write it so")
        rules = ReadingRules(geometry=facts[PART]["rules"]["geometry"])
        found = records_of(open_source(file, "jsonl"), rules, ImageFolder(file.parent, decode=False))
        records = Records.of_batches(found.batches(4096))
        try:
            looks = Looks.read(folder / LOOKS, PART)
            lines = (folder / "problems.jsonl").read_text(encoding="utf-8").splitlines()
            problems = tuple(Problem(**json.loads(line)) for line in lines)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{folder}: it is damaged ({error}); prepare this part anew") from None
        if found.problems or len(records) != facts["records"] or len(looks) != len(set(records.names)):
            reason = f"{found.problems[0]}" if found.problems else "records or looks at images are missing or added"
            raise InputError(f"{folder}: it was changed after it was written ({reason}); prepare this part anew")
        return cls(folder, records, looks, facts, problems)


def _require_fit(parts: Sequence[_Part]) -> None:
    """Raise an `InputError` unless there are parts, each of them once, that were read by the same rules."""
    if not parts:
        raise InputError("parts: expected folders written by prepare --as-part, found none")
    twice = [str(path) for path, n in Counter(part.folder.resolve() for part in parts).items() if n > 1]
    if twice:
        raise InputError(f"{twice[0]}: it is named twice; name each part once")
    first = parts[0].facts[PART]["rules"]
    for part in parts[1:]:
        rules = part.facts[PART]["rules"]
        for name, value in rules.items():
            if value != first.get(name):
                stated = f"{part.folder}: {name} is {value!r}, but {first.get(name)!r} in {parts[0].folder}"
                raise InputError(f"{stated}; prepare all parts by the same rules")


def _merged_facts(parts: Sequence[_Part], folder: Path, has_ids: bool, as_part: bool) -> dict[str, Any]:
    """Return what the summary says of the sources of all parts."""
    notes = sum((Counter(part.facts["notes"]) for part in parts), Counter())
    told = {line for part in parts for line in part.facts["told"]}
    sources = {(source["path"], source["digest"]) for part in parts for source in part.facts["sources"]}
    images = os.path.commonpath([(part.folder / part.facts["images"]).resolve() for part in parts])
    facts = {
        "images": os.path.relpath(images, folder),
        "sources": [{"path": path, "digest": digest} for path, digest in sorted(sources)],
        "notes": dict(sorted(notes.items())),
        "told": sorted(told),
        "problems": sum(part.facts["problems"] for part in parts),
    }
    if as_part:
        facts[PART] = {"rules": parts[0].facts[PART]["rules"], "has_ids": has_ids}
    if REREAD in parts[0].facts:
        facts[REREAD] = parts[0].facts[REREAD]
    return facts
