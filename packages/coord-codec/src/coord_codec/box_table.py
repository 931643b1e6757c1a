"""The table of boxes that readers fill and that scoring, fusion, review and exports use: NumPy columns.

Numbers stay as a file writes them, in pixels: a box that goes through fractions of its image and back is no longer
equal to itself, and comparisons with thresholds of IoU and of area then fall on the other side. This module needs
NumPy (`pip install coord-codec[images]`).

Shapes: N boxes, I images, V vertices of all shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from enum import IntFlag
from typing import Any

import numpy as np

PIXEL_DECIMALS = 6
"""Decimals of a pixel that are kept of a coordinate that a source states in another unit."""


def to_pixels(values: Any, side: Any, scale: float) -> Any:
    """Return coordinates that a source states in parts of an image's side in pixels.

    They are `values * side / scale`, computed in this order and rounded to a millionth of a pixel, so that equal boxes
    are equal in whichever unit they came.

    Args:
        values: coordinates, numbers or an array
        side: width or height of the image in pixels, which broadcasts with `values`
        scale: what a side is divided into: 1 for fractions, 1000 for bins or thousandths, 100 for per cent

    Example:
        >>> float(to_pixels(557, 1000, 1000)), float(to_pixels(0.041, 1000, 1)), 0.041 * 1000
        (557.0, 41.0, 41.0)
        >>> float(to_pixels(0.57, 100, 1)), 0.57 * 100
        (57.0, 56.99999999999999)
        >>> to_pixels(np.array([[250, 500, 750, 1000]]), np.array([[640, 480, 640, 480]]), 1000).tolist()
        [[160.0, 240.0, 480.0, 480.0]]
    """
    return np.round(np.multiply(values, side, dtype=np.float64) / scale, PIXEL_DECIMALS)


class BoxFlag(IntFlag):
    """Bits of `BoxTable.flags_N`.

    Attributes:
        CROWD: a crowd region (COCO's `iscrowd`), which covers many objects: no target, and ignored in scoring
        IGNORED: no target and ignored in scoring for another reason, such as a region that nobody labelled
        DIFFICULT: marked as difficult (Pascal VOC)
        CLIPPED: extends beyond its image by so little that it is clipped
        AREA: the file states the area; without it `area_N` is that of the box
        TARGET: a training target

    Example:
        >>> table = BoxTable.of([0], [0], [[0, 0, 5, 5]], image_ids=(7,), labels=("cat",), flags_N=[BoxFlag.CROWD])
        >>> table.has(BoxFlag.CROWD).tolist(), table.has(BoxFlag.IGNORED | BoxFlag.CLIPPED).tolist()
        ([True], [False])
    """

    CROWD = 1
    IGNORED = 2
    DIFFICULT = 4
    CLIPPED = 8
    AREA = 16
    TARGET = 32


@dataclass(frozen=True, eq=False)
class BoxTable:
    """Boxes of a set of images, in pixels as they are written.

    The columns of `DERIVED` may be None, and are then computed when they are first asked for.

    Attributes:
        image_N: int64, index of the image of each box in `image_ids`
        label_N: int64, index of the description of each box in `labels`
        boxes_N4: float64, x1, y1, x2, y2 in pixels
        sides_N2: float64, width and height as a file writes them (COCO), else x2 - x1 and y2 - y1: areas and IoU are
            computed from the sides, and x + width - x is not width in floating point
        area_N: float64, area in square pixels, of the mask if the file states it
        score_N: float64, NaN for a box without a score
        order_N: int64, rank of the box in its answer or file
        flags_N: uint8, bits of `BoxFlag`
        row_N: int64, row of the box in its source, for messages
        image_ids: id of each image
        names: path of each image, "" where there is none
        sizes_I2: float64, width and height of each image in pixels, NaN where unknown
        labels: the descriptions
        vertices_V2: float64, x and y in pixels of the vertices of all shapes; None for boxes alone
        starts_N1: int64 [N + 1], where the vertices of each shape begin and the last one's end; None for boxes alone

    Example:
        >>> table = BoxTable.of([0, 0], [1, 0], [[10, 20, 40, 60], [0, 0, 5, 5]], image_ids=(7,), labels=("cat", "dog"))
        >>> len(table), table.area_N.tolist(), table.take(table.area_N > 100).boxes_N4.tolist()
        (2, [1200.0, 25.0], [[10.0, 20.0, 40.0, 60.0]])
    """

    image_N: np.ndarray
    label_N: np.ndarray
    boxes_N4: np.ndarray
    sides_N2: np.ndarray
    area_N: np.ndarray
    score_N: np.ndarray
    order_N: np.ndarray
    flags_N: np.ndarray
    row_N: np.ndarray
    image_ids: Sequence[int | str]
    names: Sequence[str]
    sizes_I2: np.ndarray
    labels: Sequence[str]
    vertices_V2: np.ndarray | None = None
    starts_N1: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Raise an error for columns of other lengths than the table."""
        shapes: dict[str, tuple[int, ...]] = {
            "boxes_N4": (len(self), 4),
            "sides_N2": (len(self), 2),
            "sizes_I2": (len(self.image_ids), 2),
        }
        shapes |= {name: (len(self),) for name in _ROWS if name.endswith("_N")}
        for name, shape in shapes.items():
            column = vars(self)[name]
            if column is not None and column.shape != shape:
                raise ValueError(f"{name}: expected the shape {shape}, found {column.shape}")

    def __len__(self) -> int:
        return len(self.image_N)

    def __eq__(self, other: object) -> bool:
        """Return whether all columns are equal, where NaN equals NaN."""
        if not isinstance(other, BoxTable):
            return NotImplemented
        pairs = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        return all(
            np.array_equal(own, its, equal_nan=own.dtype.kind == "f")
            if isinstance(own, np.ndarray) and isinstance(its, np.ndarray)
            else own is its or (own is not None and its is not None and tuple(own) == tuple(its))
            for own, its in pairs
        )

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(
        cls,
        image_N: Any,
        label_N: Any,
        boxes_N4: Any,
        *,
        image_ids: Sequence[int | str],
        labels: Sequence[str],
        names: Sequence[str] = (),
        sizes_I2: Any = None,
        sides_N2: Any = None,
        area_N: Any = None,
        score_N: Any = None,
        order_N: Any = None,
        flags_N: Any = None,
        row_N: Any = None,
        vertices_V2: Any = None,
        starts_N1: Any = None,
    ) -> BoxTable:
        """Return a table of lists or arrays; columns that are None are derived, see `DERIVED`.

        Sizes that are None are NaN, and flags 0.

        Raises:
            ValueError: if columns differ in length
        """
        corners_N4 = np.asarray(boxes_N4, np.float64).reshape(-1, 4)
        count, images = len(corners_N4), len(image_ids)
        return cls(
            image_N=_column(image_N, -1, np.int64),
            label_N=_column(label_N, -1, np.int64),
            boxes_N4=corners_N4,
            sides_N2=_column(sides_N2, (-1, 2)),
            area_N=_column(area_N, -1),
            score_N=_column(score_N, -1),
            order_N=_column(order_N, -1, np.int64),
            flags_N=np.zeros(count, np.uint8) if flags_N is None else _column(flags_N, -1, np.uint8),
            row_N=_column(row_N, -1, np.int64),
            image_ids=image_ids,
            names=names or ("",) * images,
            sizes_I2=np.full((images, 2), np.nan) if sizes_I2 is None else _column(sizes_I2, (-1, 2)),
            labels=labels,
            vertices_V2=_column(vertices_V2, (-1, 2)),
            starts_N1=_column(starts_N1, -1, np.int64),
        )

    def has(self, flag: BoxFlag | int) -> np.ndarray:
        """Return [N] bool: whether any bit of a flag is set."""
        set_N: np.ndarray = (self.flags_N & np.uint8(flag)) != 0
        return set_N

    def take(self, rows: Any) -> BoxTable:
        """Return the table with some of its boxes; images and labels stay as they are.

        Args:
            rows: mask [N] of bool, or indices of boxes in the order that is wanted
        """
        rows_n = np.asarray(rows)
        if rows_n.dtype == bool and rows_n.all() and len(rows_n) == len(self):
            return self
        rows_n = np.flatnonzero(rows_n) if rows_n.dtype == bool else rows_n.astype(np.int64)
        stated = {name: column for name in _ROWS if (column := vars(self)[name]) is not None}
        changes: dict[str, Any] = {name: column[rows_n] for name, column in stated.items()}
        changes |= {name: rows_n % len(self) for name in _COUNTED if name not in stated}
        if self.vertices_V2 is not None and self.starts_N1 is not None:
            counts_n = np.diff(self.starts_N1)[rows_n]
            starts_n1 = np.concatenate([[0], np.cumsum(counts_n)])
            shifts_n = self.starts_N1[:-1][rows_n] - starts_n1[:-1]
            chosen_v = np.repeat(shifts_n, counts_n) + np.arange(starts_n1[-1])
            changes |= {"vertices_V2": self.vertices_V2[chosen_v], "starts_N1": starts_n1}
        return self.changed(**changes)

    def with_flags(self, flags_N: Any) -> BoxTable:
        """Return the table with other flags."""
        return self.changed(flags_N=np.asarray(flags_N).astype(np.uint8))

    def changed(self, **columns: Any) -> BoxTable:
        """Return the table with other columns; those that are not stated are derived anew."""
        stated = {field.name: vars(self)[field.name] for field in fields(self)}
        return BoxTable(**(stated | columns))

    def of_images(self, images: Any) -> BoxTable:
        """Return the table with some of its images and their boxes; labels stay as they are.

        Args:
            images: mask [I] of bool

        Example:
            >>> table = BoxTable.of([1, 0], [0, 0], [[0, 0, 5, 5], [1, 1, 2, 2]], image_ids=(7, 8), labels=("cat",))
            >>> table.of_images([False, True]).image_ids, table.of_images([False, True]).image_N.tolist()
            ((8,), [0])
        """
        kept_I = np.asarray(images, bool)
        kept = np.flatnonzero(kept_I).tolist()
        chosen = self.take(kept_I[self.image_N])
        return chosen.changed(
            image_N=(np.cumsum(kept_I) - 1)[chosen.image_N],
            image_ids=tuple(self.image_ids[n] for n in kept),
            names=tuple(self.names[n] for n in kept),
            sizes_I2=self.sizes_I2[kept_I],
        )

    @classmethod
    def concatenate(cls, tables: Iterable[BoxTable]) -> BoxTable:
        """Return the boxes of several tables in one, in their order.

        Images of equal id become one image, with the name and size of the first table that has it; equal labels become
        one label.

        Raises:
            ValueError: if there is no table, or only some of them have shapes

        Example:
            >>> first = BoxTable.of([0], [0], [[0, 0, 5, 5]], image_ids=(7,), labels=("cat",))
            >>> second = BoxTable.of([0], [0], [[1, 1, 5, 5]], image_ids=(8,), labels=("dog",))
            >>> both = BoxTable.concatenate([first, second])
            >>> both.image_ids, both.labels, both.image_N.tolist(), both.label_N.tolist()
            ((7, 8), ('cat', 'dog'), [0, 1], [0, 1])
        """
        parts = list(tables)
        if not parts or len({part.vertices_V2 is None for part in parts}) > 1:
            raise ValueError("expected one or more tables, all of them with shapes or all without")
        image_of: dict[int | str, int] = {}
        label_of: dict[str, int] = {}
        names: list[str] = []
        sizes: list[np.ndarray] = []
        image_parts: list[np.ndarray] = []
        label_parts: list[np.ndarray] = []
        for part in parts:
            for image_id, name, size in zip(part.image_ids, part.names, part.sizes_I2, strict=True):
                if image_of.setdefault(image_id, len(names)) == len(names):
                    names.append(name)
                    sizes.append(size)
            new_image_I = np.array([image_of[image_id] for image_id in part.image_ids], np.int64)
            new_label_L = np.array([label_of.setdefault(label, len(label_of)) for label in part.labels], np.int64)
            image_parts.append(new_image_I[part.image_N])
            label_parts.append(new_label_L[part.label_N])
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ROWS}
        columns |= {"image_N": np.concatenate(image_parts), "label_N": np.concatenate(label_parts)}
        shaped = [(part.vertices_V2, part.starts_N1) for part in parts]
        if vertices := [vertices_V2 for vertices_V2, _ in shaped if vertices_V2 is not None]:
            counts_N = np.concatenate([np.diff(starts_N1) for _, starts_N1 in shaped if starts_N1 is not None])
            columns["vertices_V2"] = np.concatenate(vertices)
            columns["starts_N1"] = np.concatenate([[0], np.cumsum(counts_N)])
        sizes_I2 = np.array(sizes, np.float64).reshape(-1, 2)
        return cls(image_ids=tuple(image_of), names=tuple(names), sizes_I2=sizes_I2, labels=tuple(label_of), **columns)


