"""Opens a source of any format: finds the file in a folder, and recognises its format by its content."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from coord_codec import InputError
from coord_codec.arguments import expect
from coord_codec.commands.foreign import ADVICE, tool_of
from coord_codec.counts import counted
from coord_data.formats import csv_table, tools
from coord_data.formats.annotation_format import FORMATS, AnnotationFormat
from coord_data.looking.image_paths import IMAGE_SUFFIXES, is_hidden
from coord_data.sources.source import Source

_FOLDERS = 16
"""Number of subfolders that are searched in a folder without annotations."""

_COCO = ("_annotations.coco.json", "instances*.json")
_FILES = ("*.csv", "*.tsv", "*.json", "*.jsonl", "*.ndjson", "*.odgt")
_COCO_KEYS = frozenset(("id", "file_name"))
"""Keys of an image of COCO JSON."""
PREPARED = ("instances.jsonl", "train.jsonl", "val.jsonl")
"""Names of the instance files in a folder that `prepare` wrote."""


def open_source(path: Path | Source, format: str = "auto", fields: str | None = None) -> Source:
    """Return annotations of a format, recognised by their content, as a source that is opened and parsed once.

    Args:
        path: a file or a folder; a source is returned as it is
        format: name of the format, for content that could be several; `auto` to recognise it
        fields: the columns of a Parquet file or members of a tar that are read, such as `image=photo,label=category`

    Raises:
        InputError: the path does not exist, or (`auto`) its format is not known.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
        >>> _ = path.write_text('{"image": "a.jpg", "objects": []}')
        >>> source = open_source(path)
        >>> source.format, source.record
        ('jsonl', {'image': 'a.jpg', 'objects': []})
    """
    expect("path", path, Path, Source)
    source = Source(path) if isinstance(path, Path) else path
    if source.format:
        return source
    if not source.path.exists():
        raise InputError(f"{source.path}: expected annotations, found nothing there; check the path")
    from coord_data.formats.packed import unpacked  # decodes images, which takes NumPy

    if (packed := unpacked(source, fields)) is not None:
        found = open_source(packed, format)
        found.named = source.path
        return found
    if format == "auto":
        return recognise(source)
    if format not in FORMATS:
        raise InputError(f"format: expected auto or one of {', '.join(FORMATS)}, found {format!r}")
    files = [path for path, name in _single_files(source) if name == format]
    files = (source.glob(*_COCO) if format == "coco" else []) or files
    return _of_format(source.file(files[0]) if len(files) == 1 else source, source.path, format)


def recognise(source: Source) -> Source:
    """Return the source with its format, or the file with annotations in a folder that was named."""
    if found := _by_content(source, FORMATS.added) or _prepared(source) or _only_coco_file(source):
        return found
    if fault := _unreadable(source):
        raise InputError(f"{source.path}: {fault}")
    if found := _by_content(source, FORMATS) or _only_file(source):
        return found
    raise InputError(f"{source.path}: {_unknown(source)}")


def _of_format(source: Source, named: Path, format: str) -> Source:
    source.named, source.format = named, format
    return source


def _prepared(source: Source) -> Source | None:
    """Return the instance file in a folder that `prepare` wrote."""
    files = [source.path / name for name in PREPARED if (source.path / name).is_file()] if source.is_dir else []
    if len(files) > 1:
        raise InputError(f"{source.path}: holds {' and '.join(p.name for p in files)}; name one of the files")
    return _of_format(recognise(source.file(files[0])), source.path, "jsonl") if files else None


def _only_coco_file(source: Source) -> Source | None:
    """Return the only file in a folder that is called as COCO files are."""
    files = source.glob(*_COCO)
    refers_to_it = FORMATS["refcoco"].recognise
    if len(files) != 1 or (refers_to_it is not None and refers_to_it(source)):
        return None
    _refuse_several(source, {"coco": f"COCO JSON ({files[0].name})"})
    found = recognise(source.file(files[0]))
    return _of_format(found, source.path, found.format)


def _refuse_several(source: Source, further: Mapping[str, str]) -> None:
    """Refuse a folder with label files of one format, and annotations of others."""
    rows = [row for row in FORMATS.values() if row.has_label_files is not None and row.has_label_files(source)]
    contents = {**further, **{row.name: row.title for row in rows}}
    if len(contents) > 1:
        listed, formats = " and ".join(contents.values()), " or ".join(contents)
        raise InputError(f"{source.path}: holds {listed}; choose one of them with --format {formats}")


def _single_files(source: Source) -> Iterator[tuple[Path, str]]:
    """Yield the files in a folder, or in its `annotations`, that hold a whole data set each, with their formats."""
    for path in source.glob(*_FILES, "annotations/*.json"):
        file = source.file(path)
        if isinstance(file.first_image, Mapping) and file.first_image.keys() >= _COCO_KEYS:
            yield path, "coco"
        elif path.suffix.lower() in (".csv", ".tsv") and csv_table.has_columns(file):
            yield path, "csv"


def _fits(row: AnnotationFormat, source: Source) -> bool:
    """Return whether a row recognises a source; an error of a user's own row names the row."""
    if row.recognise is None:
        return False
    try:
        return row.recognise(source)
    except InputError as error:
        raise InputError(f"format {row.name}: its recognise fails: {error}") from error


