"""Reads classes, splits and keypoint shape of a YOLO data set from data.yaml, Darknet's obj.data or a list of names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from coord_codec.files import InputError
from coord_data.looking.image_paths import is_hidden
from coord_data.sources.source import Source

NAME_FILES = (
    "data.yaml",
    "data.yml",
    "dataset.yaml",
    "data_config.yaml",
    "classes.txt",
    "obj.names",
    "darknet.labels",
    "obj.data",
)
DATA_FILES = (".yaml", ".yml", ".data")
"""Suffixes of files that name the splits and classes of a data set."""


class ClassList(NamedTuple):
    """Class names by class number, and the keypoints of poses.

    Attributes:
        names: class names by class number
        kpt_shape: keypoints per object and numbers per keypoint; None without keypoints
        keypoint_names: a name for each keypoint, with `left` and `right` for those that mirroring exchanges
    """

    names: Mapping[int, str]
    kpt_shape: tuple[int, int] | None = None
    keypoint_names: tuple[str, ...] = ()


def read_data_file(source: Source) -> Mapping[str, Any]:
    """Return the top-level mapping of a YAML file, or of Darknet's obj.data; empty if its top level is not a mapping.

    `names` keeps class names as written: YAML would turn `yes` into True and `12:30` into 750.
    """
    if source.path.suffix == ".data":
        return _of_darknet(source)
    try:
        text = source.text
        values = yaml.safe_load(text)
        if isinstance(values, dict) and "names" in values:
            values["names"] = yaml.load(text, Loader=yaml.BaseLoader)["names"]
    except yaml.YAMLError as error:
        raise InputError(f"{source.path}: not YAML: {' '.join(str(error).split())}") from None
    return values if isinstance(values, dict) else {}


def _of_darknet(source: Source) -> Mapping[str, Any]:
    """Return the lines `key = value` of obj.data, with `valid` as `val` and the class names in place of their file."""
    rows = (line.partition("=") for line in source.text.splitlines())
    values: dict[str, Any] = {key.strip(): value.strip() for key, equals, value in rows if equals and value.strip()}
    if "valid" in values:
        values.setdefault("val", values["valid"])
    if name := values.pop("names", None):
        spelled = (name, name.removeprefix("data/"), Path(name).name)
        file = next((path for path in (source.path.parent / part for part in spelled) if path.is_file()), None)
        if file is None:
            raise InputError(f"{source.path}: names: expected a file of class names, found nothing at {name}")
        values["names"] = _listed_names(source.file(file))
    return values


def _listed_names(file: Source) -> dict[int, str]:
    return {i: line for i, line in enumerate(map(str.strip, file.text.splitlines())) if line}


def find_classes(source: Source) -> tuple[ClassList, Path]:
    """Return the classes of the folder of a data set, and the file that names them.

    Searches the folder, then its subfolders (LabelImg writes classes.txt beside the labels), then the three folders
    above it with their `labels`.
    """
    folder = source.path
    if result := _first(folder, source):
        return result
    below = sorted(path.parent for name in NAME_FILES for path in folder.rglob(name) if not is_hidden(path, folder))
    named = [result for place in sorted(below, key=lambda place: len(place.parts)) if (result := _first(place, source))]
    if named:
        classes, file = named[0]
        for others, other in named:
            if len(other.parts) == len(file.parts) and others != classes:
                raise InputError(f"{folder}: {file} and {other} name different classes; name one of the two folders")
        return classes, file
    for parent in folder.resolve().parents[:3]:
        for place in (parent, parent / "labels", parent / "labels" / folder.name):
            if result := _first(place, source):
                return result
    raise InputError(
        f"{folder}: YOLO labels contain class numbers, and no class names were found; add data.yaml with `names`, "
        "or classes.txt with one name per line, in class order"
    )


def _first(folder: Path, source: Source) -> tuple[ClassList, Path] | None:
    """Return the classes of the first file of a folder that names any, and that file; None if there is none."""
    for file in (source.file(folder / name) for name in NAME_FILES if (folder / name).is_file()):
        if file.path.suffix not in DATA_FILES:
            return ClassList(_listed_names(file)), file.path
        if "names" in (values := read_data_file(file)):
            return classes_of(values, file.path), file.path
    return None


def classes_of(values: Mapping[str, Any], path: Path) -> ClassList:
    """Return the classes from the keys `names` and `kpt_shape` of a data.yaml."""
    names, shape = _as_names(values["names"], path), values.get("kpt_shape")
    if shape is None:
        return ClassList(names)
    is_pair = isinstance(shape, list) and len(shape) == 2 and type(shape[0]) is int
    if not is_pair or shape[0] < 1 or shape[1] not in (2, 3):
        expected = "the number of keypoints and 2 or 3 numbers each, such as [17, 3]"
        raise InputError(f"{path}: kpt_shape: expected {expected}, found {shape!r:.80}")
    return ClassList(names, (shape[0], shape[1]), _keypoint_names(values, shape[0], path))


def _keypoint_names(values: Mapping[str, Any], count: int, path: Path) -> tuple[str, ...]:
    """Return the `kpt_names` of the first class, else names from the pairs of `flip_idx`, else numbers."""
    stated, flip = values.get("kpt_names"), values.get("flip_idx")
    if isinstance(stated, Mapping):
        stated = next(iter(stated.values()), None)
    for key, value in (("kpt_names", stated), ("flip_idx", flip)):
        if value is not None and (not isinstance(value, list) or len(value) != count):
            raise InputError(f"{path}: {key}: expected {count} entries, one for each keypoint, found {value!r:.80}")
    if stated is not None:
        return tuple(map(str, stated))
    if flip is None:
        return tuple(f"keypoint {n}" for n in range(1, count + 1))
    sides = ("" if other == n else ("left " if n < other else "right ") for n, other in enumerate(flip))
    return tuple(f"{side}keypoint {min(n, other) + 1}" for side, (n, other) in zip(sides, enumerate(flip), strict=True))


def _as_names(names: Any, path: Path) -> dict[int, str]:
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict):
        raise InputError(f"{path}: names: expected a list of class names, found {names!r:.80}")
    for key, name in names.items():
        if not str(key).isdecimal():
            expected = "expected numbers of classes with their names, such as 0: cat"
            raise InputError(f"{path}: names: {expected}, found {key!r}")
        if not isinstance(name, str):
            raise InputError(f"{path}: names: class {key}: expected a name, found {name!r:.80}")
    return {int(key): name for key, name in names.items() if name.strip()}
