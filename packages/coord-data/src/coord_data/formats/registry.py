"""Recognises the format of a source by its content and reads its annotations: the entry point of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from coord_codec import AnnotationSet, InputError, read_annotations
from coord_codec.annotations import with_shapes
from coord_codec.boxes import OnBadBox
from coord_codec.coco.document import is_coco
from coord_codec.files import read_json
from coord_data.formats import lvis, openimages, qwen, refcoco, swift, table, tools, vg, voc, yolo
from coord_data.formats.collect import collect
from coord_data.formats.images import IMAGE_SUFFIXES, is_hidden
from coord_data.formats.raw import Read, Recognise
from coord_data.image_file import FULL_CHECK_LIMIT, ImageFolder
from coord_data.raw_boxes import RawBoxes, raw_of_coco, raw_of_reading, raw_of_records
from coord_data.read_as import ReadAs
from coord_data.reread import RereadSource, reread_images
from coord_data.source import Source

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
        named: the file or folder that the user named
        annotations: instances and problems; image paths are relative to its root
        root: folder that image paths are relative to
        base: folder that images must lie in
        format: the format that it was read as
        notes: notes for the user on how it was read
        raw: the numbers as the source states them
        folder: the images that were opened for their sizes
    """

    named: Path
    annotations: AnnotationSet
    root: Path
    base: Path
    format: str
    notes: tuple[str, ...]
    raw: RawBoxes = field(repr=False)
    folder: ImageFolder = field(repr=False)


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
    if isinstance(path, Source):
        return path if path.format else _opened(path, format)
    if not path.exists():
        raise InputError(f"{path}: expected annotations, found nothing there; check the path")
    return _opened(Source(path), format)


def _opened(source: Source, format: str) -> Source:
    if format == "auto":
        return recognise(source)
    files = source.glob(*_COCO) if format == "coco" else []
    opened = source.file(files[0]) if len(files) == 1 else source
    return _of_format(opened, source.path, format)


def _of_format(source: Source, named: Path, format: str) -> Source:
    source.named, source.format = named, format
    return source


def recognise(source: Source) -> Source:
    """Return the source with its format, or the file with annotations in a folder that was named.

    Raises:
        InputError: the format is not known.
    """
    path = named = source.path
    if source.is_dir:
        prepared = [path / name for name in PREPARED if (path / name).is_file()]
        if len(prepared) > 1:
            raise InputError(f"{path}: holds {' and '.join(p.name for p in prepared)}; name one of the files")
        if prepared:
            source = source.file(prepared[0])
        elif len(coco := source.glob(*_COCO)) == 1 and not refcoco.recognise(source):
            other_formats = {"voc": "Pascal VOC XML"} if voc.recognise(source) else {}
            other_formats |= {"yolo": "YOLO labels"} if yolo.has_labels(source) else {}
            if other_formats:
                raise InputError(_ambiguous(path, {"coco": f"COCO JSON ({coco[0].name})"} | other_formats))
            source = source.file(coco[0])
    if source.head.startswith(_ARCHIVES) or source.is_archive:
        raise InputError(f"{path}: an archive; unpack it, and name the annotations in it")
    if source.head.startswith("PAR1"):
        raise InputError(f"{path}: a Parquet file, which is not read; write its rows as instance JSONL or CSV")
    matches = [name for name, (fits, _) in FORMATS.items() if fits is not None and fits(source)]
    if source.is_dir and {"voc", "yolo"} <= set(matches):
        raise InputError(_ambiguous(path, {"voc": "Pascal VOC XML", "yolo": "YOLO labels"}))
    if matches:
        return _of_format(source, named, matches[0])
    if source.is_dir:
        files = source.glob(*_FILES)
        if len(files) == 1:
            return _of_format(only := recognise(source.file(files[0])), named, only.format)
        first = map(source.file, (files or source.glob("ann/*.json"))[:1])
        if message := next(filter(None, map(tools.refusal, first)), ""):
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
        return _of_format(source, named, "jsonl")
    return _of_format(source, named, "lvis" if lvis.recognise(source) else "coco")


def _ambiguous(path: Path, contents: Mapping[str, str]) -> str:
    listed, formats = " and ".join(contents.values()), " or ".join(contents)
    return f"{path}: holds {listed}; choose one of them with --format (data.format) {formats}"


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
    path: Path | Source,
    images: Path | None = None,
    format: str = "auto",
    on_bad_box: OnBadBox = "drop_image",
    geometry: str = "box",
    read_as: ReadAs | None = None,
) -> Annotated:
    """Read annotations of any format.

    Args:
        path: a file or a folder, or the source of one
        images: folder that image paths are relative to; derived from the format if None
        format: format of the annotations; recognised by the content if `auto`
        on_bad_box: how a refused object affects its image
        geometry: the shape that each target must have, see `coord_codec.read_annotations`
        read_as: how the numbers of boxes are read, if not as the format has them

    Raises:
        InputError: the source cannot be read, or (`on_bad_box` is `error`) an object is refused.
    """
    if images is not None and not images.is_dir():
        raise InputError(f"data.images: expected a folder of images, found nothing of that kind at {images}")
    if read_as is not None and geometry != "box":
        raise InputError(f"read_as {read_as}: it applies to boxes, found geometry {geometry}; read boxes")
    source = open_source(path, format)
    format = source.format
    if format in ("coco", "jsonl", "lvis"):
        root = images or source.path.parent
        folder = ImageFolder(root, decode=_image_count(source) <= FULL_CHECK_LIMIT)
        if read_as is not None:
            source = RereadSource(source, read_as, folder.size)
        if format == "lvis":
            if not is_coco(source.document):
                raise InputError(f"{source.named}: --format lvis, but the file is not COCO JSON")
            annotations = lvis.read_lvis(source, images, folder.size, on_bad_box, geometry)
        else:
            annotations = read_annotations(
                source, images, image_size=folder.size, on_bad_box=on_bad_box, geometry=geometry
            )
        base = root if format == "lvis" else images or base_of(source.path)
        stated = annotations.stated
        raw = raw_of_records(annotations, source) if stated is None else raw_of_coco(stated, annotations, source)
        return Annotated(source.named, replace(annotations, stated=None), root, base, format, (), raw, folder)
    reading = FORMATS[format][1](source, images)
    images_read = [image._replace(boxes=list(image.boxes)) for image in reading.images]
    folder = ImageFolder(reading.root, decode=len(images_read) <= FULL_CHECK_LIMIT)
    if read_as is not None:
        images_read = reread_images(images_read, format, read_as, folder.size)
    reading = replace(reading, images=images_read)
    annotations = with_shapes(collect(reading, on_bad_box, folder.size), geometry, on_bad_box)
    if on_bad_box == "error" and (refused := [p for p in annotations.problems if p.is_box]):
        raise InputError(f"{refused[0]} ({len(refused)} objects are refused; data.on_bad_box is error)")
    raw = raw_of_reading(reading, format)
    return Annotated(source.named, annotations, reading.root, reading.root, format, reading.notes, raw, folder)


def _image_count(source: Source) -> int:
    """Return the number of images of a COCO file; 0 for other content."""
    document = None if source.format == "jsonl" else source.document
    images = document.get("images") if isinstance(document, Mapping) else None
    return len(images) if isinstance(images, list) else 0


def base_of(path: Path) -> Path:
    """Return the folder that images of an instance file must lie in: its own, or the one that its summary states."""
    summary = path.with_suffix(SUMMARY)
    stated = read_json(summary).get("images") if summary.is_file() else None
    return path.parent / stated if isinstance(stated, str) else path.parent
