"""The formats that are read, in the order in which they are tried, and how a user adds one."""

from __future__ import annotations

from collections.abc import Mapping

from coord_codec.arguments import expect
from coord_codec.files import InputError
from coord_data.formats import (
    coco,
    csv_table,
    labelme,
    lvis,
    openimages,
    qwen,
    refcoco,
    swift,
    tools,
    vg,
    via,
    voc,
    yolo,
)
from coord_data.formats.annotation_format import FORMATS, AnnotationFormat, Example, Read, Recognise
from coord_data.formats.recognition import open_source

__all__ = ["FORMATS", "format_table", "open_source", "register_reader"]

_IN_ORDER = (
    *(voc.FORMAT, vg.FORMAT, refcoco.FORMAT, swift.FORMAT, qwen.FORMAT, qwen.IN_PIXELS, openimages.FORMAT, yolo.FORMAT),
    *(tool.format for tool in tools.READ if tool.format is not None),
    *(labelme.FORMAT, via.FORMAT, csv_table.FORMAT, coco.JSONL, lvis.FORMAT, coco.COCO),
)
FORMATS.update((row.name, row) for row in _IN_ORDER)
FORMATS.seal()


def register_reader(
    name: str,
    read: Read,
    recognise: Recognise | None = None,
    *,
    title: str = "",
    about: str = "",
    examples: Mapping[str, Example] | None = None,
) -> AnnotationFormat:
    """Add a format of one's own: every command and setting knows its name afterwards, and it is tried first.

    Args:
        name: name of the format
        read: returns the images and objects as the source states them; all rules for boxes, shapes, sizes and names
            are applied afterwards, as for the other formats
        recognise: whether a source is of this format; without it the format has to be named
        title: its name in words
        about: what it looks like, for the documentation
        examples: an example of each geometry that it can carry, which the tests of the table read

    Returns:
        The row of the format.

    Raises:
        ValueError: the name is taken, or is none.

    Example:
        >>> import pathlib, tempfile
        >>> from coord_data import open_source
        >>> from coord_data.sources.raw import RawImage, RawObject, Reading
        >>> def read(source, images):
        ...     rows = [line.split() for line in source.text.splitlines()]
        ...     objects = [RawObject(row[1], tuple(map(float, row[2:6])), str(source.path)) for row in rows]
        ...     image = RawImage(rows[0][0], str(source.path), objects)
        ...     return Reading([image], images or source.path.parent)
        >>> row = register_reader("words", read, lambda source: source.path.suffix == ".words")
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.words"
        >>> _ = path.write_text("a.jpg cat 20 10 60 40")
        >>> open_source(path).format
        'words'
        >>> from coord_data.formats.registry import FORMATS
        >>> FORMATS.remove("words")
    """
    expect("name", name, str)
    for argument, function in (("read", read), ("recognise", recognise)):
        if not callable(function) and (argument, function) != ("recognise", None):
            raise InputError(f"{argument}: expected a function, found {type(function).__name__} ({function!r:.60})")
    if not name.replace("-", "_").isidentifier() or name == "auto":
        raise ValueError(f"annotation format {name!r}: expected a name of letters, digits and hyphens, not auto")
    row = AnnotationFormat(name, title or name, about, dict(examples or {}), recognise, read)
    return FORMATS.add(name, row, first=True)


def format_table() -> str:
    """Return the table in Markdown, as the documentation shows it."""
    head = ["| format | name | what it looks like | geometries |", "|---|---|---|---|"]
    rows = [f"| {row.title} | `{row.name}` | {row.about} | {', '.join(row.geometries)} |" for row in FORMATS.values()]
    return "\n".join([*head, *rows]) + "\n"
