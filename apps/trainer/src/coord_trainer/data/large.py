"""Large instance and COCO files: read and checked once, then kept in a cache as an Arrow file under their digest.

The cache lies in `$XDG_CACHE_HOME/coordexp` (`~/.cache/coordexp`); its files may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ijson

from coord_codec import Category, InputError, Instance, Problem
from coord_codec.annotations import stream_instances
from coord_codec.boxes import OnBadBox
from coord_codec.coco_stream import stream_coco
from coord_codec.files import read_json, write_text
from coord_trainer.config.sections import DataSection
from coord_trainer.console import say
from coord_trainer.data.formats.registry import recognise
from coord_trainer.data.records import Records, write_records

LARGE_BYTES = 16_000_000
"""Files above this size, some 25,000 records, are streamed into an Arrow file."""

_STREAMED = ("jsonl", "coco")
_VERSION = "2"
"""Changes with the rules of what is left out, and with the layout of the file."""


@dataclass(frozen=True)
class Store:
    """Checked records on disk.

    Attributes:
        records: mapped into memory
        facts: what was said about them
        digest: of the records, and of names and sizes of their images
    """

    records: Records
    facts: dict[str, Any]
    digest: str


def is_large(annotations: Path, data: DataSection) -> tuple[Path, str] | None:
    """Return the instance or COCO file of a source, and its format, when it is too large to be kept as objects."""
    if data.format not in ("auto", *_STREAMED) or not annotations.exists():
        return None
    kind, source = (data.format, None) if data.format != "auto" else recognise(annotations)
    path = annotations if source is None else source.path
    large = kind in _STREAMED and path.is_file() and path.stat().st_size > LARGE_BYTES
    return (path, kind) if large else None


def stream(
    path: Path,
    kind: str,
    on_bad_box: OnBadBox,
    problems: list[Problem],
    notes: Counter[str],
    image_size: Callable[[str], tuple[int, int] | None],
) -> tuple[list[Category] | None, Iterator[Instance]]:
    """Return the records of an instance or COCO file one by one, and a COCO file's categories.

    Args:
        path: the file
        kind: its format
        on_bad_box: what a refused object does to its image
        problems: filled with what is left out
        notes: filled with counted facts
        image_size: looks up the size of an image for which a COCO file states none

    Raises:
        InputError: a COCO file is no JSON, or lacks one of its lists.
    """
    if kind == "coco":
        categories, instances = stream_coco(
            lambda name: _table(path, name), str(path), on_bad_box, problems, notes, image_size
        )
        return list(categories), instances
    return None, _good(path, on_bad_box, problems)


def _good(path: Path, on_bad_box: OnBadBox, problems: list[Problem]) -> Iterator[Instance]:
    for instance, faults in stream_instances(path, on_bad_box):
        problems.extend(faults)
        if instance is not None:
            yield instance


def _table(path: Path, name: str) -> Iterator[Any]:
    """Yield the rows of a list of a JSON document, which is never in memory."""
    found = False
    try:
        with path.open("rb") as file:
            if file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            for row in ijson.items(file, f"{name}.item", use_float=True):
                found = True
                yield row
            if not found:
                file.seek(0)
                if next(ijson.items(file, name), None) is None:
                    raise InputError(f"{path}: expected COCO JSON, found no list {name}")
    except ijson.JSONError as error:
        raise InputError(f"{path}: not JSON ({str(error).splitlines()[0]}); repair the file") from None


def keep_records(
    path: Path,
    root: Path,
    settings: Sequence[Any],
    check: Callable[[], Iterable[Instance]],
    facts: Callable[[], dict[str, Any]],
) -> Store:
    """Return the records of a file, from the cache when file, settings and images are as they were.

    Args:
        path: the file
        root: folder of its images
        settings: what decides which records are left out
        check: yields the good records
        facts: what there is to say when all were yielded
    """
    sha = hashlib.sha256(json.dumps([_VERSION, *settings]).encode())
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coordexp" / "records"
    stem = folder / sha.hexdigest()[:24]
    table, summary = stem.with_suffix(".arrow"), stem.with_suffix(".json")
    known = _known(table, summary, root)
    if known is not None:
        say(f"  checked before: {table}")
        return known
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_records(table, check())
        records = Records(table)
        write_text(summary, json.dumps(facts() | {"images": _listing(root, records.names), "file": sha.hexdigest()}))
    except OSError as error:
        raise InputError(
            f"{folder}: the checked records cannot be written ({error.strerror}); name another place by XDG_CACHE_HOME"
        ) from None
    return Store(records, read_json(summary), _digest(read_json(summary)))


def _known(table: Path, summary: Path, root: Path) -> Store | None:
    if not (table.is_file() and summary.is_file()):
        return None
    records, facts = Records(table), read_json(summary)
    return Store(records, facts, _digest(facts)) if facts["images"] == _listing(root, records.names) else None


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
