"""Tracks the files that `predict` writes for users to edit: a file that a user has changed is moved aside, not lost.

A hidden file in the output folder records the digests of these files, by which files of a user are recognised.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from coord_codec.files import InputError, read_json, write_text
from coord_eval.labelling import EXPORTS, Records, coco_annotations
from coord_trainer.console import say

_DIGESTS = ".written.json"
_PART = ".written.part"


def write_tracked_files(folder: Path, make: Callable[[Path], Path], keep: Collection[Path] = ()) -> Path:
    """Replace the tracked files of a folder one by one, so that a user's own files in it stay; returns its path.

    Args:
        folder: the output folder
        make: writes a folder into the folder of its argument, and returns its path
        keep: files of earlier calls that stay although `make` did not write them again
    """
    part = _empty_part(folder)
    made = make(part)
    names = [path.relative_to(part).as_posix() for path in sorted(made.rglob("*")) if path.is_file()]
    _move_into_place(folder, names)
    kept = {*names, *(path.relative_to(folder).as_posix() for path in keep)}
    _remove(folder, [name for name in _digests(folder) if name.startswith(f"{made.name}/") and name not in kept])
    return folder / made.name


def write_export(name: str, records: Records, folder: Path, categories: Mapping[str, int] | None = None) -> Path:
    """Write records in the format of a labelling tool; returns the file or folder.

    Args:
        name: one of `EXPORTS`
        records: records of predictions.jsonl; those without `objects` are left out
        folder: the output folder; an earlier export that a user has changed is moved aside
        categories: category ids by label for the COCO export
    """
    answered = [record for record in records if "objects" in record]
    make = partial(coco_annotations, categories=categories) if name == "coco" else EXPORTS[name]
    place = make(answered, _empty_part(folder))
    return _move_into_place(folder, [place.name])[0]


def exports_in(folder: Path) -> list[str]:
    """Return the formats that an earlier call has exported into a folder."""
    tracked = {name for name in _digests(folder) if (folder / name).exists()}
    return [name for name in EXPORTS if {name, f"{name}.json", f"{name}.xml"} & tracked]


def remove_tracked(folder: Path, below: str | None = None) -> None:
    """Remove the tracked files, or only those in the folder `below`; what a user has changed is moved aside."""
    names = list(_digests(folder))
    _remove(folder, names if below is None else [name for name in names if name.startswith(f"{below}/")])


def _empty_part(folder: Path) -> Path:
    part = folder / _PART
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    return part


def _move_into_place(folder: Path, names: Iterable[str]) -> list[Path]:
    part = folder / _PART
    before = _digests(folder)
    now = {name: _digest(part / name) for name in names}
    # After a kill either version may be in place, so that both digests are recorded until all files are moved.
    _write_digests(folder, before | {name: [*before.get(name, []), digest] for name, digest in now.items()})
    for name in now:
        if (folder / name).exists():
            _clear(folder / name, before.get(name, []))
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(part / name, folder / name)
    shutil.rmtree(part)
    _write_digests(folder, before | {name: [digest] for name, digest in now.items()})
    return [folder / name for name in now]


def _remove(folder: Path, names: Sequence[str]) -> None:
    digests = _digests(folder)
    for name in names:
        if (folder / name).exists():
            _clear(folder / name, digests[name])
    for parent in sorted({parent for name in names for parent in Path(name).parents[:-1]}, reverse=True):
        with suppress(OSError):  # a user's files are in it
            (folder / parent).rmdir()
    if left := {name: values for name, values in digests.items() if name not in names}:
        _write_digests(folder, left)
    else:
        (folder / _DIGESTS).unlink(missing_ok=True)


def _digests(folder: Path) -> dict[str, list[str]]:
    """Return the digests that each tracked name may have; empty if a user has changed the file of digests itself."""
    try:
        content = read_json(folder / _DIGESTS)
    except (InputError, OSError):
        return {}
    rows = content.items() if isinstance(content, dict) else ()
    return {name: digests for name, digests in rows if isinstance(digests, list)}


def _write_digests(folder: Path, digests: Mapping[str, Sequence[str]]) -> None:
    write_text(folder / _DIGESTS, json.dumps(digests, indent=1) + "\n")


def _clear(place: Path, digests: Sequence[str]) -> None:
    """Remove a tracked file or folder; rename it if its content has none of the digests."""
    if _digest(place) not in digests:
        number = 1
        while (aside := place.with_name(f"{place.stem}.changed-{number}{place.suffix}")).exists():
            number += 1
        place.rename(aside)
        say(f"{place}: it was changed since it was written, and is now {aside.name}")
    elif place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()


def _digest(place: Path) -> str:
    """Return the SHA-256 of a file, or of all names and contents of a folder."""
    files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(place)}\0{path.stat().st_size}\0".encode(errors="surrogateescape"))
        digest.update(path.read_bytes())
    return digest.hexdigest()
