"""What all format readers share: images with the objects that a file states, not yet validated."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from coord_codec.files import InputError
from coord_codec.origins import ORIGINS, Origin
from coord_data.looking.image_paths import Found, ImageIndex

Unit = Literal["pixels", "fractions"]
BAD_SIZE = "stated image sizes that are not positive integers: the size of the file is used"


class RawObject(NamedTuple):
    """An object as a file states it.

    Attributes:
        desc: description of the object
        corners_xyxy: x1, y1, x2, y2 in `unit`, of the box around its shape if the file states only that; of a point
            both corners are the point
        where: file and line or id
        unit: `pixels`, or `fractions` of the image's width and height
        ignored: whether it is no training target and is ignored in scoring
        notes: notes to count
        fault: error message if the object cannot be used; corners are kept if the file states them
        class_number: class number, if the file states one
        outlines: x and y of each vertex of its outlines in `unit`, as `segmentation` in COCO; empty if it has only a
            box. Masks are kept as they are, and refused where an outline is wanted
        keypoints: x, y in `unit` and visibility of each keypoint, as in COCO
        keypoint_names: their names
        as_box: notes to count where the box alone is used
        is_point: whether the file states a point and no box
        origin: where the pixels of its writer begin and end: `corners_xyxy` are those up to the edges
        further: a number behind the box whose meaning only those of all objects tell
    """

    desc: str
    corners_xyxy: tuple[float, ...]
    where: str
    unit: Unit = "pixels"
    ignored: bool = False
    notes: tuple[str, ...] = ()
    fault: str = ""
    class_number: int | None = None
    outlines: Any = ()
    keypoints: Sequence[float] = ()
    keypoint_names: tuple[str, ...] = ()
    as_box: tuple[str, ...] = ()
    is_point: bool = False
    further: float = 0.0
    origin: Origin = ORIGINS["from-0"]

    def outlined(self, outline: list[float], note: str) -> RawObject:
        """Return the object with an outline and the box around it, and a note to count where that is used."""
        return self._replace(corners_xyxy=around(outline), outlines=(outline,), as_box=(*self.as_box, note))

    def joined(self, part: RawObject) -> RawObject:
        """Return the object with a further part: the box around both, and the outlines of both."""
        outlines = [own.outlines or (corners(own.corners_xyxy),) for own in (self, part)]
        corners_xyxy = around((*self.corners_xyxy, *part.corners_xyxy))
        return self._replace(corners_xyxy=corners_xyxy, outlines=tuple(chain.from_iterable(outlines)))

    def at(self, x: float, y: float) -> RawObject:
        """Return the object as a point."""
        return self._replace(corners_xyxy=(x, y, x, y), is_point=True)

    def tried(self, read: Callable[[RawObject], RawObject]) -> RawObject:
        """Return what `read` makes of the object, or the object with the error message that it raises as its fault."""
        try:
            return read(self)
        except ValueError as error:
            return self._replace(fault=str(error))


class RawImage(NamedTuple):
    """An image as a file states it.

    Attributes:
        name: path relative to the folder of the images
        where: file and line or id
        objects: objects of the image
        size: width and height in pixels; read from the image file if None
        image_id: id in the data set
        extra: further keys of the record
        fault: error message if the record cannot be read
        notes: notes to count
    """

    name: str
    where: str
    objects: Iterable[RawObject] = ()
    size: tuple[int, int] | None = None
    image_id: int | str | None = None
    extra: Mapping[str, Any] = {}
    fault: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def found(cls, image: Found, where: str, read: Callable[[RawImage], RawImage]) -> RawImage:
        """Return what `read` makes of the image that was found for a record, or why none is used."""
        stated = cls(image.name, where, fault=image.fault, notes=image.notes)
        try:
            return stated if image.fault else read(stated)
        except InputError as error:
            return stated._replace(fault=str(error))

    def sized(self, width: Any, height: Any) -> RawImage:
        """Return the image with the size that its source states, or a note to count that it is none."""
        size = image_size(width, height)
        is_bad = size is None and bool(width or height)
        return self._replace(size=size, notes=self.notes + (BAD_SIZE,) * is_bad)


@dataclass(frozen=True)
class Reading:
    """Result of a format reader.

    Attributes:
        images: the images, read lazily
        root: folder that image names are relative to
        notes: notes for the user on how the source was read
        class_names: class names by class number, if objects state numbers
        layout: order of the numbers of a box in the file
        in_thousandths: whether the file states thousandths, which the objects have as fractions
        reads_alone: whether images without an annotation file are among the images, as those without objects
        without_image: annotation files without an image, which are not read
    """

    images: Iterable[RawImage]
    root: Path
    notes: tuple[str, ...] = ()
    class_names: Mapping[int, str] = field(default_factory=dict)
    layout: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"
    in_thousandths: bool = False
    reads_alone: bool = False
    without_image: tuple[str, ...] = ()


def images_of(records: Iterable[tuple[str, Any]], read: Callable[[Any, str], Iterable[RawImage]]) -> Iterator[RawImage]:
    """Yield the images that `read` returns for each record and its place, or the error that it raises as a fault."""
    for where, record in records:
        try:
            if isinstance(record, str):  # see `Source.records`
                raise InputError(record)
            yield from list(read(record, where))
        except InputError as error:  # noqa: PERF203 - the other records are read
            yield RawImage("", where, fault=str(error))


def images_named(
    root: Path, rows: Iterable[tuple[str, Any, tuple[str, ...]]], read: Callable[[Any, RawImage], RawImage]
) -> Iterator[RawImage]:
    """Yield what `read` makes of each row and the image in `root` that it names, or the error that it raises.

    Args:
        root: folder of the images
        rows: place, content and candidate paths of the image; an error message in place of faulty content
        read: returns the image with its objects
    """
    rows = list(rows)
    found = ImageIndex(root).find_all(names for _, _, names in rows)
    for (where, content, _), image in zip(rows, found, strict=True):
        fault = content if isinstance(content, str) else image.fault
        if fault:
            yield RawImage("", where, fault=fault)
        else:
            yield RawImage.found(image, where, partial(read, content))


def corners(box_xyxy: Sequence[float]) -> list[float]:
    """Return a box as an outline.

    Example:
        >>> corners((1, 2, 5, 4))
        [1, 2, 5, 2, 5, 4, 1, 4]
    """
    x1, y1, x2, y2 = box_xyxy
    return [x1, y1, x2, y1, x2, y2, x1, y2]


def around(outline: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the box around an outline of alternating x and y.

    Example:
        >>> around([5, 1, 9, 4, 2, 3])
        (2, 1, 9, 4)
    """
    xs, ys = outline[::2], outline[1::2]
    return min(xs), min(ys), max(xs), max(ys)


