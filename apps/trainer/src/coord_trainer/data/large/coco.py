"""COCO detection annotations in one pass: what `read_annotations` makes of a document, without the document in memory.

Images, categories and annotations may stand in any order, so that all have to be read before the first image is
complete. Until then an annotation is ten numbers. Those that are right in every respect are placed by array arithmetic;
all others one by one, by the codec's own rules. Shapes: I images, N annotations.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import Category, CoordGrid, InputError, Problem
from coord_codec.boxes import OnBadBox
from coord_codec.coco.document import WITH_REFUSED
from coord_codec.coco.reader import CROWDS, CocoReader
from coord_codec.coco.shapes import rotation
from coord_codec.json_stream import stream_lists
from coord_codec.records import UNCERTAIN
from coord_trainer.data.large.part import CocoPart
from coord_trainer.data.large.records import Row

_NUMBER = frozenset({int, float})
_CROWD, _AREA, _ID = 1, 2, 4  # flags
_LISTS = ("images", "annotations", "categories")


def stream_coco(
    path: Path,
    on_bad_box: OnBadBox,
    problems: list[Problem],
    notes: Counter[str],
    image_size: Callable[[str], tuple[int, int] | None],
    part: CocoPart,
    folder: Path,
) -> tuple[tuple[Category, ...], Iterator[Row]]:
    """Return the categories and, one by one, the records of a COCO file, in the order of its images.

    Args:
        path: the file
        on_bad_box: what a refused object does to its image, see `OnBadBox`
        problems: filled with what is left out
        notes: filled with counted facts
        image_size: looks up the size of an image that states none
        part: is shown every row
        folder: that image paths are relative to

    Raises:
        InputError: it is no JSON, or lacks one of its lists, or no annotation is of one of its images.
    """
    found: dict[str, Any] = {"images": [], "categories": [], "annotations": _Annotations()}
    missing = set(_LISTS)
    for key, position, row in stream_lists(path):
        missing.discard(key)
        if key in found and position >= 0:
            found[key].append(row)
            part.see(key, row)
    if missing:
        raise InputError(f"{path}: expected COCO JSON, found no list {sorted(missing)[0]}")
    rows = (found.pop(key) for key in ("categories", "images"))  # which are not kept
    reader = CocoReader(*rows, str(path), problems, notes, on_bad_box, image_size, folder)
    objects = found.pop("annotations").place(reader, notes)
    left_out = reader.left_out()
    notes[WITH_REFUSED] += len(left_out)
    return reader.categories, _rows(reader, left_out, objects)


class _Annotations:
    """The rows of the list `annotations`, as numbers where they are numbers."""

    def __init__(self) -> None:
        self._ints, self._floats = array("q"), array("d")  # position, image, category, id, flags; box, area
        self._odd: dict[int, Any] = {}
        self._count = 0

    def append(self, record: Any) -> None:
        position, self._count = self._count, self._count + 1
        try:
            x, y, width, height = record["bbox"]
            image, category, number = record["image_id"], record["category_id"], record.get("id")
            area, crowd = record.get("area"), record.get("iscrowd", 0)
            flags = (_CROWD if crowd else 0) | (_AREA if area is not None else 0) | (_ID if "id" in record else 0)
            if (
                type(image) is type(category) is type(crowd) is int
                and crowd in (0, 1)
                and _NUMBER.issuperset(map(type, (x, y, width, height, area or 0)))
                and (type(number) is int or "id" not in record)
                and ("attributes" not in record or not rotation(record))
            ):
                ints = array("q", (position, image, category, number or 0, flags))
                self._floats.extend(array("d", (x, y, width, height, area or 0)))
                self._ints.extend(ints)
                return
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
            pass
        self._odd[position] = record

    def place(self, reader: CocoReader, notes: Counter[str]) -> _Objects:
        """Return the objects that can be shown; the reader lists the others."""
        ints_N5 = np.frombuffer(self._ints, np.int64).reshape(-1, 5)
        floats_N5 = np.frombuffer(self._floats, np.float64).reshape(-1, 5)
        position_N, flags_N = ints_N5[:, 0], ints_N5[:, 4]
        image_N, known_N = _look_up(ints_N5[:, 1], [image.id for image in reader.images])
        category_N, taught_N = _look_up(ints_N5[:, 2], [category.id for category in reader.categories])
        unteachable = [category.id in reader.unteachable for category in reader.categories]
        sizes_I2 = np.array(
            [(i.width, i.height) if i.id in reader.usable else (0, 0) for i in reader.images] or [(0, 0)]
        )
        sizes_N2 = sizes_I2[image_N].astype(np.float64)
        low_N2, high_N2 = floats_N5[:, :2], floats_N5[:, :2] + floats_N5[:, 2:4]
        with np.errstate(all="ignore"):
            corners_N4 = np.concatenate([low_N2 / sizes_N2, high_N2 / sizes_N2], axis=1)
            right_N = known_N & taught_N & ~np.array(unteachable or [True])[category_N]
            right_N &= (low_N2 >= 0).all(axis=1) & (high_N2 <= sizes_N2).all(axis=1) & (sizes_N2 > 0).all(axis=1)
            right_N &= (floats_N5[:, 2:4] > 0).all(axis=1)
            right_N &= (corners_N4[:, 2:] - corners_N4[:, :2] > 2 / CoordGrid().scale).all(axis=1)
            right_N &= (floats_N5[:, 4] >= 0) & (floats_N5[:, 4] < np.inf)
        if crowds := int((flags_N[right_N] & _CROWD).sum()):
            notes[CROWDS] += crowds
        others: list[tuple[Any, ...]] = []
        wrong = [(int(position_N[n]), n) for n in np.flatnonzero(~right_N).tolist()]
        for position, n in sorted([*wrong, *((position, -1) for position in self._odd)]):
            record = self._odd[position] if n < 0 else _record(ints_N5[n].tolist(), floats_N5[n].tolist())
            placed = reader.place(record, position)
            if placed is not None and placed[2] is not None:
                row, has_area, corners = placed
                others.append(
                    (position, row.image, row.category, row.iscrowd, *corners, row.area if has_area else np.nan)
                )
        area_N = np.where(flags_N & _AREA, floats_N5[:, 4], np.nan)
        usual = (position_N, image_N, category_N, flags_N & _CROWD, *corners_N4.T, area_N)
        columns = [values[right_N] for values in usual]
        if others:
            columns = [
                np.concatenate([a, np.array(b, a.dtype)])
                for a, b in zip(columns, zip(*others, strict=True), strict=True)
            ]
        if not right_N.any():
            reader.check_images()
        order = np.lexsort((columns[0], columns[1]))
        return _Objects([values[order] for values in columns[1:]], len(reader.images))


def _look_up(id_N: np.ndarray, ids: Sequence[int | str]) -> tuple[np.ndarray, np.ndarray]:
    """Return where each id stands among whole numbers in ascending order, and whether it does."""
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    rows = [i for i, value in enumerate(ids) if isinstance(value, int) and low <= value <= high]
    if not rows:
        return np.zeros(len(id_N), np.int64), np.zeros(len(id_N), bool)
    known = np.array([ids[i] for i in rows], np.int64)
    place_N = np.searchsorted(known, id_N).clip(0, len(known) - 1)
    return np.array(rows)[place_N], known[place_N] == id_N


def _record(ints: list[int], floats: list[float]) -> dict[str, Any]:
    """Return an annotation as the file states it."""
    _, image, category, number, flags = ints
    record = {"image_id": image, "category_id": category, "bbox": floats[:4], "iscrowd": flags & _CROWD}
    return record | ({"id": number} if flags & _ID else {}) | ({"area": floats[4]} if flags & _AREA else {})


class _Objects:
    """Placed objects, those of an image side by side.

    Args:
        columns: image, category, whether it is a crowd, four corners, area
        images: number of images
    """

    def __init__(self, columns: Sequence[np.ndarray], images: int) -> None:
        image_N, self._category_N, crowd_N, *corners, self._area_N = columns
        self._crowd_N, self._corners_N4 = crowd_N.astype(bool), np.stack(corners, axis=1)
        self._starts = np.searchsorted(image_N, np.arange(images + 1)).tolist()

    def of_image(self, image: int, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of a row that are about its objects."""
        own = slice(self._starts[image], self._starts[image + 1])
        area = self._area_N[own]
        return {
            "desc": [names[category] for category in self._category_N[own].tolist()],
            "bbox": self._corners_N4[own].ravel().tolist(),
            "crowd": self._crowd_N[own].tolist(),
            "area": [None if value != value else value for value in area.tolist()],  # noqa: PLR0124 - NaN
        }


def _rows(reader: CocoReader, left_out: set[int | str], objects: _Objects) -> Iterator[Row]:
    names = [category.name for category in reader.categories]
    for image in reader.given:
        if image.id not in left_out and image.id in reader.usable:
            of_objects = objects.of_image(reader.image_index[image.id], names)
            extra = None
            if image.id in reader.uncertain:
                extra = {UNCERTAIN: sorted(reader.uncertain[image.id])}, [{}] * len(of_objects["desc"])
            yield Row(image.file_name, image.width, image.height, image.id, **of_objects, extra=extra)
