"""Ground truth, the objects of a set of images, as flat arrays.

Shapes: I images, N objects, K categories; boxes are `xywh` in pixels, as in COCO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import InputError, Shape
from coord_codec.box_table import BoxFlag, BoxTable

ImageId = int | str


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The objects of a set of images: a view of a `BoxTable`.

    Attributes:
        image_ids: I ids, ascending numbers, then text
        file_names: I paths, relative to `root`
        sizes_I2: width and height in pixels; NaN where a COCO file states none; all 1 x 1 if `sizes_known` is False
        sizes_known: False if instances state no size. IoU does not depend on the size, since it is invariant under
            scaling of an axis; metrics of small, medium and large objects do
        categories: K names
        category_ids: K ids of the file, ascending
        image_N: index of the image of each object
        category_N: index of the category of each object
        boxes_N4: `x, y, width, height` in pixels
        area_N: area in square pixels that makes an object small, medium or large (in COCO the area of the mask)
        crowd_N: True for crowd regions (`iscrowd`), which are neither a hit nor a miss
        root: folder that the file names are relative to, None if unknown
        notes: conditions that matter when interpreting the metrics
        shapes: N shapes in [0, 1], None for objects without one (crowd regions); None if boxes are scored
        by_position: whether the ids are positions in a list that names no images
        order_I: index of each image that is a record, in the order of the file; None if that is the order of the ids
        stated_N: the fields `segmentation` and `keypoints` of each object as a COCO file states them, None for one
            without; None if they are not asked for
        drawn: geometries other than boxes that instances have, sorted; nothing for COCO, where every box counts
    """

    image_ids: tuple[ImageId, ...]
    file_names: tuple[str, ...]
    sizes_I2: np.ndarray
    sizes_known: bool
    categories: tuple[str, ...]
    category_ids: tuple[ImageId, ...]
    image_N: np.ndarray
    category_N: np.ndarray
    boxes_N4: np.ndarray
    area_N: np.ndarray
    crowd_N: np.ndarray
    root: Path | None = None
    notes: tuple[str, ...] = ()
    shapes: tuple[Shape | None, ...] | None = None
    drawn: tuple[str, ...] = ()
    by_position: bool = False
    order_I: np.ndarray | None = None
    stated_N: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.image_ids)

    @classmethod
    def of(cls, table: BoxTable, category_ids: Sequence[ImageId], sizes_known: bool, **others: Any) -> GroundTruth:
        """Return the objects of a table, whose labels are the categories; `others` are further attributes."""
        return cls(
            image_ids=tuple(table.image_ids),
            file_names=tuple(table.names),
            sizes_I2=table.sizes_I2,
            sizes_known=sizes_known,
            categories=tuple(table.labels),
            category_ids=tuple(category_ids),
            image_N=table.image_N,
            category_N=table.label_N,
            boxes_N4=np.concatenate([table.boxes_N4[:, :2], table.sides_N2], axis=1),
            area_N=table.area_N,
            crowd_N=table.has(BoxFlag.CROWD),
            **others,
        )

    def take(self, rows: np.ndarray) -> GroundTruth:
        """Return the same images with the selected objects, without their shapes."""
        columns = ("image_N", "category_N", "boxes_N4", "area_N", "crowd_N")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns}, shapes=None, stated_N=None)

    @property
    def ids_in_order(self) -> list[ImageId]:
        """The id of each image in the order of the file."""
        return [*self.image_ids] if self.order_I is None else [self.image_ids[i] for i in self.order_I.tolist()]

    def size_of(self, image: int) -> tuple[float, float]:
        """Return width and height of an image.

        Raises:
            InputError: if the ground truth does not state them
        """
        width, height = self.sizes_I2[image]
        if not np.isfinite(width + height):
            raise InputError(
                f"ground truth, images[id={self.image_ids[image]}]: width and height are missing, "
                "so boxes of text answers cannot be placed; add them"
            )
        return width, height
