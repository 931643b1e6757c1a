"""Opens a source of any format: finds the file in a folder, and recognises its format by its content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from coord_codec import InputError
from coord_codec.arguments import expect
from coord_codec.counts import counted
from coord_codec.foreign import ADVICE, tool_of
from coord_data.formats import tools
from coord_data.formats.annotation_format import FORMATS, OWN, AnnotationFormat
from coord_data.image_paths import IMAGE_SUFFIXES, is_hidden
from coord_data.source import Source

_ARCHIVES = ("PK\x03\x04", "\ufffd\x08", "BZh", "7z\ufffd", "\ufffd7zX", "Rar!", "(\ufffd/\ufffd")
"""First bytes of zip, gzip, bzip2, 7z, xz, rar and zstd files, decoded as text without leading blanks."""

_FOLDERS = 16
"""Number of subfolders that are searched in a folder without annotations."""

_COCO = ("_annotations.coco.json", "instances*.json")
_FILES = ("*.csv", "*.tsv", "*.json", "*.jsonl")
PREPARED = ("instances.jsonl", "train.jsonl", "val.jsonl")
"""Names of the instance files in a folder that `prepare` wrote."""


def open_source(path: Path | Source, format: str = "auto") -> Source:
    """Return annotations of a format, recognised by their content, as a source that is opened and parsed once.

    Args:
        path: a file or a folder; a source is returned as it is
        format: name of the format, for content that could be several; `auto` to recognise it

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
    if format == "auto":
        return recognise(source)
    if format not in FORMATS:
        raise InputError(f"format: expected auto or one of {', '.join(FORMATS)}, found {format!r}")
    files = source.glob(*_COCO) if format == "coco" else []
    return _of_format(source.file(files[0]) if len(files) == 1 else source, source.path, format)


def recognise(source: Source) -> Source:
    """Return the source with its format, or the file with annotations in a folder that was named.

    Raises:
        InputError: the format is not known.
    """
    return next(filter(None, (attempt(source) for attempt in _ATTEMPTS)))


def _of_format(source: Source, named: Path, format: str) -> Source:
    source.named, source.format = named, format
    return source


def _by_own_format(source: Source) -> Source | None:
    """Return a source that a format of `register_reader` claims."""
    rows = [row for name, row in FORMATS.items() if name in OWN]
    match = next((row for row in rows if row.recognise is not None and row.recognise(source)), None)
    return _of_format(source, source.path, match.name) if match is not None else None


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


def _fits(row: AnnotationFormat, source: Source) -> bool:
    """Return whether a row recognises a source; an error of a user's own row names the row."""
    if row.recognise is None:
        return False
    try:
        return row.recognise(source)
    except InputError as error:
        raise InputError(f"format {row.name}: its recognise fails: {error}") from error


def _by_content(source: Source) -> Source | None:
    matches = [row for row in FORMATS.values() if _fits(row, source)]
    if len([row for row in matches if row.has_label_files is not None]) > 1:
        _refuse_several(source, {row.name: row.title for row in matches if row.has_label_files is not None})
    return _of_format(source, source.path, matches[0].name) if matches else None


def _only_file(source: Source) -> Source | None:
    """Return the only file of a folder that can hold annotations."""
    files = source.glob(*_FILES)
    if len(files) == 1:
        found = recognise(source.file(files[0]))
        return _of_format(found, source.path, found.format)
    for file in (files or source.glob("ann/*.json"))[:1]:
        _refuse(source.file(file), _UNREADABLE)
    return None


class _Refusal(NamedTuple):
    """A kind of content that is not read: whether a source is of this kind, and what to do."""

    fits: Callable[[Source], bool]
    message: Callable[[Source], str]


def _refuse(source: Source, refusals: tuple[_Refusal, ...]) -> None:
    for refusal in refusals:
        if refusal.fits(source):
            raise InputError(f"{source.path}: {refusal.message(source)}")


_UNREADABLE = (
    _Refusal(
        lambda source: source.head.startswith(_ARCHIVES) or source.is_archive,
        lambda source: "an archive; unpack it, and name the annotations in it",
    ),
    _Refusal(
        lambda source: source.head.startswith("PAR1"),
        lambda source: "a Parquet file, which is not read; write its rows as instance JSONL or CSV",
    ),
    _Refusal(lambda source: bool(tools.advice(source)), tools.advice),
)
"""What is refused although its content is known."""

_UNKNOWN = (
    _Refusal(
        lambda source: source.is_dir, lambda source: f"expected annotations in this folder, found {_listing(source)}"
    ),
    _Refusal(
        lambda source: source.path.suffix.lower() in IMAGE_SUFFIXES,
        lambda source: "an image; expected annotations, or a folder of them",
    ),
    _Refusal(lambda source: not source.head, lambda source: "expected annotations, found an empty file"),
    _Refusal(
        lambda source: tool_of(source.path) not in ("", *(row.title for row in FORMATS.values())),
        lambda source: f"a file of {tool_of(source.path)}, {ADVICE}",
    ),
    _Refusal(
        lambda source: True,
        lambda source: (
            f"expected annotations ({', '.join(row.title for row in FORMATS.values())}), found text that begins with "
            f"{source.head[:30]!r}"
        ),
    ),
)
"""What is left when no format fits; the last one always applies."""


def _refuse_unreadable(source: Source) -> None:
    _refuse(source, _UNREADABLE)


def _refuse_unknown(source: Source) -> None:
    _refuse(source, _UNKNOWN)


_ATTEMPTS: tuple[Callable[[Source], Source | None], ...] = (
    _by_own_format,
    _prepared,
    _only_coco_file,
    _refuse_unreadable,
    _by_content,
    _only_file,
    _refuse_unknown,
)
"""Tries in order: the first that returns a source decides, and each may refuse it."""


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
