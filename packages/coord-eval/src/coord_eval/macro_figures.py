"""Figures that are means over labels, for any weighting of the pictures.

Shape legend: B weightings, I images, D detections, K categories.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coord_eval.category_sums import CategorySums
from coord_eval.detection_metrics import IOU_THRESHOLDS
from coord_eval.evaluation import Evaluation

#: Ending of a name, and the thresholds that the figure is the mean of.
LEVELS = {"": (0,), "_75": (5,), "_miou": tuple(range(len(IOU_THRESHOLDS)))}
KEYS = ("precision", "recall", "f1")


class MacroFigures:
    """Precision, recall and F1 as the plain mean over labels that have objects."""

    def __init__(self, evaluation: Evaluation) -> None:
        """Sum up every label of every picture once."""
        truth, detections, matches = evaluation.truth, evaluation.detections, evaluation.matches
        names, images = len(truth.categories), len(truth)
        regular_N, known_D = ~truth.crowd_N, detections.category_D < names
        self._objects = CategorySums(truth.category_N[regular_N], truth.image_N[regular_N], names, images)
        self._hits: list[CategorySums] = []
        # Without crowd regions every threshold looks at the same boxes, and they are many.
        self._answered: list[CategorySums] = []
        last_D = None
        for t in IOU_THRESHOLDS:
            hit_D = matches.iou_D >= t
            counted_D = known_D & (hit_D | (matches.crowd_D < t))
            image, label = detections.image_D, detections.category_D
            self._hits.append(CategorySums(label[hit_D], image[hit_D], names, images))
            if last_D is not None and np.array_equal(last_D, counted_D):
                self._answered.append(self._answered[-1])
            else:
                self._answered.append(CategorySums(label[counted_D], image[counted_D], names, images))
            last_D = counted_D

    def figures(self, weights_BI: np.ndarray) -> Mapping[str, np.ndarray]:
        """Return ``macro_precision``, ``macro_recall``, ``macro_f1`` and their levels, each [B]."""
        objects_BK = self._objects(weights_BI)
        present_BK = objects_BK > 0
        at: dict[str, list[np.ndarray]] = {key: [] for key in KEYS}
        sums = {answered: answered(weights_BI) for answered in set(self._answered)}
        for hits, answered in zip(self._hits, self._answered, strict=True):
            hits_BK, answered_BK = hits(weights_BI), sums[answered]
            for key, part, whole in (
                ("precision", hits_BK, answered_BK),
                ("recall", hits_BK, objects_BK),
                ("f1", 2 * hits_BK, answered_BK + objects_BK),
            ):
                ratio_BK = np.divide(part, whole, out=np.zeros_like(part), where=present_BK & (whole > 0))
                at[key].append(ratio_BK.sum(axis=1) / np.maximum(present_BK.sum(axis=1), 1))
        return {
            f"macro_{key}{level}": np.mean([at[key][t] for t in chosen], axis=0)
            for level, chosen in LEVELS.items()
            for key in KEYS
        }
