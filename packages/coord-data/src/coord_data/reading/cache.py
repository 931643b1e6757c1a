"""Keeps the checked records of instance and COCO files with many images, as Arrow files named by their digest.

The cache lies in `$XDG_CACHE_HOME/coordexp` (`~/.cache/coordexp`); its files may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import tee
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from filelock import FileLock
from tqdm import tqdm

from coord_codec import AnnotationSet, BoxTable, Category, InputError, Problem
from coord_codec.annotations import used_in_training
from coord_codec.counts import counted
from coord_codec.files import read_json, write_text
from coord_data.formats.coco import records_of
from coord_data.looking.engines import run_jobs
from coord_data.looking.image_file import ImageFolder, look_inside, problem_of
from coord_data.reading.classes import OTHER
from coord_data.reading.rules import ReadingRules
from coord_data.records import Records, images_of_batch, of_classes, write_records
from coord_data.sources.object_rules import ObjectRules
from coord_data.sources.source import Source
from coord_data.stream.coco import CocoRecords
from coord_data.stream.lines import LineRecords

_LOG = logging.getLogger(__name__)
_PIECE = 512
"""Number of images that a process checks at a time."""

_VERSION = "7"
"""To be increased with every change of the rules for leaving out records or of the file layout."""


_Image = tuple[str, int | None, int | None]
"""Path, stated width and stated height."""


class _Piece(NamedTuple):
    """What the check of some images told.

    Attributes:
        stamps: hash of their names, sizes and times before they were checked
        faults: problems by index of the image
        notes: counts of notes
    """

    stamps: str
    faults: dict[int, Problem]
    notes: dict[str, int]


class _Job(NamedTuple):
    """Images to check, and what an earlier run that was stopped told of them."""

    images: Sequence[_Image]
    known: _Piece | None


@dataclass
class _Pieces:
    """The pieces of a check, in numbered files that are kept until it is complete."""

    folder: Path
    root: Path
    used: int = 0
    outdated: int = 0

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"

    def jobs(self, pieces: Iterable[Sequence[_Image]]) -> Iterator[_Job]:
        """Yield the job of each piece, without what is known of images that have changed since."""
        for number, images in enumerate(pieces):
            known = self._read(number)
            if known is not None and known.stamps != _stamps(self.root, (name for name, _, _ in images)):
                known = None
                self.outdated += 1
            self.used += known is not None
            yield _Job(images, known)

    def _read(self, number: int) -> _Piece | None:
        if not self._path(number).is_file():
            return None
        try:
            stamps, faults, notes = read_json(self._path(number))
            return _Piece(stamps, {int(row): Problem(**fault) for row, fault in faults.items()}, notes)
        except (InputError, ValueError, TypeError, AttributeError):  # damaged
            self.outdated += 1
            return None

    def keep(self, number: int, piece: _Piece) -> None:
        """Write a piece."""
        faults = {row: asdict(fault) for row, fault in piece.faults.items()}
        write_text(self._path(number), json.dumps([piece.stamps, faults, piece.notes]))

    @property
    def words(self) -> str:
        """What is kept, in words."""
        count = sum(1 for _ in self.folder.glob("*.json"))
        return f"{counted(count, 'piece')} of {_PIECE} checked images in {self.folder}"


def _checked(
    read: CocoRecords | LineRecords,
    problems: list[Problem],
    pieces: _Pieces,
    base: Path | None,
    rules: ReadingRules,
    name: str,
) -> Iterator[pa.RecordBatch]:
    """Check the images by all processes, and yield the records whose image can be used."""
    check = partial(_check_images, root=read.folder, base=base, max_side_ratio=rules.max_side_ratio)
    to_check, kept = tee(read.batches(_PIECE))
    jobs = pieces.jobs(images_of_batch(batch) for batch in to_check)
    with tqdm(desc=f"checking {name} images", unit="img", leave=False, mininterval=0.5, disable=None) as bar:
        for number, ((job, piece), batch) in enumerate(zip(run_jobs(check, jobs), kept, strict=True)):
            if job.known is None:
                pieces.keep(number, piece)
            bar.update(len(batch))
            read.notes.update(piece.notes)
            problems += piece.faults.values()
            usable = batch.filter(pa.array([row not in piece.faults for row in range(len(batch))]))
            if rules.classes is not None:
                usable, other = of_classes(usable, rules.classes)
                read.notes[OTHER] += other
            yield usable


def _check_images(job: _Job, root: Path, base: Path | None, max_side_ratio: float | None) -> _Piece:
    """Return what the headers of images tell."""
    if job.known is not None:
        return job.known
    stamps, notes = _stamps(root, (name for name, _, _ in job.images)), Counter[str]()
    faults = dict[int, Problem]()
    for row, (name, width, height) in enumerate(job.images):
        file = look_inside(root / name, base, decode=False)
        if fault := problem_of(file, root / name, (width, height), notes, max_side_ratio):
            faults[row] = fault
    return _Piece(stamps, faults, notes)


@dataclass(frozen=True)
class _Files:
    """What is kept of an annotation file that is read by the same rules.

    Attributes:
        stem: path of the files without their suffixes, whose name is the digest of file and rules
        root: folder that image paths are relative to
    """

    stem: Path
    root: Path

    @property
    def table(self) -> Path:
        """The records."""
        return self.stem.with_suffix(".arrow")

    @property
    def summary(self) -> Path:
        """What was left out, the categories, and the stamps of the images."""
        return self.stem.with_suffix(".json")

    @property
    def part(self) -> Path:
        """An evenly drawn subset of the unchanged records."""
        return self.stem.with_suffix(".part")

    @property
    def stamps(self) -> str:
        """The stamps of the images as they are now."""
        return _stamps(self.root, Records.open(self.table).names)

    def are_current(self) -> bool:
        """Return whether all were written, and no image has changed since."""
        is_complete = all(path.is_file() for path in (self.table, self.summary, self.part))
        return is_complete and bool(read_json(self.summary)["images"] == self.stamps)


def kept_records(
    source: Source, base: Path, rules: ReadingRules, name: str, *, scored: bool
) -> tuple[AnnotationSet, str, Source]:
    """Return the records of a file, from the cache if file, settings and images are unchanged.

    The records are mapped into memory. With them come a digest of the file and of names, sizes and times of the images,
    and an evenly drawn subset of the unchanged records.

    Args:
        source: the file
        base: folder that its images must lie in, unless the rules allow others
        rules: how it is read
        name: name of the set, for the progress bar
        scored: whether the tables of a COCO file are asked for, which are not kept, so that it is read anew

    Raises:
        InputError: the file cannot be read, or the cache cannot be written.
        RunError: a process that checks images was killed.
    """
    root, boxes = rules.images or source.path.parent, None
    digest = _digest(source, root, base, rules)
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coordexp" / "records"
    files = _Files(folder / digest[:24], root)
    is_read_anew = scored and source.format == "coco"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(files.stem.with_suffix(".lock")):  # if two runs begin together, only one checks
            if not is_read_anew and files.are_current():
                _LOG.info(f"  using the records that were checked before: {files.table}")
            else:
                table = _write(files, source, None if rules.allow_outside else base, rules, name)
                boxes = table if scored else None
    except OSError as error:
        raise InputError(
            f"{folder}: the checked records cannot be written ({error.strerror}); set XDG_CACHE_HOME to another folder"
        ) from None
    records, facts = Records.open(files.table), read_json(files.summary)
    problems = tuple(Problem(**row) for row in facts["problems"])
    categories = tuple(Category(*row) for row in facts["categories"])
    if boxes is not None:
        boxes = used_in_training(boxes, records.image_ids)
    annotations = AnnotationSet(records, problems, categories, facts["notes"], root, boxes)
    of_images = hashlib.sha256((digest + facts["images"]).encode()).hexdigest()[:16]
    return annotations, of_images, Source(files.part, format=source.format)


def _digest(source: Source, root: Path, base: Path, rules: ReadingRules) -> str:
    """Return a hash of a file and of all that decides which of its records are kept."""
    reading = rules.model_dump(mode="json", include=set(ObjectRules.model_fields) - {"images", "strict"})
    folders = str(root.resolve()), str(base.resolve())
    sha = hashlib.sha256(json.dumps([_VERSION, source.format, *folders, reading]).encode())
    with source.open() as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def _write(files: _Files, source: Source, base: Path | None, rules: ReadingRules, name: str) -> BoxTable | None:
    """Read a file, check its images and write what is kept; return the boxes that a COCO file states."""
    _LOG.info(f"{name}: reading {source.path}")
    for leftover in files.stem.parent.glob(f".{files.stem.name}.*.tmp"):  # of a run that was killed
        leftover.unlink(missing_ok=True)
    images = ImageFolder(files.root, decode=False)
    read, problems = records_of(source, rules, images), list[Problem]()
    pieces = _Pieces(files.stem.with_suffix(".checked"), files.root)
    batches = _checked(read, problems, pieces, base, rules, name)
    try:
        write_records(files.table, batches)
    except KeyboardInterrupt as error:
        error.args = (f"interrupted: {pieces.words} are kept; the same command continues",)
        raise
    if pieces.used:
        _LOG.info(f"  continued with {counted(pieces.used, 'piece')} of images that were checked before")
    if pieces.outdated:
        _LOG.info(f"  {counted(pieces.outdated, 'piece')} of images changed since, and were checked again")
    facts = {
        "problems": [asdict(problem) for problem in (*read.problems, *problems)],
        "notes": dict(+read.notes),
        "categories": read.categories,
        "images": files.stamps,
    }
    write_text(files.summary, json.dumps(facts))
    write_text(files.part, read.part())
    shutil.rmtree(pieces.folder, ignore_errors=True)
    return read.table


def _stamps(root: Path, names: Iterable[str]) -> str:
    """Return a hash of names, sizes and modification times of images; a missing image counts as size -1."""
    sha, folder = hashlib.sha256(), str(root)
    for name in names:
        stamp = -1, -1
        with suppress(OSError):
            stat = os.stat(f"{folder}/{name}")  # noqa: PTH116 - a Path for each of a million names takes seconds
            stamp = stat.st_size, stat.st_mtime_ns
        sha.update(f"{name} {stamp}\n".encode())
    return sha.hexdigest()
