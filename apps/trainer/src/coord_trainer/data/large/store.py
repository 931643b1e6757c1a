"""Large instance and COCO files: read and checked once, then kept in a cache as an Arrow file under their digest.

The cache lies in `$XDG_CACHE_HOME/coordexp` (`~/.cache/coordexp`); its files may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import tee
from pathlib import Path
from typing import Any

from filelock import FileLock
from tqdm import tqdm

from coord_codec import Category, InputError, Problem
from coord_codec.files import read_json, write_text
from coord_trainer.config.sections import DataSection
from coord_trainer.console import say
from coord_trainer.data.formats.registry import image_sizes, open_source
from coord_trainer.data.large.check import Checked, Rules, check_images, check_lines, pieces
from coord_trainer.data.large.coco import stream_coco
from coord_trainer.data.large.part import CocoPart, LinesPart
from coord_trainer.data.large.records import Records, Row, write_records
from coord_trainer.data.parallel.processes import in_processes

LARGE_BYTES = 16_000_000
"""Files above this size, some 25,000 records, are streamed into an Arrow file."""

_STREAMED = ("jsonl", "coco")
_VERSION = "5"
"""Changes with the rules of what is left out, and with the layout of the file."""


@dataclass(frozen=True)
class Store:
    """Checked records on disk.

    Attributes:
        records: mapped into memory
        facts: what was said about them
        digest: of the records, and of names and sizes of their images
        part: a file of an even part of the records, as they stand in the source
    """

    records: Records
    facts: dict[str, Any]
    digest: str
    part: Path


def is_large(annotations: Path, data: DataSection) -> tuple[Path, str] | None:
    """Return the instance or COCO file of a source, and its format, when it is too large to be kept as objects."""
    if data.format not in ("auto", *_STREAMED) or not annotations.exists() or data.geometry != "box":
        return None  # the Arrow file holds boxes
    kind, source = open_source(annotations, data.format)
    large = kind in _STREAMED and source.path.is_file() and source.path.stat().st_size > LARGE_BYTES
    is_list = large and kind == "jsonl" and source.head[:1] == "["  # whose records are no lines
    return (source.path, kind) if large and not is_list else None


class Stream:
    """The good records of a file, one by one, and what there is to say when all were read.

    Args:
        path: the file
        kind: its format
        rules: what is left out
        name: of the set, for the progress bar
    """

    def __init__(self, path: Path, kind: str, rules: Rules, name: str) -> None:
        self._path, self._kind, self._rules, self._name = path, kind, rules, name
        self._problems: list[Problem] = []
        self._notes: Counter[str] = Counter()
        self._names: set[str] = set()
        self._categories: Sequence[Category] | None = None
        self.part: CocoPart | LinesPart = CocoPart() if kind == "coco" else LinesPart()

    def __iter__(self) -> Iterator[Row]:
        """Check the file and its images, and yield the records that are right.

        Raises:
            InputError: a COCO file is no JSON, or lacks one of its lists.
            RunError: a process that checks records was ended.
        """
        found = self._of_coco(self.part) if isinstance(self.part, CocoPart) else self._of_lines(self.part)
        with tqdm(desc=f"checking {self._name} images", unit="img", leave=False, mininterval=0.5) as bar:
            for count, piece in found:
                bar.update(count)
                self._problems += piece.problems
                self._notes += piece.notes
                self._names |= piece.names
                yield from piece.rows

    def _of_coco(self, part: CocoPart) -> Iterator[tuple[int, Checked]]:
        rules = self._rules
        sizes = image_sizes(rules.root)
        told = self._problems, self._notes
        self._categories, rows = stream_coco(self._path, rules.on_bad_box, *told, sizes, part, rules.root)
        asked, kept = tee(pieces(rows))
        images = ([row[:3] for row in piece] for piece in asked)  # all of a row that another process needs
        checked = in_processes(partial(check_images, rules=rules), images)
        for (_, (faults, notes)), piece in zip(checked, kept, strict=True):
            found = Checked(notes=notes)
            for row, fault in zip(piece, faults, strict=True):
                found.take(row, fault, rules)
            yield len(piece), found

    def _of_lines(self, part: LinesPart) -> Iterator[tuple[int, Checked]]:
        lines_of: dict[int | str, int] = {}
        with self._path.open("rb") as file:
            lines = pieces((number, line) for number, line in enumerate(file, start=1) if line.strip())
            for piece, found in in_processes(partial(check_lines, path=self._path, rules=self._rules), lines):
                part.see(piece)
                taken = {n: first for i, n in found.ids if (first := lines_of.setdefault(i, n)) != n}
                yield len(piece), check_lines(piece, self._path, self._rules, taken) if taken else found

    @property
    def facts(self) -> dict[str, Any]:
        """What was left out, what was counted, and the categories."""
        listed = [asdict(problem) for problem in self._problems]
        categories = list(enumerate(sorted(self._names), start=1)) if self._categories is None else self._categories
        return {"problems": listed, "notes": dict(+self._notes), "categories": list(categories)}


def keep_records(path: Path, root: Path, settings: Sequence[Any], found: Stream) -> Store:
    """Return the records of a file, from the cache when file, settings and images are as they were.

    Args:
        path: the file
        root: folder of its images
        settings: what decides which records are left out
        found: the good records, read only when they are not known
    """
    sha = hashlib.sha256(json.dumps([_VERSION, *settings]).encode())
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coordexp" / "records"
    stem = folder / sha.hexdigest()[:24]
    table, summary, part = stem.with_suffix(".arrow"), stem.with_suffix(".json"), stem.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(stem.with_suffix(".lock")):  # of two runs that begin together, one checks
            known = _known(table, summary, part, root)
            if known is not None:
                say(f"  checked before: {table}")
                return known
            for left in folder.glob(f".{stem.name}.*.tmp"):  # by a run that was killed
                left.unlink(missing_ok=True)
            write_records(table, found)
            records = Records(table)
            facts = found.facts | {"images": _listing(root, records.names), "file": sha.hexdigest()}
            write_text(part, found.part.text())
            write_text(summary, json.dumps(facts))
    except OSError as error:
        raise InputError(
            f"{folder}: the checked records cannot be written ({error.strerror}); name another place by XDG_CACHE_HOME"
        ) from None
    return Store(records, read_json(summary), _digest(facts), part)


def _known(table: Path, summary: Path, part: Path, root: Path) -> Store | None:
    if not (table.is_file() and summary.is_file() and part.is_file()):
        return None
    records, facts = Records(table), read_json(summary)
    return Store(records, facts, _digest(facts), part) if facts["images"] == _listing(root, records.names) else None


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256((facts["file"] + facts["images"]).encode()).hexdigest()[:16]


def _listing(root: Path, names: Iterable[str]) -> str:
    """Return a digest of names, sizes and times of images; an image that is gone has a size of its own."""
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
