"""Whether an image can be trained on: it lies where it may, opens, and has the size that the annotations state."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath

from coord_codec import InputError, Problem
from coord_codec.files import path_inside
from coord_eval import ImageError, ImageFacts, decode_image, image_facts
from coord_trainer.data.formats.raw import IMAGE_SUFFIXES

MISSING = "the file does not exist"
"""How `coord_eval` says that there is no image."""

_FOLDERS = 500
"""How many folders are looked into for an image that is not where it should be."""

MAX_ASPECT_RATIO = 200
"""Of the longer side to the shorter one; the image processor of Qwen raises above it, in the middle of training."""


def look_at(
    root: Path, base: Path | None, name: str, stated: tuple[int | None, int | None], decode: bool, notes: Counter[str]
) -> Problem | None:
    """Return what is wrong with an image; count what decoding does to it.

    Args:
        root: the folder that its path is relative to
        base: the folder that it may not leave; None for any
        name: its path
        stated: width and height that the annotations state
        decode: decode the pixels as well
        notes: filled with counted facts
    """
    try:
        notes.update(_check_image(root, base, name, stated, decode).notes)
    except InputError as error:
        fault_of, _, message = str(error).partition(": ")
        return Problem(str(root / name), fault_of, message)
    return None


def _check_image(
    root: Path, base: Path | None, name: str, stated: tuple[int | None, int | None], decode: bool
) -> ImageFacts:
    """Return what the header of an image says.

    Raises:
        InputError: `field: fault`; it cannot be trained on.
    """
    path = root / name
    if base is not None and is_outside(path, base):
        raise InputError(f"image: {outside_message(base)}")
    try:
        facts = image_facts(path)
        if decode:
            decode_image(path)
    except ImageError as error:
        raise InputError(f"image: {error}{_similar(path) if str(error) == MISSING else ''}") from None
    size = facts.size
    if max(size) > MAX_ASPECT_RATIO * min(size):
        raise InputError(
            f"width, height: the file has {size[0]} x {size[1]} pixels; Qwen's image processor refuses sides whose "
            f"ratio exceeds {MAX_ASPECT_RATIO}"
        )
    if None not in stated and stated != size:
        turned = "; that is its size before the EXIF orientation is applied"
        turned += ", which training does: remove the orientation from the file, or draw its boxes on the upright image"
        raise InputError(
            f"width, height: the annotations say {stated[0]} x {stated[1]} pixels, the file has {size[0]} x {size[1]}"
            + (turned if stated == facts.stored_size else "")
        )
    return facts


def _similar(path: Path) -> str:
    """Return what is said of a file that is there under nearly the same name, or of an address."""
    if any(part in ("http:", "https:", "s3:", "gs:") for part in path.parts):
        return "; an address is not fetched: download the image, and write its path"
    names = _names(path.parent.absolute())
    other = names.get(_plain(path.name)) or names.get(_plain(path.stem))
    return f"; {other} does, whose name has other case, suffix or Unicode form; rename one of the two" if other else ""


@lru_cache(maxsize=256)
def _names(folder: Path) -> dict[str, str]:
    """Return the name of each image in a folder by what is the same in nearly the same names."""
    try:
        files = sorted(name for name in os.listdir(folder) if PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES)  # noqa: PTH208
    except OSError:
        return {}
    return {_plain(PurePosixPath(name).stem): name for name in files} | {_plain(name): name for name in files}


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def where_it_is(name: str, annotations: Path) -> str:
    """Return the end of a message about the folder that paths start from: where an image lies that is not there.

    It is looked for below the annotations, or where these have a folder of their own, below the one above.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    tails = ["/".join(parts[start:]) for start in range(len(parts))]
    beside = (annotations.parent if annotations.is_file() else annotations).absolute()
    folders = list(islice(_folders(beside), _FOLDERS))
    if len(folders) == 1:
        folders = list(islice(_folders(beside.parent), _FOLDERS))
    for tail in tails:
        there = (folder for folder in folders if os.path.isfile(f"{folder}/{tail}"))  # noqa: PTH113
        if folder := next(there, None):
            return f": {folder}" + (f", once they are written as {tail}" if tail != tails[0] else "")
    return ""


def _folders(top: Path) -> Iterator[str]:
    """Yield a folder and those below it that are not hidden, the nearest first."""
    level = [str(top)]
    while level:
        yield from level
        below = []
        for folder in level:
            try:
                below += [entry.path for entry in os.scandir(folder) if entry.is_dir() and entry.name[:1] != "."]
            except OSError:  # noqa: PERF203 - a folder of someone else
                continue
        level = sorted(below)


def is_outside(path: Path, base: Path) -> bool:
    """Whether an image leaves a folder, by `..` or a link."""
    try:
        if not (".." in path.parts or path.is_symlink() or not _below(base, path.parent)):
            return False
    except OSError:  # a name that no file can have: opening it says so
        return False
    try:
        path_inside(base, path.absolute())
    except InputError:
        return True
    return False


def outside_message(base: Path) -> str:
    """Return what is said of an image outside of the folder `base`."""
    return (
        f"lies outside the folder of the images {base}, by .. or a link; set data.allow_outside=true (prepare: "
        "--allow-outside) if that is meant, or name the folder that its path starts from as data.images (--images)"
    )


@lru_cache(maxsize=256)
def _below(base: Path, folder: Path) -> bool:
    """Whether a folder lies inside another one, links followed."""
    return folder.resolve().is_relative_to(base.resolve())
