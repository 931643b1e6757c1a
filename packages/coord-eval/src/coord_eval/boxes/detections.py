"""Detections, the boxes of all answers, as flat arrays.

Shapes: D detections; boxes are `xywh` in pixels, as in COCO.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

Box = tuple[float, ...]


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
        columns = ("image_D", "category_D", "boxes_D4", "scores_D", "rank_D")
        shapes = tuple(self.shapes[d] for d in np.arange(len(self))[rows]) if self.shapes else ()
        part_D = None if self.part_D is None else self.part_D[rows]
        return replace(self, **{name: getattr(self, name)[rows] for name in columns}, shapes=shapes, part_D=part_D)
