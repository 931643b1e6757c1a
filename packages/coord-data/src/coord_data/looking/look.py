"""Looks at image files: each is opened once, and decoded no larger than its use requires."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from coord_codec import InputError
from coord_codec.arguments import expect
from coord_codec.files import path_inside
from coord_codec.images import ImageError, facts_and_image, image_facts
from coord_data.looking.hashes import FIELDS, grey_values, perceptual_hashes
from coord_data.looking.looks import ImageFile, Looks

THUMBNAIL = 320
"""Longest side of the thumbnails that are compared with boxes."""

_HASHED = 2 * FIELDS
"""Side that a JPEG is decoded at least at: at less, grey values of copies in another format differ by up to 4 more."""


def look_at(path: Path, *, decode: bool = True, keep: bool = False) -> ImageFile:
    """Open an image file once, and return all that is asked of it.

    Args:
        path: the file
        decode: decode the pixels as well, for faults in them, the digest and the perceptual hash
        keep: keep the thumbnail of a decoded image
    """
    expect("path", path, Path)
    if decode:
        return look_at_images((path.name,), path.parent, kept={0} if keep else ())[0]
    try:
        facts = image_facts(path)
    except ImageError as error:
        return ImageFile(None, str(error))
    return ImageFile(facts.size, None, facts.orientation, facts.stored_size, facts.notes)


def look_at_images(
    names: Sequence[str], root: Path, base: Path | None = None, kept: Collection[int] = (), first: int = 0
) -> Looks:
    """Look at images in this process.

    Args:
        names: paths of the images, relative to `root`
        root: their folder
        base: folder that images must lie in; None for any
        kept: positions in the list of all images of those whose thumbnails are kept
        first: position of the first of these images in the list of all images
    """
    files, hashed = list[ImageFile](), list[np.ndarray]()
    for row, name in enumerate(names, first):
        path = os.path.join(root, name)  # noqa: PTH118 - a Path for each of a million names takes seconds
        stamp = stamp_of(root, name)
        if (fault := fault_of_place(path, base)) is not None:
            files.append(ImageFile(None, fault, stamp=stamp))
            continue
        file, grey = _decoded(path, row in kept, stamp)
        files.append(file)
        hashed += [] if grey is None else [grey]
    hashes = iter(perceptual_hashes(hashed).tolist())
    complete = (file if file.grey is None else replace(file, look=next(hashes)) for file in files)
    return Looks.of(enumerate(complete, first))


def stamp_of(root: Path, name: str) -> tuple[int, int]:
    """Return the bytes of a file, and the time of its last change in nanoseconds; -1 for what is no file."""
    try:
        status = os.stat(os.path.join(root, name))  # noqa: PTH116, PTH118
    except (OSError, ValueError):  # ValueError: a null character in the name
        return -1, -1
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (-1, -1)


def _decoded(path: str, keep: bool, stamp: tuple[int, int]) -> tuple[ImageFile, np.ndarray | None]:
    """Return what a look at a file told but for its hash, and the grey values that the hash is computed from."""
    try:
        if stamp[0] < 0:
            raise ImageError("is no file" if os.path.exists(path) else "the file does not exist")  # noqa: PTH110
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            content = file.readall()
        facts, image = facts_and_image(content, at_most=(_HASHED, _HASHED), grey=True)
        small = _thumbnail(content, image, facts.size) if keep else None
    except ImageError as error:
        return ImageFile(None, str(error), stamp=stamp), None
    except OSError as error:
        return ImageFile(None, f"cannot be decoded ({error.strerror or error})", stamp=stamp), None
    if max(image.size) > THUMBNAIL:
        image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    hashed, grey = grey_values(image)
    digest = hashlib.sha256(content).hexdigest()
    of_header = (facts.orientation, facts.stored_size, facts.notes)
    return ImageFile(facts.size, None, *of_header, digest, None, grey, small, stamp, facts.value_range), hashed


def _thumbnail(content: bytes, image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Return a thumbnail for the comparison with boxes; a JPEG, of which fewer pixels were decoded, is again."""
    is_large_enough = image.mode == "RGB" and (image.size == size or min(image.size) >= THUMBNAIL)
    small = image.copy() if is_large_enough else facts_and_image(content, at_most=(THUMBNAIL, THUMBNAIL))[1]
    small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return small


def fault_of_place(path: Path | str, base: Path | None) -> str | None:
    """Return the fault of an image that lies outside the folder `base`; None for any other, and for a missing one."""
    if base is None or not is_outside(path, base) or not os.path.lexists(path):
        return None
    fault = f"lies outside the folder of the images {base}, by .. or a link; allow that (--allow-outside) if "
    return fault + "it is intended, or name the folder that its path is relative to (--images)"


def is_outside(path: Path | str, base: Path) -> bool:
    """Return whether an image lies outside a folder, by `..` or a link."""
    text = str(path)  # the methods of `Path` take twice the time, which counts for many images
    try:
        if not (".." in text or os.path.islink(text)) and _below(str(base), os.path.dirname(text)):  # noqa: PTH114, PTH120
            return False
    except (OSError, ValueError):  # an invalid file name, which is reported when it is opened
        return False
    try:
        path_inside(base, Path(text).absolute())
    except InputError:
        return True
    return False


@lru_cache(maxsize=256)
def _below(base: str, folder: str) -> bool:
    """Return whether a folder lies inside another one after resolving links."""
    return Path(folder).resolve().is_relative_to(Path(base).resolve())
