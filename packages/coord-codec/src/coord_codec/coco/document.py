"""Reads COCO JSON into one table of boxes, with what is left out and what each image keeps; a row is no object here.

Shapes: N valid annotations in the order of the file, I images.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_codec.box_table import BoxFlag, BoxTable
from coord_codec.boxes import OnBadBox, SmallBoxError
from coord_codec.coco.columns import PART, AnnotationColumns, record_of
from coord_codec.coco.reader import CROWDS, ZERO_AREA, Annotation, CocoReader
from coord_codec.coco.rows import PHRASE_KEYS, PHRASES
from coord_codec.coco.shapes import coco_shape
from coord_codec.coco.tables import LISTS, Category, CocoImage, not_coco
from coord_codec.files import InputError
from coord_codec.geometry import Geometry, Shape
from coord_codec.grid import CoordGrid
from coord_codec.json_file import JsonFile
from coord_codec.json_numbers import NumberRows
from coord_codec.json_stream import stream_parts
from coord_codec.origins import ORIGINS, SHORT, WIDE, Origin
from coord_codec.placing import CLIPPED, place
from coord_codec.problems import Problem

if TYPE_CHECKING:
    from coord_codec.records import Instance

WITH_REFUSED = "images left out with an object that was refused (on_bad_box: drop_image)"

_NO_AREA = float("nan")
_CLEAR = 0.95
"""Share of the areas of boxes that must be those of boxes a pixel larger."""


@dataclass(frozen=True, eq=False)
class CocoContent:
    """What a COCO file says.

    Attributes:
        table: all valid annotations in the order of the file, those of images and objects that are left out too; images
            by ascending id, labels are the names of `categories`
        fractions_N4: x1, y1, x2, y2 in [0, 1]; NaN where an annotation is no object of a record
        shapes: shape of each target by its row, if shapes were asked for
        images: the images in the order of the file that are records: with a path and a size, and not left out
        uncertain: descriptions of refused objects, by the index of their image
        categories: categories by ascending id
        problems: what was left out, and why
        notes: counts of events that are not faults
    """

    table: BoxTable
    fractions_N4: np.ndarray
    shapes: Mapping[int, Shape]
    images: Sequence[CocoImage]
    uncertain: Mapping[int, set[str]]
    categories: tuple[Category, ...]
    problems: tuple[Problem, ...]
    notes: Mapping[str, int]

    @property
    def records(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The objects of the records: index in `images` of each image; rows of all objects, and where each begins.

        Returns:
            Index in `table.image_ids` of each of `images`; rows of the objects in the order of `images`; for each of
            `images` where its rows begin, and where the last ones end
        """
        index_of = {image_id: n for n, image_id in enumerate(self.table.image_ids)}
        image_R = np.array([index_of[image.id] for image in self.images], np.int64)
        place_I = np.full(len(self.table.image_ids), -1)
        place_I[image_R] = np.arange(len(image_R))
        place_N = np.where(np.isnan(self.fractions_N4[:, 0]), -1, place_I[self.table.image_N])
        rows_M = np.argsort(place_N, kind="stable")[np.count_nonzero(place_N < 0) :]
        return image_R, rows_M, np.searchsorted(place_N[rows_M], np.arange(len(image_R) + 1))

    def instances(self, with_uncertain: bool) -> Iterator[Instance]:
        """Yield the records."""
        from coord_codec.records import UNCERTAIN, Instance, Object  # pydantic, which scoring does not need

        image_R, rows_M, starts_R1 = self.records
        descs = [self.table.labels[label] for label in self.table.label_N[rows_M].tolist()]
        boxes = self.fractions_N4[rows_M].tolist()
        flags, areas = self.table.flags_N[rows_M].tolist(), self.table.area_N[rows_M].tolist()
        objects: list[Object] = []
        for n, row in enumerate(rows_M.tolist()):
            fields: dict[str, Any] = {"desc": descs[n], "bbox": tuple(boxes[n])}
            if flags[n] & BoxFlag.CROWD.value:
                fields["iscrowd"] = True
            if flags[n] & BoxFlag.AREA.value:
                fields["area"] = areas[n]
            if row in self.shapes:
                fields["geometry"] = self.shapes[row]
            objects.append(Object.model_construct(**fields))
        starts = starts_R1.tolist()
        for n, image in enumerate(self.images):
            names = self.uncertain.get(int(image_R[n])) if with_uncertain else None
            values: dict[str, Any] = {} if names is None else {UNCERTAIN: sorted(names)}
            values |= {"width": image.width, "height": image.height, "image_id": image.id}
            own = tuple(objects[starts[n] : starts[n + 1]])
            yield Instance.model_construct(image=image.file_name, **values, objects=own)


