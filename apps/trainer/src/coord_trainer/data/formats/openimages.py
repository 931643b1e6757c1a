"""Open Images: a CSV of boxes in fractions, and `class-descriptions*.csv` beside it with the names of the labels.

`IsGroupOf` 1 is a crowd: no target, and neither hit nor miss in scoring. `IsOccluded`, `IsTruncated`, `IsDepiction` and
`IsInside` are kept and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from coord_codec.files import InputError
from coord_trainer.data.formats.raw import (
    Found,
    ImageIndex,
    RawBox,
    RawImage,
    Reading,
    Source,
    csv_rows,
    find_root,
    number,
    read_table,
)

_COLUMNS = {"ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"}
_FLAGS = ("IsOccluded", "IsTruncated", "IsDepiction", "IsInside")


def recognise(source: Source) -> bool:
    """Whether it is such a table, or a folder with one."""
    if source.is_dir:
        return any(recognise(Source(path)) for path in source.glob("*.csv"))
    return set(source.head.partition("\n")[0].strip().split(",")) >= _COLUMNS


def read(source: Source, images: Path | None) -> Reading:
    """Read a table of boxes; of a folder with several, all of them.

    Raises:
        InputError: labels are codes, and no file has their names.
    """
    files = [p for p in source.glob("*.csv") if recognise(Source(p))] or [source.path]
    folder = files[0].parent
    names = {
        row[0]: row[1]
        for path in sorted(folder.glob("*class-descriptions*.csv"))
        for _, row in csv_rows(read_table(path), path)
        if len(row) == 2
    }
    rows: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for path in files:
        given = csv_rows(read_table(path), path)
        _, header = next(given, (1, []))
        if missing := sorted(_COLUMNS - set(header)):
            raise InputError(f"{path}: expected a header of Open Images, found one without {', '.join(missing)}")
        for line_number, cells in given:
            row = dict(zip_longest(header, cells[: len(header)], fillvalue=""))
            rows.setdefault(row["ImageID"], []).append((f"{path}:{line_number}", row))
    codes = {row["LabelName"] for found in rows.values() for _, row in found} - set(names)
    if code := next((code for code in sorted(codes) if code.startswith("/m/")), None):
        raise InputError(f"{files[0]}: LabelName {code} is a code; put class-descriptions-boxable.csv beside the file")
    root = find_root(images, folder / "images", folder)
    places = dict(zip(rows, ImageIndex(root).find_all((f"{i}.jpg",) for i in rows), strict=True))
    notes: tuple[str, ...] = ()
    if len(files) > 1:
        listed = ", ".join(path.name for path in files)
        notes = (f"{folder}: {listed} are read together; name one of the files to read it alone",)
    return Reading((_image(i, places[i], found, names) for i, found in rows.items()), root, notes)


def _image(
    image_id: str, place: Found, rows: list[tuple[str, Mapping[str, str]]], names: Mapping[str, str]
) -> RawImage:
    where = rows[0][0]
    if place.fault:
        return RawImage(place.name, where, image_id=image_id, fault=place.fault)
    return RawImage(place.name, where, list(_boxes(rows, names)), image_id=image_id, notes=place.notes)


def _boxes(rows: list[tuple[str, Mapping[str, str]]], names: Mapping[str, str]) -> Iterator[RawBox]:
    for where, row in rows:
        desc = names.get(row["LabelName"], row["LabelName"])
        try:
            corners = tuple(number(row[side]) for side in ("XMin", "YMin", "XMax", "YMax"))
        except ValueError as error:
            yield RawBox(desc, (), where, fault=str(error))
            continue
        notes = tuple(f"objects with {flag}, kept" for flag in _FLAGS if row.get(flag) == "1")
        yield RawBox(desc, corners, where, "fractions", ignored=row.get("IsGroupOf") == "1", notes=notes)
