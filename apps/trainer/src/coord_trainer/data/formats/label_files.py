"""Which label file belongs to which image of a YOLO data set, told by their paths."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from coord_codec.files import InputError, read_text
from coord_trainer.data.formats.class_names import NAME_FILES
from coord_trainer.data.formats.raw import IMAGE_SUFFIXES, in_any_case, is_hidden, number

_LABELS_OF = {"images": "labels", "Images": "Labels", "IMAGES": "LABELS"}


class Labelled(NamedTuple):
    """An image with its label file; None where it has none, and `fault` where several could be its own."""

    image: Path
    label: Path | None
    fault: str = ""


def label_folders(folder: Path, top: Path) -> list[Path]:
    """Return where the labels of the images in a folder may lie: in `labels` instead of `images`, or beside them.

    A folder `images` below `top` comes first; one above it may have nothing to do with the data set.
    """
    last = next((place for place in reversed(range(len(folder.parts))) if folder.parts[place] in _LABELS_OF), None)
    if last is None:
        return [folder]
    in_labels = Path(*folder.parts[:last], _LABELS_OF[folder.parts[last]], *folder.parts[last + 1 :])
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(folder.parts, top.parts, strict=False)))
    return [in_labels, folder] if last >= shared else [folder, in_labels]


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
    inside = root is not None and next(_label_files(top), None) is not None
    folders = {folder: _folders(folder, top, root, inside) for folder in {image.parent for image in images}}
    found = [Labelled(image, _label(image, folders[image.parent])) for image in images]
    if not any(row.label for row in found) and inside:
        found = _by_name(images, sorted(_label_files(top)))
    if not any(row.label or row.fault for row in found):
        first = images[0]
        places = " or ".join(str(folder / f"{first.stem}.txt") for folder in folders[first.parent])
        raise InputError(
            f"{top}: none of the {len(images)} images has a label file; that of {first.name} was expected at "
            f"{places}; put the labels there (an empty file for an image without objects)"
        )
    return found


def labels_without_image(found: Sequence[Labelled]) -> list[Path]:
    """Return the label files beside those that were found for which no image lies beside the images."""
    beside = (path for folder in {row.image.parent for row in found} for path in folder.iterdir())
    pictures = {name for path in beside if path.suffix.lower() in IMAGE_SUFFIXES for name in (path.name, path.stem)}
    folders = sorted({row.label.parent for row in found if row.label is not None})
    files = (path for folder in folders for path in sorted(folder.iterdir()) if path.suffix.lower() == ".txt")
    return [path for path in files if path.stem not in pictures and _is_labels(path)]


def is_label(words: Sequence[str]) -> bool:
    """Return whether the words of a line may be a class number and a box."""
    try:
        return len(words) >= 5 and bool([number(word) for word in words])
    except ValueError:
        return False


def first_line(path: Path) -> list[str]:
    """Return the words of the first line that has some; none for an image without objects, or no text."""
    try:
        return next((line.split() for line in read_text(path).splitlines() if line.strip()), [])
    except InputError:
        return []


def _is_labels(path: Path) -> bool:
    return path.name not in NAME_FILES and not path.name.startswith(".") and is_label(first_line(path))


def _label_files(top: Path) -> Iterator[Path]:
    return (
        path for path in top.rglob(in_any_case("*.txt")) if path.name not in NAME_FILES and not is_hidden(path, top)
    )


def _label(image: Path, folders: Sequence[Path]) -> Path | None:
    """Return the label file of an image: a.jpg.txt, as images of one name in two suffixes have it, or a.txt."""
    names = [f"{name}{suffix}" for suffix in (".txt", ".TXT") for name in (image.name, image.stem)]
    places = (folder / name for name in names if name not in NAME_FILES for folder in folders)
    return next((place for place in places if place.is_file()), None)


def _folders(folder: Path, top: Path, root: Path | None, inside: bool) -> list[Path]:
    """Return where the labels of the images in a folder may lie, with `inside` below `top` alone."""
    found, base = label_folders(folder, top), root or top
    if folder.is_relative_to(base):
        below = folder.relative_to(base)
        found += [top / below, top / "labels" / below]
    return [place for place in dict.fromkeys(found) if not inside or _is_below(place, top)]


def _is_below(place: Path, top: Path) -> bool:
    """Return whether a path lies below a folder, as it is written (also behind a link) or as it is."""
    written, folder = (Path(os.path.normpath(path.absolute())) for path in (place, top))
    return written.is_relative_to(folder) or place.resolve().is_relative_to(top.resolve())


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
