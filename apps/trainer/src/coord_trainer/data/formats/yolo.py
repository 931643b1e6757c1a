"""YOLO text labels, as Ultralytics has them: `class cx cy width height` a line, in fractions of the image.

Images lie in a folder `images`, their labels under the same path in a folder `labels` beside it (or all of them side by
side); `data.yaml`, `classes.txt` or `obj.names` has the names of the classes. No label file at all is an error:
an empty file says that an image has no objects.

| line | rule |
|---|---|
| five numbers | a box |
| six numbers | the sixth, a confidence or track, is not read, counted |
| nine or more | a polygon (also the four corners of a rotated box): the upright box around it, counted |
| with `kpt_shape: [K, D]` in `data.yaml` | a box and K keypoints of D numbers each, which are left out, counted |
| image without a label file | an image without objects, counted |
| label file without an image | not read, counted |
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from coord_codec.files import InputError, read_text
from coord_trainer.data.formats.class_names import NAME_FILES, Classes, classes_of, find_classes, read_data_yaml
from coord_trainer.data.formats.label_files import (
    Labelled,
    find_labels,
    first_line,
    is_label,
    label_folders,
    labels_without_image,
)
from coord_trainer.data.formats.raw import RawBox, RawImage, Reading, Source, image_files, number

_SPLITS = ("train", "val", "valid", "test")
_HELD_OUT = ("val", "test")
_EMPTY = "images without a label file, taken as images without objects"


def recognise(source: Source) -> bool:
    """Whether it is a data.yaml with names, or a folder of images with labels of numbers."""
    if not source.is_dir:
        return source.path.suffix in (".yaml", ".yml") and "names" in read_data_yaml(source.path)
    if any(path.name.startswith("data") and "names" in read_data_yaml(path) for path in source.glob("*.yaml", "*.yml")):
        return True
    folders = dict.fromkeys(image.parent for image in image_files(source.path))
    places = dict.fromkeys(place for folder in folders for place in label_folders(folder, source.path))
    return has_labels(source, (path for place in places for path in Source(place).glob("*.txt")))


def has_labels(source: Source, more: Iterable[Path] = ()) -> bool:
    """Whether a folder, its folder `labels` or other files have labels of numbers."""
    is_labels = "labels" in (source.path.name, source.path.resolve().name)  # `.` and a link have other names
    labels = chain(source.glob("*.txt", "**/*.txt" if is_labels else "labels/**/*.txt"), more)
    lines = (first_line(path) for path in labels if path.name not in NAME_FILES)
    return any(is_label(line) for line in islice(filter(None, lines), 20))


def read(source: Source, images: Path | None) -> Reading:
    """Read the images of a folder, or the training images that a data.yaml names, with their labels.

    Raises:
        InputError: no images, no labels, or no names of the classes.
    """
    if source.is_dir:
        classes, names = find_classes(source.path)
        top, pictures, notes = _of_folder(source.path, images)
        notes = (f"{source.path}: classes are named by {names}", *notes) if names.parent != source.path else notes
    else:
        values = read_data_yaml(source.path) if source.path.suffix in (".yaml", ".yml") else {}
        if "names" not in values:
            raise InputError(
                f"{source.path}: expected the data.yaml of YOLO labels, with names, found none; name that file, or the "
                "folder with images and labels"
            )
        classes = classes_of(values, source.path)
        top, pictures, notes = _split(source.path, values)
    if not pictures:
        raise InputError(f"{source.path}: YOLO labels, but no images there{_unread(images or source.path)}")
    root = images or top
    labelled = find_labels(pictures, source.path, images) if source.is_dir and images else find_labels(pictures, top)
    if lost := labels_without_image(labelled):
        count = "1 label file has" if len(lost) == 1 else f"{len(lost)} label files have"
        notes += (f"{source.path}: {count} no image, such as {lost[0]}: it is not read",)
    if several := [label for label, count in Counter(row.label for row in labelled).items() if label and count > 1]:
        notes += (f"{source.path}: several images have the label file {several[0]}, {len(several)} such files in all",)
    return Reading((_image(found, root, classes) for found in labelled), root, notes, classes.names)


def _unread(place: Path) -> str:
    """Return what to do where no images were found: photographs of a telephone are of a kind that is not read."""
    kinds = ("*.heic", "*.heif", "*.dng", "*.dcm")
    if found := [path for kind in kinds for path in Source(place).glob(f"**/{kind}")]:
        return f"; {len(found)} such as {found[0].name} are of a kind that is not read: convert them into JPEG or PNG"
    return "; name their folder with --images"


class HeldOut(NamedTuple):
    """Images that a data.yaml holds out.

    Attributes:
        root: the folder of the data set
        names: path of each image that is there, relative to `root` where it lies below it
        notes: what the user should know of them
    """

    root: Path
    names: tuple[str, ...]
    notes: tuple[str, ...]


def held_out(place: Path, images: Path | None = None) -> HeldOut | None:
    """Return the images that a data.yaml names under `val` and `test`; None where it names neither.

    Their labels are not read. A split that is not there, or has the images that train, is a note.

    Args:
        place: the data.yaml, or the folder of a data set with one
        images: the folder of the training images that the user named

    Raises:
        InputError: the images that train are not there.
    """
    file = next((path for path in (_yamls(place) if place.is_dir() else [place]) if path.is_file()), None)
    if file is None or file.suffix not in (".yaml", ".yml"):
        return None
    values = read_data_yaml(file)
    splits = [name for name in _HELD_OUT if values.get(name)]
    if not splits:
        return None
    top, train, _ = _of_folder(place, images) if place.is_dir() else _split(file, values)
    trains = {path.resolve() for path in train}
    found: dict[Path, Path] = {}
    notes = []
    for split in splits:
        try:
            pictures = {path.resolve(): path for path in _split(file, values, split)[1]}
        except InputError as error:
            notes.append(f"{error}; it is not compared with the images that train")
            continue
        there = {key: path for key, path in pictures.items() if key.is_file()}
        if not there:
            notes.append(f"{file}: {split}: expected images, found none; nothing is held out by it")
        elif there.keys() == trains:
            notes.append(f"{file}: {split} names the images that train: nothing is held out by it")
        else:
            count = f"{len(there)} image{'s' * (len(there) > 1)}"
            notes.append(f"{file}: {split} holds out {count}; copies of them are looked for among those that train")
            found |= there
        if gone := len(pictures) - len(there):
            notes.append(f"{file}: {split}: {gone} of {len(pictures)} images are not there")
    return HeldOut(top, tuple(_name(path, top) for path in found.values()), tuple(notes))


def _yamls(folder: Path) -> list[Path]:
    return [folder / name for name in NAME_FILES if name.endswith((".yaml", ".yml"))]


def _places(entry: str, tops: Iterable[Path]) -> list[Path]:
    """Return where what a data.yaml names may lie: Roboflow writes ../train/images for what lies beside the file."""
    spelled = [*_spellings(entry), *_spellings(entry.removeprefix("../"))]
    return list(dict.fromkeys(start / name for start in tops for name in spelled))


def _of_folder(folder: Path, images: Path | None) -> tuple[Path, list[Path], tuple[str, ...]]:
    """Return what `_split` does: of the training images that a data.yaml in it names, else of all images."""
    notes: tuple[str, ...] = ()
    file = next((path for path in _yamls(folder) if path.is_file() and read_data_yaml(path).get("train")), None)
    if file is not None:
        try:
            top, pictures, notes = _split(file, read_data_yaml(file))
            if not pictures:
                raise InputError(f"{file}: train: expected images, found none")
        except InputError as error:
            notes = (f"{error}; all images of the folder are read",)
        else:
            if images is None or all(path.absolute().is_relative_to(images.absolute()) for path in pictures):
                return top, pictures, notes
            notes = ()  # the user named images of another split
    pictures = image_files(images or folder)
    start = len((images or folder).parts)
    parts = ([part for part in path.parts[start:-1] if part in _SPLITS] for path in pictures)
    count = Counter(found[0] for found in parts if found)
    if len(count) > 1:
        stated = ", ".join(f"{name} {count[name]}" for name in _SPLITS if count[name])
        notes += (f"{images or folder}: {stated} images read together; name one of the folders to read it alone",)
    return folder, pictures, notes


def _split(file: Path, values: Mapping[str, Any], split: str = "train") -> tuple[Path, list[Path], tuple[str, ...]]:
    """Return the folder of the data set, the images that a key names, and what the user should know of both."""
    path = str(values.get("path") or ".")
    tops = [file.parent / spelled for spelled in _spellings(path)]
    top = next((folder for folder in tops if folder.is_dir()), None)  # `path` is often that of another machine
    notes: tuple[str, ...] = ()
    if top is None:
        notes = (f"{file}: path: nothing is at {tops[0]}; what it names is looked for beside the file",)
    stated = values.get(split) or "images"
    entries = stated if isinstance(stated, list) else [stated]
    found: dict[str, Path] = {}
    named = 0
    for entry in map(str, entries):
        places = _places(entry, (*tops, file.parent))
        place = next((place for place in places if place.exists()), None)
        if place is None:
            expected = "expected a folder of images, or a list of them, found nothing at"
            raise InputError(f"{file}: {split}: {expected} {' or '.join(map(str, places))}")
        images = image_files(place) if place.is_dir() else _listed(place, top or file.parent)
        folder = place.resolve()
        for image in images:
            one = folder / image.relative_to(place) if place.is_dir() else image.absolute()
            found.setdefault(os.path.normpath(one), image)
        named += len(images)
    if named > len(found):
        notes += (f"{file}: {split}: {named - len(found)} images are named more than once, and read once",)
    if others := [name for name in _HELD_OUT if split == "train" and values.get(name)]:
        notes += (f"{file}: the training images; name the folder of {' or '.join(others)} to read those",)
    return top or file.parent, list(found.values()), notes


def _spellings(path: str) -> list[str]:
    """Return a path as it is written, and with slashes where Windows wrote backslashes."""
    return list(dict.fromkeys((path, path.replace("\\", "/"))))


def _listed(file: Path, top: Path) -> list[Path]:
    """Return the images of a list, a path a line: from the folder of the list, or that of the data set.

    Raises:
        InputError: none of them is there.
    """
    found, missing = [], []
    for line in filter(None, map(str.strip, read_text(file).splitlines())):
        name = line.replace("\\", "/")
        # CVAT writes data/ before each path.
        places = [start / part for part in (name, name.removeprefix("data/")) for start in (file.parent, top)]
        there = next((place for place in places if place.is_file()), None)
        found.append(there or places[0])
        missing += [] if there else [places]
    if found and len(missing) == len(found):
        tried = " or ".join(dict.fromkeys(map(str, missing[0])))
        raise InputError(f"{file}: none of the {len(found)} listed images is there; the first was expected at {tried}")
    return found


def _image(found: Labelled, root: Path, classes: Classes) -> RawImage:
    path, label, fault = found
    name = _name(path, root)
    if label is None:
        return RawImage(name, str(path), fault=fault, notes=(_EMPTY,))
    try:
        lines = read_text(label).splitlines()
    except InputError as error:
        return RawImage(name, str(label), fault=str(error))
    return RawImage(name, str(label), list(_boxes(lines, label, classes)))


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path.resolve())


def _boxes(lines: list[str], label: Path, classes: Classes) -> Iterator[RawBox]:
    for line_number, line in enumerate(lines, start=1):
        words, where = line.split(), f"{label}:{line_number}"
        if not words:
            continue
        try:
            values = [number(word) for word in words]
        except ValueError as error:
            yield RawBox("", (), where, fault=str(error))
            continue
        found = RawBox("", (), where, "fractions", class_number=int(values[0]) if values[0].is_integer() else None)
        try:
            yield _box(found, values, classes)
        except InputError as error:
            yield found._replace(fault=str(error))


def _box(found: RawBox, values: list[float], classes: Classes) -> RawBox:
    names, kpt_shape = classes
    if values[0] not in names:
        raise InputError(f"class {values[0]:g} has no name: there are {len(names)}, counted from 0")
    left_out: tuple[str, ...] = ()
    if kpt_shape:
        points, each = kpt_shape
        if len(values) != 5 + points * each:
            raise InputError(
                f"kpt_shape is [{points}, {each}]: expected class, centre, size and {points} keypoints "
                f"({5 + points * each} numbers), found {len(values)} numbers"
            )
        values, left_out = values[:5], ("keypoints left out: of poses (kpt_shape) the box is read",) * points
    fault = ""
    if len(values) in (5, 6):
        cx, cy, width, height = values[1:5]
        corners = (cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2)
        if max(values[1:5]) > 2:
            fault = f"expected fractions of the image, found {values[1:5]}: pixels?"
        elif width < 0 or height < 0:
            fault = f"expected a width and height of at least 0, found {width:g} x {height:g}"
        notes = ("labels with a sixth number, which is not read",) * (len(values) == 6)
    elif len(values) >= 7 and len(values) % 2:
        xs, ys = values[1::2], values[2::2]
        corners = (min(xs), min(ys), max(xs), max(ys))
        notes = ("polygons or rotated boxes, read as the box around them",)
    else:
        raise InputError(f"expected class, centre and size (5 numbers) or a polygon, found {len(values)} numbers")
    desc = names[int(values[0])]
    return found._replace(desc=desc, corners_xyxy=corners, notes=notes + left_out, fault=fault)