def _by_content(source: Source, names: Collection[str]) -> Source | None:
    """Return a source that a format of these names claims; those of `register_reader` are asked first."""
    matches = [row for name, row in FORMATS.items() if name in names and _fits(row, source)]
    labelled = sum(row.has_label_files is not None for row in matches)
    beside = {
        name: f"{FORMATS[name].title} ({path.name})" for path, name in (_single_files(source) if labelled else ())
    }
    if labelled > 1 or beside:
        _refuse_several(source, beside)
    return _of_format(source, source.path, matches[0].name) if matches else None


def _only_file(source: Source) -> Source | None:
    """Return the only file of a folder that can hold annotations."""
    files = source.glob(*_FILES)
    if len(files) == 1:
        found = recognise(source.file(files[0]))
        if below := _annotated_below(source.path):
            names = " and ".join(str(path.relative_to(source.path)) for path in below)
            found.notes += (f"{source.path}: {files[0].name} is read; the annotations in {names} are not",)
        return _of_format(found, source.path, found.format)
    of_one_image = () if any(_single_files(source)) else files or source.glob("**/*.json")
    for file in of_one_image[:_FOLDERS]:
        if fault := _unreadable(source.file(file)):
            raise InputError(f"{file}: {fault}")
    return None


def _unreadable(source: Source) -> str:
    """Return why a source is refused although its content is known; empty if it is not."""
    if source.is_archive:
        return "an archive; unpack it, and name the annotations in it"
    return tools.advice(source)


def _unknown(source: Source) -> str:
    """Return why a source that no format fits is refused."""
    titles = [row.title for row in FORMATS.values()]
    if source.is_dir:
        if (tool := _tool_of_folder(source)) not in ("", *titles):
            return f"a folder of files of {tool}, {ADVICE}"
        return f"expected annotations in this folder, found {_listing(source)}"
    if source.path.suffix.lower() in IMAGE_SUFFIXES:
        return "an image; expected annotations, or a folder of them"
    if not source.head:
        return "expected annotations, found an empty file"
    if (tool := tool_of(source.path)) not in ("", *titles):
        return f"a file of {tool}, {ADVICE}"
    return f"expected annotations ({', '.join(titles)}), found text that begins with {source.head[:30]!r}"


def _tool_of_folder(source: Source) -> str:
    """Return the tool that writes the first text files of a folder and its subfolders; "" if none is known."""
    files = source.glob("*.txt", "*/*.txt", "*/*/*.txt")[:_FOLDERS]
    return next(filter(None, map(tool_of, files)), "")


def _listing(source: Source) -> str:
    names = sorted(p.name for p in source.path.iterdir())
    if names and all(Path(name).suffix.lower() in IMAGE_SUFFIXES for name in names):
        return (
            f"{counted(len(names), 'image')} and no annotations; name the annotations first, then --images "
            f"{source.path}"
        )
    annotation_files = [name for name in names if name.endswith((".json", ".jsonl", ".csv", ".tsv"))]
    listed = ", ".join([*annotation_files, *(name for name in names if name not in annotation_files)][:6]) or "nothing"
    if len(annotation_files) > 1:
        return f"{listed}; name one of the files"
    below = [str(path) for path in _annotated_below(source.path)]
    return listed + (f"; annotations are in {' and '.join(below)}: name one of them" if below else "")


def _annotated_below(folder: Path, depth: int = 2) -> list[Path]:
    """Return the subfolders, or files in them, that hold annotations."""
    annotated: list[Path] = []
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not is_hidden(path, folder))[:_FOLDERS]:
        source = Source(path)
        files = source.glob(*PREPARED, *_COCO) or source.glob(*_FILES)[:2]
        if len(files) == 1 or any(row.recognise is not None and row.recognise(source) for row in FORMATS.values()):
            annotated.append(path)
        else:
            annotated += files or (_annotated_below(path, depth - 1) if depth > 1 else [])
    return annotated
