"""All metrics by name under image weights, and bootstrap confidence intervals over images (Efron 1979).

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
from coord_eval.match.matching import Scored, ranked_matches
from coord_eval.metrics.breakdowns import by_object_count, by_rank, by_size, count_errors, edge_bias
from coord_eval.metrics.coco import COCO_KEYS, ApTable, CocoTable, ap_summary, one_label
from coord_eval.metrics.detection import ScoreCurve, are_probabilities, calibration, macro_rates, micro_rates
from coord_eval.metrics.errors import ERROR_KINDS, confused_shares, error_costs

HEADLINE = ("AP", "AP50", "AP75", "precision", "recall", "f1", "f1_75", "f1_miou", "mean_iou")
"""Metrics that are shown first, out of about a hundred."""
_CONSTANT = ("AP_constant_score",)
_ANY_LABEL = ("AP_any_label", "AP50_any_label", "AP75_any_label")
_COSTS = tuple(f"cost_{kind}" for kind in ERROR_KINDS)
_SUFFIXES = {"0.5": "", "0.75": "_75", "0.5:0.95": "_miou"}

Named = Callable[[np.ndarray], dict[str, np.ndarray]]
"""Function of image weights [B, I] whose values by name are arrays [B]."""


def figures(scored: Scored, weights_BI: np.ndarray, metrics: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Return each metric [B], NaN where it is undefined.

    Args:
        scored: the matched set, for example an `Evaluation`
        weights_BI: number of times that each image counts; a row of ones gives the metrics of the set
        metrics: names to compute; None for all

    Raises:
        InputError: for an unknown name
    """
    return prepare(scored, metrics)(weights_BI)


