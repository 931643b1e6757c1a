"""Detections, the boxes of all answers, beside the ground truth.

Shapes: D detections; boxes are `xywh` in pixels, as in COCO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np

from coord_codec.box_table import BoxTable
from coord_codec.box_transforms import LAYOUTS
from coord_eval.boxes.ground_truth import GroundTruth

Coordinates = tuple[float, ...]
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, eq=False)
class Detections:
    """The boxes of the answers to a set of images: a view of a `BoxTable` with the images of the ground truth.

    Attributes:
        table: the boxes; its labels are the K categories of the ground truth and then those that it does not have
        known: number K of categories
        asked: by image the parts of it that the model was given, `x, y, width, height` in pixels, None for all of it;
            empty if it was given all of every image
        part_D: index of each detection's part in `asked`; 0 if that is empty
        stated_D: the fields of COCO results that draw each detection, `segmentation` and `keypoints`, None for one
            without; None if no detection has them
    """

    table: BoxTable
    known: int
    asked: Mapping[int, tuple[Coordinates | None, ...]] = field(default_factory=dict)
    part_D: np.ndarray | None = None
    stated_D: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        truth: GroundTruth,
        image_D: Any,
        category_D: Any,
        boxes_D4: np.ndarray,
        scores_D: Any,
        rank_D: Any,
        unknown: Sequence[str] = (),
        shapes: Sequence[Sequence[tuple[float, float]]] = (),
    ) -> Detections:
        """Return boxes in the images of a ground truth; the arguments are the attributes of these names."""
        table = BoxTable.of(
            image_D,
            category_D,
            LAYOUTS["xywh"](boxes_D4),
            sides_N2=boxes_D4[:, 2:],
            score_N=scores_D,
            order_N=rank_D,
            image_ids=truth.image_ids,
            names=truth.file_names,
            sizes_I2=truth.sizes_I2,
            labels=(*truth.categories, *unknown),
            vertices_V2=list(chain.from_iterable(shapes)) if shapes else None,
            starts_N1=np.cumsum([0, *map(len, shapes)]) if shapes else None,
        )
        return cls(table, len(truth.categories))

    def __len__(self) -> int:
        return len(self.table)

    @property
    def image_D(self) -> np.ndarray:  # noqa: N802
        """Index of the image in the ground truth."""
        return self.table.image_N

    @property
    def category_D(self) -> np.ndarray:  # noqa: N802
        """Index of the category; each label that the ground truth does not have has its own index of K or above."""
        return self.table.label_N

    @cached_property
    def boxes_D4(self) -> np.ndarray:  # noqa: N802
        """`x, y, width, height` in pixels."""
        return np.concatenate([self.table.boxes_N4[:, :2], self.table.sides_N2], axis=1)

    @property
    def scores_D(self) -> np.ndarray:  # noqa: N802
        """Score by which detections are sorted."""
        return self.table.score_N

    @property
    def rank_D(self) -> np.ndarray:  # noqa: N802
        """Position of the object within its answer, from 0."""
        return self.table.order_N

    @property
    def unknown(self) -> tuple[str, ...]:
        """The labels that the ground truth does not have, indexed by `category_D - K`."""
        return tuple(self.table.labels[self.known :])

    @cached_property
    def shapes(self) -> tuple[Points, ...]:
        """Points in pixels of each detection, empty for a box; an empty tuple if all detections are boxes."""
        if self.table.vertices_V2 is None or self.table.starts_N1 is None:
            return ()
        points = list(map(tuple, self.table.vertices_V2.tolist()))
        return tuple(tuple(points[start:end]) for start, end in pairwise(self.table.starts_N1.tolist()))

    def take(self, rows: np.ndarray) -> Detections:
        """Return the selected detections; `rows` is an index array or a mask."""
        part_D, stated_D = (None if column is None else column[rows] for column in (self.part_D, self.stated_D))
        return replace(self, table=self.table.take(rows), part_D=part_D, stated_D=stated_D)

    def changed(self, **columns: Any) -> Detections:
        """Return the detections with other columns of their table."""
        return replace(self, table=replace(self.table, **columns))

    def moved(self, corners_D4: np.ndarray, **columns: Any) -> Detections:
        """Return the detections with other boxes `x1, y1, x2, y2`, which no shape draws, and other columns."""
        sides_D2 = corners_D4[:, 2:] - corners_D4[:, :2]
        columns |= {"boxes_N4": corners_D4, "sides_N2": sides_D2, "area_N": sides_D2[:, 0] * sides_D2[:, 1]}
        return replace(self, stated_D=None).changed(vertices_V2=None, starts_N1=None, **columns)

    @classmethod
    def concatenate(cls, parts: Sequence[Detections]) -> Detections:
        """Return the detections of parts of the images of one ground truth; equal unknown labels become one."""
        known = parts[0].known
        # Categories of equal name stay apart.
        labels: list[list[Any]] = [[*range(known), *part.unknown] for part in parts]
        tables = [replace(part.table, labels=own) for part, own in zip(parts, labels, strict=True)]
        if any(table.vertices_V2 is not None for table in tables):
            for n, table in enumerate(tables):
                if table.vertices_V2 is None:
                    starts_D1 = np.zeros(len(table) + 1, np.int64)
                    tables[n] = replace(table, vertices_V2=np.zeros((0, 2)), starts_N1=starts_D1)
        asked = {image: tiles for part in parts for image, tiles in part.asked.items()}
        places = [np.zeros(len(part), np.int64) if part.part_D is None else part.part_D for part in parts]
        table = BoxTable.concatenate(tables)
        table = replace(table, labels=[*parts[0].table.labels[:known], *table.labels[known:]])
        stated = [np.full(len(part), None) if part.stated_D is None else part.stated_D for part in parts]
        has_shapes = any(part.stated_D is not None for part in parts)
        columns = (np.concatenate(places) if asked else None, np.concatenate(stated) if has_shapes else None)
        return cls(table, known, asked, *columns)
