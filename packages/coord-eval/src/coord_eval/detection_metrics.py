"""Precision, recall and F1 that need no score, and mean IoU.

Shape legend: N objects, D detections, T thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coord_eval.matching import Matches

#: .50, .55, …, .95: the thresholds of COCO.
IOU_THRESHOLDS = tuple(float(t) for t in np.linspace(0.5, 0.95, 10))


@dataclass(frozen=True)
class Counts:
    """Hits and misses at one threshold.

    Attributes:
        hits: Detections paired with an object of their label at the threshold or better.
        false: Detections without one, unknown labels included, those inside crowd regions not.
        missed: Objects without a detection.
    """

    hits: int
    false: int
    missed: int

    @property
    def precision(self) -> float:
        """Hits over hits + false; 0 without detections."""
        return self.hits / (self.hits + self.false) if self.hits + self.false else 0.0

    @property
    def recall(self) -> float:
        """Hits over hits + missed; 0 without objects."""
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else 0.0

    @property
    def f1(self) -> float:
        """2 hits over 2 hits + false + missed (van Rijsbergen 1979); 0 when both sides are empty."""
        total = 2 * self.hits + self.false + self.missed
        return 2 * self.hits / total if total else 0.0


def count_at(matches: Matches, crowd_N: np.ndarray, threshold: float) -> Counts:
    """Count hits and misses at one IoU threshold.

    Args:
        matches: Pairs of one evaluation.
        crowd_N: Objects that are neither hit nor missed.
        threshold: A pair counts from this IoU on.
    """
    hit_D = matches.iou_D >= threshold
    ignored_D = ~hit_D & (matches.crowd_D >= threshold)
    hits = int(hit_D.sum())
    return Counts(hits, len(hit_D) - hits - int(ignored_D.sum()), int((~crowd_N).sum()) - hits)


def detection_table(matches: Matches, crowd_N: np.ndarray) -> dict[str, dict[str, float]]:
    """Return micro precision, recall and F1, pooled over images and labels.

    Returns:
        Rows ``"0.5"``, ``"0.75"`` and ``"0.5:0.95"``, the last the plain mean over the ten thresholds.
    """
    rows = [count_at(matches, crowd_N, t) for t in IOU_THRESHOLDS]

    def row(chosen: list[Counts]) -> dict[str, float]:
        return {
            key: float(np.mean([getattr(c, key) for c in chosen])) for key in ("precision", "recall", "f1")
        }

    return {"0.5": row(rows[:1]), "0.75": row(rows[5:6]), "0.5:0.95": row(rows)}


def mean_iou(matches: Matches, crowd_N: np.ndarray) -> float:
    """Return the mean over objects of the IoU with their one-to-one partner, missed ones counting 0.

    Superfluous detections don't lower it: read it beside precision. 0 without objects.
    """
    found_N = matches.iou_N[~crowd_N]
    return float(found_N.mean()) if found_N.size else 0.0
