"""The images of a folder, each of which is opened once, and why an image cannot be trained on."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path, PurePosixPath

import numpy as np

from coord_codec import Problem
from coord_data.looking.image_paths import IMAGE_SUFFIXES
from coord_data.looking.look import fault_of_place, look_at
from coord_data.looking.looks import ImageFile, Looks, merge
from coord_data.looking.parts import look_at_set

FULL_CHECK_LIMIT = 5000
"""Number of images of a file up to which they are decoded when it is loaded; of a larger file the headers are read."""

MISSING = "the file does not exist"
"""Message of `coord_codec` for an image file that does not exist."""

_FOLDERS = 500
"""Maximum number of folders that are searched for an image that is not at its stated path."""

_THUMBNAILS = 300
"""Number of images that are asked for alone whose thumbnails are kept, until `look_at_all` selects those to keep."""


def look_inside(path: Path, base: Path | None, *, decode: bool = True) -> ImageFile:
    """Return what a look at an image file tells; a file outside the folder `base` is a fault."""
    fault = fault_of_place(path, base)
    return look_at(path, decode=decode) if fault is None else ImageFile(None, fault)


class ImageFolder:
    """The images of a folder: each file is opened once, however many readers and checks ask for it.

    Args:
        root: folder that image paths are relative to
        decode: whether to decode the pixels of an image that is asked for alone
    """

    def __init__(self, root: Path, *, decode: bool = True) -> None:
        self.root, self.decode = root, decode
        self._alone: dict[str, ImageFile] = {}
        self._keys: Sequence[str] = ()
        self._base: Path | None = None
        self._looks = Looks.of(())

    def size(self, name: str) -> tuple[int, int] | None:
        """Return width and height of an image in pixels; None if it cannot be opened."""
        return self.look_at(name).size

    def look_at(self, name: str) -> ImageFile:
        """Return what a look at an image tells."""
        key = _key(name)
        if (place := self._places.get(key)) is not None:
            return self._looks[place]
        if key not in self._alone:
            keep = len(self._alone) < _THUMBNAILS
            self._alone[key] = look_at(self.root / name, decode=self.decode, keep=keep)
        return self._alone[key]

    def looked(self, name: str) -> ImageFile:
        """Return what `look_at_all` told of an image that was among its names."""
        return self._looks[self._places[_key(name)]]

    def look_at_all(
        self, names: Sequence[str], kept: Collection[int] = (), base: Path | None = None, label: str = "images"
    ) -> Looks:
        """Return what a look at each image tells; all workers look.

        Thumbnails are kept of the images at the indices `kept`, and all must lie in the folder `base` if there is one.
        """
        keys = [_key(name) for name in names]
        if self._keys and base in (None, self._base) and all(key in self._places for key in keys):
            looks = self._looks.take(np.array([self._places[key] for key in keys], np.int64))
            if set(kept) <= set(looks.compared):
                return looks
        distinct = list(dict.fromkeys(keys))
        place = {key: i for i, key in enumerate(distinct)} if len(distinct) < len(keys) else None
        positions = np.array([place[key] for key in keys], np.int64) if place else np.arange(len(keys))
        kept_rows = {int(positions[i]) for i in kept}
        before = self._known(distinct, kept_rows, base)
        rest = [row for row in range(len(distinct)) if row not in before] if before else range(len(distinct))
        chosen = [at for at, row in enumerate(rest) if row in kept_rows]
        looks = look_at_set([distinct[row] for row in rest], self.root, base, chosen, label)
        if before:
            looks = merge([looks.numbered(np.array(rest, np.int64)), Looks.of(sorted(before.items()))])
        self._keys, self._looks, self._base, self._alone = distinct, looks, base, {}
        self.__dict__.pop("_places", None)
        return looks if place is None else looks.take(positions)

    def _known(self, keys: Sequence[str], kept: Collection[int], base: Path | None) -> dict[int, ImageFile]:
        """Return what is known of images that were looked at alone, by row, but of those to be opened for more."""
        known = {}
        for row, key in enumerate(keys if self._alone else ()):
            file = self._alone.get(key)
            if file is None or (file.fault is None and not file.digest) or (row in kept and file.small is None):
                continue
            if fault := fault_of_place(self.root / key, base):
                file = ImageFile(None, fault)
            known[row] = file if row in kept else replace(file, small=None)
        return known

    @cached_property
    def _places(self) -> dict[str, int]:
        return {key: i for i, key in enumerate(self._keys)}


def _key(name: str) -> str:
    """Return one name for all ways to write a path."""
    key = os.path.normpath(name)
    return name if key == name else key


def problem_of(
    file: ImageFile,
    path: Path,
    stated: tuple[int | None, int | None],
    notes: Counter[str],
    max_side_ratio: float | None,
) -> Problem | None:
    """Return why an image cannot be trained on, if it cannot; else count the notes on its decoding."""
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
