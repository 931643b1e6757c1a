"""Tracks what `predict` writes for users to edit: a file or folder that a user has changed is moved aside, not lost.

A hidden file in the output folder records the digest of each, by which changes of a user are recognised.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from coord_codec.files import InputError, read_json, write_text
from coord_detect.console import say
from coord_eval.labelling import EXPORTS, Records, coco_annotations, labelstudio_tasks

_DIGESTS = ".written.json"
_PART = ".written.part"


def write_tracked(folder: Path, make: Callable[[Path], Path]) -> Path:
    """Replace a tracked file or folder, which `make` writes into the folder it is given; returns its path."""
    part = folder / _PART
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    made = make(part)
    place, before, digest = folder / made.name, _digests(folder), _digest(made)
    # After a kill either version may be in place, so that both digests are recorded until it is moved.
    _write_digests(folder, before | {made.name: [*before.get(made.name, []), digest]})
    _clear(place, before.get(made.name, []))
    shutil.move(made, place)
    shutil.rmtree(part)
    _write_digests(folder, before | {made.name: [digest]})
    return place


def write_export(
    name: str, records: Records, folder: Path, categories: Mapping[str, int | str] | None = None, image_prefix: str = ""
) -> Path:
    """Write records in one of `EXPORTS`, forms of labelling tools; returns the file or folder.

    An earlier export that a user has changed is moved aside; records without `objects` are left out. COCO has
    the ids of `categories`, by label; in tasks of Label Studio `image_prefix` stands before the path of each
    image.
    """
    answered = [record for record in records if "objects" in record]
    own = {
        "coco": partial(coco_annotations, categories=categories),
        "labelstudio": partial(labelstudio_tasks, prefix=image_prefix),
    }
    make = own.get(name, EXPORTS[name])
    return write_tracked(folder, partial(make, answered))


def exports_in(folder: Path) -> list[str]:
    """Return the formats that an earlier call has exported into a folder."""
    tracked = {name for name in _digests(folder) if (folder / name).exists()}
    return [name for name in EXPORTS if {name, f"{name}.json", f"{name}.xml"} & tracked]


def remove_tracked(folder: Path, names: Collection[str] | None = None) -> None:
    """Remove the tracked files and folders, or only those of these names; what a user has changed is moved aside."""
    digests = _digests(folder)
    for name in [name for name in digests if names is None or name in names]:
        _clear(folder / name, digests.pop(name))
    _write_digests(folder, digests)


def _digests(folder: Path) -> dict[str, list[str]]:
    """Return the digests that each tracked name may have; empty if a user has changed the file of digests itself."""
    try:
        content = read_json(folder / _DIGESTS)
    except (InputError, OSError):
        return {}
    rows = content.items() if isinstance(content, dict) else ()
    return {name: digests for name, digests in rows if isinstance(digests, list)}


def _write_digests(folder: Path, digests: Mapping[str, Sequence[str]]) -> None:
    if digests:
        write_text(folder / _DIGESTS, json.dumps(digests, indent=1) + "\n")
    else:
        (folder / _DIGESTS).unlink(missing_ok=True)


def _clear(place: Path, digests: Sequence[str]) -> None:
    """Remove a tracked file or folder, if there is one; rename it if its content has none of the digests."""
    if not place.exists():
        return
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
