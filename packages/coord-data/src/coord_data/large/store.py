"""Caches large instance and COCO files, which are read and checked once, as Arrow files named by their digest.

The cache lies in `$XDG_CACHE_HOME/coordexp` (`~/.cache/coordexp`); its files may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import tee
from pathlib import Path
from typing import IO, Any

from filelock import FileLock
from tqdm import tqdm

from coord_codec import Category, InputError, Problem
from coord_codec.coco.tables import categories_named
from coord_codec.files import read_json, write_text
from coord_codec.geometry import geometry_of
from coord_data.classes import usable
from coord_data.formats.registry import open_source
from coord_data.image_file import look_at, look_inside, problem_of
from coord_data.large.coco import stream_coco
from coord_data.large.lines import pieces, stream_lines
from coord_data.large.part import CocoPart, LinesPart
from coord_data.processes import in_processes
from coord_data.records import Records, Row, write_records
from coord_data.rules import ReadingRules
from coord_data.source import Source

_LOG = logging.getLogger(__name__)
STREAMED = ("jsonl", "coco")
"""Formats whose large files are streamed into an Arrow file."""

_VERSION = "6"
"""To be increased with every change of the rules for leaving out records or of the file layout."""


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


def streams(source: Source, rules: ReadingRules) -> bool:
    """Return whether a source is streamed: an instance or COCO file that is too large for memory."""
    if source.format not in STREAMED or not geometry_of(rules.geometry).is_box or rules.read_as or not source.is_large:
        return False  # the Arrow file stores boxes only, as the file states them
    return source.format == "coco" or source.head[:1] != "["  # the records of a list are not lines


def is_large(annotations: Path | Source, rules: ReadingRules) -> Source | None:
    """Return the source of annotations if they are streamed, else None."""
    if rules.format not in ("auto", *STREAMED) or (isinstance(annotations, Path) and not annotations.exists()):
        return None
    source = open_source(annotations, rules.format)
    return source if streams(source, rules) else None


class Stream:
    """Streams a file's usable records, and collects the problems of the others.

    Args:
        path: path of the file
        kind: format of the file
        root: folder of its images
        base: folder that they must lie in; None for any
        rules: how it is read
        name: name of the set, for the progress bar
    """

    def __init__(self, path: Path, kind: str, root: Path, base: Path | None, rules: ReadingRules, name: str) -> None:
        self._path, self._root, self._base, self._rules, self._name = path, root, base, rules, name
        self._problems: list[Problem] = []
        self._image_problems: list[Problem] = []
        self._notes: Counter[str] = Counter()
        self._names: set[str] = set()
        self._categories: Sequence[Category] | None = None
        self.part: CocoPart | LinesPart = CocoPart() if kind == "coco" else LinesPart()

    def rows(self, file: IO[bytes]) -> Iterator[Row]:
        """Read the file, which is open at its beginning, check its images, and yield the usable records.

        Raises:
            InputError: a COCO file is not JSON or lacks one of its lists.
            RunError: a process that checks records was killed.
        """
        to_check, kept = tee(pieces(self._read(file)))
        images = ([row[:3] for row in piece] for piece in to_check)  # the columns of a row that the check needs
        check = partial(_check_images, root=self._root, base=self._base, max_side_ratio=self._rules.max_side_ratio)
        with tqdm(desc=f"checking {self._name} images", unit="img", leave=False, mininterval=0.5, disable=None) as bar:
            for (_, (faults, notes)), piece in zip(in_processes(check, images), kept, strict=True):
                bar.update(len(piece))
                self._notes += notes
                yield from usable(piece, faults, self._rules.classes, self._image_problems, self._notes)

    def _read(self, file: IO[bytes]) -> Iterator[Row]:
        read_by = self._path, self._rules.on_bad_box, self._problems, self._notes
        if isinstance(self.part, LinesPart):
            return stream_lines(file, *read_by, self._names, self.part, self._root)

        def image_size(name: str) -> tuple[int, int] | None:
            return look_at(self._root / name, decode=False).size

        self._categories, rows = stream_coco(file, *read_by, image_size, self.part, self._root)
        return rows

    @property
    def facts(self) -> dict[str, Any]:
        """Problems, counts of notes, and categories; complete once all records were read."""
        listed = [asdict(problem) for problem in (*self._problems, *self._image_problems)]
        categories = categories_named(self._names) if self._categories is None else self._categories
        return {"problems": listed, "notes": dict(+self._notes), "categories": list(categories)}


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


def keep_records(path: Path, root: Path, settings: Sequence[Any], stream: Stream) -> Store:
    """Return the records of a file, from the cache if file, settings and images are unchanged.

    Args:
        path: path of the file
        root: folder of its images
        settings: settings that decide which records are left out
        stream: the valid records, read only if they are not cached
    """
    sha = hashlib.sha256(json.dumps([_VERSION, *settings]).encode())
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
        file.seek(0)
        return _kept(file, sha.hexdigest(), root, stream)


def _kept(file: IO[bytes], digest: str, root: Path, stream: Stream) -> Store:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coordexp" / "records"
    stem = folder / digest[:24]
    table, summary, part = stem.with_suffix(".arrow"), stem.with_suffix(".json"), stem.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(stem.with_suffix(".lock")):  # if two runs begin together, only one checks
            cached = _cached(table, summary, part, root)
            if cached is not None:
                _LOG.info(f"  using the records that were checked before: {table}")
                return cached
            for leftover in folder.glob(f".{stem.name}.*.tmp"):  # of a run that was killed
                leftover.unlink(missing_ok=True)
            write_records(table, stream.rows(file))
            records = Records.open(table)
            facts = stream.facts | {"images": _stamps(root, records.names), "file": digest}
            write_text(part, stream.part.text())
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
