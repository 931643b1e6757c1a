"""Large instance files: read and checked once, then kept in a cache as an Arrow file under their digest.

The cache lies in `$XDG_CACHE_HOME/coordexp` (`~/.cache/coordexp`); its files may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coord_codec import InputError, Instance
from coord_codec.files import read_json, write_text
from coord_trainer.config.sections import DataSection
from coord_trainer.console import say
from coord_trainer.data.formats.registry import recognise
from coord_trainer.data.records import Records, write_records

LARGE_BYTES = 16_000_000
"""Instance files above this size, some 25,000 records, are streamed into an Arrow file."""

_VERSION = "1"
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


def is_large(annotations: Path, data: DataSection) -> Path | None:
    """Return the instance file of a source when it is too large to be kept as objects."""
    if data.format not in ("auto", "jsonl") or not annotations.exists():
        return None
    kind, source = ("jsonl", None) if data.format == "jsonl" else recognise(annotations)
    path = annotations if source is None else source.path
    return path if kind == "jsonl" and path.is_file() and path.stat().st_size > LARGE_BYTES else None


def keep_records(
    path: Path,
    root: Path,
    settings: Sequence[Any],
    check: Callable[[], Iterable[Instance]],
    facts: Callable[[], dict[str, Any]],
) -> Store:
    """Return the records of a file, from the cache when file, settings and images are as they were.

    Args:
        path: the instance file
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
