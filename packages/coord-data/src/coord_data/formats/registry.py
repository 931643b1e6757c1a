"""The formats that are read, and the entry point of this folder: `read_source`."""

from __future__ import annotations

from pathlib import Path

from coord_codec import InputError
from coord_codec.boxes import OnBadBox
from coord_data.formats import coco, csv_table, lvis, openimages, qwen, refcoco, swift, vg, voc, yolo
from coord_data.formats.coco import SUMMARY, base_of
from coord_data.formats.recognition import open_source
from coord_data.formats.table import FORMATS, Annotated, AnnotationFormat, register_format
from coord_data.source import Source

__all__ = ["FORMATS", "SUMMARY", "Annotated", "base_of", "open_source", "read_source"]

_IN_ORDER: tuple[AnnotationFormat, ...] = (
    voc.FORMAT,
    vg.FORMAT,
    refcoco.FORMAT,
    qwen.FORMAT,
    qwen.IN_PIXELS,
    swift.FORMAT,
    openimages.FORMAT,
    yolo.FORMAT,
    csv_table.FORMAT,
    coco.JSONL,
    lvis.FORMAT,
    coco.COCO,
)
"""The formats in the order in which they are tried."""

for _row in _IN_ORDER:
    register_format(_row)


def read_source(
    path: Path | Source,
    images: Path | None = None,
    format: str = "auto",
    on_bad_box: OnBadBox = "drop_image",
    geometry: str = "box",
) -> Annotated:
    """Read annotations of any format.

    Args:
        path: a file or a folder, or the source of one
        images: folder that image paths are relative to; derived from the format if None
        format: format of the annotations; recognised by the content if `auto`
        on_bad_box: how a refused object affects its image
        geometry: the shape that each target must have, see `coord_codec.read_annotations`

    Raises:
        InputError: the source cannot be read, or (`on_bad_box` is `error`) an object is refused.
    """
    if images is not None and not images.is_dir():
        raise InputError(f"data.images: expected a folder of images, found nothing of that kind at {images}")
    source = open_source(path, format)
    return FORMATS[source.format].annotated(source, images, on_bad_box, geometry)
