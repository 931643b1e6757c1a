"""CSV tables with a box a row: corners or corner and size, in pixels or in fractions.

| columns (in any order and case) | meaning |
|---|---|
| image, filename, file_name, path, image_path | the image |
| label, class, class_name, category, name | the description |
| xmin ymin xmax ymax; x1 y1 x2 y2; left top right bottom | corners |
| x y w h; x y width height; bbox_x bbox_y bbox_width bbox_height | corner and size |
| width height beside corners; image_width image_height | size of the image |

A row with an image and no numbers is an image without objects. Without a header the columns are keras-retinanet's:
path, x1, y1, x2, y2, class. Numbers are fractions where all of a file lie in [0, 1], else pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from coord_codec.files import InputError, read_text
from coord_trainer.data.formats.raw import ImageIndex, RawBox, RawImage, Reading, Source, csv_rows, find_root, number

_IMAGE = ("image", "filename", "file_name", "image_path", "path", "file", "image_name", "img")
_LABEL = ("label", "class", "class_name", "category", "name", "object")
_CORNERS = (("xmin", "ymin", "xmax", "ymax"), ("x1", "y1", "x2", "y2"), ("left", "top", "right", "bottom"))
_SIZED = (("bbox_x", "bbox_y", "bbox_width", "bbox_height"), ("x", "y", "w", "h"), ("x", "y", "width", "height"))
_SIZES = (("image_width", "image_height"), ("img_width", "img_height"), ("width", "height"))
_BARE = ("path", "x1", "y1", "x2", "y2", "class")
_EXPECTED = (
    "expected a header with an image column (image, filename, path), a label column (label, class) and a box "
    "(xmin, ymin, xmax, ymax, or x, y, width, height)"
)


def recognise(source: Source) -> bool:
    """Whether the first line is a header of such a table, or a row without header."""
    if source.is_dir or source.head[:1] in ("{", "[", "<", ""):
        return False
    try:
        _columns(source)
    except InputError:
        return source.path.suffix.lower() in (".csv", ".tsv")  # `read` says what is missing
    return True


def _first(source: Source) -> list[str]:
    line = source.head.partition("\n")[0].strip()
    return [cell.strip() for cell in next(csv_rows([line], source.path, _delimiter(line)), [])]


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _columns(source: Source) -> tuple[dict[str, int], bool]:
    """Return the column of each name, and whether there is a header."""
    first = _first(source)
    found = {name.lower(): column for column, name in reversed(list(enumerate(first)))}
    if _pick(found, _IMAGE) and _pick(found, _LABEL) and (_group(found, _CORNERS) or _group(found, _SIZED)):
        return found, True
    if len(first) == len(_BARE) and (all(not c for c in first[1:]) or all(map(_numeric, first[1:5]))):
        return {name: column for column, name in enumerate(_BARE)}, False
    raise InputError(f"{source.path}: {_EXPECTED}, found {', '.join(first)[:120]}")


def _numeric(cell: str) -> bool:
    try:
        return bool([number(cell)])
    except ValueError:
        return False


def _pick(columns: dict[str, int], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in columns), None)


def _group(columns: dict[str, int], groups: Sequence[tuple[str, ...]]) -> tuple[str, ...] | None:
    return next((group for group in groups if set(group) <= set(columns)), None)


def read(source: Source, images: Path | None) -> Reading:
    """Read a table; rows of an image belong together, wherever they stand.

    Raises:
        InputError: a column is missing.
    """
    columns, header = _columns(source)
    corners, sized = _group(columns, _CORNERS), _group(columns, _SIZED)
    group = corners or sized or ()
    image, label = _pick(columns, _IMAGE), _pick(columns, _LABEL)
    size = _group(columns, _SIZES[:2] if not corners else _SIZES)
    text = read_text(source.path)
    lines = text.splitlines()
    rows: dict[str, list[tuple[int, list[str]]]] = {}
    for line_number, cells in enumerate(csv_rows(lines, source.path, _delimiter(lines[0])), start=1):
        if cells and not (header and line_number == 1):
            place = columns[image or ""]
            rows.setdefault(cells[place].strip() if place < len(cells) else "", []).append((line_number, cells))
    values = [_values(cells, columns, group) for found in rows.values() for _, cells in found]
    known = [v for row in values if isinstance(row, list) for v in row]
    fractions = bool(known) and min(known) >= 0 and max(known) <= 1
    folder = source.path.parent
    root = find_root(images, folder / "images", folder) if images or (folder / "images").is_dir() else folder

    def found() -> Iterator[RawImage]:
        for place, of_image in zip(ImageIndex(root).find_all((name,) for name in rows), rows.values(), strict=True):
            if place.fault:
                yield RawImage(place.name, f"{source.path}:{of_image[0][0]}", fault=place.fault)
                continue
            boxes = []
            for line_number, cells in of_image:
                where = f"{source.path}:{line_number}"
                numbers = _values(cells, columns, group)
                desc = _cell(cells, columns[label or ""])
                if isinstance(numbers, str):
                    boxes.append(RawBox(desc, (), where, fault=numbers))
                elif numbers:
                    x, y, a, b = numbers
                    box = (x, y, a, b) if corners else (x, y, x + a, y + b)
                    boxes.append(RawBox(desc, box, where, "fractions" if fractions else "pixels"))
            stated = _values(of_image[0][1], columns, size) if size else []
            pixels = (int(stated[0]), int(stated[1])) if isinstance(stated, list) and stated else None
            yield RawImage(place.name, f"{source.path}:{of_image[0][0]}", boxes, pixels, notes=place.notes)

    unit = f"{source.path}: numbers are read as {'fractions of the image' if fractions else 'pixels'}"
    return Reading(found(), root, (unit,))


def _cell(cells: Sequence[str], column: int) -> str:
    return cells[column].strip() if column < len(cells) else ""


def _values(cells: Sequence[str], columns: dict[str, int], names: Sequence[str]) -> list[float] | str:
    """Return the numbers of a row, none where all its cells are empty, or what is wrong with them."""
    texts = [_cell(cells, columns[name]) for name in names]
    if not any(texts):
        return []
    try:
        return [number(text) for text in texts]
    except ValueError as error:
        return str(error)
