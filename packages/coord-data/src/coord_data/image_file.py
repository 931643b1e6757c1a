"""Checks whether an image can be trained on: it lies in its folder, can be opened and has the annotated size."""

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
from coord_codec.images import ImageError, ImageFacts, decode_image, image_facts
from coord_data.formats.images import IMAGE_SUFFIXES

MISSING = "the file does not exist"
"""Message of `coord_codec` for an image file that does not exist."""

_FOLDERS = 500
"""Maximum number of folders that are searched for an image that is not at its stated path."""

MAX_ASPECT_RATIO = 200
"""Maximum ratio of the longer to the shorter side; above it Qwen's image processor would raise during training."""


def look_at(
    root: Path, base: Path | None, name: str, stated: tuple[int | None, int | None], decode: bool, notes: Counter[str]
) -> Problem | None:
    """Return the problem of an image, if any, and count notes on its decoding.

    Args:
        root: folder that `name` is relative to
        base: folder that the image must lie in; None for any
        name: path of the image
        stated: width and height in the annotations
        decode: whether to decode the pixels as well
        notes: updated with counts of notes
    """
    try:
        notes.update(_check_image(root, base, name, stated, decode).notes)
    except InputError as error:
        field, _, message = str(error).partition(": ")
        return Problem(str(root / name), field, message)
    return None


def _check_image(
    root: Path, base: Path | None, name: str, stated: tuple[int | None, int | None], decode: bool
) -> ImageFacts:
    """Return the facts in the header of an image.

    Raises:
        InputError: `field: message`, if the image cannot be trained on.
    """
    path = root / name
    if base is not None and is_outside(path, base):
        raise InputError(f"image: {outside_message(base)}")
    try:
        facts = image_facts(path)
        if decode:
            decode_image(path)
    except ImageError as error:
        raise InputError(f"image: {error}{_similar_hint(path) if str(error) == MISSING else ''}") from None
    size = facts.size
    if max(size) > MAX_ASPECT_RATIO * min(size):
        raise InputError(
            f"width, height: the file has {size[0]} x {size[1]} pixels; Qwen's image processor refuses sides whose "
            f"ratio exceeds {MAX_ASPECT_RATIO}"
        )
    if None not in stated and stated != size:
        exif_hint = "; that is its size before the EXIF orientation is applied"
        exif_hint += ", which training does: remove the orientation from the file, or draw boxes on the upright image"
        raise InputError(
            f"width, height: the annotations say {stated[0]} x {stated[1]} pixels, the file has {size[0]} x {size[1]}"
            + (exif_hint if stated == facts.stored_size else "")
        )
    return facts


def _similar_hint(path: Path) -> str:
    """Return a hint if the path is a URL, or if a file with nearly the same name exists; else an empty text."""
    if any(part in ("http:", "https:", "s3:", "gs:") for part in path.parts):
        return "; an address is not fetched: download the image, and write its path"
    names = _names(path.parent.absolute())
    other = names.get(_normalised(path.name)) or names.get(_normalised(path.stem))
    return f"; {other} does, whose name has other case, suffix or Unicode form; rename one of the two" if other else ""


@lru_cache(maxsize=256)
def _names(folder: Path) -> dict[str, str]:
    """Return the image names of a folder by normalised name, with and without suffix."""
    try:
        files = sorted(name for name in os.listdir(folder) if PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES)  # noqa: PTH208
    except OSError:
        return {}
    return {_normalised(PurePosixPath(name).stem): name for name in files} | {_normalised(name): name for name in files}


def _normalised(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def where_it_is(name: str, annotations: Path) -> str:
    """Return the end of a message about the image folder: where a missing image was found, or an empty text.

    The folder of the annotations is searched, or its parent if it has no subfolders.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    tails = ["/".join(parts[start:]) for start in range(len(parts))]
    top = (annotations.parent if annotations.is_file() else annotations).absolute()
    folders = list(islice(_folders(top), _FOLDERS))
    if len(folders) == 1:
        folders = list(islice(_folders(top.parent), _FOLDERS))
    for tail in tails:
        matching = (folder for folder in folders if os.path.isfile(f"{folder}/{tail}"))  # noqa: PTH113
        if folder := next(matching, None):
            return f": {folder}" + (f", once they are written as {tail}" if tail != tails[0] else "")
    return ""


def _folders(top: Path) -> Iterator[str]:
    """Yield a folder and its subfolders without hidden ones, breadth first."""
    current = [str(top)]
    while current:
        yield from current
        subfolders = []
        for folder in current:
            try:
                subfolders += [entry.path for entry in os.scandir(folder) if entry.is_dir() and entry.name[:1] != "."]
            except OSError:  # noqa: PERF203 - a folder without read permission
                continue
        current = sorted(subfolders)


def is_outside(path: Path, base: Path) -> bool:
    """Return whether an image lies outside a folder, by `..` or a link."""
    try:
        if not (".." in path.parts or path.is_symlink() or not _below(base, path.parent)):
            return False
    except OSError:  # an invalid file name, which is reported when it is opened
        return False
    try:
        path_inside(base, path.absolute())
    except InputError:
        return True
    return False


def outside_message(base: Path) -> str:
    """Return the error message for an image outside the folder `base`."""
    return (
        f"lies outside the folder of the images {base}, by .. or a link; set data.allow_outside=true (prepare: "
        "--allow-outside) if that is intended, or set data.images (--images) to the folder that its path is relative to"
    )


@lru_cache(maxsize=256)
def _below(base: Path, folder: Path) -> bool:
    """Return whether a folder lies inside another one after resolving links."""
    return folder.resolve().is_relative_to(base.resolve())
