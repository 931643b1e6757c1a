"""Reader of CSV tables with one box per row: corners, or corner and size, in pixels or in fractions.

| columns (in any order and case) | meaning |
|---|---|
| image, filename, file_name, path, image_path, image_id | the image |
| class_name, category_name, label_name, label, class, category, name | the description: the first of these columns |
| xmin ymin xmax ymax; x_min y_min x_max y_max; x1 y1 x2 y2; left top right bottom | corners |
| x1 y1 x2 y2 x3 y3 x4 y4 | the corners of an oriented box; as a box the upright one around them, counted |
| x y w h; x y width height; left top width height; bbox_x bbox_y bbox_width bbox_height | corner and size |
| cx cy w h; x_center y_center width height | centre and size |
| width height in addition to corners; image_width image_height | size of the image |

Cells are separated by commas, tabs or semicolons; with semicolons numbers may have a decimal comma, as spreadsheets
write them in many languages. A line `sep=;` above the header is skipped.

A row with an image and no numbers is an image without objects; `nan`, `NaN`, `null`, `None` and `NA` are empty cells.
As the label of a box such a word is the name of a class, unless cells of numbers hold the same word.
Without a header the columns are keras-retinanet's (path, x1, y1, x2, y2, class), SKU110K's (the same with the width and
height of the image) or make-sense's (label, x, y, width, height, image, and the width and height of the image).

Numbers are read as fractions if those of most boxes lie between 0 and 1, else as pixels. A box of the other kind is
refused, and so is a table with many boxes of both kinds. Fractions may exceed the image by a tenth of it. A box of
zeros and ones fits either kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from coord_codec.coco.rows import PHRASE_KEYS
from coord_codec.fields import DELETED, NumberOrder, check_places, is_certain, is_deleted, largest_turn, meaning_of
from coord_codec.files import InputError
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.stated_fields import with_fields
from coord_data.looking.image_paths import IMAGE_SUFFIXES, Found, ImageIndex, find_root
from coord_data.sources.raw import RawImage, RawObject, Reading, Unit, csv_rows, is_number, number
from coord_data.sources.source import Source

_IMAGE = ("image", "filename", "file_name", "image_path", "path", "file", "image_name", "img", "image_id", "imageid")
_LABEL = ("class_name", "category_name", "label_name", "label", "class", "category", "name", "object")
_FOUR_CORNERS = tuple(f"{axis}{corner}" for corner in range(1, 5) for axis in "xy")
_CORNERS = (
    _FOUR_CORNERS,
    ("xmin", "ymin", "xmax", "ymax"),
    ("x_min", "y_min", "x_max", "y_max"),
    ("x1", "y1", "x2", "y2"),
    ("left", "top", "right", "bottom"),
)
_SIZED = (
    ("bbox_x", "bbox_y", "bbox_width", "bbox_height"),
    ("x", "y", "w", "h"),
    ("x", "y", "width", "height"),
    ("left", "top", "width", "height"),
)
_CENTRED = (("cx", "cy", "w", "h"), ("x_center", "y_center", "width", "height"))
_SIZES = (("image_width", "image_height"), ("img_width", "img_height"), ("width", "height"))
_EMPTY = ("nan", "NaN", "null", "None", "NA")
"""Text of empty cells as pandas and other programs write them."""

_NAMED_AS_EMPTY = "boxes labelled {}, read as a class of that name"
_ROTATED = "boxes of four corners, read as the upright box around them"

_LEAVES = 0.1
"""How far fractions may exceed the image: boxes at its edge often do slightly."""

_MIXED = 0.1
"""Largest share of boxes of the rarer kind; above it the table is refused, since it may be two tables in one."""

_BARE = (
    ("path", "x1", "y1", "x2", "y2", "class"),
    ("path", "x1", "y1", "x2", "y2", "class", "image_width", "image_height"),
    ("label", "bbox_x", "bbox_y", "bbox_width", "bbox_height", "image", "image_width", "image_height"),
)
"""Columns of tables without a header: of keras-retinanet, SKU110K and make-sense."""
_EXPECTED = (
    "expected a header with an image column (image, filename, path), a label column (label, class) and a box "
    "(xmin, ymin, xmax, ymax, or x, y, width, height), one box a row"
)


def recognise(source: Source) -> bool:
    """Return whether the first line is a header of such a table, or a row of a table without header."""
    if source.is_dir or source.head[:1] in ("{", "[", "<", ""):
        return False
    return has_columns(source) or source.path.suffix.lower() in (".csv", ".tsv")  # `read` reports what is missing


def has_columns(source: Source) -> bool:
    """Return whether a file has the columns of an image, a label and a box."""
    try:
        return bool(_columns(source))
    except InputError:
        return False


class _Columns(NamedTuple):
    """What the first lines of a table tell: the place of each column by its name, and names by their meaning.

    `above` is the number of rows that are not of objects: a header, and the line `sep=;` that Excel may write
    above it.
    """

    places: dict[str, int]
    image: str
    label: str
    box: tuple[str, ...]
    order: NumberOrder
    size: tuple[str, ...]
    others: list[str]
    above: int
    delimiter: str
    width: int


def _columns(source: Source) -> _Columns:
    lines = source.head.split("\n", 2)
    line = next((line.strip() for line in lines if line.strip()[:-1] != "sep="), "")
    delimiter, skipped = max(",;\t", key=line.count), lines[0].strip()[:-1] == "sep="
    _, cells = next(csv_rows(line, source.path, delimiter), (1, []))
    first = [_filled(cell) for cell in cells]
    places = {name.lower(): column for column, name in reversed(list(enumerate(first)))}
    boxes = (*_CORNERS, *_SIZED, *_CENTRED)
    has_header = bool(_pick(places, _IMAGE) and _pick(places, _LABEL) and _group(places, boxes))
    if not has_header:
        cells = [_with_point(cell, delimiter) for cell in first]
        if (bare := next((names for names in _BARE if _is_row_of(names, cells)), None)) is None:
            raise InputError(f"{source.path}: {_EXPECTED}, found {', '.join(first)[:120]}; rename its columns")
        places = {name: column for column, name in enumerate(bare)}
    image, label = _pick(places, _IMAGE), _pick(places, _LABEL)
    corners, sized = _group(places, _CORNERS), _group(places, _SIZED)
    box = corners or sized or _group(places, _CENTRED)
    size = _group(places, _SIZES if corners else _SIZES[:2])
    known = {"", image, label, *box, *size, *_LABEL, *PHRASE_KEYS}
    return _Columns(
        places,
        image,
        label,
        box,
        "xyxy" if corners else "xywh" if sized else "cxcywh",
        size,
        [name for name in places if name not in known],
        has_header + skipped,
        delimiter,
        len(first),
    )


def _is_row_of(names: Sequence[str], cells: Sequence[str]) -> bool:
    """Return whether cells are a row of columns: numbers where the columns are, and the name of an image of that."""
    if len(names) != len(cells):
        return False
    row = dict(zip(names, cells, strict=True))
    is_image = Path(row[_pick(dict.fromkeys(names, 0), _IMAGE)]).suffix.lower() in IMAGE_SUFFIXES
    numbers = [cell for name, cell in row.items() if cell and name not in (*_IMAGE, *_LABEL)]
    return (is_image or len(names) == len(_BARE[0])) and all(map(is_number, numbers))


def _with_point(cell: str, delimiter: str) -> str:
    """Return a number with a decimal point; a table with semicolons may write 382,48."""
    return cell.replace(",", ".") if delimiter == ";" else cell


def _pick(places: dict[str, int], names: Sequence[str]) -> str:
    return next((name for name in names if name in places), "")


def _group(places: dict[str, int], groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return next((group for group in groups if set(group) <= set(places)), ())


def read(source: Source, images: Path | None) -> Reading:
    """Read a table; rows of the same image need not be adjacent."""
    columns = _columns(source)
    rows_by_name = _read_rows(source, columns)
    rows = list(chain.from_iterable(rows_by_name.values()))
    unit: Unit = "fractions" if _are_fractions(rows, source.path) else "pixels"
    largest_angle = cache(lambda: largest_turn(row.fields for row in rows))
    folder = source.path.parent
    root = find_root(images, folder / "images", folder)
    rows_by_image: dict[Found, list[_Row]] = {}
    image_files = ImageIndex(root).find_all((name,) for name in rows_by_name)
    for image_file, of_image in zip(image_files, rows_by_name.values(), strict=True):
        rows_by_image.setdefault(image_file, []).extend(of_image)  # a.jpg and ./a.jpg are one image
    box = partial(_box, order=columns.order, unit=unit, largest_angle=largest_angle)
    raw_images = (
        RawImage.found(image_file, of_image[0].where, partial(_image, of_image, box, columns.size))
        for image_file, of_image in rows_by_image.items()
    )
    return Reading(raw_images, root, _notes(source.path, columns, unit, rows))


class _Row(NamedTuple):
    """A row of the table: file and line, cells by their column, numbers of its box, further cells, and label.

    An image without objects has no numbers; an error message stands in place of invalid ones.
    """

    where: str
    cells: dict[str, str]
    numbers: list[float] | str
    fields: dict[str, str]
    label: str


def _read_rows(source: Source, columns: _Columns) -> dict[str, list[_Row]]:
    """Return the rows by the name of their image; a label that is an empty cell among the numbers is one here too."""
    rows: dict[str, list[_Row]] = {}
    empty = set[str]()
    all_rows = csv_rows(source.table, source.path, columns.delimiter)
    for line_number, cells in islice(all_rows, columns.above, None):
        texts = {name: cells[n].strip() if n < len(cells) else "" for name, n in columns.places.items()}
        filled = {name: _filled(text) for name, text in texts.items()}
        numbers = _numbers([_with_point(filled[name], columns.delimiter) for name in columns.box])
        if any(map(str.strip, cells[columns.width :])):
            numbers = f"expected {columns.width} cells as in the first row, found {len(cells)}"
        empty.update({texts[name] for name in columns.box}.intersection(_EMPTY))
        fields = {name: filled[name] for name in columns.others if filled[name]}
        row = _Row(f"{source.path}:{line_number}", filled, numbers, fields, texts[columns.label])
        rows.setdefault(filled[columns.image], []).append(row)
    for of_image in rows.values():
        of_image[:] = [row._replace(label="") if row.label in empty else row for row in of_image]
    return rows


def _image(of_image: list[_Row], box: Callable[[_Row], RawObject], size: tuple[str, ...], image: RawImage) -> RawImage:
    rows = [row for row in of_image if row.numbers]
    check_places(row.fields for row in rows)
    present = [row for row in rows if not is_deleted(row.fields)]
    if size:
        image = image.sized(*(of_image[0].cells[name] for name in size))
    notes = image.notes + (DELETED,) * (len(rows) - len(present))
    return image._replace(objects=list(map(box, present)), notes=notes)


def _notes(path: Path, columns: _Columns, unit: Unit, rows: Sequence[_Row]) -> tuple[str, ...]:
    """Return notes on the unit of the numbers and on columns that are not read."""
    notes = [f"numbers are read as {'fractions of the image' if unit == 'fractions' else 'pixels'}"]
    if labels := [name for name in _LABEL if name in columns.places and name not in (columns.label, columns.image)]:
        notes.append(f"descriptions are read from the column {columns.label}, not from {', '.join(labels)}")
    others = [name for name in columns.others if meaning_of(name) not in ("turn", "shape", "unit", "deleted")]
    if unread := [name for name in others if any(_states(row, name) for row in rows)]:
        notes.append(f"columns that are not read: {', '.join(unread)}")
    if phrases := sorted(PHRASE_KEYS & columns.places.keys()):
        notes.append(f"{', '.join(phrases)}: not read; records of JSON lines may have a `query`")
    return tuple(f"{path}: {note}" for note in notes)


def _states(row: _Row, name: str) -> bool:
    """Return whether a row has something in a column; a confidence of 1 is none."""
    return name in row.fields and not is_certain(name, row.fields[name])


def _unit(numbers: list[float] | str) -> str:
    """Return the unit of a box, `fractions` or `pixels`; empty if the numbers do not tell."""
    if not numbers or isinstance(numbers, str) or all(v in (0, 1) for v in numbers):
        return ""
    if min(numbers) >= -_LEAVES and max(numbers) <= 1 + _LEAVES:
        return "fractions"
    return "pixels" if max(numbers) > 2 else ""


def _are_fractions(rows: list[_Row], path: Path) -> bool:
    """Return whether the numbers of a table are fractions; many boxes of either kind are an error."""
    units = [_unit(row.numbers) for row in rows]
    fractions, pixels = units.count("fractions"), units.count("pixels")
    if min(fractions, pixels) > _MIXED * (fractions + pixels):
        first_lines = [rows[units.index(kind)].where.rpartition(":")[2] for kind in ("fractions", "pixels")]
        raise InputError(
            f"{path}: expected boxes in fractions of the image or in pixels, found {fractions} in fractions (the first "
            f"in line {first_lines[0]}) and {pixels} in pixels (line {first_lines[1]}); split it into two tables"
        )
    if fractions or pixels:
        return fractions > pixels
    numbers = [v for row in rows if isinstance(row.numbers, list) for v in row.numbers]
    return bool(numbers) and min(numbers) >= 0 and max(numbers) <= 1


def _box(row: _Row, order: NumberOrder, unit: Unit, largest_angle: Callable[[], float]) -> RawObject:
    notes = (_NAMED_AS_EMPTY.format(row.label),) if row.label in _EMPTY else ()
    stated = RawObject(row.label, (), row.where, unit, notes=notes)
    if isinstance(row.numbers, str):
        return stated._replace(fault=row.numbers)
    if _unit(row.numbers) not in ("", unit):
        return stated._replace(fault=f"expected {unit} like most boxes of the table, found {row.numbers}")
    if len(row.numbers) == len(_FOUR_CORNERS):
        return stated.outlined(row.numbers, _ROTATED)
    x, y, a, b = row.numbers
    if order == "cxcywh":
        x, y = x - a / 2, y - b / 2
    stated = stated._replace(corners_xyxy=(x, y, a, b) if order == "xyxy" else (x, y, x + a, y + b))
    return stated.tried(lambda box: with_fields(box, row.fields, order, unit, largest_angle))


def _filled(cell: str) -> str:
    """Return the text of a cell, "" for an empty one."""
    text = cell.strip()
    return "" if text in _EMPTY else text


def _numbers(texts: list[str]) -> list[float] | str:
    """Return the numbers of a row (none if all cells are empty), or an error message."""
    try:
        numbers = [number(text) for text in texts] if any(texts) else []
    except ValueError as error:
        return str(error)
    return numbers if all(map(math.isfinite, numbers)) else f"expected finite numbers, found {', '.join(texts)}"


_CORNERS_EXAMPLE = Example(
    {"a.csv": "image,label,x1,y1,x2,y2,x3,y3,x4,y4\na.jpg,cat,20,10,60,10,60,40,20,40\n"}, "a.csv"
)
FORMAT = AnnotationFormat(
    "csv",
    "CSV",
    "a table with an image, a label and corners (or a corner and size, or four corners) a row, in pixels or fractions",
    {
        "box": Example({"a.csv": "image,label,xmin,ymin,xmax,ymax\na.jpg,cat,20,10,60,40\n"}, "a.csv"),
        "polygon": _CORNERS_EXAMPLE,
        "oriented": _CORNERS_EXAMPLE,
    },
    recognise,
    read,
)
