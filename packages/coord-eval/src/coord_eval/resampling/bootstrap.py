"""Figures of all metrics under image weights, and bootstrap confidence intervals over images (Efron 1979).

An interval covers the mean of the metric over data sets with the same number of images. It is the central part of the
resamples, shifted so that their mean is the value on the data set: resampling adds the bias that a metric has for few
objects a second time, and the shift removes it. It does not cover the value for infinitely many images: AP of a label
with few objects is too high, and resamples do not show by how much. `benchmarks/interval_coverage.py` measures this.

Shapes: B weightings or resamples, I images.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from coord_codec import InputError
from coord_codec.counts import counted
from coord_eval.match.matching import Scored
from coord_eval.metrics.draws import draw_weights, interval
from coord_eval.metrics.metric_table import METRICS, figure_of

Named = Callable[[np.ndarray], dict[str, np.ndarray]]
"""Function of image weights [B, I] whose values by name are arrays [B]."""


def figures(scored: Scored, weights_BI: np.ndarray, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Return the figures [B] of all metrics by name, NaN where one is undefined.

    Args:
        scored: the matched set, for example an `Evaluation`
        weights_BI: number of times that each image counts; a row of ones gives the figures of the set
        names: names to compute; None for all

    Raises:
        InputError: for an unknown name
    """
    return prepare_figures(scored, names)(weights_BI)


def prepare_figures(scored: Scored, names: Collection[str] | None = None) -> Named:
    """Return `figures` as a function of the weights; all that does not depend on the weights is computed once."""
    if names is None:
        rows = list(METRICS.values())
    else:
        rows = [row for row in METRICS.values() if any(figure.covers(name) for figure in row.figures for name in names)]
    numbers = [row.numbers(scored) for row in rows]

    def compute(weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        result = {name: values_B for number in numbers for name, values_B in number(weights_BI).items()}
        if names is None:
            return result
        if unknown := sorted(set(names) - set(result)):
            known = ", ".join(figure.name for row in METRICS.values() for figure in row.figures)
            raise InputError(f"bootstrap: unknown metric {unknown[0]!r}; known are {known}")
        return {name: values_B for name, values_B in result.items() if name in names}

    return compute


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
    progress: Callable[[str, int, int], None] | None = None,
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
