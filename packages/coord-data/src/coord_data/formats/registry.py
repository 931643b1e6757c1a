"""Recognises the format of a source by its content and reads its annotations: the entry point of this folder."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from coord_codec import AnnotationSet, InputError, read_annotations
from coord_codec.annotations import with_shapes
from coord_codec.boxes import OnBadBox
from coord_codec.coco.document import is_coco
from coord_codec.files import read_json
from coord_codec.images import ImageError, image_facts
from coord_data.formats import lvis, openimages, qwen, refcoco, swift, table, tools, vg, voc, yolo
from coord_data.formats.collect import collect
from coord_data.formats.images import IMAGE_SUFFIXES, is_hidden
from coord_data.formats.raw import Read, Recognise, Source
from coord_data.rules import Format

FORMATS: dict[str, tuple[Recognise | None, Read]] = {
    "voc": (voc.recognise, voc.read),
    "vg": (vg.recognise, vg.read),
    "refcoco": (refcoco.recognise, refcoco.read),
    "qwen": (qwen.recognise, qwen.read),
    "qwen-pixels": (None, qwen.read_pixels),
    "swift": (swift.recognise, swift.read),
    "openimages": (openimages.recognise, openimages.read),
    "yolo": (yolo.recognise, yolo.read),
    "csv": (table.recognise, table.read),
}
"""Formats in the order in which they are tried; a source that none of them recognises is read by `coord_codec`."""

_ARCHIVES = ("PK\x03\x04", "\ufffd\x08", "BZh", "7z\ufffd", "\ufffd7zX", "Rar!", "(\ufffd/\ufffd")
"""First bytes of zip, gzip, bzip2, 7z, xz, rar and zstd files, decoded as text without leading blanks."""

_FOLDERS = 16
"""Number of subfolders that are searched in a folder without annotations."""

_COCO = ("_annotations.coco.json", "instances*.json")
_FILES = ("*.csv", "*.tsv", "*.json", "*.jsonl")
PREPARED = ("instances.jsonl", "train.jsonl", "val.jsonl")
SUMMARY = ".summary.json"
"""Suffix of the summary beside an instance file that `prepare` wrote; its key `images` is the image folder."""


@dataclass(frozen=True)
class Annotated:
    """Annotations of a source, whatever its format.

    Attributes:
        annotations: instances and problems; image paths are relative to its root
        base: folder that images must lie in
        format: the format that it was read as
        notes: notes for the user on how it was read
    """

    annotations: AnnotationSet
    base: Path
    format: str
    notes: tuple[str, ...] = ()


def recognise(path: Path) -> tuple[str, Source]:
    """Return the format of a source and the source itself, which may be a file in the folder that was named.

    Raises:
        InputError: the path does not exist, or its format is not known.
    """
    if not path.exists():
        raise InputError(f"{path}: expected annotations, found nothing there; check the path")
    source = Source(path)
    if source.is_dir:
        prepared = [path / name for name in PREPARED if (path / name).is_file()]
        if len(prepared) > 1:
            raise InputError(f"{path}: holds {' and '.join(p.name for p in prepared)}; name one of the files")
        if prepared:
            source = Source(prepared[0])
        elif len(coco := source.glob(*_COCO)) == 1 and not refcoco.recognise(source):
            other_formats = {"voc": "Pascal VOC XML"} if voc.recognise(source) else {}
            other_formats |= {"yolo": "YOLO labels"} if yolo.has_labels(source) else {}
            if other_formats:
                raise InputError(_ambiguous(path, {"coco": f"COCO JSON ({coco[0].name})"} | other_formats))
            source = Source(coco[0])
    if source.head.startswith(_ARCHIVES) or (not source.is_dir and tarfile.is_tarfile(source.path)):
        raise InputError(f"{path}: an archive; unpack it, and name the annotations in it")
    if source.head.startswith("PAR1"):
        raise InputError(f"{path}: a Parquet file, which is not read; write its rows as instance JSONL or CSV")
    matches = [name for name, (fits, _) in FORMATS.items() if fits is not None and fits(source)]
    if source.is_dir and {"voc", "yolo"} <= set(matches):
        raise InputError(_ambiguous(path, {"voc": "Pascal VOC XML", "yolo": "YOLO labels"}))
    if matches:
        return matches[0], source
    if source.is_dir:
        files = source.glob(*_FILES)
        if len(files) == 1:
            return recognise(files[0])
        if message := next(filter(None, map(tools.refusal, map(Source, (files or source.glob("ann/*.json"))[:1]))), ""):
            raise InputError(message)
        raise InputError(f"{path}: expected annotations in this folder, found {_listing(source)}")
    if source.path.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError(f"{path}: an image; expected annotations, or a folder of them")
    if source.head[:1] not in ("", "{", "[") and source.path.suffix not in (".json", ".jsonl"):
        raise InputError(
            f"{path}: expected annotations (COCO, Pascal VOC, YOLO, CSV, LVIS, Visual Genome, Open Images, RefCOCO, "
            f"conversations or instance JSONL), found text that begins with {source.head[:30]!r}"
        )
    if not source.head:
        raise InputError(f"{path}: expected annotations, found an empty file")
    if message := tools.refusal(source):
        raise InputError(message)
    if source.record is not None:
        return "jsonl", source
    return "lvis" if lvis.recognise(source) else "coco", source


def _ambiguous(path: Path, contents: Mapping[str, str]) -> str:
    listed, formats = " and ".join(contents.values()), " or ".join(contents)
    return f"{path}: holds {listed}; choose one of them with --format (data.format) {formats}"


def open_source(path: Path, format: Format) -> tuple[str, Source]:
    """Return the format of a source, recognised by its content if `format` is `auto`, and the source itself.

    Raises:
        InputError: the path does not exist, or (`auto`) its format is not known.
    """
    if format == "auto":
        return recognise(path)
    if not path.exists():
        raise InputError(f"{path}: expected annotations, found nothing there; check the path")
    source = Source(path)
    files = source.glob(*_COCO) if format == "coco" else []
    return format, Source(files[0]) if len(files) == 1 else source


def _listing(source: Source) -> str:
    names = sorted(p.name for p in source.path.iterdir())
    if names and all(Path(name).suffix.lower() in IMAGE_SUFFIXES for name in names):
        return f"{len(names)} images and no annotations; name the annotations first, then --images {source.path}"
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
        if len(files) == 1 or any(fits(source) for fits, _ in FORMATS.values() if fits is not None):
            annotated.append(path)
        else:
            annotated += files or (_annotated_below(path, depth - 1) if depth > 1 else [])
    return annotated


def read_source(
    path: Path,
    images: Path | None = None,
    format: Format = "auto",
    on_bad_box: OnBadBox = "drop_image",
    geometry: str = "box",
) -> Annotated:
    """Read annotations of any format.

    Args:
        path: a file or a folder
        images: folder that image paths are relative to; derived from the format if None
        format: format of the annotations; recognised by the content if `auto`
        on_bad_box: how a refused object affects its image
        geometry: the shape that each target must have, see `coord_codec.read_annotations`

    Raises:
        InputError: the source cannot be read, or (`on_bad_box` is `error`) an object is refused.
    """
    if images is not None and not images.is_dir():
        raise InputError(f"data.images: expected a folder of images, found nothing of that kind at {images}")
    format, source = open_source(path, format)
    root = images or source.path.parent
    size = image_sizes(root)
    if format in ("coco", "jsonl"):
        annotations = read_annotations(source.path, images, image_size=size, on_bad_box=on_bad_box, geometry=geometry)
        return Annotated(annotations, images or base_of(source.path), format)
    if format == "lvis":
        if not is_coco(source.document):
            raise InputError(f"{path}: --format lvis, but the file is not COCO JSON")
        return Annotated(lvis.read_lvis(source, images, size, on_bad_box, geometry), root, format)
    reading = FORMATS[format][1](source, images)
    annotations = with_shapes(collect(reading, on_bad_box, image_sizes(reading.root)), geometry, on_bad_box)
    if on_bad_box == "error" and (refused := [p for p in annotations.problems if p.is_box]):
        raise InputError(f"{refused[0]} ({len(refused)} objects are refused; data.on_bad_box is error)")
    return Annotated(annotations, reading.root, format, reading.notes)


def base_of(path: Path) -> Path:
    """Return the folder that images of an instance file must lie in: its own, or the one that its summary states."""
    summary = path.with_suffix(SUMMARY)
    stated = read_json(summary).get("images") if summary.is_file() else None
    return path.parent / stated if isinstance(stated, str) else path.parent


def image_sizes(root: Path) -> Callable[[str], tuple[int, int] | None]:
    """Return a function that looks up the width and height of an image in `root`; None if it cannot be opened."""

    def size(name: str) -> tuple[int, int] | None:
        try:
            return image_facts(root / name).size
        except ImageError:
            return None

    return size