@dataclass
class CocoLists:
    """The lists of a COCO file.

    Attributes:
        annotations: the list of annotations
        images: the list of images
        categories: the list of categories
        keys: the keys of the document
    """

    annotations: AnnotationColumns
    images: list[Any] = field(default_factory=list)
    categories: list[Any] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)


def stream_coco(file: JsonFile, whole: bool, image_row: Callable[[Any], Any] | None = None) -> CocoLists:
    """Return the lists of a file, of which some thousand annotations are in memory at a time.

    Each row of the list of images is changed by `image_row`; see `AnnotationColumns` for `whole`.

    Raises:
        InputError: the file cannot be read, or is not a JSON object
    """
    lists, waiting = CocoLists(AnnotationColumns(whole)), list[Any]()
    with file.open() as content:
        for key, position, rows in stream_parts(file.path, content):
            lists.keys.add(key)
            if position < 0:
                if key in LISTS and rows != [None]:
                    raise InputError(f"{file.path}: {not_coco({key: rows[0]})}")
                continue
            if key == "annotations" and isinstance(rows, NumberRows):
                lists.annotations.add(waiting)
                lists.annotations.add(rows)
                waiting = []
            elif key == "annotations":
                waiting += rows
                if len(waiting) >= PART:
                    lists.annotations.add(waiting)
                    waiting = []
            elif key == "images":
                lists.images += rows if image_row is None else map(image_row, rows)
            elif key == "categories":
                lists.categories += rows
    lists.annotations.add(waiting)
    return lists


