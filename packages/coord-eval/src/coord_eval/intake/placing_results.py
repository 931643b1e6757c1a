"""What the ground truth tells of results that do not say it: classes by their place, frames of videos, sizes.

Shapes: D boxes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.box_table import BoxTable, to_pixels
from coord_codec.box_transforms import LAYOUTS
from coord_codec.counts import counted
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.results import Form, Key, ResultsList

_PEOPLE = ("pedestrian", "person")
"""Categories of MOT results in a ground truth that has others too."""


def categories_by_place(truth: GroundTruth, results: ResultsList) -> tuple[tuple[Key, ...], list[str]]:
    """Return the categories of results that state no ids and no names, and a note on them.

    Raises:
        InputError: the ground truth has no such category
    """
    names = truth.categories
    if results.form is Form.FRAMES:
        found = names if len(names) == 1 else [name for name in _PEOPLE if name in names][:1]
        if not found:
            known = f"{counted(len(names), 'category', 'categories')}: {', '.join(names[:5])}"
            raise InputError(f"predictions: MOT results state no class, and the ground truth has {known}; keep one")
        note = f"MOT results state no class: all boxes are taken to be {found[0]!r}"
        return ((truth.category_ids[names.index(found[0])], found[0]),) * len(results.categories), [note]
    numbers = [int(number) for number, _ in results.categories]
    if numbers and max(numbers) >= len(names):
        raise InputError(
            f"predictions: class {max(numbers)} of the label files, and the ground truth has "
            f"{counted(len(names), 'category', 'categories')}: put data.yaml with the names of classes beside them"
        )
    last = f"the last one is {names[-1]!r}" if names else "it has none"
    note = (
        "no data.yaml, classes.txt or obj.names names the classes of the label files: class 0 is taken to be the first "
        f"category of the ground truth by id{f', {names[0]!r}' if names else ''}, and {last}"
    )
    return tuple((truth.category_ids[number], names[number]) for number in numbers), [note] if numbers else []


def by_frame(truth: GroundTruth) -> Callable[[Any], int | None]:
    """Return a function from `VIDEO/NUMBER` to the image of that frame.

    An image has the number in which the stem of its name ends. If a folder of a path has the name of the video, its
    images are meant, else all, whose numbers must then differ.
    """
    numbers: dict[int, list[int]] = {}
    for i, name in enumerate(truth.file_names):
        stem = PurePosixPath(name).stem
        digits = stem[len(stem.rstrip("0123456789")) :]
        if digits:
            numbers.setdefault(int(digits), []).append(i)
    folders = [set(PurePosixPath(name).parts[:-1]) for name in truth.file_names]
    videos = set[str]().union(*folders)

    def find(key: Any) -> int | None:
        video, _, number = str(key).rpartition("/")
        found = [i for i in numbers.get(int(number), ()) if video not in videos or video in folders[i]]
        if len(found) > 1:
            first, second = (truth.file_names[i] for i in found[:2])
            raise InputError(
                f"predictions: frame {number} of {video} may be {first} or {second}: name the file as a folder of the "
                "images is called"
            )
        return found[0] if found else None

    return find


def in_pixels(truth: GroundTruth, table: BoxTable, shapes_D: np.ndarray | None) -> tuple[BoxTable, np.ndarray | None]:
    """Return boxes and shapes in fractions of their images in pixels.

    Raises:
        InputError: an image has no size
    """
    for image in set(table.image_N.tolist()):
        truth.size_of(image)
    size_D2 = truth.sizes_I2[table.image_N]
    xywh_D4 = np.concatenate([table.boxes_N4[:, :2], table.sides_N2], axis=1)
    xywh_D4 = to_pixels(xywh_D4, np.tile(size_D2, 2), 1)
    table = table.changed(boxes_N4=LAYOUTS["xywh"](xywh_D4), sides_N2=xywh_D4[:, 2:])
    if shapes_D is not None:
        placed = [_placed(shape, size) for shape, size in zip(shapes_D, size_D2.tolist(), strict=True)]
        shapes_D = np.empty(len(placed), object)
        shapes_D[:] = placed
    return table, shapes_D


def _placed(shape: dict[str, Any] | None, size: list[float]) -> dict[str, Any] | None:
    if shape is None:
        return None
    placed: dict[str, Any] = {}
    if "segmentation" in shape:
        placed["segmentation"] = [
            [float(to_pixels(v, size[n % 2], 1)) for n, v in enumerate(o)] for o in shape["segmentation"]
        ]
    if "keypoints" in shape:
        sides = (*size, 1.0)
        placed["keypoints"] = [float(to_pixels(v, sides[n % 3], 1)) for n, v in enumerate(shape["keypoints"])]
    return placed if "area" not in shape else placed | {"area": None}
