"""Joins results with the images and categories of the ground truth, which tells what they do not: ids, frames, sizes.

Shapes: D boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePath, PurePosixPath
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.box_table import BoxTable, to_pixels
from coord_codec.box_transforms import LAYOUTS
from coord_codec.counts import counted
from coord_codec.labels import normalize_label
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.joining import IdIndex
from coord_eval.intake.results import Form, Key, ResultsList

_PEOPLE = ("pedestrian", "person")
"""Categories of MOT results in a ground truth that has others too."""


def joined_results(truth: GroundTruth, results: ResultsList) -> tuple[ResultsList, np.ndarray, np.ndarray, list[str]]:
    """Return results with what the ground truth tells of them, and the index there of each image and category.

    The index is that of the name, else that of the id, and -1 for unknown; notes tell what was taken.

    Raises:
        InputError: ids, classes or frames are none of the ground truth's, or known under other names alone
    """
    results, notes = _with_ids(truth, results)
    if results.form in (Form.CLASSES, Form.FRAMES):
        categories_K, by_place = _categories_by_place(truth, results)
        results, notes = replace(results, categories=categories_K), [*notes, *by_place]
    index, categories = IdIndex(truth), dict(zip(truth.categories, range(len(truth.categories)), strict=True))
    # Results of other libraries may name their categories in place of an id.
    ids: dict[Any, int] = categories | {category_id: k for k, category_id in enumerate(truth.category_ids)}
    ids = {str(key): k for key, k in ids.items()} | ids  # "42" and 42 are one category, unless the set has both
    names = {normalize_label(name): k for name, k in categories.items()} | categories

    def by_name(name: str) -> int | None:
        return names.get(name, names.get(normalize_label(name)))

    images = list(zip(results.table.image_ids, results.table.names, strict=True))
    more: list[str] = []
    if results.form is Form.FRAMES:
        find = _by_frame(truth)
        image_places = np.array([-1 if (i := find(key)) is None else i for key, _ in images], np.int64)
    else:
        image_places, more = _places_of("image_id", truth.file_names, images, index.by_id, index.by_name)
    places, others = _places_of("category_id", truth.categories, results.categories, ids.get, by_name)
    return results, image_places, places, [*notes, *more, *others]


def _places_of(
    kind: str, own: Sequence[str], pairs: Sequence[Key], by_id: Any, by_name: Any
) -> tuple[np.ndarray, list[str]]:
    """Return the index of each id and name among those of the ground truth, -1 for unknown; and notes."""
    places: list[int | None] = []
    odd, moved = "", 0
    for key, name in pairs:
        place = before = by_id(key)
        if name and (place is None or own[place] not in ("", name)):
            place = by_name(name)
            if place is None and before is not None:
                if PurePath(own[before]).name == PurePath(name).name:
                    place = before  # one of several files of that name
                else:
                    odd = f"{kind} {key!r} is {name!r} there and {own[before]!r} in the ground truth"
        places.append(place)
        moved += None is not before != place
    if odd and all(place is None for (_, name), place in zip(pairs, places, strict=True) if name):
        raise InputError(f"predictions: {odd}, which knows none of the names; are these files of one data set?")
    values = counted(len(pairs), "value")
    notes = [f"{moved} of {values} of {kind} mean something else in the ground truth: names count"] if moved else []
    return np.array([-1 if place is None else place for place in places], np.int64), notes


def _with_ids(truth: GroundTruth, results: ResultsList) -> tuple[ResultsList, list[str]]:
    """Return results whose positions are the ids of images, where they state none, and a note on it.

    Raises:
        InputError: if only one of both has ids, and the numbers of images differ
    """
    advice = "give each its image_id, or pass both as lists in one order"
    if results.positions is None:
        if truth.by_position and len(results):
            found = counted(len(truth), "image has", "images have")
            raise InputError(f"ground truth: its {found} no image_id, and the predictions do: {advice}")
        return results, []
    if results.positions != len(truth):
        found = f"{counted(results.positions, 'image')} without image_id"
        raise InputError(f"predictions: {found} beside {counted(len(truth), 'image')} of the ground truth: {advice}")
    if truth.by_position or not len(truth):
        return results, []
    note = (
        "the predictions state no image_id: they are taken in the order of the ground truth's ids, from "
        f"{truth.image_ids[0]!r} to {truth.image_ids[-1]!r}"
    )
    own = [truth.image_ids[int(position)] for position in results.table.image_ids]
    return replace(results, table=replace(results.table, image_ids=own), positions=None), [note]


def _categories_by_place(truth: GroundTruth, results: ResultsList) -> tuple[tuple[Key, ...], list[str]]:
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


def _by_frame(truth: GroundTruth) -> Callable[[Any], int | None]:
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
