"""Converts the arguments of `inspect` (data, image folder, model) to settings of the configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from coord_codec import InputError

TRAIN, HELDOUT = "train.jsonl", "val.jsonl"
"""Files in a folder written by `prepare --split`."""


def split_words(words: Sequence[str], images: Path | None, model: str | None) -> list[str]:
    """Return `section.key=value` words; any other word names the data.

    Raises:
        InputError: the words name several data sets.
    """
    data = [Path(word) for word in words if "=" not in word or Path(word).exists()]
    settings = [word for word in words if Path(word) not in data]
    if len(data) > 1:
        raise InputError(f"inspect: expected one data set, found {data[0]} and {data[1]}; inspect them one by one")
    if model is not None:
        settings.append(_setting("model.path", model))
    if not data:
        return [*settings, *([_setting("data.images", images)] if images is not None else [])]
    (path,) = data
    heldout = None
    if (path / TRAIN).is_file():
        heldout = path / HELDOUT if (path / HELDOUT).is_file() else None
        path /= TRAIN
    names_images = path.suffix in (".yaml", ".yml")  # a YOLO file names the image folders itself
    if images is None and not names_images and (beside := _annotations(path).parent / "images").is_dir():
        images = beside  # the layout of many data sets
    settings.append(_setting("data.annotations", path))
    settings.append(_setting("evaluation.pictures", "train" if heldout is None else "heldout"))
    if images is not None:
        settings.append(_setting("data.images", images))
    if heldout is not None:
        settings.append(_setting("data.heldout_annotations", heldout))
    return settings


def _annotations(path: Path) -> Path:
    """Return the only JSON file of a folder, or else the path itself."""
    files = sorted(path.glob("*.json")) if path.is_dir() else []
    return files[0] if len(files) == 1 else path


def _setting(key: str, value: object) -> str:
    return f"{key}={json.dumps(str(value))}"
