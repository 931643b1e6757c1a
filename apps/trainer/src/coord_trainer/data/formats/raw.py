"""Types that all format readers share: images with the boxes that a file states, not yet validated."""

from __future__ import annotations

import codecs
import csv
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from itertools import takewhile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal, NamedTuple

from coord_codec.files import InputError, parse_json_line, read_json, read_text

IMAGE_SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".png",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".ppm",
    ".jp2",
    ".avif",
)
SIMILAR = "images found by their name without the stated folder, or with another suffix than stated"
BAD_SIZE = "stated image sizes that are not positive integers: the size of the file is used"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HEAD = 1 << 16


class RawBox(NamedTuple):
    """A box as a file states it.

    Attributes:
        desc: description of the object
        corners_xyxy: x1, y1, x2, y2 in `unit`
        where: file and line or id
        unit: `pixels`, or `fractions` of the image's width and height
        ignored: whether it is no training target and is ignored in scoring
        notes: notes to count
        fault: error message if the box cannot be used; corners are kept if the file states them
        class_number: class number, if the file states one
    """

    desc: str
    corners_xyxy: tuple[float, ...]
    where: str
    unit: Literal["pixels", "fractions"] = "pixels"
    ignored: bool = False
    notes: tuple[str, ...] = ()
    fault: str = ""
    class_number: int | None = None


class RawImage(NamedTuple):
    """An image as a file states it.

    Attributes:
        name: path relative to the folder of the images
        where: file and line or id
        boxes: boxes of the image
        size: width and height in pixels; read from the image file if None
        image_id: id in the data set
        extra: further keys of the record
        fault: error message if the record cannot be read
        notes: notes to count
    """

    name: str
    where: str
    boxes: Iterable[RawBox] = ()
    size: tuple[int, int] | None = None
    image_id: int | str | None = None
    extra: Mapping[str, Any] = {}
    fault: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """Result of a format reader.

    Attributes:
        images: the images, read lazily
        root: folder that image names are relative to
        notes: notes for the user on how the source was read
        class_names: class names by class number, if boxes state numbers
    """

    images: Iterable[RawImage]
    root: Path
    notes: tuple[str, ...] = ()
    class_names: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A file or folder of annotations, read lazily as far as recognising its format requires."""

    path: Path
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def is_dir(self) -> bool:
        """Whether the source is a folder."""
        return self.path.is_dir()

    @cached_property
    def head(self) -> str:
        """The beginning of a file as text; empty for a folder.

        Raises:
            InputError: the file cannot be read.
        """
        if self.is_dir:
            return ""
        try:
            with self.path.open("rb") as file:
                begin = file.read(_HEAD)
                return begin.decode("utf-16" if begin[:2] in _UTF16 else "utf-8-sig", errors="replace").lstrip()
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror or error}); check the path") from error

    @cached_property
    def record(self) -> dict[str, Any] | None:
        """The first record of a JSON lines file, or of a JSON list; None for anything else."""
        if self.head[:1] == "{":
            first, _, rest = self.head.partition("\n")
            try:
                record = parse_json_line(first)
            except ValueError:
                return None
            return record if rest.strip() or self.path.suffix == ".jsonl" else None
        if self.head[:1] == "[" and isinstance(self.document, list) and self.document:
            return self.document[0] if isinstance(self.document[0], dict) else None
        return None

    @cached_property
    def document(self) -> Any:
        """The parsed content of a JSON file.

        Raises:
            InputError: the file is not JSON.
        """
        return read_json(self.path)

    def records(self) -> Iterator[tuple[str, dict[str, Any] | str]]:
        """Yield the place and content of each record of JSON lines or a JSON list; an error message for a bad one."""
        if self.head[:1] == "[":
            for index, record in enumerate(self.document):
                yield f"{self.path}: record {index}", record if isinstance(record, dict) else "expected an object"
            return
        with self.path.open("rb") as lines:
            for line_number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        yield f"{self.path}:{line_number}", parse_json_line(line)
                    except ValueError as error:
                        yield f"{self.path}:{line_number}", str(error)

    def glob(self, *patterns: str) -> list[Path]:
        """Return the sorted files of a folder that match, with suffixes in any case and without hidden files."""
        paths = (path for pattern in patterns for path in self.path.glob(in_any_case(pattern))) if self.is_dir else ()
        return sorted(path for path in paths if path.is_file() and not is_hidden(path, self.path))


def in_any_case(pattern: str) -> str:
    """Return a glob pattern whose suffix also matches in upper case, as Windows programs write it.

    Example:
        >>> in_any_case("labels/*.txt")
        'labels/*.[tT][xX][tT]'
    """
    name, dot, suffix = pattern.rpartition(".")
    return name + dot + "".join(f"[{letter}{letter.upper()}]" for letter in suffix)


Recognise = Callable[[Source], bool]
Read = Callable[[Source, "Path | None"], Reading]


def read_table(path: Path) -> str:
    """Read a text file in UTF-8, or in UTF-16 with a byte order mark, as spreadsheets save Unicode text.

    Raises:
        InputError: the file cannot be read or has another encoding.
    """
    try:
        with path.open("rb") as file:
            wide = file.read(2) in _UTF16
        return path.read_text(encoding="utf-16") if wide else read_text(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-16 text (byte {error.start}); save the file as UTF-8") from error


def csv_rows(text: str, path: Path, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the cells of each row that is not blank.

    Raises:
        InputError: a row is not CSV, or a cell exceeds Python's length limit.
    """
    rows = csv.reader(StringIO(text, newline=""), delimiter=delimiter)
    try:
        before = 0
        for cells in rows:
            if any(map(str.strip, cells)):
                yield before + 1, cells
            before = rows.line_num
    except csv.Error as error:
        raise InputError(f"{path}:{rows.line_num}: expected a row of a table, found none ({error})") from None


