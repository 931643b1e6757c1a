"""Keeps the checked records of instance and COCO files with many images, as Arrow files named by their digest.

The cache lies in `$XDG_CACHE_HOME/coordexp` (`~/.cache/coordexp`); its files may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice, tee
from pathlib import Path
from typing import Any

from filelock import FileLock
from tqdm import tqdm

from coord_codec import InputError, Problem
from coord_codec.files import read_json, write_text
from coord_data.classes import usable
from coord_data.formats.coco import has_many
from coord_data.image_file import look_inside, problem_of
from coord_data.processes import in_processes
from coord_data.records import Records, Row, write_records
from coord_data.rules import ReadingRules
from coord_data.source import Source
from coord_data.stream.coco import CocoRecords
from coord_data.stream.lines import LineRecords

_LOG = logging.getLogger(__name__)
_PIECE = 512
"""Number of images that a process checks at a time."""

_VERSION = "7"
"""To be increased with every change of the rules for leaving out records or of the file layout."""


def is_kept(source: Source) -> bool:
    """Return whether the records of a source are kept: those of a file with so many images that none is decoded."""
    return source.format in ("jsonl", "coco") and has_many(source)


@dataclass(frozen=True)
class Store:
    """Checked records on disk.

    Attributes:
        records: records mapped into memory
        facts: problems, notes and categories of the file
        digest: hash of the source file, and of names, sizes and times of the images
        part: file with an evenly drawn subset of the unchanged records of the source
    """

    records: Records
    facts: dict[str, Any]
    digest: str
    part: Path


class Checked:
    """The usable records of a stream, and the problems of the others.

    Args:
        read: the records as they are read
        root: folder of the images
        base: folder that they must lie in; None for any
        rules: how the file is read
        name: name of the set, for the progress bar
    """

    def __init__(
        self, read: CocoRecords | LineRecords, root: Path, base: Path | None, rules: ReadingRules, name: str
    ) -> None:
        self.read, self._rules, self._name = read, rules, name
        self._check = partial(_check_images, root=root, base=base, max_side_ratio=rules.max_side_ratio)
        self._problems: list[Problem] = []

    def rows(self) -> Iterator[Row]:
        """Check the images by all processes, and yield the records whose image can be used.

        Raises:
            RunError: a process that checks images was killed.
        """
        to_check, kept = tee(_pieces(self.read.rows()))
        images = ([row[:3] for row in piece] for piece in to_check)  # the columns of a row that the check needs
        with tqdm(desc=f"checking {self._name} images", unit="img", leave=False, mininterval=0.5, disable=None) as bar:
            for (_, (faults, notes)), piece in zip(in_processes(self._check, images), kept, strict=True):
                bar.update(len(piece))
                self.read.notes.update(notes)
                yield from usable(piece, faults, self._rules.classes, self._problems, self.read.notes)

    @property
    def facts(self) -> dict[str, Any]:
        """Problems, counts of notes, and categories; complete once all records were read."""
        listed = [asdict(problem) for problem in (*self.read.problems, *self._problems)]
        return {"problems": listed, "notes": dict(+self.read.notes), "categories": list(self.read.categories)}


def _pieces(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while piece := list(islice(rows, _PIECE)):
        yield piece


def _check_images(
    images: Sequence[tuple[str, int | None, int | None]], root: Path, base: Path | None, max_side_ratio: float | None
) -> tuple[list[Problem | None], Counter[str]]:
    """Return the problem (or None) of each image, given as path, stated width and stated height, and note counts."""
    notes: Counter[str] = Counter()
    paths = [root / name for name, _, _ in images]
    faults = [
        problem_of(look_inside(path, base, decode=False), path, (width, height), notes, max_side_ratio)
        for path, (_, width, height) in zip(paths, images, strict=True)
    ]
    return faults, notes


def keep_records(
    source: Source, root: Path, settings: Sequence[Any], read: Callable[[], Checked], *, anew: bool
) -> Store:
    """Return the records of a file, from the cache if file, settings and images are unchanged.

    Args:
        source: the file
        root: folder of its images
        settings: settings that decide which records are left out
        read: opens the file, which is done only if its records are not cached
        anew: read it in any case
    """
    sha = hashlib.sha256(json.dumps([_VERSION, *settings]).encode())
    with source.open() as file:
        while block := file.read(1 << 20):
            sha.update(block)
    digest = sha.hexdigest()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coordexp" / "records"
    stem = folder / digest[:24]
    table, summary, part = stem.with_suffix(".arrow"), stem.with_suffix(".json"), stem.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(stem.with_suffix(".lock")):  # if two runs begin together, only one checks
            cached = None if anew else _cached(table, summary, part, root)
            if cached is not None:
                _LOG.info(f"  using the records that were checked before: {table}")
                return cached
            for leftover in folder.glob(f".{stem.name}.*.tmp"):  # of a run that was killed
                leftover.unlink(missing_ok=True)
            checked = read()
            write_records(table, checked.rows())
            records = Records.open(table)
            facts = checked.facts | {"images": _stamps(root, records.names), "file": digest}
            write_text(part, checked.read.part())
            write_text(summary, json.dumps(facts))
    except OSError as error:
        raise InputError(
            f"{folder}: the checked records cannot be written ({error.strerror}); set XDG_CACHE_HOME to another folder"
        ) from None
    return Store(records, read_json(summary), _digest(facts), part)


def _cached(table: Path, summary: Path, part: Path, root: Path) -> Store | None:
    if not (table.is_file() and summary.is_file() and part.is_file()):
        return None
    records, facts = Records.open(table), read_json(summary)
    return Store(records, facts, _digest(facts), part) if facts["images"] == _stamps(root, records.names) else None


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256((facts["file"] + facts["images"]).encode()).hexdigest()[:16]


def _stamps(root: Path, names: Iterable[str]) -> str:
    """Return a hash of names, sizes and modification times of images; a missing image counts as size -1."""
    sha, folder = hashlib.sha256(), str(root)
    for name in names:
        sha.update(f"{name} {_stamp(f'{folder}/{name}')}\n".encode())
    return sha.hexdigest()


def _stamp(path: str) -> tuple[int, int]:
    try:
        stat = os.stat(path)  # noqa: PTH116 - a Path for each of a million names takes seconds
    except OSError:
        return -1, -1
    return stat.st_size, stat.st_mtime_ns
