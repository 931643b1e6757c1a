"""What `inspect` examines where a user names one path: annotations, the images beside them, the other split."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from coord_codec import InputError
from coord_data.formats.registry import open_source
from coord_data.formats.yolo import HeldOut, held_out
from coord_data.source import Source

TRAIN, HELDOUT = "train.jsonl", "val.jsonl"
"""Files in a folder written by `prepare --split`."""
_BELOW_IMAGES = re.compile(rb"""[\s"',](\./)?images\\?/""")
"""The beginning of an image path in JSON or CSV; JSON may escape the slash."""


class OtherSplit(NamedTuple):
    """The other file of a folder written by `prepare --split`.

    Attributes:
        path: the file
        is_training: whether it is the training set of the two
    """

    path: Path
    is_training: bool


class FoundData(NamedTuple):
    """Data that a path names.

    Attributes:
        annotations: the annotations to examine
        images: the folder of their images, if it is neither stated nor the usual one of the format
    """

    annotations: Path
    images: Path | None


def find_data(path: Path, images: Path | None = None) -> FoundData:
    """Return the data that a path names: a file or folder of annotations, or a folder written by `prepare`.

    Raises:
        InputError: `images` is no folder.
    """
    if images is not None and not images.is_dir():
        raise InputError(f"--images: expected a folder of images, found none at {images}")
    if (path / TRAIN).is_file():
        path /= TRAIN
    if images is None:
        file = _only_json_of(path)
        if file.is_file() and (file.parent / "images").is_dir() and not _states_folder(file):
            images = file.parent / "images"  # the layout of many data sets
    return FoundData(path, images)


def other_split(annotations: Path) -> OtherSplit | None:
    """Return the other split of one that `prepare --split` wrote, which is compared with it."""
    if annotations.name not in (TRAIN, HELDOUT):
        return None
    other = annotations.with_name(HELDOUT if annotations.name == TRAIN else TRAIN)
    return OtherSplit(other, is_training=other.name == TRAIN) if other.is_file() else None


def heldout_of_yolo(source: Source, images: Path | None) -> tuple[HeldOut | None, tuple[str, ...]]:
    """Return the images that a YOLO data.yaml holds out, and the notes about them.

    Raises:
        InputError: the format of the source is not known, or its training images do not exist.
    """
    if open_source(source).format != "yolo":
        return None, ()
    heldout = held_out(source, images)
    if heldout is None:
        return None, ()
    return (heldout if heldout.names else None), heldout.notes


def _only_json_of(path: Path) -> Path:
    """Return the only JSON file of a folder, or else the path itself."""
    files = sorted(path.glob("*.json")) if path.is_dir() else []
    return files[0] if len(files) == 1 else path


def _states_folder(file: Path) -> bool:
    """Return whether image paths in a file begin with images/; a YOLO file names the image folders itself."""
    if file.suffix in (".yaml", ".yml"):
        return True
    with file.open("rb") as stream:
        return bool(_BELOW_IMAGES.search(stream.read(1 << 24)))
