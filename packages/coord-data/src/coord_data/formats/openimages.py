"""Reader of Open Images: a CSV of boxes in fractions, with `class-descriptions*.csv` beside it for the label names.

`IsGroupOf` 1 is a crowd: no training target, and ignored in scoring. Boxes with `IsOccluded`, `IsTruncated`,
`IsDepiction` or `IsInside` are kept and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from coord_codec.files import InputError
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.image_paths import Found, ImageIndex, find_root
from coord_data.raw import RawImage, RawObject, Reading, csv_rows, number
from coord_data.source import Source

_COLUMNS = {"ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"}
_FLAGS = ("IsOccluded", "IsTruncated", "IsDepiction", "IsInside")


def recognise(source: Source) -> bool:
    """Return whether a source is such a table, or a folder with one."""
    if source.is_dir:
        return any(recognise(source.file(path)) for path in source.glob("*.csv"))
    return set(source.head.partition("\n")[0].strip().split(",")) >= _COLUMNS


def read(source: Source, images: Path | None) -> Reading:
    """Read a table of boxes, or all tables of a folder.

    Raises:
        InputError: labels are codes, and no file names them.
    """
    files = [p for p in source.glob("*.csv") if recognise(source.file(p))] or [source.path]
    folder = files[0].parent
    names = {
        row[0]: row[1]
        for path in sorted(folder.glob("*class-descriptions*.csv"))
        for _, row in csv_rows(source.file(path).table, path)
        if len(row) == 2
    }
    rows: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for path in files:
        table = csv_rows(source.file(path).table, path)
        _, header = next(table, (1, []))
        if missing := sorted(_COLUMNS - set(header)):
            raise InputError(f"{path}: expected a header of Open Images, found one without {', '.join(missing)}")
        for line_number, cells in table:
            row = dict(zip_longest(header, cells[: len(header)], fillvalue=""))
            rows.setdefault(row["ImageID"], []).append((f"{path}:{line_number}", row))
    codes = {row["LabelName"] for image_rows in rows.values() for _, row in image_rows} - set(names)
    if code := next((code for code in sorted(codes) if code.startswith("/m/")), None):
        raise InputError(f"{files[0]}: LabelName {code} is a code; put class-descriptions-boxable.csv beside the file")
    root = find_root(images, folder / "images", folder)
    found_images = dict(zip(rows, ImageIndex(root).find_all((f"{i}.jpg",) for i in rows), strict=True))
    notes: tuple[str, ...] = ()
    if len(files) > 1:
        file_names = ", ".join(path.name for path in files)
        notes = (f"{folder}: {file_names} are read together; name one of the files to read it alone",)
    return Reading((_image(i, found_images[i], image_rows, names) for i, image_rows in rows.items()), root, notes)


def _image(
    image_id: str, image: Found, rows: list[tuple[str, Mapping[str, str]]], names: Mapping[str, str]
) -> RawImage:
    where = rows[0][0]
    if image.fault:
        return RawImage(image.name, where, image_id=image_id, fault=image.fault)
    return RawImage(image.name, where, list(_boxes(rows, names)), image_id=image_id, notes=image.notes)


def _boxes(rows: list[tuple[str, Mapping[str, str]]], names: Mapping[str, str]) -> Iterator[RawObject]:
    for where, row in rows:
        desc = names.get(row["LabelName"], row["LabelName"])
        try:
            corners = tuple(number(row[side]) for side in ("XMin", "YMin", "XMax", "YMax"))
        except ValueError as error:
            yield RawObject(desc, (), where, fault=str(error))
            continue
        notes = tuple(f"objects with {flag}, kept" for flag in _FLAGS if row.get(flag) == "1")
        yield RawObject(desc, corners, where, "fractions", ignored=row.get("IsGroupOf") == "1", notes=notes)


FORMAT = AnnotationFormat(
    "openimages",
    "Open Images CSV",
    "CSV with `ImageID`, `LabelName`, `XMin`, `XMax`, `YMin`, `YMax` in fractions, and `class-descriptions*.csv`",
    {"box": Example({"a.csv": "ImageID,LabelName,XMin,XMax,YMin,YMax\na,cat,0.2,0.6,0.2,0.8\n"}, "a.csv")},
    recognise,
    read,
)
