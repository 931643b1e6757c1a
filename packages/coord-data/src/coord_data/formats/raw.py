"""What all format readers share: images with the boxes that a file states, not yet validated."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

from coord_codec.files import InputError
from coord_data.source import Source

BAD_SIZE = "stated image sizes that are not positive integers: the size of the file is used"


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


Recognise = Callable[[Source], bool]
Read = Callable[[Source, "Path | None"], Reading]


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
