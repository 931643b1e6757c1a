"""The words of `inspect`: data, folder and model become settings of the configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from coord_codec import InputError

PREPARED = ("train.jsonl", "instances.jsonl")
"""Files of a prepared folder that hold its training set."""
HELDOUT = "val.jsonl"


def split_words(words: Sequence[str], images: Path | None, model: str | None) -> list[str]:
    """Return `section.key=value` words; a word that is none is the data.

    Raises:
        InputError: several data sets, or a folder without one.
    """
    data = [Path(word) for word in words if "=" not in word or Path(word).exists()]
    settings = [word for word in words if Path(word) not in data]
    if len(data) > 1:
        raise InputError(f"inspect: expected one data set, found {data[0]} and {data[1]}; inspect them one by one")
    if model is not None:
        settings.append(_word("model.path", model))
    if not data:
        return [*settings, *([_word("data.images", images)] if images is not None else [])]
    (path,) = data
    heldout = None
    if path.is_dir():
        found = [path / name for name in PREPARED if (path / name).is_file()]
        if not found:
            raise InputError(
                f"{path}: expected annotations, or a folder with {' or '.join(PREPARED)}, found neither; name the file"
            )
        heldout = path / HELDOUT if (path / HELDOUT).is_file() else None
        path = found[0]
    if images is None and path.suffix == ".json":
        # As many data sets have it: the images beside the file, or in a folder `images` beside it.
        images = path.parent / "images" if (path.parent / "images").is_dir() else path.parent
    settings.append(_word("data.annotations", path))
    settings.append(_word("evaluation.pictures", "train" if heldout is None else "heldout"))
    if images is not None:
        settings.append(_word("data.images", images))
    if heldout is not None:
        settings.append(_word("data.heldout_annotations", heldout))
    return settings


def _word(key: str, value: object) -> str:
    return f"{key}={json.dumps(str(value))}"
