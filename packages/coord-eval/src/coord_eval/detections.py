"""Answers as flat arrays, ready to be matched.

Shape legend: D detections; boxes are ``xywh`` in pixels, the COCO way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Detections:
    """The boxes that were answered for a set of images.

    Attributes:
        image_D: Index of the image in the ground truth.
        category_D: Index of the category; labels that the ground truth doesn't have lie at or beyond its K
            categories, one index a label.
        boxes_D4: ``x, y, width, height`` in pixels.
        scores_D: What the detections are ranked by.
        rank_D: Position of the object within its answer, from 0.
        unknown: The labels that the ground truth doesn't have, ``category_D - K`` indexes it.
    """

    image_D: np.ndarray
    category_D: np.ndarray
    boxes_D4: np.ndarray
    scores_D: np.ndarray
    rank_D: np.ndarray
    unknown: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of detections."""
        return len(self.image_D)

    def take(self, rows: np.ndarray) -> Detections:
        """Return the chosen detections."""
        return Detections(
            self.image_D[rows],
            self.category_D[rows],
            self.boxes_D4[rows],
            self.scores_D[rows],
            self.rank_D[rows],
            self.unknown,
        )

    def with_constant_score(self) -> Detections:
        """Return the same boxes, all with score 1."""
        return replace(self, scores_D=np.ones(len(self)))
