"""What labels of a YOLO data set mean: names of classes and shape of keypoints, from data.yaml or a list of names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from coord_codec.files import InputError, read_text
from coord_trainer.data.formats.raw import is_hidden

NAME_FILES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names")


class Classes(NamedTuple):
    """Name of each class by its number, and `kpt_shape`: how many keypoints objects have, and numbers each of these."""

    names: Mapping[int, str]
    kpt_shape: tuple[int, int] | None = None


def read_data_yaml(path: Path) -> Mapping[str, Any]:
    """Return the keys of a YAML file; none where it has no keys at the top.

    Names are text as they are written: YAML would make True of `yes` and 750 of `12:30`.

    Raises:
        InputError: it cannot be read, or is no YAML.
    """
    try:
        text = read_text(path)
        found = yaml.safe_load(text)
        if isinstance(found, dict) and "names" in found:
            found["names"] = yaml.load(text, Loader=yaml.BaseLoader)["names"]
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    return found if isinstance(found, dict) else {}


def find_classes(folder: Path) -> tuple[Classes, Path]:
    """Return the classes of a data set, and the file that names them.

    The folder comes first, then what lies below it (LabelImg writes classes.txt beside the labels), then three folders
    above it with their `labels`.

    Raises:
        InputError: there is none, two at the same depth name others, or its names are no text.
    """
    if found := _first(folder):
        return found
    below = sorted(path.parent for name in NAME_FILES for path in folder.rglob(name) if not is_hidden(path, folder))
    named = [found for place in sorted(below, key=lambda place: len(place.parts)) if (found := _first(place))]
    if named:
        classes, file = named[0]
        for others, other in named:
            if len(other.parts) == len(file.parts) and others != classes:
                raise InputError(f"{folder}: {file} and {other} name different classes; name one of the two folders")
        return classes, file
    for above in folder.resolve().parents[:3]:
        for place in (above, above / "labels", above / "labels" / folder.name):
            if found := _first(place):
                return found
    raise InputError(
        f"{folder}: YOLO labels hold numbers of classes, and no names were found; add data.yaml with `names`, or "
        "classes.txt with a name a line, in class order"
    )


def _first(folder: Path) -> tuple[Classes, Path] | None:
    """Return the classes that the first file in a folder names, and that file; None where none does."""
    files = (folder / name for name in NAME_FILES)
    return next(((classes, file) for file in files if (classes := _read(file)) is not None), None)


def _read(path: Path) -> Classes | None:
    """Return the classes that a file names; None where it is not there, or is a YAML file without `names`."""
    if not path.is_file():
        return None
    if path.suffix in (".yaml", ".yml"):
        values = read_data_yaml(path)
        return classes_of(values, path) if "names" in values else None
    lines = [line.strip() for line in read_text(path).splitlines()]
    return Classes({i: line for i, line in enumerate(lines) if line})


def classes_of(values: Mapping[str, Any], path: Path) -> Classes:
    """Return the classes that the keys `names` and `kpt_shape` of a data.yaml state.

    Raises:
        InputError: a name is no text, or `kpt_shape` no shape.
    """
    names, shape = _as_names(values["names"], path), values.get("kpt_shape")
    if shape is None:
        return Classes(names)
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or type(shape[0]) is not int
        or shape[0] < 1
        or shape[1] not in (2, 3)
    ):
        raise InputError(
            f"{path}: kpt_shape: expected the number of keypoints and 2 or 3 numbers each, such as [17, 3], "
            f"found {shape!r:.80}"
        )
    return Classes(names, (shape[0], shape[1]))


def _as_names(names: Any, path: Path) -> dict[int, str]:
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict):
        raise InputError(f"{path}: names: expected a list of class names, found {names!r:.80}")
    found = {}
    for key, name in names.items():
        if not str(key).isdecimal():
            raise InputError(
                f"{path}: names: expected numbers of classes with their names, such as 0: cat, found {key!r}"
            )
        if not isinstance(name, str):
            raise InputError(f"{path}: names: class {key}: expected a name, found {name!r:.80}")
        if name.strip():
            found[int(key)] = name
    return found
