"""Pairs the images of a YOLO data set with their label files by path."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from coord_codec.counts import counted
from coord_codec.files import InputError, read_text
from coord_data.formats.class_names import NAME_FILES
from coord_data.looking.image_paths import IMAGE_SUFFIXES, in_any_case, is_hidden
from coord_data.sources.raw import is_number

_LABELS_OF = {"images": "labels", "Images": "Labels", "IMAGES": "LABELS"}


class Labelled(NamedTuple):
    """An image and its label file, which is None if it has none; `fault` if several label files match."""

    image: Path
    label: Path | None
    fault: str = ""


def label_folders(folder: Path, top: Path) -> list[Path]:
    """Return the candidate label folders for a folder of images: `labels` in place of `images`, or the folder itself.

    `labels` comes first if `images` lies below `top`; an `images` above it may not belong to the data set.
    """
    last = next((index for index in reversed(range(len(folder.parts))) if folder.parts[index] in _LABELS_OF), None)
    if last is None:
        return [folder]
    in_labels = Path(*folder.parts[:last], _LABELS_OF[folder.parts[last]], *folder.parts[last + 1 :])
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(folder.parts, top.parts, strict=False)))
    return [in_labels, folder] if last >= shared else [folder, in_labels]


def find_labels(images: Sequence[Path], top: Path, root: Path | None = None) -> list[Labelled]:
    """Return the images of the data set in `top` with their label files; it is an error if no image has one.

    With `root`, the image folder that the user named, only label files in `top` are used if it contains any, and
    if no path matches, files are matched by names that are unique among images and among labels.
    """
    inside = root is not None and next(_label_files(top), None) is not None
    folders = {folder: _folders(folder, top, root, inside) for folder in {image.parent for image in images}}
    labelled = [Labelled(image, _label(image, folders[image.parent])) for image in images]
    if not any(row.label for row in labelled) and inside:
        labelled = _by_name(images, sorted(_label_files(top)))
    if not any(row.label or row.fault for row in labelled):
        first = images[0]
        places = " or ".join(str(folder / f"{first.stem}.txt") for folder in folders[first.parent])
        fault = f"none of {counted(len(images), 'image')} has a label file; the one for {first.name} was expected at "
        raise InputError(f"{top}: {fault}{places}; put the labels there (an empty file for an image without objects)")
    return labelled


def labels_without_image(labelled: Sequence[Labelled]) -> list[Path]:
    """Return the label files in the folders of matched labels that have no image in the folders of the images."""
    beside = (path for folder in {row.image.parent for row in labelled} for path in folder.iterdir())
    with_image = {name for path in beside if path.suffix.lower() in IMAGE_SUFFIXES for name in (path.name, path.stem)}
    folders = sorted({row.label.parent for row in labelled if row.label is not None})
    files = (path for folder in folders for path in sorted(folder.iterdir()) if path.suffix.lower() == ".txt")
    files = (path for path in files if path.name not in NAME_FILES and not path.name.startswith("."))
    return [path for path in files if path.stem not in with_image and is_label(first_line(path))]


def is_label(words: Sequence[str]) -> bool:
    """Return whether the words of a line can be a class number and a box."""
    return len(words) >= 5 and all(map(is_number, words))


def first_line(path: Path) -> list[str]:
    """Return the words of the first non-blank line; empty if there is none or the file is not text."""
    try:
        return next((line.split() for line in read_text(path).splitlines() if line.strip()), [])
    except InputError:
        return []


def _label_files(top: Path) -> Iterator[Path]:
    return (
        path for path in top.rglob(in_any_case("*.txt")) if path.name not in NAME_FILES and not is_hidden(path, top)
    )


def _label(image: Path, folders: Sequence[Path]) -> Path | None:
    """Return the label file of an image: a.jpg.txt (used if a.jpg and a.png both exist) or a.txt."""
    names = [f"{name}{suffix}" for suffix in (".txt", ".TXT") for name in (image.name, image.stem)]
    places = (folder / name for name in names if name not in NAME_FILES for folder in folders)
    return next((place for place in places if place.is_file()), None)


def _folders(folder: Path, top: Path, root: Path | None, inside: bool) -> list[Path]:
    """Return the candidate label folders for the images of a folder; with `inside` only those below `top`."""
    candidates, base = label_folders(folder, top), root or top
    if folder.is_relative_to(base):
        below = folder.relative_to(base)
        candidates += [top / below, top / "labels" / below]
    return [place for place in dict.fromkeys(candidates) if not inside or _is_below(place, top)]


def _is_below(place: Path, top: Path) -> bool:
    """Return whether a path lies below a folder, as written or with links resolved."""
    written, folder = (Path(os.path.normpath(path.absolute())) for path in (place, top))
    return written.is_relative_to(folder) or place.resolve().is_relative_to(top.resolve())


def _by_name(images: Sequence[Path], labels: Sequence[Path]) -> list[Labelled]:
    by_stem = defaultdict(list)
    for label in labels:
        by_stem[label.stem].append(label)
    count = Counter(image.stem for image in images)
    labelled = []
    for image in images:
        matches, same = sorted(by_stem[image.stem]), count[image.stem]
        fault = ""
        if matches and (len(matches) > 1 or same > 1):
            fault = f"{len(matches)} label files and {same} images are called {image.stem}, such as {matches[0]}; put "
            fault += "labels under the same path as their images"
        labelled.append(Labelled(image, matches[0] if matches and not fault else None, fault))
    return labelled
