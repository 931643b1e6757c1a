"""What a session writes for other tools to read and users to edit: what was changed since is moved aside, not replaced.

Someone corrects the boxes of an export in place and asks for more images: the corrections are theirs.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from coord_codec.files import InputError, read_json, write_text
from coord_trainer.console import say

_NOTE = ".written.json"
_PART = ".written.part"


def put(folder: Path, make: Callable[[Path], Path]) -> Path:
    """Let `make` write a file or folder elsewhere, and put it into `folder` as a whole; returns its place.

    Args:
        folder: of the session
        make: writes one file or folder into the folder that it is given, and returns it
    """
    part = folder / _PART
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    made = make(part)
    place, notes = folder / made.name, _notes(folder)
    digest = _digest(made)
    _note(folder, notes | {made.name: [*notes.get(made.name, []), digest]})  # a stop may leave either there
    if place.exists():
        _clear(place, notes.get(made.name, []))
    made.rename(place)
    part.rmdir()
    _note(folder, notes | {made.name: [digest]})
    return place


def written(folder: Path) -> list[str]:
    """Return the names of what `put` has written into a folder."""
    return [name for name in _notes(folder) if (folder / name).exists()]


def discard(folder: Path) -> None:
    """Remove what `put` wrote into a session's folder; what was changed since is moved aside."""
    for name, digests in _notes(folder).items():
        if (folder / name).exists():
            _clear(folder / name, digests)
    (folder / _NOTE).unlink(missing_ok=True)


def _notes(folder: Path) -> dict[str, list[str]]:
    """Return the digests that each name may have; none where a user has changed the file itself."""
    try:
        found = read_json(folder / _NOTE)
    except (InputError, OSError):
        return {}
    return (
        {name: digests for name, digests in found.items() if isinstance(digests, list)}
        if isinstance(found, dict)
        else {}
    )


def _note(folder: Path, notes: dict[str, list[str]]) -> None:
    write_text(folder / _NOTE, json.dumps(notes, indent=1) + "\n")


def _clear(place: Path, digests: Sequence[str]) -> None:
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
    found = hashlib.sha256()
    for path in files:
        found.update(f"{path.relative_to(place)}\0{path.stat().st_size}\0".encode(errors="surrogateescape"))
        found.update(path.read_bytes())
    return found.hexdigest()