def prepare(scored: Scored, metrics: Collection[str] | None = None) -> Named:
    """Return `figures` as a function of the weights; all that does not depend on the weights is computed once."""
    wanted = None if metrics is None else set(metrics)

    def wants(names: Collection[str]) -> bool:
        return wanted is None or not wanted.isdisjoint(names)

    truth, detections = scored.truth, scored.detections
    parts: list[Named] = []
    if wants(COCO_KEYS):
        sized = wants([key for key in COCO_KEYS if key[-1] in "sml"])
        parts.append(CocoTable(truth, detections, sized))
    if wants(_CONSTANT):
        constant = detections.with_constant_score()
        table = ApTable(truth, constant, ranked_matches(truth, constant))
        parts.append(lambda weights_BI: {"AP_constant_score": ap_summary(table, weights_BI)["AP"]})
    if wants(_ANY_LABEL):
        merged = one_label(truth, detections)
        any_label = ApTable(*merged, ranked_matches(*merged))
        parts.append(lambda weights_BI: ap_summary(any_label, weights_BI, "_any_label"))
    if wants(_COSTS):
        costs = error_costs(scored)
        parts.append(lambda weights_BI: {f"cost_{kind}": row["cost"] for kind, row in costs(weights_BI).items()})
    if wanted is None or wanted - {*COCO_KEYS, *_CONSTANT, *_ANY_LABEL, *_COSTS}:
        parts.append(_other_metrics(scored))

    def compute(weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        result = {name: values for part in parts for name, values in part(weights_BI).items()}
        if unknown := sorted((wanted or set()) - set(result)):
            raise InputError(f"bootstrap: unknown metric {unknown[0]!r}; known are {', '.join(result)}")
        return {name: values for name, values in result.items() if wants([name])}

    return compute


def _other_metrics(scored: Scored) -> Named:
    """Prepare all metrics other than average precision."""
    micro, macro = micro_rates(scored, scored.matches), macro_rates(scored)
    any_label = micro_rates(scored, scored.matches_any_label)
    bias, counts, sizes = edge_bias(scored), count_errors(scored), by_size(scored)
    object_counts, ranks, confused = by_object_count(scored), by_rank(scored), confused_shares(scored)
    has_probabilities = are_probabilities(scored)
    curve, calibrated = (ScoreCurve(scored), calibration(scored)) if has_probabilities else (None, None)

    def compute(weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        of_label, of_any = micro(weights_BI), any_label(weights_BI)
        result = {
            f"{start}{key}{_SUFFIXES[iou]}{end}": values
            for start, rows, end in (
                ("", of_label["rates"], ""),
                ("", of_any["rates"], "_any_label"),
                ("macro_", macro(weights_BI), ""),
            )
            for iou, row in rows.items()
            for key, values in row.items()
        }
        result["mean_iou"], result["mean_iou_any_label"] = (of_label["mean_iou"], of_any["mean_iou"])
        errors = counts(weights_BI)
        result["count_error"], result["count_absolute_error"] = (errors["mean_error"], errors["mean_absolute_error"])
        result["count_exact_share"], result["duplicates"] = errors["exact_share"], errors["duplicates"]
        edges = bias(weights_BI)
        for unit in ("pixels", "bins"):
            result |= {f"bias_{edge}_{unit}": values for edge, values in edges[unit].items()}
        for size, row in sizes(weights_BI).items():
            result |= {f"recall_{size}": row["recall"], f"mean_iou_{size}": row["mean_iou"]}
        result |= {f"f1_of_{name}_objects": row["f1"] for name, row in object_counts(weights_BI).items()}
        result |= {f"precision_at_place_{name}": row["precision"] for name, row in ranks(weights_BI).items()}
        if curve and calibrated:
            result |= curve.at_thresholds(weights_BI)
        result |= confused(weights_BI)
        if calibrated:
            result["ece"] = calibrated(weights_BI)["ece"]
        return result

    return compute


CONFIDENCE = 0.95
_CHUNK = 16
"""Number of resamples that are computed together."""


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
            name: interval(value, self.draws[name], not name.startswith(_UNBOUNDED))
            for name, value in self.point.items()
            if not np.isnan(value)
        }


_UNBOUNDED = ("bias_", "count_error", "count_absolute", "duplicates", "cost_")
"""Prefixes of the metrics that are not limited to [0, 1]."""


def interval(value: float, draws_B: np.ndarray, share: bool = False) -> dict[str, float]:
    """Return a value and the central 95 % of its resamples, shifted so that their mean is the value.

    Args:
        value: the metric on the data set
        draws_B: the metric on the resamples; NaN where it is undefined
        share: whether values lie in [0, 1]
    """
    tail = 100 * (1 - CONFIDENCE) / 2
    present_B = draws_B[~np.isnan(draws_B)]
    shifted_B = present_B + (value - present_B.mean()) if len(present_B) else np.array([value])
    low, high = (
        min(float(v), value) if i == 0 else max(float(v), value)
        for i, v in enumerate(np.percentile(shifted_B, [tail, 100 - tail]))
    )
    return {"value": value, "low": max(low, 0.0) if share else low, "high": min(high, 1.0) if share else high}


FEW_OBJECTS = 10
"""A label with fewer objects has an AP that is too high on average."""


def few_objects_note(scored: Scored) -> list[str]:
    """Return a note with the number of labels whose AP is too high because they have few objects."""
    objects_K = np.bincount(scored.truth.category_N[~scored.truth.crowd_N], minlength=len(scored.truth.categories))
    few, present = int(((objects_K > 0) & (objects_K < FEW_OBJECTS)).sum()), int((objects_K > 0).sum())
    if not few:
        return []
    return [
        f"{few} of {present} labels have fewer than {FEW_OBJECTS} objects: their AP, and so the mean over labels, is "
        "higher than it would be on more images; the intervals are for sets of this size"
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
    figures = prepare(evaluation, metrics)
    point = {name: float(values_B[0]) for name, values_B in figures(np.ones((1, images), np.int32)).items()}
    rng = np.random.default_rng(seed)
    parts = []
    for start in range(0, resamples, _CHUNK):
        drawn = (rng.integers(0, images, images) for _ in range(min(_CHUNK, resamples - start)))
        parts.append(figures(np.stack([np.bincount(chosen, minlength=images) for chosen in drawn])))
        if progress:
            progress("bootstrap", min(start + _CHUNK, resamples), resamples)
    return Resamples(point, {name: np.concatenate([part[name] for part in parts]) for name in point}, seed)
