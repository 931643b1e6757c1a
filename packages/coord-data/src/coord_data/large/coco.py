"""Reads COCO annotations in one pass, with the result of `read_annotations` but without the document in memory.

Images, categories and annotations may come in any order, so that all must be read before the first image is complete.
Until then an annotation is stored as ten numbers. Valid annotations are converted by array arithmetic, all others one
by one by the codec's rules. Shapes: I images, N annotations.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from coord_codec import Category, InputError, Problem
from coord_codec.boxes import OnBadBox, is_plain_box
from coord_codec.coco.document import WITH_REFUSED
from coord_codec.coco.reader import CROWDS, CocoReader, contradictions
from coord_codec.coco.shapes import rotation
from coord_codec.json_stream import stream_lists
from coord_codec.records import UNCERTAIN
from coord_data.large.part import CocoPart
from coord_data.records import Row

_NUMBER = frozenset({int, float})
_CROWD, _AREA, _ID = 1, 2, 4  # flags
_LISTS = ("images", "annotations", "categories")


def stream_coco(
    file: IO[bytes],
    path: Path,
    on_bad_box: OnBadBox,
    problems: list[Problem],
    notes: Counter[str],
    image_size: Callable[[str], tuple[int, int] | None],
    part: CocoPart,
    folder: Path,
) -> tuple[tuple[Category, ...], Iterator[Row]]:
    """Return the categories and an iterator over the records of a COCO file, in the order of its images.

    Args:
        file: the file, at its beginning
        path: its path, for messages
        on_bad_box: how a refused object affects its image, see `OnBadBox`
        problems: extended by the problems of what is left out
        notes: updated with counts of notes
        image_size: looks up the size of an image that states none
        part: receives every row, to keep a subset
        folder: folder that image paths are relative to

    Raises:
        InputError: the file is not JSON, lacks one of the lists, or no annotation belongs to one of its images.
    """
    lists: dict[str, Any] = {"images": [], "categories": [], "annotations": _Annotations()}
    missing = set(_LISTS)
    for key, position, row in stream_lists(path, file):
        missing.discard(key)
        if key in lists and position >= 0:
            lists[key].append(row)
            part.see(key, row)
    if missing:
        raise InputError(f"{path}: expected COCO JSON, found no list {sorted(missing)[0]}")
    # The lists are popped so that they can be freed.
    reader = CocoReader(
        lists.pop("categories"), lists.pop("images"), str(path), problems, notes, on_bad_box, image_size, folder
    )
    objects = lists.pop("annotations").place(reader, notes)
    left_out = reader.left_out()
    notes[WITH_REFUSED] += len(left_out)
    return reader.categories, _rows(reader, left_out, objects)


class _Annotations:
    """The rows of the list `annotations`, stored as numbers where possible."""

    def __init__(self) -> None:
        self._ints, self._floats = array("q"), array("d")  # position, image, category, id, flags; box, area
        self._irregular: dict[int, Any] = {}
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
                and (crowd or not contradictions((x, y, width, height), area, record.get("segmentation")))
            ):
                ints = array("q", (position, image, category, number or 0, flags))
                self._floats.extend(array("d", (x, y, width, height, area or 0)))
                self._ints.extend(ints)
                return
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
            pass
        self._irregular[position] = record

    def place(self, reader: CocoReader, notes: Counter[str]) -> _Objects:
        """Return the valid objects; the reader records the problems of the others."""
        ints_N5 = np.frombuffer(self._ints, np.int64).reshape(-1, 5)
        floats_N5 = np.frombuffer(self._floats, np.float64).reshape(-1, 5)
        position_N, flags_N = ints_N5[:, 0], ints_N5[:, 4]
        image_N, has_image_N = _index_of(ints_N5[:, 1], [image.id for image in reader.images])
        category_N, has_category_N = _index_of(ints_N5[:, 2], [category.id for category in reader.categories])
        unteachable = [category.id in reader.unteachable for category in reader.categories]
        sizes_I2 = np.array(
            [(i.width, i.height) if i.id in reader.usable else (0, 0) for i in reader.images] or [(0, 0)]
        )
        sizes_N2 = sizes_I2[image_N].astype(np.float64)
        low_N2, high_N2 = floats_N5[:, :2], floats_N5[:, :2] + floats_N5[:, 2:4]
        with np.errstate(all="ignore"):
            corners_N4 = np.concatenate([low_N2 / sizes_N2, high_N2 / sizes_N2], axis=1)
            valid_N = has_image_N & has_category_N & ~np.array(unteachable or [True])[category_N]
            valid_N &= is_plain_box(*list(corners_N4.T)) & (sizes_N2 > 0).all(axis=1)
            valid_N &= (floats_N5[:, 4] >= 0) & (floats_N5[:, 4] < np.inf)
        if crowds := int((flags_N[valid_N] & _CROWD).sum()):
            notes[CROWDS] += crowds
        converted: list[tuple[Any, ...]] = []
        invalid = [(int(position_N[n]), n) for n in np.flatnonzero(~valid_N).tolist()]
        for position, n in sorted([*invalid, *((position, -1) for position in self._irregular)]):
            record = self._irregular[position] if n < 0 else _record(ints_N5[n].tolist(), floats_N5[n].tolist())
            placed = reader.place(record, position)
            if placed is not None and placed[2] is not None:
                row, has_area, corners = placed
                area = row.area if has_area else np.nan
                converted.append((position, row.image, row.category, row.iscrowd, *(corners or ()), area))
        area_N = np.where(flags_N & _AREA, floats_N5[:, 4], np.nan)
        all_columns = (position_N, image_N, category_N, flags_N & _CROWD, *corners_N4.T, area_N)
        columns = [values[valid_N] for values in all_columns]
        if converted:
            columns = [
                np.concatenate([a, np.array(b, a.dtype)])
                for a, b in zip(columns, zip(*converted, strict=True), strict=True)
            ]
        if not valid_N.any():
            reader.check_images()
        order = np.lexsort((columns[0], columns[1]))
        return _Objects([values[order] for values in columns[1:]], len(reader.images))


def _index_of(id_N: np.ndarray, ids: Sequence[int | str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the index in `ids` (integers ascending) of each id, and whether it occurs there."""
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    integer_rows = [i for i, value in enumerate(ids) if isinstance(value, int) and low <= value <= high]
    if not integer_rows:
        return np.zeros(len(id_N), np.int64), np.zeros(len(id_N), bool)
    sorted_ids = np.array([ids[i] for i in integer_rows], np.int64)
    position_N = np.searchsorted(sorted_ids, id_N).clip(0, len(sorted_ids) - 1)
    return np.array(integer_rows)[position_N], sorted_ids[position_N] == id_N


