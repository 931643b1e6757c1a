"""How far numbers would move on another draw of pictures (Efron 1979): percentile intervals over images.

Shape legend: B resamples, I images, T IoU thresholds, K categories.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from coord_eval.ap_table import ApTable
from coord_eval.coco import COCO_KEYS
from coord_eval.coco_table import CocoTable, mean_of_present
from coord_eval.detection_metrics import IOU_THRESHOLDS
from coord_eval.detections import Detections
from coord_eval.error_kinds import ERROR_KINDS, ErrorCosts
from coord_eval.errors import InputError
from coord_eval.evaluation import Evaluation
from coord_eval.image_ratios import ImageRatios
from coord_eval.one_label import one_label
from coord_eval.ranked import ranked_matches
from coord_eval.truth import GroundTruth

#: The metrics that are shown first; there are about a hundred in all.
HEADLINE = ("AP", "AP50", "AP75", "precision", "recall", "f1", "f1_75", "f1_miou", "mean_iou")
LEVEL = 0.95
_ANY_LABEL = ("AP_any_label", "AP50_any_label", "AP75_any_label")
_CONSTANT = ("AP_constant_score",)
_COSTS = tuple(f"cost_{kind}" for kind in ERROR_KINDS)
#: Resamples that are computed together.
_CHUNK = 16


@dataclass(frozen=True, eq=False)
class Resamples:
    """Metrics of the data set and of its resamples.

    Attributes:
        point: Each metric on the pictures as they are; NaN where there is nothing to measure.
        draws: Each metric [B] on the resamples; NaN likewise.
        seed: What the draws came from.
    """

    point: dict[str, float]
    draws: dict[str, np.ndarray]
    seed: int

    def intervals(self) -> dict[str, dict[str, float]]:
        """Return ``value``, ``low`` and ``high`` of the central 95 % of the resamples.

        Metrics with nothing to measure are left out, as are the single resamples in which there is nothing.
        """
        return {
            name: interval(value, self.draws[name])
            for name, value in self.point.items()
            if not np.isnan(value)
        }


def interval(value: float, draws_B: np.ndarray) -> dict[str, float]:
    """Return a value with the central 95 % of its resamples, of those in which there is something to measure."""
    tail = 100 * (1 - LEVEL) / 2
    present_B = draws_B[~np.isnan(draws_B)]
    low, high = np.percentile(present_B if len(present_B) else [value], [tail, 100 - tail])
    return {"value": value, "low": float(low), "high": float(high)}


def resample(
    evaluation: Evaluation,
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
    metrics: Collection[str] | None = None,
) -> Resamples:
    """Draw the pictures anew, with replacement, and recompute every metric.

    The same seed draws the same pictures from any evaluation of the same ground truth, so differences of two are
    paired. The README lists the names. Precision, recall and F1 are at IoU .5, with ``_75`` at .75 and with ``_miou``
    the mean over .5:.95. A label that a resample happens to leave out takes no part in its AP, as COCO has it; where
    many labels are rare that shifts AP's resamples as a whole, and the paired difference of two runs is the safer
    thing to read. A picture drawn twice has the boxes of both among equal scores side by side.

    Args:
        evaluation: The scored answers.
        resamples: Draws of the pictures.
        seed: Of the draws.
        progress: Called with a stage's name, what is done and what there is to do.
        metrics: Names to compute; None for all. AP by size and AP of any label cost the most.

    Raises:
        InputError: When there are no pictures, fewer than one resample is asked for, or a name is unknown.
    """
    images = len(evaluation.truth)
    if not images or resamples < 1:
        raise InputError(
            f"bootstrap: expected pictures and at least one resample, found {images} and {resamples}"
        )
    wanted = None if metrics is None else set(metrics)
    figures = _Figures(evaluation, wanted)
    point = {name: float(values_B[0]) for name, values_B in figures(np.ones((1, images), np.int32)).items()}
    if unknown := sorted((wanted or set()) - set(point)):
        raise InputError(f"bootstrap: unknown metric {unknown[0]!r}; known are {', '.join(point)}")
    draw = np.random.default_rng(seed)
    parts = []
    for start in range(0, resamples, _CHUNK):
        drawn = (draw.integers(0, images, images) for _ in range(min(_CHUNK, resamples - start)))
        parts.append(figures(np.stack([np.bincount(chosen, minlength=images) for chosen in drawn])))
        if progress:
            progress("bootstrap", min(start + _CHUNK, resamples), resamples)
    return Resamples(point, {name: np.concatenate([part[name] for part in parts]) for name in point}, seed)


class _Figures:
    """All metrics, or the wanted ones, of any weighting of the pictures."""

    def __init__(self, evaluation: Evaluation, wanted: set[str] | None) -> None:
        self._wanted = wanted
        truth, detections = evaluation.truth, evaluation.detections
        self._parts: list[Callable[[np.ndarray], dict[str, np.ndarray]]] = []
        if self._wants(COCO_KEYS):
            sized = self._wants([key for key in COCO_KEYS if key[-1] in "sml"])
            self._parts.append(CocoTable(truth, detections, sized).numbers)
        if self._wants(_CONSTANT):
            self._parts.append(_ApOnly(truth, detections.with_constant_score(), _CONSTANT))
        if self._wants(_ANY_LABEL):
            self._parts.append(_ApOnly(*one_label(truth, detections), _ANY_LABEL))
        if self._wants(_COSTS):
            self._parts.append(_Costs(truth, detections))
        if wanted is None or wanted - {*COCO_KEYS, *_CONSTANT, *_ANY_LABEL, *_COSTS}:
            self._parts.append(ImageRatios(evaluation).figures)

    def __call__(self, weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        found = {name: values for part in self._parts for name, values in part(weights_BI).items()}
        return {name: values for name, values in found.items() if self._wants([name])}

    def _wants(self, names: Collection[str]) -> bool:
        return self._wanted is None or not self._wanted.isdisjoint(names)


class _Costs:
    """What each kind of error costs; nothing to measure where there is no object."""

    def __init__(self, truth: GroundTruth, detections: Detections) -> None:
        self._errors = ErrorCosts(truth, detections, ranked_matches(truth, detections, (0.5,)))

    def __call__(self, weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        return {f"cost_{kind}": cost_B for kind, cost_B in self._errors.costs(weights_BI).items()}


class _ApOnly:
    """Average precision over all thresholds, at .5 and at .75, as many of them as there are names."""

    def __init__(self, truth: GroundTruth, detections: Detections, names: tuple[str, ...]) -> None:
        self._table = ApTable(truth, detections, ranked_matches(truth, detections, IOU_THRESHOLDS))
        self._names = names

    def __call__(self, weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        ap_BTK = self._table.average_precision(weights_BI)
        chosen = (ap_BTK, ap_BTK[:, 0], ap_BTK[:, 5])
        return {name: mean_of_present(part) for name, part in zip(self._names, chosen, strict=False)}
