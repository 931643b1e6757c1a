"""What `inspect` examines where a user names one path: annotations, the images beside them, the other split."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from coord_codec import InputError
from coord_data.formats.annotation_format import Evidence
from coord_data.formats.yolo import held_out
from coord_data.inspection.examine import Examination, evidence_of, examination_of
from coord_data.inspection.rules import InspectionRules
from coord_data.sources.source import Source

_LOG = logging.getLogger(__name__)
TRAIN, HELDOUT = "train.jsonl", "val.jsonl"
"""Files in a folder written by `prepare --split`."""
_BELOW_IMAGES = re.compile(rb"""[\s"',](\./)?images\\?/""")
"""The beginning of an image path in JSON or CSV; JSON may escape the slash."""


def find_data(path: Path, images: Path | None = None) -> tuple[Path, Path | None]:
    """Return the annotations that a path names, and the folder of their images if it is not that of the format.

    The path is a file or folder of annotations, or a folder written by `prepare`.

    Raises:
        InputError: `images` is no folder.
    """
    if images is not None and not images.is_dir():
        raise InputError(f"--images: expected a folder of images, found none at {images}")
    if (path / TRAIN).is_file():
        path /= TRAIN
    if images is None and path.suffix not in (".parquet", ".tar"):  # which hold their images
        files = sorted(path.glob("*.json")) if path.is_dir() else []
        file = files[0] if len(files) == 1 else path
        if file.is_file() and (file.parent / "images").is_dir() and not _states_folder(file):
            images = file.parent / "images"  # the layout of many data sets
    return path, images


def other_split(annotations: Path) -> Path | None:
    """Return the other split of one that `prepare --split` wrote, which is compared with it: `TRAIN` or `HELDOUT`."""
    name = {TRAIN: HELDOUT, HELDOUT: TRAIN}.get(annotations.name)
    return annotations.with_name(name) if name and annotations.with_name(name).is_file() else None


def examine_named(source: Source, rules: InspectionRules, heldout: Evidence | None) -> Examination:
    """Return the examination of annotations that a user named, compared with a held-out set.

    Without one they are compared with the other split beside them, or with the images that a YOLO data.yaml holds out.

    Raises:
        InputError: the annotations or the images of the training set cannot be read.
    """
    other = other_split(source.named)
    if heldout is None and other is not None:
        compared = {"training" if other.name == TRAIN else "heldout": evidence_of(other, rules)}
        return examination_of(source, rules, **compared)
    images = held_out(source, rules.images) if heldout is None and source.format == "yolo" else None
    for note in images.notes if images is not None else ():
        _LOG.info(f"note: {note}")
    heldout_images = images if images is not None and images.names else None
    return examination_of(source, rules, heldout=heldout or heldout_images)


def _states_folder(file: Path) -> bool:
    """Return whether image paths in a file begin with images/; a YOLO file names the image folders itself."""
    if file.suffix in (".yaml", ".yml"):
        return True
    with file.open("rb") as stream:
        return bool(_BELOW_IMAGES.search(stream.read(1 << 24)))
