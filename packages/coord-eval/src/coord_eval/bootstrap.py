"""How far numbers would move on another draw of pictures (Efron 1979): percentile intervals over images.

Shape legend: B resamples, I images, D detections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coord_eval.detection_metrics import IOU_THRESHOLDS
from coord_eval.errors import InputError
from coord_eval.evaluation import Evaluation
from coord_eval.ranked import ApTable, mean_present, ranked_matches

#: Metrics that are resampled, in the order in which they are shown.
RESAMPLED = ("AP", "AP50", "AP75", "precision", "recall", "f1", "f1_75", "f1_miou", "mean_iou")
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Resamples:
    """Metrics of the data set and of its resamples.

    Attributes:
        point: Each metric on the pictures as they are.
        draws: Each metric [B] on the resamples.
        seed: What the draws came from.
    """

    point: dict[str, float]
    draws: dict[str, np.ndarray]
    seed: int

    def intervals(self) -> dict[str, dict[str, float]]:
        """Return ``value``, ``low`` and ``high`` of the central 95 % of the resamples."""
        return {name: interval(self.point[name], self.draws[name]) for name in self.point}


def interval(value: float, draws_B: np.ndarray) -> dict[str, float]:
    """Return a value with the central 95 % of its resamples."""
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(draws_B, [tail, 100 - tail])
    return {"value": value, "low": float(low), "high": float(high)}


def resample(
    evaluation: Evaluation,
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Resamples:
    """Draw the pictures anew, with replacement, and recompute every metric of :data:`RESAMPLED`.

    The same seed draws the same pictures from any evaluation of the same ground truth, so differences of two are
    paired. Precision, recall and F1 are micro figures at IoU .5; ``f1_miou`` is the mean F1 over .5:.95.
    A label that a resample happens to leave out takes no part in its AP, as COCO has it; where many labels are rare
    that shifts AP's resamples as a whole, and the paired difference of two runs is the safer thing to read.

    Raises:
        InputError: When there are no pictures, or fewer than one resample is asked for.
    """
    truth, images = evaluation.truth, len(evaluation.truth)
    if not images or resamples < 1:
        raise InputError(
            f"bootstrap: expected pictures and at least one resample, found {images} and {resamples}"
        )
    matches = ranked_matches(truth, evaluation.detections, IOU_THRESHOLDS)
    table = ApTable(truth, evaluation.detections, matches)
    sums = _ImageSums(evaluation)
    draw = np.random.default_rng(seed)
    rows = []
    for b in range(resamples):
        weights_I = np.bincount(draw.integers(0, images, images), minlength=images).astype(float)
        rows.append(_metrics(table, sums, weights_I))
        if progress:
            progress("bootstrap", b + 1, resamples)
    point = _metrics(table, sums, np.ones(images))
    return Resamples(point, {name: np.array([row[name] for row in rows]) for name in point}, seed)


class _ImageSums:
    """What each picture adds to the figures that are ratios of sums."""

    def __init__(self, evaluation: Evaluation) -> None:
        truth, detections, matches = evaluation.truth, evaluation.detections, evaluation.matches
        images, regular_N = len(truth), ~truth.crowd_N
        self.objects_I = np.bincount(truth.image_N[regular_N], minlength=images)
        self.iou_I = np.bincount(truth.image_N[regular_N], matches.iou_N[regular_N], minlength=images)
        hits, answered = [], []
        for t in IOU_THRESHOLDS:
            hit_D = matches.iou_D >= t
            counted_D = hit_D | (matches.crowd_D < t)
            hits.append(np.bincount(detections.image_D[hit_D], minlength=images))
            answered.append(np.bincount(detections.image_D[counted_D], minlength=images))
        self.hits_TI, self.answered_TI = np.array(hits), np.array(answered)


def _metrics(table: ApTable, sums: _ImageSums, weights_I: np.ndarray) -> dict[str, float]:
    ap_TK = table.average_precision(weights_I)
    objects = float(sums.objects_I @ weights_I)
    hits_T, answered_T = sums.hits_TI @ weights_I, sums.answered_TI @ weights_I
    f1_T = 2 * hits_T / np.maximum(answered_T + objects, 1)
    return {
        "AP": mean_present(ap_TK),
        "AP50": mean_present(ap_TK[0]),
        "AP75": mean_present(ap_TK[5]),
        "precision": float(hits_T[0] / max(answered_T[0], 1)),
        "recall": float(hits_T[0] / max(objects, 1)),
        "f1": float(f1_T[0]),
        "f1_75": float(f1_T[5]),
        "f1_miou": float(f1_T.mean()),
        "mean_iou": float(sums.iou_I @ weights_I / max(objects, 1)),
    }
