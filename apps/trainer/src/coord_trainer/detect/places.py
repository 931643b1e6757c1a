"""Where the files about an image lie: below their own folder, whatever its name is, and each image's apart."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path, PurePosixPath

_LONGEST = 240
"""Bytes of a name; 255 are the most that file systems take, and temporary files have longer names."""


def places_of(images: Iterable[str], folder: Path, suffix: str) -> dict[str, Path]:
    """Return the file of each image in a folder, with a suffix in place of the image's own.

    Names of images are those of annotations too, which may be absolute or lead upwards: an original must never be
    written over. Where two images would have the same file, or one the name of a folder, theirs keep the suffix.

    Example:
        >>> found = places_of(["a.jpg", "a.png", "../b.jpg", "/c/d.jpg"], Path("drawn"), ".txt")
        >>> [path.as_posix() for path in found.values()]
        ['drawn/a.jpg.txt', 'drawn/a.png.txt', 'drawn/__/b.txt', 'drawn/c/d.txt']
    """
    inside = {image: _inside(image) for image in images}
    short = {image: path.with_suffix(suffix) for image, path in inside.items()}
    times = Counter(_key(path) for path in short.values())
    taken = {_key(parent) for path in inside.values() for parent in path.parents}
    found: dict[str, Path] = {}
    for image, path in sorted(inside.items(), key=lambda pair: times[_key(short[pair[0]])] > 1):
        long = (path.with_name(f"{path.name}{'.' * n}{suffix}") for n in count())
        shortest = (short[image],) if times[_key(short[image])] == 1 else ()
        place = next(place for place in map(_fitted, chain(shortest, long)) if _key(place) not in taken)
        taken.add(_key(place))
        found[image] = folder / place
    return {image: found[image] for image in inside}


def _key(path: PurePosixPath) -> str:
    return str(path).casefold()  # some file systems ignore case


def _fitted(path: PurePosixPath) -> PurePosixPath:
    """Return the path with a name that a file can have: of a longer one a part, and what tells it from others."""
    name = os.fsencode(path.name)
    if len(name) <= _LONGEST:
        return path
    start = os.fsdecode(name[: _LONGEST - 40]).encode("utf-8", "ignore").decode()
    return path.with_name(f"{start}-{hashlib.sha256(name).hexdigest()[:16]}{path.suffix[:16]}")


def _inside(image: str) -> PurePosixPath:
    path = PurePosixPath(image.replace("\\", "/"))
    return PurePosixPath(*("__" if part == ".." else part for part in path.parts if part != path.anchor))