def read_coco(
    document: Mapping[str, Any] | CocoLists,
    source: str,
    image_size: Callable[[str], tuple[int, int] | None] | None = None,
    on_bad_box: OnBadBox | None = None,
    geometry: Geometry | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> CocoContent:
    """Return the content of a COCO document in memory, or of the lists of a file; see `read_annotations`."""
    if isinstance(document, CocoLists):
        lists = document
    else:
        lists = CocoLists(AnnotationColumns(geometry is not None), document["images"], document["categories"])
        lists.annotations.add(document["annotations"])
    further = lists.annotations.other.values()
    reader = CocoReader(lists.categories, lists.images, source, image_size, folder, further)
    return content_of(lists.annotations, reader, on_bad_box, geometry)


def content_of(
    annotations: AnnotationColumns, reader: CocoReader, on_bad_box: OnBadBox | None, geometry: Geometry | None = None
) -> CocoContent:
    """Return the content of a document of which the annotations are columns."""
    return _Content(annotations, reader, on_bad_box, geometry).read()


@dataclass
class _Content:
    """The steps from columns to content.

    Problems and notes on boxes come with the position of their annotation; `with_image` are images that a refused
    target may take along.
    """

    annotations: AnnotationColumns
    reader: CocoReader
    on_bad_box: OnBadBox | None
    geometry: Geometry | None
    problems: list[tuple[int, Problem]] = field(default_factory=list)
    noted: list[tuple[int, Sequence[str]]] = field(default_factory=list)
    with_image: set[int] = field(default_factory=set)
    uncertain: dict[int, set[str]] = field(default_factory=dict)

    def read(self) -> CocoContent:
        reader, notes = self.reader, self.reader.notes
        table = self._rows()
        crowd_N = table.has(BoxFlag.CROWD)
        notes[ZERO_AREA] += int((table.sides_N2 == 0).any(axis=1).sum())
        notes[CROWDS] += int(crowd_N.sum())
        usable_I = np.array([bool(image.file_name and image.width) for image in reader.images], bool)
        fractions_N4, clipped_N = self._place(table, usable_I)
        shapes = {} if self.geometry is None else self._shapes(table, fractions_N4, self.geometry)
        clipped_N &= ~np.isnan(fractions_N4[:, 0])  # a refused box is in no other count
        notes[CLIPPED] += int(clipped_N.sum())
        refused = {position for position, _ in self.problems} if self.on_bad_box else set[int]()
        notes.update(note for position, own in self.noted if position not in refused for note in own)
        is_target_N = ~np.isnan(fractions_N4[:, 0]) & ~crowd_N
        flags_N = table.flags_N | np.where(is_target_N, BoxFlag.TARGET, 0) | np.where(clipped_N, BoxFlag.CLIPPED, 0)
        left_out = self.with_image if self.on_bad_box == "drop_image" else set()
        kept = [image for image in reader.given if usable_I[(n := reader.image_index[image.id])] and n not in left_out]
        notes[WITH_REFUSED] += sum(bool(usable_I[n]) for n in left_out)
        self.problems.sort(key=lambda pair: pair[0])
        return CocoContent(
            table.with_flags(flags_N),
            fractions_N4,
            shapes,
            kept,
            self.uncertain,
            reader.categories,
            (*reader.problems, *(problem for _, problem in self.problems)),
            dict(+notes),
        )

    def _rows(self) -> BoxTable:
        """Return the valid annotations; each other one is a problem, and may take its image along."""
        reader = self.reader
        ints_N5, floats_N5 = self.annotations.numbers
        image_N = _index_of(ints_N5[:, 1], reader.image_index)
        category_N = _index_of(ints_N5[:, 2], reader.category_index)
        known_N = (image_N >= 0) & (category_N >= 0)
        further: list[tuple[int, Annotation]] = []
        unknown_image: Problem | None = None
        others = dict(self.annotations.other)
        for ints, floats in zip(ints_N5[~known_N].tolist(), floats_N5[~known_N].tolist(), strict=True):
            others[ints[0]] = record_of(ints, floats)
        for position in sorted(others):
            record = others[position]
            try:
                row = reader.row(record)
                if row is not None:
                    further.append((position, row))
                    self.noted += [(position, row.notes)] if row.notes else []
                    reader.notes[PHRASES] += not PHRASE_KEYS.isdisjoint(record)
            except InputError as error:
                name, _, message = str(error).partition(": ")
                problem = Problem(self._where(position, record), name, message, is_box=True)
                self.problems.append((position, problem))
                unknown_image = unknown_image or (problem if name == "image_id" else None)
                image, category, with_image = reader.named_by(record)
                self._refuse(image, category, with_image)
        reader.notes.update(self.annotations.notes)
        reader.check_images(None if known_N.any() else unknown_image)
        more = [(row.image, row.category, row.iscrowd) for _, row in further]
        more_ints = np.array([(position, *row) for (position, _), row in zip(further, more, strict=True)], np.int64)
        more_floats = [(*row.bbox_xywh, _NO_AREA if row.area is None else row.area) for _, row in further]
        plain_ints = np.stack([ints_N5[:, 0], image_N, category_N, ints_N5[:, 4]], axis=1)[known_N]
        all_ints = np.concatenate([plain_ints, more_ints.reshape(-1, 4)])
        order_N = np.argsort(all_ints[:, 0], kind="stable")
        position_N, image_N, category_N, crowd_N = all_ints[order_N].T
        floats = np.concatenate([floats_N5[known_N], np.array(more_floats, np.float64).reshape(-1, 5)])[order_N]
        low_N2, sides_N2, area_N = floats[:, :2], floats[:, 2:4], floats[:, 4]
        sides_N2 = self._sides(sides_N2, np.where(crowd_N == 1, np.nan, area_N))
        has_area_N = ~np.isnan(area_N)
        with np.errstate(over="ignore"):
            return BoxTable.of(
                image_N,
                category_N,
                np.concatenate([low_N2, low_N2 + sides_N2], axis=1),
                sides_N2=sides_N2,
                area_N=np.where(has_area_N, area_N, sides_N2[:, 0] * sides_N2[:, 1]),
                flags_N=np.where(crowd_N == 1, BoxFlag.CROWD, 0) | np.where(has_area_N, BoxFlag.AREA, 0),
                row_N=position_N,
                order_N=position_N,
                image_ids=tuple(image.id for image in reader.images),
                names=tuple(image.file_name for image in reader.images),
                sizes_I2=[(image.width or np.nan, image.height or np.nan) for image in reader.images],
                labels=tuple(category.name for category in reader.categories),
            )

    def _sides(self, sides_N2: np.ndarray, area_N: np.ndarray) -> np.ndarray:
        """Return width and height of each box up to its edge, where the writer of the file counts them otherwise."""
        wide, notes = self.annotations.from_scalabel > 0, self.reader.notes
        origin = ORIGINS["from-0-past-last"] if wide else origin_of_areas(sides_N2, area_N)
        if not origin.high:
            return sides_N2
        notes[WIDE if wide else SHORT] += len(sides_N2)
        return np.maximum(sides_N2 - origin.high, 0)

    def _place(self, table: BoxTable, usable_I: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the boxes as fractions, NaN where they are no object of a record, and whether they were clipped."""
        unteachable_L = np.isin(np.arange(len(table.labels)), list(self.reader.unteachable))
        in_record_N = usable_I[table.image_N]
        nameless_N = in_record_N & unteachable_L[table.label_N]
        for n in np.flatnonzero(nameless_N).tolist():  # the problem is listed for the category
            self._refuse(int(table.image_N[n]), int(table.label_N[n]), with_image=True)
        rows_n = np.flatnonzero(in_record_N & ~nameless_N)
        grid = CoordGrid() if self.on_bad_box else None
        placed = place(table.boxes_N4[rows_n], table.sizes_I2[table.image_N[rows_n]], grid=grid)
        for n, error in placed.faults.items():
            self._refuse_box(table, int(rows_n[n]), error)
        placed.fractions_N4[list(placed.faults)] = np.nan
        fractions_N4, clipped_N = np.full((len(table), 4), np.nan), np.zeros(len(table), bool)
        fractions_N4[rows_n], clipped_N[rows_n] = placed.fractions_N4, placed.clipped_N
        return fractions_N4, clipped_N

    def _refuse_box(self, table: BoxTable, row: int, error: InputError) -> None:
        image, crowd = int(table.image_N[row]), bool(table.flags_N[row] & BoxFlag.CROWD.value)
        self._refuse(image, int(table.label_N[row]), not isinstance(error, SmallBoxError) and not crowd)
        numbers = ", ".join(f"{v:g}" for v in (*table.boxes_N4[row, :2].tolist(), *table.sides_N2[row].tolist()))
        message = f"[{numbers}] of {table.names[image]}: {error}"
        position = int(table.row_N[row])
        self.problems.append((position, Problem(self._where(position), "bbox", message, True, is_box=True)))

    def _shapes(self, table: BoxTable, fractions_N4: np.ndarray, kind: Geometry) -> dict[int, Shape]:
        """Return the shape of each target; the box of one without a shape becomes NaN, and a problem is listed."""
        shapes: dict[int, Shape] = {}
        for n in np.flatnonzero(~np.isnan(fractions_N4[:, 0]) & ~table.has(BoxFlag.CROWD)).tolist():
            image, category, position = int(table.image_N[n]), int(table.label_N[n]), int(table.row_N[n])
            record, (width, height) = self.annotations.other[position], table.sizes_I2[image].tolist()
            if outline := self.reader.turned(record, record["bbox"]):
                record = {**record, "segmentation": [outline]}
            x1, y1, x2, y2 = fractions_N4[n].tolist()
            names = self.reader.keypoint_names.get(category)
            try:
                size = int(width), int(height)
                shapes[n] = coco_shape(record, kind, (x1, y1, x2, y2), size, names, self.reader.notes)
            except InputError as error:
                self._refuse(image, category, not isinstance(error, SmallBoxError))
                name, _, message = str(error).partition(": ")
                problem = Problem(self._where(position, record), name, message, True, is_box=True)
                self.problems.append((position, problem))
                fractions_N4[n] = np.nan
        return shapes

    def _refuse(self, image: int | None, category: int | None, with_image: bool) -> None:
        """Keep in mind a refused object, and with `with_image` that its image may have to be left out."""
        if image is None:
            return
        if with_image:
            self.with_image.add(image)
        if category is not None:
            self.uncertain.setdefault(image, set()).add(self.reader.categories[category].name)

    def _where(self, position: int, record: Any = None) -> str:
        record = self.annotations.record(position) if record is None else record
        label = f" (id {record['id']})" if isinstance(record, Mapping) and "id" in record else ""
        return f"{self.reader.source}: annotations[{position}]{label}"


def _index_of(id_N: np.ndarray, index: Mapping[int | str, int]) -> np.ndarray:
    """Return the index of the row with each id, -1 where no row has it."""
    most = np.iinfo(np.int64).max
    known = sorted((key, place) for key, place in index.items() if isinstance(key, int) and -most <= key <= most)
    if not known:
        return np.full(len(id_N), -1)
    key_K, place_K = np.array(known, np.int64).T
    found_N = np.minimum(np.searchsorted(key_K, id_N), len(known) - 1)
    return np.where(key_K[found_N] == id_N, place_K[found_N], -1)


def origin_of_areas(sides_N2: np.ndarray, area_N: np.ndarray) -> Origin:
    """Return the origin that the areas of a COCO file show beside the sides of its boxes.

    An area of (w + 1)(h + 1) says that w and h are differences of the first and the last pixel. Areas of masks and
    outlines are neither, and say nothing.

    Args:
        sides_N2: width and height of each box in pixels
        area_N: its stated area, NaN where there is none

    Example:
        >>> origin_of_areas(np.array([[39.0, 39.0]]), np.array([1600.0])).word
        'from-0-to-last'
        >>> origin_of_areas(np.array([[40.0, 40.0]]), np.array([1600.0])).word
        'from-0'
    """
    with np.errstate(over="ignore", invalid="ignore"):
        own, larger = (
            np.count_nonzero(np.isclose(area_N, (sides_N2 + more).prod(axis=1), rtol=1e-6, atol=0)) for more in (0, 1)
        )
    return ORIGINS["from-0-to-last" if larger and larger >= _CLEAR * (own + larger) else "from-0"]
