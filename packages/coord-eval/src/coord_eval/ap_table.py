"""Average precision and recall of every label, for any weighting of the pictures.

Shape legend: B weightings, I images, K categories, T IoU thresholds, d detections of one category by falling score,
h those of them that hit.
"""

from __future__ import annotations

import numpy as np

from coord_eval.category_sums import CategorySums
from coord_eval.detections import Detections
from coord_eval.ranked import RECALL_POINTS, RankedMatches
from coord_eval.truth import GroundTruth


class ApTable:
    """COCO's precision and recall of one set of matches.

    A picture of weight 2 counts as two pictures alike. Among equal scores its boxes stand side by side, box by box.
    """

    def __init__(self, truth: GroundTruth, detections: Detections, matches: RankedMatches) -> None:
        self.names, self.images, self.levels = len(truth.categories), len(truth), len(matches.thresholds)
        self._matches, self._detections = matches, detections
        counted_N = matches.counted_N
        self._objects = CategorySums(
            truth.category_N[counted_N], truth.image_N[counted_N], self.names, self.images
        )
        # What is ignored at every threshold is never seen again.
        of_use_D = (detections.category_D < self.names) & ~matches.ignored_TD.all(axis=0)
        order = matches.order_D[of_use_D[matches.order_D]]
        order = order[np.argsort(detections.category_D[order], kind="stable")]
        bounds = np.searchsorted(detections.category_D[order], np.arange(self.names + 1))
        self._labels = [
            _Label(matches, detections, order[bounds[k] : bounds[k + 1]]) for k in range(self.names)
        ]

    def average_precision(self, weights_BI: np.ndarray | None = None) -> np.ndarray:
        """Return AP [B, T, K], NaN for categories without objects.

        Args:
            weights_BI: How often each picture counts, whole numbers; None counts each once.
        """
        weights_BI = self._weights(weights_BI)
        objects_BK = self._objects(weights_BI)
        ap_BTK = np.full((len(weights_BI), self.levels, self.names), np.nan)
        for k in np.nonzero(objects_BK.any(axis=0))[0]:
            there_B = objects_BK[:, k] > 0
            ap_BTK[there_B, :, k] = self._labels[k].average_precision(
                weights_BI[there_B], objects_BK[there_B, k]
            )
        return ap_BTK

    def average_recall(self, limit: int, weights_BI: np.ndarray | None = None) -> np.ndarray:
        """Return recall [B, K], the mean over thresholds, of the ``limit`` best boxes of each label and picture."""
        weights_BI = self._weights(weights_BI)
        found_TD = self._matches.hit_TD & (self._matches.place_D < limit)
        rows = np.nonzero(found_TD)[1]
        hits = CategorySums(
            self._detections.category_D[rows], self._detections.image_D[rows], self.names, self.images
        )
        objects_BK = self._objects(weights_BI)
        recall_BK = np.full(objects_BK.shape, np.nan)
        found_BK: np.ndarray = np.divide(
            hits(weights_BI), self.levels * objects_BK, out=recall_BK, where=objects_BK > 0
        )
        return found_BK

    def _weights(self, weights_BI: np.ndarray | None) -> np.ndarray:
        return np.ones((1, self.images), np.int32) if weights_BI is None else weights_BI.astype(np.int32)


class _Label:
    """The ranking of one category's boxes."""

    def __init__(self, matches: RankedMatches, detections: Detections, rows_d: np.ndarray) -> None:
        self._image_d = detections.image_D[rows_d]
        self._counted_Td = ~matches.ignored_TD[:, rows_d]
        self._hit_Th = [np.nonzero(hit_d)[0] for hit_d in matches.hit_TD[:, rows_d]]

    def average_precision(self, weights_BI: np.ndarray, objects_B: np.ndarray) -> np.ndarray:
        """Return AP [B, T]: the mean over 101 recalls of the best precision at that recall or beyond.

        Both move at hits alone, so nothing else is looked at: a hit stands for the recalls above that of the hit
        before it, up to its own.
        """
        weights_Bd = weights_BI[:, self._image_d]
        ap_BT = np.zeros((len(weights_BI), len(self._hit_Th)))
        before: np.ndarray | None = None
        for t, hit_h in enumerate(self._hit_Th):
            if not len(hit_h):
                continue
            if before is None or not np.array_equal(before, self._counted_Td[t]):
                before = self._counted_Td[t]
                boxes_Bd = np.cumsum(weights_Bd * before, axis=1, dtype=np.int32)
            hits_Bh = np.cumsum(weights_Bd[:, hit_h], axis=1, dtype=np.int32)
            precision_Bh = hits_Bh / np.maximum(boxes_Bd[:, hit_h], 1)
            best_Bh = np.maximum.accumulate(precision_Bh[:, ::-1], axis=1)[:, ::-1]
            reached_Bh = np.searchsorted(RECALL_POINTS, hits_Bh / objects_B[:, None], side="right")
            points_Bh = np.diff(reached_Bh, axis=1, prepend=0)
            ap_BT[:, t] = (best_Bh * points_Bh).sum(axis=1) / len(RECALL_POINTS)
        return ap_BT
