"""Looks at image files, each of which is opened once: size, orientation, faults, digest, thumbnail, perceptual hash."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from coord_codec import InputError, Problem
from coord_codec.arguments import expect
from coord_codec.files import path_inside
from coord_codec.images import ImageError, decode_image, image_facts
from coord_data.image_paths import IMAGE_SUFFIXES

FULL_CHECK_LIMIT = 5000
"""Number of images whose pixels are decoded; of a larger set the headers of the others are read, and it is hashed by
names and sizes, since decoding 118k images takes minutes."""

THUMBNAIL = 320
"""Longest side of the thumbnails that are compared with boxes."""

ROTATED = 60
"""Number of rotated images whose thumbnails are kept, to compare their orientation with their boxes."""

_BAR: dict[str, Any] = {"unit": "img", "leave": False, "mininterval": 0.5, "disable": None}
"""Settings of progress bars, which are drawn in a terminal alone."""

MISSING = "the file does not exist"
"""Message of `coord_codec` for an image file that does not exist."""

_FOLDERS = 500
"""Maximum number of folders that are searched for an image that is not at its stated path."""


_FIELDS = 64
"""Side in pixels of the reduced image whose grey values are compared."""
_PHASH = 32
"""Side in pixels of the reduced image whose frequencies are hashed."""
_COSINES = np.cos(np.pi / _PHASH * np.outer(np.arange(8), np.arange(_PHASH) + 0.5))
"""[8, 32]: the lowest frequencies of a discrete cosine transform."""


@dataclass(frozen=True)
class ImageFile:
    """What a look at an image file told.

    Attributes:
        size: width and height in pixels after EXIF rotation; None if the file was not read or cannot be decoded
        fault: why the file cannot be used
        orientation: EXIF orientation, 1 for an image that is stored upright
        stored_size: width and height before EXIF rotation
        notes: what decoding changes, see `coord_codec.images.ImageFacts`
        digest: SHA-256 of the file; empty if only its header was read
        look: perceptual hash, which hardly changes when an image is resized or compressed again
        grey: mean grey values of a coarse grid, which distinguish copies from images that only look alike
        small: thumbnail with at most `THUMBNAIL` pixels a side, if requested
    """

    size: tuple[int, int] | None
    fault: str | None = None
    orientation: int = 1
    stored_size: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    digest: str = ""
    look: np.ndarray | None = field(default=None, repr=False)
    grey: np.ndarray | None = field(default=None, repr=False)
    small: Image.Image | None = field(default=None, repr=False)


def perceptual_hash(image: Image.Image) -> np.ndarray:
    """Return the pHash of an image, as ImageHash computes it: which of 64 low frequencies exceed their median."""
    grey = np.asarray(image.convert("L").resize((_PHASH, _PHASH), Image.Resampling.LANCZOS), np.float64)
    lowest = (_COSINES @ grey @ _COSINES.T).round(6)  # without the noise of images of one colour
    bits: np.ndarray = (lowest > np.median(lowest)).ravel()
    return bits


def grey_fields(image: Image.Image) -> np.ndarray:
    """Return [2, 64, 64]: the grey values of an image resized to 64 x 64, and by how much their neighbours differ."""
    small = image.convert("L").resize((_FIELDS, _FIELDS), Image.Resampling.BILINEAR)
    grey = np.asarray(small)
    padded = np.pad(grey, 1, mode="edge")
    shifted = np.stack([padded[y : y + _FIELDS, x : x + _FIELDS] for y in range(3) for x in range(3)])
    return np.stack([grey, shifted.max(axis=0) - shifted.min(axis=0)])


def look_at(path: Path, *, decode: bool = True, keep: bool = False) -> ImageFile:
    """Open an image file once, and return all that is asked of it.

    Args:
        path: the file
        decode: decode the pixels as well, for faults in them, the digest and the perceptual hash
        keep: keep the thumbnail of a decoded image
    """
    expect("path", path, Path)
    try:
        content = path.read_bytes() if decode and path.is_file() else None
    except OSError as error:
        return ImageFile(None, f"cannot be decoded ({error.strerror or error})")
    try:
        facts = image_facts(path if content is None else content)
        seen = ImageFile(facts.size, None, facts.orientation, facts.stored_size, facts.notes)
        if content is None:
            return seen
        small = decode_image(content, at_most=(THUMBNAIL, THUMBNAIL))
    except ImageError as error:
        return ImageFile(None, str(error))
    small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    digest, look, grey = hashlib.sha256(content).hexdigest(), perceptual_hash(small), grey_fields(small)
    return replace(seen, digest=digest, look=look, grey=grey, small=small if keep else None)


def look_inside(path: Path, base: Path | None, *, decode: bool = True, known: ImageFile | None = None) -> ImageFile:
    """Return what a look at an image file tells, or what is `known`; a file outside the folder `base` is a fault."""
    if base is not None and is_outside(path, base) and os.path.lexists(path):
        fault = f"lies outside the folder of the images {base}, by .. or a link; allow that (--allow-outside) if "
        fault += "it is intended, or name the folder that its path is relative to (--images)"
        return ImageFile(None, fault)
    return known or look_at(path, decode=decode, keep=True)


class ImageFolder:
    """The images of a folder: each file is opened once, however many readers and checks ask for it.

    Args:
        root: folder that image paths are relative to
        decode: whether to decode the pixels of an image that is asked for alone
    """

    def __init__(self, root: Path, *, decode: bool = True) -> None:
        self.root, self.decode = root, decode
        self._files: dict[str, ImageFile] = {}

    def size(self, name: str) -> tuple[int, int] | None:
        """Return width and height of an image in pixels; None if it cannot be opened."""
        return self.look_at(name).size

    def look_at(self, name: str) -> ImageFile:
        """Return what a look at an image tells; its thumbnail is kept, until `look_at_all` selects those to keep."""
        key = self._key(name)
        if key not in self._files:
            self._files[key] = look_at(self.root / name, decode=self.decode, keep=True)
        return self._files[key]

    def look_at_all(
        self, names: Sequence[str], kept: Collection[int] = (), base: Path | None = None, label: str = "images"
    ) -> list[ImageFile]:
        """Return what a look at each image tells, with the thumbnails of some.

        Of more than `FULL_CHECK_LIMIT` images the pixels of an evenly spaced part are decoded.

        Args:
            names: paths of the images
            kept: indices of images whose thumbnails are kept; those of `ROTATED` rotated images are kept as well
            base: folder that images must lie in; None for any
            label: name of the images, for the progress bar
        """
        step = -(-len(names) // FULL_CHECK_LIMIT) or 1
        keys = [self._key(name) for name in names]
        decoded = {key for i, key in enumerate(keys) if i % step == 0} | (kept_keys := {keys[i] for i in kept})
        rotated = 0

        def look(key: str) -> ImageFile:
            known = self._files.get(key)
            if known is None or (key in decoded and not known.digest and known.fault is None):
                known = None
            return look_inside(Path(key), base, decode=key in decoded, known=known)

        distinct = list(dict.fromkeys(keys))
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow releases the GIL while it decodes
            looks = tqdm(pool.map(look, distinct), f"checking {label}", len(distinct), **_BAR)
            for key, file in zip(distinct, looks, strict=True):
                rotated += file.orientation != 1
                is_kept = key in kept_keys or (file.orientation != 1 and rotated <= ROTATED)
                self._files[key] = file if is_kept or file.small is None else replace(file, small=None)
        return [self._files[key] for key in keys]

    def _key(self, name: str) -> str:
        return os.path.normpath(self.root / name)


def problem_of(
    file: ImageFile,
    path: Path,
    stated: tuple[int | None, int | None],
    notes: Counter[str],
    max_side_ratio: float | None,
) -> Problem | None:
    """Return why an image cannot be trained on, if it cannot; else count the notes on its decoding.

    Args:
        file: what a look at it told
        path: its path
        stated: width and height in the annotations
        notes: updated with counts of notes
        max_side_ratio: see `ReadingRules`
    """
    if file.size is None:
        hint = _similar_hint(path) if file.fault == MISSING else ""
        return Problem(str(path), "image", f"{file.fault}{hint}")
    width, height = file.size
    if max_side_ratio is not None and max(file.size) > max_side_ratio * min(file.size):
        fault = f"the ratio of its sides exceeds max_side_ratio={max_side_ratio:g}"
        return Problem(str(path), "width, height", f"the file has {width} x {height} pixels; {fault}")
    if None not in stated and stated != file.size:
        message = f"the annotations say {stated[0]} x {stated[1]} pixels, the file has {width} x {height}"
        if stated == file.stored_size:
            message += "; that is its size before the EXIF orientation is applied, which training does: remove the "
            message += "orientation from the file, or draw boxes on the upright image"
        elif stated == (height, width):
            message += ": width and height are exchanged"
        return Problem(str(path), "width, height", message)
    notes.update(file.notes)
    return None


def _similar_hint(path: Path) -> str:
    """Return a hint if the path is an address, or if a file with nearly the same name exists; else an empty text."""
    if "local-files" in path.parts or path.parts[1:3] == ("data", "upload") or "/data/upload/" in path.as_posix():
        return (
            "; it is a path on the server of Label Studio: export the project with its images (COCO with images), or "
            "replace such paths by those of the files"
        )
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
    folders = _folders(top)
    folders = folders if len(folders) > 1 else _folders(top.parent)
    for tail, folder in product(tails, folders):
        if os.path.isfile(f"{folder}/{tail}"):  # noqa: PTH113
            return f": {folder}" + (f", once they are written as {tail}" if tail != tails[0] else "")
    return ""


def _folders(top: Path) -> list[str]:
    """Return a folder and its subfolders without hidden ones, breadth first, as far as they can be read."""
    found, beyond = list[str](), [str(top)]
    while beyond and len(found) < _FOLDERS:
        found += beyond
        subfolders = []
        for folder in beyond:
            with suppress(OSError):  # a folder without read permission
                subfolders += [entry.path for entry in os.scandir(folder) if entry.is_dir() and entry.name[:1] != "."]
        beyond = sorted(subfolders)
    return found[:_FOLDERS]


def is_outside(path: Path, base: Path) -> bool:
    """Return whether an image lies outside a folder, by `..` or a link."""
    text = str(path)  # the methods of `Path` take twice the time, which counts for many images
    try:
        if not (".." in text or os.path.islink(text)) and _below(str(base), os.path.dirname(text)):  # noqa: PTH114, PTH120
            return False
    except OSError:  # an invalid file name, which is reported when it is opened
        return False
    try:
        path_inside(base, path.absolute())
    except InputError:
        return True
    return False


@lru_cache(maxsize=256)
def _below(base: str, folder: str) -> bool:
    """Return whether a folder lies inside another one after resolving links."""
    return Path(folder).resolve().is_relative_to(Path(base).resolve())
