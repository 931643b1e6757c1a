"""Whether an image can be trained on: it lies where it may, opens, and has the size that the annotations state."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

from coord_codec import InputError, Problem
from coord_codec.files import path_inside
from coord_eval import ImageError, ImageFacts, decode_image, image_facts

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
        raise InputError(f"image: {error}") from None
    size = facts.size
    if max(size) > MAX_ASPECT_RATIO * min(size):
        raise InputError(
            f"width, height: the file has {size[0]} x {size[1]} pixels; Qwen's image processor refuses sides whose "
            f"ratio exceeds {MAX_ASPECT_RATIO}"
        )
    if None not in stated and stated != size:
        turned = "; that is its size before the EXIF orientation is applied" if stated == facts.stored_size else ""
        raise InputError(
            f"width, height: the annotations say {stated[0]} x {stated[1]} pixels, the file has {size[0]} x {size[1]}"
            + turned
        )
    return facts


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