def _record(ints: list[int], floats: list[float]) -> dict[str, Any]:
    """Return an annotation as a COCO record."""
    _, image, category, number, flags = ints
    record = {"image_id": image, "category_id": category, "bbox": floats[:4], "iscrowd": flags & _CROWD}
    return record | ({"id": number} if flags & _ID else {}) | ({"area": floats[4]} if flags & _AREA else {})


class _Objects:
    """Converted objects, sorted by image.

    Args:
        columns: image index, category index, crowd flag, four corners, area
        images: number of images
    """

    def __init__(self, columns: Sequence[np.ndarray], images: int) -> None:
        image_N, self._category_N, crowd_N, *corners, self._area_N = columns
        self._crowd_N, self._corners_N4 = crowd_N.astype(bool), np.stack(corners, axis=1)
        self._starts = np.searchsorted(image_N, np.arange(images + 1)).tolist()

    def of_image(self, image: int, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the object columns of the row of an image."""
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
            extra: tuple[dict[str, Any], list[dict[str, Any]]] | None = None
            if image.id in reader.uncertain:
                extra = {UNCERTAIN: sorted(reader.uncertain[image.id])}, [{}] * len(of_objects["desc"])
            yield Row(image.file_name, image.width, image.height, image.id, **of_objects, extra=extra)
