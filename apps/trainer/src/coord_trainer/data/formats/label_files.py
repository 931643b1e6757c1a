"""Which label file belongs to which image of a YOLO data set, told by their paths."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from coord_codec.files import InputError
from coord_trainer.data.formats.class_names import NAME_FILES
from coord_trainer.data.formats.raw import Source


class Labelled(NamedTuple):
    """An image with its label file; None where it has none, and `fault` where several could be its own."""

    image: Path
    label: Path | None
    fault: str = ""


def label_places(image: Path, top: Path) -> list[Path]:
    """Return where the labels of an image may lie: under the same path in `labels` instead of `images`, or beside it.

    A folder `images` below `top` comes first; one above it may have nothing to do with the data set.
    """
    beside = image.with_suffix(".txt")
    folders = image.parts[:-1]
    if "images" not in folders:
        return [beside]
    last = len(folders) - 1 - folders[::-1].index("images")
    in_labels = Path(*folders[:last], "labels", *beside.parts[last + 1 :])
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(folders, top.parts, strict=False)))
    return [in_labels, beside] if last >= shared else [beside, in_labels]


def find_labels(images: Sequence[Path], top: Path, root: Path | None = None) -> list[Labelled]:
    """Return the images with their label files.

    Args:
        images: paths of images
        top: the folder of the data set
        root: the folder of the images that the user named; where `top` holds label files, no others are taken then,
            and where none is found by its path, it is found by its name if that stands once among images and labels

    Raises:
        InputError: no image has a label file.
    """
    own = [path for path in Source(top).glob("**/*.txt") if path.name not in NAME_FILES] if root else []
    known = {_normal(path) for path in own}
    labels = {}
    for image in images:
        places = _places(image, top, root)
        labels[image] = next((p for p in places if (_normal(p) in known if known else p.is_file())), None)
    if any(labels.values()):
        return [Labelled(image, label) for image, label in labels.items()]
    found = _by_name(images, own)
    if not any(row.label or row.fault for row in found):
        places = " or ".join(map(str, _places(images[0], top, root)))
        raise InputError(
            f"{top}: none of the {len(images)} images has a label file; that of {images[0].name} was expected at "
            f"{places}; put the labels there (an empty file for an image without objects)"
        )
    return found


def _normal(path: Path) -> str:
    """Return a path as it is compared with others, however the user wrote the folders; `Path.resolve` is slow."""
    return os.path.normpath(path.absolute())


def _places(image: Path, top: Path, root: Path | None) -> list[Path]:
    places, base = label_places(image, top), root or top
    if image.is_relative_to(base):
        inside = image.relative_to(base).with_suffix(".txt")
        places += [top / inside, top / "labels" / inside]
    return list(dict.fromkeys(places))


def _by_name(images: Sequence[Path], labels: Sequence[Path]) -> list[Labelled]:
    by_stem = defaultdict(list)
    for label in labels:
        by_stem[label.stem].append(label)
    count = Counter(image.stem for image in images)
    found = []
    for image in images:
        fitting = sorted(by_stem[image.stem])
        if fitting and (len(fitting) > 1 or count[image.stem] > 1):
            fault = (
                f"{len(fitting)} label files and {count[image.stem]} images are called {image.stem}, such as "
                f"{fitting[0]}; put labels under the same path as their images"
            )
            found.append(Labelled(image, None, fault))
        else:
            found.append(Labelled(image, fitting[0] if fitting else None))
    return found