def csv_rows(text: str, path: Path, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the cells of each row that is not blank."""
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
    """Return a number or numeric text as a float; anything else is a `ValueError`."""
    if isinstance(value, bool) or value is None:
        raise ValueError(f"expected a number, found {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"expected a number, found {value!r:.80}") from None


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        return bool([number(text)])
    except ValueError:
        return False


def image_size(width: Any, height: Any) -> tuple[int, int] | None:
    """Return an image size that a source states as numbers or text; None if it is not a valid size."""
    try:
        size = int(number(width)), int(number(height))
    except (ValueError, OverflowError):
        return None
    return size if min(size) > 0 else None


def check(is_right: object, expected: str, found: Any) -> None:
    """Raise an `InputError` with what a file has in place of what is `expected`, unless it `is_right`."""
    if not is_right:
        raise InputError(f"{expected}, found {as_json(found)}")


def as_json(value: Any) -> str:
    """Return a value as JSON, shortened for a message."""
    return json.dumps(value, ensure_ascii=False, default=str)[:80]


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, None as an empty list, and any other value as a list with that value."""
    return value if isinstance(value, list) else [] if value is None else [value]


def query_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the question of a record as a further key; none where it is a template with placeholders.

    Example:
        >>> query_of({"query": "the red cat"}), query_of({"query": "<image>Find <ref-object>"})
        ({'query': 'the red cat'}, {})
    """
    query = record.get("query")
    return {"query": query} if isinstance(query, str) and query.strip() and "<" not in query else {}