_ROWS = tuple(field.name for field in fields(BoxTable) if field.name.endswith(("_N", "_N4", "_N2")))
"""Names of the columns that have a row a box."""
_COUNTED = ("order_N", "row_N")

DERIVED: dict[str, Callable[[BoxTable], np.ndarray]] = {
    "sides_N2": lambda table: table.boxes_N4[:, 2:] - table.boxes_N4[:, :2],
    "area_N": lambda table: table.sides_N2[:, 0] * table.sides_N2[:, 1],
    "score_N": lambda table: np.full(len(table), np.nan),
    "order_N": lambda table: np.arange(len(table)),
    "row_N": lambda table: np.arange(len(table)),
}
"""How columns are computed that are not stated: sides of the corners, areas of the sides, no scores, counts of rows."""


@dataclass(frozen=True)
class _DerivedColumn:
    """A column that is computed when it is first asked for, unless the table states it."""

    name: str

    def __get__(self, table: BoxTable, owner: type) -> np.ndarray:
        columns, kept = vars(table), f"derived {self.name}"
        if columns[self.name] is None and kept not in columns:
            with np.errstate(over="ignore", invalid="ignore"):  # numbers near the largest one
                columns[kept] = DERIVED[self.name](table)
        column: np.ndarray = columns[self.name if columns[self.name] is not None else kept]
        return column

    def __set__(self, table: BoxTable, column: np.ndarray | None) -> None:
        vars(table)[self.name] = column


for _name in DERIVED:
    setattr(BoxTable, _name, _DerivedColumn(_name))


def _column(values: Any, shape: int | tuple[int, int], dtype: Any = np.float64) -> Any:
    return None if values is None else np.asarray(values, dtype).reshape(shape)
