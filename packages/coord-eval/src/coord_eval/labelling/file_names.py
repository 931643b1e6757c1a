"""Assigns each image an output file of its own below a folder, whatever the image is called."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path, PurePosixPath

_LONGEST = 240
"""Most bytes of a file name; file systems allow 255, and temporary files have longer names."""


def places_of(images: Iterable[str], folder: Path, suffix: str) -> dict[str, Path]:
    """Return an output file below `folder` for each image, whose suffix replaces that of the image.

    Annotations may name images by absolute paths or with `..`; no original file may be overwritten. The suffix of the
    image is kept as well if two images would get the same file, or an image the name of a folder.

    Example:
        >>> places = places_of(["a.jpg", "a.png", "../b.jpg", "/c/d.jpg"], Path("drawn"), ".txt")
        >>> [path.as_posix() for path in places.values()]
        ['drawn/a.jpg.txt', 'drawn/a.png.txt', 'drawn/__/b.txt', 'drawn/c/d.txt']
    """
    relative = {image: _relative(image) for image in images}
    short = {image: path.with_suffix(suffix) for image, path in relative.items()}
    uses = Counter(_key(path) for path in short.values())
    taken = {_key(parent) for path in relative.values() for parent in path.parents}
    places: dict[str, Path] = {}
    for image, path in sorted(relative.items(), key=lambda pair: uses[_key(short[pair[0]])] > 1):
        long = (path.with_name(f"{path.name}{'.' * n}{suffix}") for n in count())
        unique = (short[image],) if uses[_key(short[image])] == 1 else ()
        place = next(place for place in map(_shortened, chain(unique, long)) if _key(place) not in taken)
        taken.add(_key(place))
        places[image] = folder / place
    return {image: places[image] for image in relative}


def _key(path: PurePosixPath) -> str:
    return str(path).casefold()  # some file systems ignore case


def _shortened(path: PurePosixPath) -> PurePosixPath:
    """Return the path; a name that is too long for a file becomes its beginning and a hash of the name."""
    name = os.fsencode(path.name)
    if len(name) <= _LONGEST:
        return path
    start = os.fsdecode(name[: _LONGEST - 40]).encode("utf-8", "ignore").decode()
    return path.with_name(f"{start}-{hashlib.sha256(name).hexdigest()[:16]}{path.suffix[:16]}")


def _relative(image: str) -> PurePosixPath:
    path = PurePosixPath(image.replace("\\", "/"))
    return PurePosixPath(*("__" if part == ".." else part for part in path.parts if part != path.anchor))
