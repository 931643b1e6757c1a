"""Detections, the boxes of all answers, as flat arrays.

Shapes: D detections; boxes are `xywh` in pixels, as in COCO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Box = tuple[float, ...]
_COLUMNS = ("image_D", "category_D", "boxes_D4", "scores_D", "rank_D")


@dataclass(frozen=True, eq=False)
class Detections:
    """The boxes of the answers to a set of images.

    Attributes:
        image_D: index of the image in the ground truth
        category_D: index of the category; each label that the ground truth does not have gets its own index of K or
            above
        boxes_D4: `x, y, width, height` in pixels
        scores_D: score by which detections are sorted
        rank_D: position of the object within its answer, from 0
        unknown: the labels that the ground truth does not have, indexed by `category_D - K`
        shapes: points in pixels of each detection, empty for a box; an empty tuple if all detections are boxes
        asked: by image the parts of it that the model was given, `x, y, width, height` in pixels, None for all of it;
            empty if it was given all of every image
        part_D: index of each detection's part in `asked`; 0 if that is empty
    """

    image_D: np.ndarray
    category_D: np.ndarray
    boxes_D4: np.ndarray
    scores_D: np.ndarray
    rank_D: np.ndarray
    unknown: tuple[str, ...] = ()
    shapes: tuple[tuple[tuple[float, float], ...], ...] = ()
    asked: Mapping[int, tuple[Box | None, ...]] = field(default_factory=dict)
    part_D: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.image_D)

    def take(self, rows: np.ndarray) -> Detections:
        """Return the selected detections; `rows` is an index array, a mask or a slice."""
        shapes = tuple(self.shapes[d] for d in np.arange(len(self))[rows]) if self.shapes else ()
        part_D = None if self.part_D is None else self.part_D[rows]
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS}, shapes=shapes, part_D=part_D)

    @classmethod
    def concatenate(cls, parts: Sequence[Detections], categories: int) -> Detections:
        """Return the detections of parts of the images in one table; equal unknown labels become one.

        Args:
            parts: detections of the same ground truth, no two of which have an image in common
            categories: number K of its categories
        """
        columns: dict[str, Any] = {n: np.concatenate([getattr(part, n) for part in parts]) for n in _COLUMNS}
        labels = list(dict.fromkeys(label for part in parts for label in part.unknown))
        number = {label: categories + n for n, label in enumerate(labels)}
        of_parts = [[*range(categories), *(number[label] for label in part.unknown)] for part in parts]
        columns["category_D"] = np.concatenate(
            [np.array(of_part, np.int64)[part.category_D] for of_part, part in zip(of_parts, parts, strict=True)]
        )
        if any(part.shapes for part in parts):
            columns["shapes"] = tuple(shape for part in parts for shape in part.shapes or ((),) * len(part))
        if any(part.asked for part in parts):
            columns["asked"] = {image: tiles for part in parts for image, tiles in part.asked.items()}
            places = [np.zeros(len(part), np.int64) if part.part_D is None else part.part_D for part in parts]
            columns["part_D"] = np.concatenate(places)
        return cls(**columns, unknown=tuple(labels))
