"""Reader of Open Images: a CSV of boxes in fractions, with `class-descriptions*.csv` beside it for the label names.

`IsGroupOf` 1 is a crowd: no training target, and ignored in scoring. Boxes with `IsOccluded`, `IsTruncated`,
`IsDepiction` or `IsInside` are kept and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path

from coord_codec.fields import DELETED, check_places, is_deleted
from coord_codec.files import InputError
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.stated_fields import with_fields
from coord_data.looking.image_paths import IMAGE_SUFFIXES, ImageIndex, find_root
from coord_data.sources.raw import RawImage, RawObject, Reading, csv_rows, number
from coord_data.sources.source import Source

_COLUMNS = {"ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"}
_FLAGS = ("IsOccluded", "IsTruncated", "IsDepiction", "IsInside")


def recognise(source: Source) -> bool:
    """Return whether a source is such a table, or a folder with one."""
    if source.is_dir:
        return any(recognise(source.file(path)) for path in source.glob("*.csv"))
    return set(source.head.partition("\n")[0].strip().split(",")) >= _COLUMNS


def read(source: Source, images: Path | None) -> Reading:
    """Read a table of boxes, or all tables of a folder."""
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
    together = ", ".join(path.name for path in files)
    notes = (f"{folder}: {together} are read together; name one of the files to read it alone",) * (len(files) > 1)
    found = ImageIndex(root).find_all((_file_name(image_id),) for image_id in rows)
    raw_images = (
        RawImage.found(image, of_image[0][0], partial(_image, image_id, of_image, names))
        for (image_id, of_image), image in zip(rows.items(), found, strict=True)
    )
    return Reading(raw_images, root, notes)


def _file_name(image_id: str) -> str:
    """Return the file of an image id, which is one already where another tool wrote the table."""
    return image_id if Path(image_id).suffix.lower() in IMAGE_SUFFIXES else f"{image_id}.jpg"


def _image(
    image_id: str, rows: list[tuple[str, Mapping[str, str]]], names: Mapping[str, str], image: RawImage
) -> RawImage:
    check_places((row for _, row in rows), {"image": image.name, "image_id": image_id})
    present = [(where, row) for where, row in rows if not is_deleted(row)]
    objects = [
        RawObject(names.get(row["LabelName"], row["LabelName"]), (), where).tried(partial(_box, row))
        for where, row in present
    ]
    notes = image.notes + (DELETED,) * (len(rows) - len(present))
    return image._replace(objects=objects, image_id=image_id, notes=notes)


def _box(row: Mapping[str, str], stated: RawObject) -> RawObject:
    corners = tuple(number(row[side]) for side in ("XMin", "YMin", "XMax", "YMax"))
    notes = tuple(f"objects with {flag}, kept" for flag in _FLAGS if row.get(flag) == "1")
    is_group = row.get("IsGroupOf") == "1"
    stated = stated._replace(corners_xyxy=corners, unit="fractions", ignored=is_group, notes=notes)
    return with_fields(stated, row, "xyxy", "fractions")


FORMAT = AnnotationFormat(
    "openimages",
    "Open Images CSV",
    "CSV with `ImageID`, `LabelName`, `XMin`, `XMax`, `YMin`, `YMax` in fractions, and `class-descriptions*.csv`",
    {"box": Example({"a.csv": "ImageID,LabelName,XMin,XMax,YMin,YMax\na,cat,0.2,0.6,0.2,0.8\n"}, "a.csv")},
    recognise,
    read,
)
