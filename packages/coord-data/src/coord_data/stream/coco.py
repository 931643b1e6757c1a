"""Reads COCO annotations in one pass, with the result of `read_annotations` but without the document in memory.

Images, categories and annotations may come in any order, so that all must be read before the first image is complete.
Until then an annotation is stored as ten numbers. Valid annotations are converted by array arithmetic, all others one
by one by the codec's rules. Shapes: I images, N annotations.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import InputError, Problem
from coord_codec.annotations import EXPECTED
from coord_codec.boxes import is_plain_box
from coord_codec.coco.document import WITH_REFUSED
from coord_codec.coco.reader import CROWDS, READ, CocoReader, contradictions, numbered
from coord_codec.coco.rows import PHRASE_KEYS, PHRASES
from coord_codec.coco.tables import CocoAnnotation, CocoTables
from coord_codec.fields import not_read, states_more
from coord_codec.geometry import Shape, geometry_of
from coord_codec.json_stream import stream_lists
from coord_codec.records import UNCERTAIN
from coord_data.image_paths import found_here
from coord_data.object_rules import ObjectRules
from coord_data.records import Row
from coord_data.source import Source
from coord_data.stream.lines import PART

_NUMBER = frozenset({int, float})
_CROWD, _AREA, _ID = 1, 2, 4  # flags
_LISTS = ("images", "annotations", "categories")


class CocoRecords:
    """The images of a COCO file with their objects.

    Args:
        source: the file
        rules: how it is read
        folder: folder that image paths are relative to
        image_size: looks up the size of an image that states none
        image_row: changes each row of the list of images; None to leave them as they are

    Attributes:
        problems: what was left out
        notes: counts of notes
        categories: categories by ascending id

    Raises:
        InputError: the file is not JSON, lacks one of the lists, or no annotation belongs to one of its images.
    """

    def __init__(
        self,
        source: Source,
        rules: ObjectRules,
        folder: Path,
        image_size: Callable[[str], tuple[int, int] | None],
        image_row: Callable[[Any], Any] | None = None,
    ) -> None:
        self.source, self.folder, self.problems, self.notes = source, folder, list[Problem](), Counter[str]()
        kind = geometry_of(rules.geometry)
        annotations = _Annotations(whole=not kind.is_box)
        lists: dict[str, Any] = {"images": [], "categories": [], "annotations": annotations}
        keys = set()
        with source.open() as file:
            for key, position, row in stream_lists(source.path, file):
                keys.add(key)
                if key in lists and position >= 0:
                    lists[key].append(image_row(row) if image_row is not None and key == "images" else row)
        if not keys.issuperset(_LISTS):
            raise InputError(f"{source.path}: {EXPECTED}, found an object with the keys {sorted(keys)[:8]}")
        images = lists["images"]
        names = [row["file_name"] for row in images if isinstance(row, dict) and isinstance(row.get("file_name"), str)]
        here = found_here(names, folder)
        for row in images if here else ():
            if isinstance(row, dict) and row.get("file_name") in here:
                found = here[row["file_name"]]
                row["file_name"] = found.name
                self.notes.update(found.notes)
        self._reader = CocoReader(
            lists["categories"],
            images,
            str(source.path),
            self.problems,
            self.notes,
            rules.on_bad_box,
            image_size,
            folder,
            None if kind.is_box else kind,
            annotations.irregular,
        )
        self.categories = self._reader.categories
        drawn = [images[i * len(images) // PART] for i in range(PART)] if len(images) > PART else images
        ids = {numbered(image["id"]) for image in drawn if isinstance(image, dict) and _has_id(image, "id")}
        self._part = {"images": drawn, "annotations": annotations.of_images(ids), "categories": lists["categories"]}
        self._objects = annotations.place(self._reader, self.notes)
        left_out = self._reader.left_out()
        self._kept = [i for i in self._reader.given if i.id not in left_out and i.id in self._reader.usable]
        self.notes[WITH_REFUSED] += len(left_out)

    def rows(self) -> Iterator[Row]:
        """Yield the records, in the order of the images in the file."""
        names = [category.name for category in self.categories]
        for image in self._kept:
            of_objects, shapes = self._objects.of_image(self._reader.image_index[image.id], names)
            uncertain = self._reader.uncertain.get(image.id)
            of_record = {} if uncertain is None else {UNCERTAIN: sorted(uncertain)}
            extra = (of_record, shapes) if of_record or any(shapes) else None
            yield Row(image.file_name, image.width, image.height, image.id, **of_objects, extra=extra)

    @cached_property
    def stated(self) -> CocoTables:
        """All valid rows of the file, also those of images that are left out."""
        return CocoTables(self._reader.images, tuple(self._objects.annotations()))

    @property
    def tables(self) -> CocoTables:
        """The rows of the records."""
        return self.stated.select({image.id for image in self._kept})

    def part(self) -> str:
        """Return `PART` evenly spaced images with their unchanged annotations, as a COCO file."""
        return json.dumps(self._part)


def _has_id(row: dict[str, Any], key: str) -> bool:
    return isinstance(row.get(key), int | str)


class _Annotations:
    """The rows of the list `annotations`, stored as numbers where possible.

    Args:
        whole: keep each row as it is, since its shape is asked for
    """

    def __init__(self, whole: bool) -> None:
        self._phrases = 0
        self._not_read = Counter[str]()
        self._whole = whole
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
                and not states_more(record)
                and (crowd or not contradictions((x, y, width, height), area, record.get("segmentation")))
                and not self._whole
            ):
                ints = array("q", (position, image, category, number or 0, flags))
                self._floats.extend(array("d", (x, y, width, height, area or 0)))
                self._ints.extend(ints)
                self._not_read.update(not_read(record, READ))
                self._phrases += not PHRASE_KEYS.isdisjoint(record)
                return
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
            pass
        self._irregular[position] = record

    def irregular(self) -> Iterable[Any]:
        """Return the annotations that state more than a plain box."""
        return self._irregular.values()

    def place(self, reader: CocoReader, notes: Counter[str]) -> _Objects:
        """Return the valid objects; the reader records the problems of the others."""
        ints_N5, floats_N5 = self._numbers()
        position_N, flags_N = ints_N5[:, 0], ints_N5[:, 4]
        image_N, has_image_N = _index_of(ints_N5[:, 1], [image.id for image in reader.images])
        category_N, has_category_N = _index_of(ints_N5[:, 2], [category.id for category in reader.categories])
        unteachable = [category.id in reader.unteachable for category in reader.categories]
        sizes_I2 = np.array(
            [(i.width, i.height) if i.id in reader.usable else (0, 0) for i in reader.images] or [(0, 0)]
        )
        sizes_N2 = sizes_I2[image_N].astype(np.float64)
        with np.errstate(all="ignore"):
            low_N2, high_N2 = floats_N5[:, :2], floats_N5[:, :2] + floats_N5[:, 2:4]
            corners_N4 = np.concatenate([low_N2 / sizes_N2, high_N2 / sizes_N2], axis=1)
            valid_N = has_image_N & has_category_N & ~np.array(unteachable or [True])[category_N]
            valid_N &= is_plain_box(*list(corners_N4.T)) & (sizes_N2 > 0).all(axis=1)
            valid_N &= (floats_N5[:, 4] >= 0) & (floats_N5[:, 4] < np.inf)
        notes[PHRASES] += self._phrases
        notes.update(self._not_read)
        if crowds := int((flags_N[valid_N] & _CROWD).sum()):
            notes[CROWDS] += crowds
        area_N1 = np.where(flags_N & _AREA, floats_N5[:, 4], np.nan)[:, None]
        ints_M4 = np.stack([position_N, image_N, category_N, flags_N & _CROWD], axis=1)[valid_N]
        floats_M9 = np.hstack([values[valid_N] for values in (floats_N5[:, :4], corners_N4, area_N1)])
        ints: list[tuple[int, ...]] = []
        floats: list[tuple[float, ...]] = []
        shapes: dict[int, Shape] = {}
        invalid = [(int(position_N[n]), n) for n in np.flatnonzero(~valid_N).tolist()]
        for position, n in sorted([*invalid, *((position, -1) for position in self._irregular)]):
            record = self._irregular[position] if n < 0 else _record(ints_N5[n].tolist(), floats_N5[n].tolist())
            placed = reader.place(record, position)
            if placed is None:
                continue
            row, has_area, corners, shape = placed
            ints.append((position, row.image, row.category, row.iscrowd))
            floats.append((*row.bbox_xywh, *(corners or (np.nan,) * 4), row.area if has_area else np.nan))
            if shape is not None:
                shapes[position] = shape
        if not valid_N.any():
            reader.check_images()
        if ints:
            ints_M4 = np.concatenate([ints_M4, np.array(ints)])
            floats_M9 = np.concatenate([floats_M9, np.array(floats)])
        return _Objects(ints_M4, floats_M9, shapes, len(reader.images))

    def of_images(self, ids: Set[int | str]) -> list[Any]:
        """Return the annotations of some images."""
        ints_N5, floats_N5 = self._numbers()
        own = np.flatnonzero(np.isin(ints_N5[:, 1], [value for value in ids if isinstance(value, int)])).tolist()
        further = (row for row in self._irregular.values() if isinstance(row, dict) and _has_id(row, "image_id"))
        rows = [_record(ints_N5[n].tolist(), floats_N5[n].tolist()) for n in own]
        return [*rows, *(row for row in further if numbered(row["image_id"]) in ids)]

    def _numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return (
            np.frombuffer(self._ints, np.int64).reshape(-1, 5),
            np.frombuffer(self._floats, np.float64).reshape(-1, 5),
        )


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
    """The valid annotations.

    Args:
        ints_N4: position in the file, image index, category index, crowd flag
        floats_N9: x, y, width and height in pixels; four corners in [0, 1], NaN if the annotation is no object of a
            record; area, NaN if none is stated
        shapes: shapes by position, if they were asked for
        images: number of images
    """

    def __init__(self, ints_N4: np.ndarray, floats_N9: np.ndarray, shapes: dict[int, Shape], images: int) -> None:
        self._ints_N4, self._floats_N9, self._shapes = ints_N4, floats_N9, shapes
        self._by_image_N = np.lexsort((ints_N4[:, 0], ints_N4[:, 1]))
        self._starts = np.searchsorted(ints_N4[self._by_image_N, 1], np.arange(images + 1)).tolist()

    def of_image(self, image: int, names: Sequence[str]) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
        """Return the object columns of the row of an image, and the further keys of each object."""
        own_n = self._by_image_N[self._starts[image] : self._starts[image + 1]]
        own_n = own_n[~np.isnan(self._floats_N9[own_n, 4])]
        floats_n9, ints_n4 = self._floats_N9[own_n], self._ints_N4[own_n]
        columns = {
            "desc": [names[category] for category in ints_n4[:, 2].tolist()],
            "bbox": floats_n9[:, 4:8].ravel().tolist(),
            "crowd": (ints_n4[:, 3] == 1).tolist(),
            "area": [None if value != value else value for value in floats_n9[:, 8].tolist()],  # noqa: PLR0124 - NaN
        }
        shapes = [self._shapes.get(position) for position in ints_n4[:, 0].tolist()]
        return columns, [{} if shape is None else {"geometry": shape.to_json()} for shape in shapes]

    def annotations(self) -> Iterator[CocoAnnotation]:
        """Yield the annotations in the order of the file."""
        for n in np.argsort(self._ints_N4[:, 0]).tolist():
            _, image, category, crowd = self._ints_N4[n].tolist()
            x, y, width, height, corner, *_, area = self._floats_N9[n].tolist()
            stated = width * height if area != area else area  # noqa: PLR0124 - NaN
            is_target = corner == corner and not crowd  # noqa: PLR0124
            yield CocoAnnotation(image, category, (x, y, width, height), stated, bool(crowd), is_target)
