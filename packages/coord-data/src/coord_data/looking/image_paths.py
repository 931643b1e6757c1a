"""Finds the image files of a source: by their path, or else by a name that matches only one of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from itertools import takewhile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

IMAGE_SUFFIXES = tuple(f".{name}" for name in "jpg jpeg jpe jfif png webp bmp gif tif tiff ppm jp2 avif".split())
_SPLITS = dict.fromkeys(("train", "training"), "train") | dict.fromkeys(("val", "valid", "validation"), "val")
_SPLITS |= dict.fromkeys(("test", "testing"), "test")
SIMILAR = "images found by their name without the stated folder, or with another suffix than stated"


def in_any_case(pattern: str) -> str:
    """Return a glob pattern whose suffix also matches in upper case, as Windows programs write it.

    Example:
        >>> in_any_case("labels/*.txt")
        'labels/*.[tT][xX][tT]'
    """
    name, dot, suffix = pattern.rpartition(".")
    return name + dot + "".join(f"[{letter}{letter.upper()}]" for letter in suffix)


def split_of(folder: str) -> str:
    """Return the split that the name of a folder means; empty if it means none.

    Example:
        >>> split_of("Valid"), split_of("photos")
        ('val', '')
    """
    return _SPLITS.get(folder.lower(), "")


def find_root(images: Path | None, *candidates: Path) -> Path:
    """Return the image folder: the one that the user named, else the first candidate that exists."""
    return images or next((folder for folder in candidates if folder.is_dir()), candidates[-1])


def is_hidden(file: Path, below: Path) -> bool:
    """Return whether a path component below the folder begins with a dot, such as files that macOS adds."""
    return any(part.startswith(".") for part in file.parts[len(below.parts) :])


def image_files(folder: Path) -> list[Path]:
    """Return the sorted image files below a folder, without hidden ones."""
    paths = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(path for path in paths if not is_hidden(path, folder))


class Found(NamedTuple):
    """The image file found for a stated name.

    Attributes:
        name: path relative to the folder of the images; the stated name if no image was found
        notes: notes to count
        fault: error message if the stated name is ambiguous
    """

    name: str
    notes: tuple[str, ...] = ()
    fault: str = ""


class ImageIndex:
    """Finds images of a folder by their path, or else by a name that matches only one of them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def _by_stem(self) -> dict[str, list[PurePosixPath]]:
        """Paths relative to the folder, by file name without suffix."""
        paths: dict[str, list[PurePosixPath]] = {}
        for path in image_files(self.root):
            paths.setdefault(path.stem, []).append(PurePosixPath(path.relative_to(self.root).as_posix()))
        return paths

    def find_all(self, stated: Iterable[tuple[str, ...]]) -> list[Found]:
        """Return the image of each record of a source.

        An existing path is used as it is. Otherwise the suffix may be missing or differ, and the path may start from
        another folder: `0.jpg` matches `cam1/0.jpg`, but `cam2/0.jpg` does not. Such a match must be unique, and no
        other record may name the same image.

        Args:
            stated: candidate paths of each record's image, the most likely first
        """
        exact = [(names, self._exact(names)) for names in stated]
        used = {name for _, name in exact if name}
        matches = [[] if name else self._similar(names) for names, name in exact]
        claims = Counter(fitting[0] for fitting in matches if len(fitting) == 1)
        return [
            Found(name) if name else self._resolve(names[0], fitting, used, claims)
            for (names, name), fitting in zip(exact, matches, strict=True)
        ]

    def _exact(self, names: tuple[str, ...]) -> str:
        """Return the first path that exists relative to the folder or its parent; empty if none does."""
        for name in filter(None, names):
            plain = name.replace("\\", "/")
            for base in (self.root, self.root.parent):
                path = base / plain
                if _is_file(path) and (base == self.root or path.is_relative_to(self.root)):
                    return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else plain
        return ""

    def _similar(self, names: tuple[str, ...]) -> list[str]:
        """Return the images that match the first name with any match, preferring those of the same suffix."""
        unescaped = (
            unquote(urlsplit(name).path if "://" in name else name) for name in names if "://" in name or "%" in name
        )
        for name in filter(None, (*names, *unescaped)):
            plain, stem = _plain(name)
            elsewhere = _is_elsewhere(name)
            matches = [p for p in self._by_stem.get(stem.name, []) if self._matches(stem, elsewhere, p)]
            if best := [p for p in matches if p.name == plain.name] or matches:
                return [p.as_posix() for p in best]
        return []

    def _matches(self, stem: PurePosixPath, elsewhere: bool, path: PurePosixPath) -> bool:
        """Return whether a stated path can mean an image: one must end with the other (below `root` for the image)."""
        own, parts = path.with_suffix("").parts, stem.parts
        full = (*self.root.resolve().parts, *own)
        pairs = zip(reversed(parts), reversed(full), strict=False)
        common = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return common == len(parts) or common >= len(own) + (not elsewhere)

    def _resolve(self, name: str, matches: list[str], used: Collection[str], claims: Mapping[str, int]) -> Found:
        """Return the only image that matches a stated name, or an error message if none is used."""
        if not matches:
            if name and (others := self._by_stem.get(_plain(name)[1].name)):
                reason = f"not found, and {others[0]} lies in another folder; correct the path, or name with --images"
                return Found(name, fault=f"image {name}: {reason} the folder that it is relative to")
            return Found(name)
        if len(matches) > 1:
            listed = " and ".join(matches[:3]) + (f" and {len(matches) - 3} more" if len(matches) > 3 else "")
            return Found(name, fault=f"image {name}: expected one file, found {listed}; write its full path")
        if matches[0] in used or claims[matches[0]] > 1:
            reason = f"not found, and {matches[0]}, which is similar, is stated by another record; check both"
            return Found(name, fault=f"image {name}: {reason}")
        return Found(matches[0], (SIMILAR,))


def found_here(names: Iterable[str], root: Path) -> dict[str, Found]:
    """Return the images of a folder that names of another machine mean, by these names.

    Only names of files that do not exist are looked for: absolute ones and addresses, those with escaped characters
    (`my%20cat.jpg`), and those whose suffix is written in the other case (`a.JPG` for `a.jpg`).
    """
    stated = list(dict.fromkeys(names))
    missing = {name for name in stated if not _is_file(root / name) and _is_of_another_machine(name, root)}
    found = ImageIndex(root).find_all((name,) for name in stated) if missing else []
    return {name: image for name, image in zip(stated, found, strict=False) if name in missing and image.notes}


def _is_file(path: Path) -> bool:
    # A Path raises for a name that is too long for any file.
    return os.path.isfile(path)  # noqa: PTH113


def _is_elsewhere(name: str) -> bool:
    return bool(PureWindowsPath(name).anchor) or "://" in name


def _is_of_another_machine(name: str, root: Path) -> bool:
    stem, suffix = os.path.splitext(name)  # noqa: PTH122
    written = {suffix.lower(), suffix.upper()} - {suffix}
    return _is_elsewhere(name) or "%" in name or any(_is_file(root / f"{stem}{other}") for other in written)


def _plain(name: str) -> tuple[PurePosixPath, PurePosixPath]:
    """Return a path with slashes, and the same path without its image suffix."""
    plain = PurePosixPath(PureWindowsPath(name).as_posix())
    return plain, plain.with_suffix("") if plain.suffix.lower() in IMAGE_SUFFIXES else plain