def number(value: Any) -> float:
    """Return a number or numeric text as a float.

    Raises:
        ValueError: the value is anything else.
    """
    if isinstance(value, bool) or value is None:
        raise ValueError(f"expected a number, found {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"expected a number, found {value!r:.80}") from None


def image_size(width: Any, height: Any) -> tuple[int, int] | None:
    """Return an image size that a source states as numbers or text; None if it is not a valid size."""
    try:
        size = int(number(width)), int(number(height))
    except (ValueError, OverflowError):
        return None
    return size if min(size) > 0 else None


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
                # A Path raises for a name that is too long for any file.
                exists = os.path.isfile(path)  # noqa: PTH113
                if exists and (base == self.root or path.is_relative_to(self.root)):
                    return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else plain
        return ""

    def _similar(self, names: tuple[str, ...]) -> list[str]:
        """Return the images that match the first name with any match, preferring those of the same suffix."""
        for name in filter(None, names):
            plain, stem = _plain(name)
            elsewhere = bool(PureWindowsPath(name).anchor) or "://" in name  # a path of another machine
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
                return Found(name, fault=f"image {name}: {reason} (data.images) the folder that it is relative to")
            return Found(name)
        if len(matches) > 1:
            listed = " and ".join(matches[:3]) + (f" and {len(matches) - 3} more" if len(matches) > 3 else "")
            return Found(name, fault=f"image {name}: expected one file, found {listed}; write its full path")
        if matches[0] in used or claims[matches[0]] > 1:
            reason = f"not found, and {matches[0]}, which is similar, is stated by another record; check both"
            return Found(name, fault=f"image {name}: {reason}")
        return Found(matches[0], (SIMILAR,))


def _plain(name: str) -> tuple[PurePosixPath, PurePosixPath]:
    """Return a path with slashes, and the same path without its image suffix."""
    plain = PurePosixPath(PureWindowsPath(name).as_posix())
    return plain, plain.with_suffix("") if plain.suffix.lower() in IMAGE_SUFFIXES else plain


def as_json(value: Any) -> str:
    """Return a value as JSON, shortened for a message."""
    return json.dumps(value, ensure_ascii=False, default=str)[:80]
