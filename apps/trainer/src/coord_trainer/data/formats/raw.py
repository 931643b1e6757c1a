"""What every format yields: images with the boxes that the file states, not yet judged."""

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
BAD_SIZE = "stated sizes of images that are no whole numbers above 0: that of the file is taken"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HEAD = 1 << 16


class RawBox(NamedTuple):
    """A box as a file states it.

    Attributes:
        desc: its description
        corners_xyxy: x1, y1, x2, y2 in `unit`
        where: file and line or id
        unit: `pixels`, or `fractions` of the image's width and height
        ignored: no training target, and neither a hit nor a miss when answers are scored
        notes: facts to count
        fault: what is wrong with it, where it cannot be used; corners are kept where the file states some
        class_number: its class, where the file states a number
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
        boxes: its boxes
        size: width and height in pixels; the file's own when None
        image_id: the data set's own id
        extra: further keys of the record
        fault: what is wrong with it, where it could not be read at all
        notes: facts to count
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
    """What a format makes of a source.

    Attributes:
        images: the images, read as they are asked for
        root: the folder that their names are relative to
        notes: what the user should know about how the source was read
        class_names: name of each class, where boxes state numbers
    """

    images: Iterable[RawImage]
    root: Path
    notes: tuple[str, ...] = ()
    class_names: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A file or folder of annotations, opened as far as telling its format needs."""

    path: Path
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return self.path.is_dir()

    @cached_property
    def head(self) -> str:
        """The beginning of a file as text; empty for a folder.

        Raises:
            InputError: if it cannot be read.
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
                found = parse_json_line(first)
            except ValueError:
                return None
            return found if rest.strip() or self.path.suffix == ".jsonl" else None
        if self.head[:1] == "[" and isinstance(self.document, list) and self.document:
            return self.document[0] if isinstance(self.document[0], dict) else None
        return None

    @cached_property
    def document(self) -> Any:
        """The whole of a JSON file.

        Raises:
            InputError: if it is no JSON.
        """
        return read_json(self.path)

    def records(self) -> Iterator[tuple[str, dict[str, Any] | str]]:
        """Yield each record of JSON lines or of a JSON list with its place; a message instead of one that is none."""
        if self.head[:1] == "[":
            for number, found in enumerate(self.document):
                yield f"{self.path}: record {number}", found if isinstance(found, dict) else "expected an object"
            return
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        yield f"{self.path}:{number}", parse_json_line(line)
                    except ValueError as error:
                        yield f"{self.path}:{number}", str(error)

    def glob(self, *patterns: str) -> list[Path]:
        """The files of a folder that match, whatever the case of their suffix, sorted, without hidden ones."""
        found = (path for pattern in patterns for path in self.path.glob(in_any_case(pattern))) if self.is_dir else ()
        return sorted(path for path in found if path.is_file() and not is_hidden(path, self.path))


def in_any_case(pattern: str) -> str:
    """Return a pattern of file names whose suffix may be in upper case, as on Windows.

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
        InputError: it is unreadable, or neither.
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
    """Yield the cells of each row that is not blank with its line, the first of several where cells have line breaks.

    Raises:
        InputError: a row that is no CSV, or a cell longer than Python's limit.
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
        ValueError: for anything else.
    """
    if isinstance(value, bool) or value is None:
        raise ValueError(f"expected a number, found {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"expected a number, found {value!r:.80}") from None


def image_size(width: Any, height: Any) -> tuple[int, int] | None:
    """Return the size of an image that a source states as numbers or text; None where it cannot be one."""
    try:
        size = int(number(width)), int(number(height))
    except (ValueError, OverflowError):
        return None
    return size if min(size) > 0 else None


def find_root(images: Path | None, *candidates: Path) -> Path:
    """Return the folder of the images: the one that the user named, else the first candidate that is there."""
    return images or next((folder for folder in candidates if folder.is_dir()), candidates[-1])


def is_hidden(file: Path, below: Path) -> bool:
    """Return whether a name below the folder begins with a dot, as those that macOS and tools add to a data set."""
    return any(part.startswith(".") for part in file.parts[len(below.parts) :])


def image_files(folder: Path) -> list[Path]:
    """Return the images below a folder, sorted, without hidden ones."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(path for path in found if not is_hidden(path, folder))


class Found(NamedTuple):
    """The image that a source names.

    Attributes:
        name: path relative to the folder of the images; as stated where none was found
        notes: facts to count
        fault: why it is not known which image is meant
    """

    name: str
    notes: tuple[str, ...] = ()
    fault: str = ""


class ImageIndex:
    """Finds images of a folder by their path, or else by a name that fits only one of them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def _by_stem(self) -> dict[str, list[PurePosixPath]]:
        """Name without folder and suffix -> paths relative to the folder."""
        found: dict[str, list[PurePosixPath]] = {}
        for path in image_files(self.root):
            found.setdefault(path.stem, []).append(PurePosixPath(path.relative_to(self.root).as_posix()))
        return found

    def find_all(self, stated: Iterable[tuple[str, ...]]) -> list[Found]:
        """Return the image of each record of a source.

        A path that is there is taken as it is. Otherwise the name may lack its suffix, have another one, or lie in
        another folder than the stated one as far as that is a matter of where the folders lie: `0.jpg` may be
        `cam1/0.jpg`, but `cam2/0.jpg` may not. Such an image must be the only one, and no other record's.

        Args:
            stated: what may be the image of a record, the likeliest first
        """
        found = [(names, self._exact(names)) for names in stated]
        taken = {name for _, name in found if name}
        similar = [[] if name else self._similar(names) for names, name in found]
        claims = Counter(fitting[0] for fitting in similar if len(fitting) == 1)
        return [
            Found(name) if name else self._judge(names[0], fitting, taken, claims)
            for (names, name), fitting in zip(found, similar, strict=True)
        ]

    def _exact(self, names: tuple[str, ...]) -> str:
        """Return the first of several paths that is there, relative to the folder or to the one above it."""
        for name in filter(None, names):
            plain = name.replace("\\", "/")
            for base in (self.root, self.root.parent):
                path = base / plain
                # A Path raises for a name that is too long for any file.
                there = os.path.isfile(path)  # noqa: PTH113
                if there and (base == self.root or path.is_relative_to(self.root)):
                    return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else plain
        return ""

    def _similar(self, names: tuple[str, ...]) -> list[str]:
        """Return the images that the first of several names fits, those of the same suffix if there are any."""
        for name in filter(None, names):
            plain, stem = _plain(name)
            elsewhere = bool(PureWindowsPath(name).anchor) or "://" in name  # of another machine
            fitting = [p for p in self._by_stem.get(stem.name, []) if self._fits(stem, elsewhere, p)]
            if same := [p for p in fitting if p.name == plain.name] or fitting:
                return [p.as_posix() for p in same]
        return []

    def _fits(self, stem: PurePosixPath, elsewhere: bool, path: PurePosixPath) -> bool:
        """Whether a stated path can mean an image: their folders differ only above what one of the two states."""
        own, parts = path.with_suffix("").parts, stem.parts
        whole = (*self.root.resolve().parts, *own)
        pairs = zip(reversed(parts), reversed(whole), strict=False)
        common = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return common == len(parts) or common >= len(own) + (not elsewhere)

    def _judge(self, name: str, fitting: list[str], taken: Collection[str], claims: Mapping[str, int]) -> Found:
        """Return the only image that is similar to a stated name, or why none is taken."""
        if not fitting:
            if name and (others := self._by_stem.get(_plain(name)[1].name)):
                what = f"not found, and {others[0]} lies in another folder; correct the path, or name with --images"
                return Found(name, fault=f"image {name}: {what} (data.images) the folder that it starts from")
            return Found(name)
        if len(fitting) > 1:
            listed = " and ".join(fitting[:3]) + (f" and {len(fitting) - 3} more" if len(fitting) > 3 else "")
            return Found(name, fault=f"image {name}: expected one file, found {listed}; write its whole path")
        if fitting[0] in taken or claims[fitting[0]] > 1:
            what = f"not found, and {fitting[0]}, which is similar, is stated by another record; check both"
            return Found(name, fault=f"image {name}: {what}")
        return Found(fitting[0], (SIMILAR,))


def _plain(name: str) -> tuple[PurePosixPath, PurePosixPath]:
    """Return a path with slashes, and the same without the suffix of an image."""
    plain = PurePosixPath(PureWindowsPath(name).as_posix())
    return plain, plain.with_suffix("") if plain.suffix.lower() in IMAGE_SUFFIXES else plain


def as_json(value: Any) -> str:
    """Return a value as it would stand in a file, shortened for a message."""
    return json.dumps(value, ensure_ascii=False, default=str)[:80]
