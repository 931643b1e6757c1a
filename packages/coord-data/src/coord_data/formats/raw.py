"""What all format readers share: images with the boxes that a file states, not yet validated, and its lazy `Source`."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

from coord_codec.files import InputError, parse_json_line, read_json, read_text
from coord_data.formats.images import in_any_case, is_hidden

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
        """Yield the place and content of each record of JSON lines or a JSON list; an error message for a bad one.

        Raises:
            InputError: the source is a folder.
        """
        if self.is_dir:
            raise InputError(f"{self.path}: expected a file of records, found a folder; name the file in it")
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


def as_json(value: Any) -> str:
    """Return a value as JSON, shortened for a message."""
    return json.dumps(value, ensure_ascii=False, default=str)[:80]


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, None as an empty list, and any other value as a list with that value."""
    return value if isinstance(value, list) else [] if value is None else [value]
