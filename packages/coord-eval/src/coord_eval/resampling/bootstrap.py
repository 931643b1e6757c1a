"""Bootstrap confidence intervals over images (Efron 1979).

An interval covers the mean of the metric over data sets with the same number of images. It is the central part of the
resamples, shifted so that their mean is the value on the data set: resampling adds the bias that a metric has for few
objects a second time, and the shift removes it. It does not cover the value for infinitely many images: AP of a label
with few objects is too high, and resamples do not show by how much. `benchmarks/interval_coverage.py` measures this.

Shapes: B resamples, I images, X intervals of scores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.counts import counted
from coord_eval.match.matching import Scored
from coord_eval.metrics.detection import BINS, calibration
from coord_eval.metrics.draws import draw_weights, interval, sum_interval
from coord_eval.metrics.metric_table import figure_of, prepare_figures

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, the number of steps done and their total."""


@dataclass(frozen=True, eq=False)
class Resamples:
    """Metrics of the data set and of its resamples.

    Attributes:
        point: each metric on the data set; NaN where it is undefined
        draws: each metric [B] on the resamples; NaN where it is undefined
        seed: seed of the resamples
    """

    point: dict[str, float]
    draws: dict[str, np.ndarray]
    seed: int

    def intervals(self) -> dict[str, dict[str, float]]:
        """Return `value`, `low` and `high` of each metric's 95 % interval.

        Undefined metrics are left out, and so are resamples in which a metric is undefined.
        """
        return {
            name: interval(value, self.draws[name], figure_of(name).is_share)
            for name, value in self.point.items()
            if not np.isnan(value)
        }


FEW_OBJECTS = 10
"""A label with fewer objects has an AP that is too high on average."""


def few_objects_note(scored: Scored) -> list[str]:
    """Return a note with the number of labels whose AP is too high because they have few objects."""
    objects_K = np.bincount(scored.truth.category_N[~scored.truth.crowd_N], minlength=len(scored.truth.categories))
    few, present = int(((objects_K > 0) & (objects_K < FEW_OBJECTS)).sum()), int((objects_K > 0).sum())
    if not few:
        return []
    return [
        f"{few} of {counted(present, 'label has', 'labels have')} fewer than {FEW_OBJECTS} objects: their AP, and so "
        "the mean over labels, is higher than it would be on more images; the intervals are for sets of this size, and "
        "those of AP and AP50 are too narrow if many labels are so rare: with a long tail of labels they covered AP50 "
        "in .875 of simulated sets"
    ]


def resample(
    evaluation: Scored,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
    metrics: Collection[str] | None = None,
) -> Resamples:
    """Draw the images with replacement and recompute every metric.

    The same seed draws the same images for any evaluation of the same ground truth, so that differences of two are
    paired. The README lists the names. Precision, recall and F1 are at IoU .5, with `_75` at .75 and with `_miou` the
    mean over .5:.95. A label without objects in a resample is left out of its mean AP, as in COCO; with many rare
    labels this shifts all resamples of AP, and the paired difference of two runs is more reliable. The boxes of an
    image drawn twice are sorted next to each other among equal scores.

    Args:
        evaluation: the scored answers
        resamples: number of resamples of the images
        seed: seed of the resamples
        progress: called with the name of a stage, the number of steps done and their total
        metrics: names to compute; None for all. AP by size and AP of any label take the longest

    Raises:
        InputError: if there are no images, `resamples` is below 1, or a name is unknown
    """
    images = len(evaluation.truth)
    if not images or resamples < 1:
        raise InputError(f"bootstrap: expected images and at least one resample, found {images} and {resamples}")
    compute = prepare_figures(evaluation, metrics)
    point = {name: float(values_B[0]) for name, values_B in compute(np.ones((1, images), np.int32)).items()}
    parts, done = [], 0
    for weights_BI in draw_weights(images, resamples, seed):
        parts.append(compute(weights_BI))
        done += len(weights_BI)
        if progress:
            progress("bootstrap", done, resamples)
    return Resamples(point, {name: np.concatenate([part[name] for part in parts]) for name in point}, seed)


def intervals_of(
    scored: Scored, resamples: int, seed: int = 0, progress: Progress | None = None
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Return the intervals of every metric, that of the ECE for the error itself, and notes on them."""
    intervals = resample(scored, resamples, seed, progress).intervals()
    if "ece" in intervals:
        row = reliability_with_intervals(scored, resamples, seed)
        intervals["ece"] |= {"low": row["low"], "high": row["high"]}
    return intervals, few_objects_note(scored)


def reliability_with_intervals(scored: Scored, resamples: int = 200, seed: int = 0) -> dict[str, Any]:
    """Return `ece`, `low` and `high` and `bins`, rows `from, to, boxes, mean score, share of hits, low, high`."""
    measure, images = calibration(scored), len(scored.truth)
    own = measure(np.ones((1, images), np.int32))
    draws = [measure(weights_BI) for weights_BI in draw_weights(images, resamples, seed)]
    gaps_BX, hits_BX = (np.concatenate([draw[key] for draw in draws]) for key in ("gaps", "hits"))
    bins = []
    for b in range(BINS):
        if boxes := int(own["boxes"][0, b]):
            row = interval(float(own["hits"][0, b]), hits_BX[:, b], share=True)
            bins.append([b / BINS, (b + 1) / BINS, boxes, float(own["score"][0, b]), *row.values()])
    low, high = sum_interval(own["gaps"][0], gaps_BX, own["boxes"][0])
    return {"ece": float(own["ece"][0]), "low": low, "high": high, "bins": bins}
