"""The table of metrics: one row each, which puts it into `evaluation.json`, intervals, comparisons, console and report.

`register_metric` adds a row of your own. How a row is shown is in `coord_eval.report.shown`, by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.registry import Registry
from coord_eval.match.matching import Scored
from coord_eval.metrics import breakdowns, coco, detection, errors
from coord_eval.metrics.ceiling import ceiling_scores
from coord_eval.metrics.coco import COCO_KEYS, ApTable
from coord_eval.metrics.coco_own import own_scores, pr_curves
from coord_eval.metrics.metric import Figure, Metric
from coord_eval.metrics.sums import Measure
from coord_eval.metrics.thresholds import threshold_table

_SUFFIXES = {"0.5": "", "0.75": "_75", "0.5:0.95": "_miou"}
_RATES = ("precision", "recall", "f1")


def _rates_of(matches: str) -> Callable[[Scored], Measure]:
    return lambda scored: detection.micro_rates(scored, getattr(scored, matches))


def _mean_iou_of(matches: str) -> Callable[[Scored], Measure]:
    return lambda scored: detection.mean_iou(scored, getattr(scored, matches))


def _rate_figures(start: str = "", end: str = "", headline: tuple[str, ...] = ()) -> tuple[Figure, ...]:
    names = [f"{start}{rate}{suffix}{end}" for suffix in _SUFFIXES.values() for rate in _RATES]
    return tuple(Figure(name, headline=name in headline) for name in names)


def _named_rates(start: str = "", end: str = "") -> Callable[[Any], dict[str, np.ndarray]]:
    return lambda rows: {
        f"{start}{rate}{_SUFFIXES[iou]}{end}": values_B for iou, row in rows.items() for rate, values_B in row.items()
    }


def _precision_alone(scored: Scored, ending: str) -> Measure:
    table = ApTable(scored.truth, scored.detections, scored.coco_matches)
    return lambda weights_BI: coco.ap_summary(table, weights_BI, ending)


def _named_bias(values: Any) -> dict[str, np.ndarray]:
    units = ("pixels", "bins")
    return {f"bias_{edge}_{unit}": error_B for unit in units for edge, error_B in values[unit].items()}


def _named_counts(values: Any) -> dict[str, np.ndarray]:
    names = {"mean_error": "count_error", "mean_absolute_error": "count_absolute_error"}
    names |= {"exact_share": "count_exact_share", "duplicates": "duplicates"}
    return {name: values[key] for key, name in names.items()}


def _named_rows(pattern: str, *keys: str) -> Callable[[Any], dict[str, np.ndarray]]:
    return lambda rows: {pattern.format(key=key, row=name): row[key] for name, row in rows.items() for key in keys}


def _constant_score(evaluation: Any) -> dict[str, float]:
    scores_D = evaluation.detections.scores_D
    if (scores_D == scores_D[:1]).all():
        return dict(evaluation.coco)
    return coco.coco_scores(evaluation.with_constant_score).summary


def _by_group(
    name: str, documentation: str, measure: Callable[[Scored], Measure], counted: str, key: str, figure: str
) -> Metric:
    """Return the row of values by group, of which those with nothing `counted` are left out; `key` is a figure."""
    return Metric(
        name=name,
        documentation=documentation,
        place="analysis",
        value=lambda evaluation: {group: row for group, row in evaluation.point(name).items() if row[counted]},
        measure=measure,
        named=lambda rows: {figure.format(group): row[key] for group, row in rows.items()},
        figures=(Figure(figure.format("*")),),
    )


_ROWS = (
    Metric(
        name="coco",
        documentation="the twelve metrics of COCO (Lin et al. 2014), equal to pycocotools to the last bit; -1 where a "
        "metric is undefined",
        place="top",
        value=lambda evaluation: dict(evaluation.backend_scores.summary),
        measure=coco.coco_measure,
        figures=tuple(
            Figure(name, headline=name in ("AP", "AP50", "AP75")) for name in COCO_KEYS if name[-1] not in "sml"
        ),
    ),
    Metric(
        name="coco_by_size",
        documentation="AP and AR of small, medium and large objects, a part of `coco`",
        place="none",
        measure=coco.coco_measure_by_size,
        figures=tuple(Figure(name) for name in COCO_KEYS if name[-1] in "sml"),
        needs=lambda scored: scored.truth.sizes_known,
    ),
    Metric(
        name="coco_constant_score",
        documentation="the same with all scores set to 1; the difference is the effect of the sorting score",
        place="top",
        value=_constant_score,
        measure=lambda scored: _precision_alone(scored.with_constant_score, "_constant_score"),
        named=lambda values: {"AP_constant_score": values["AP_constant_score"]},
        figures=(Figure("AP_constant_score"),),
    ),
    Metric(
        name="coco_class_agnostic",
        documentation="the same without labels: COCO's `useCats=0`, including unknown labels, for the 100 best boxes "
        "of an image. Tests verify that this and the row above equal pycocotools",
        place="top",
        value=lambda evaluation: coco.coco_scores(evaluation.with_one_label).summary,
        measure=lambda scored: _precision_alone(scored.with_one_label, "_any_label"),
        figures=tuple(Figure(f"{name}_any_label") for name in ("AP", "AP50", "AP75")),
    ),
    Metric(
        name="ceiling",
        documentation="the twelve metrics of the ground truth itself, encoded as tokens and parsed back, with all "
        "scores set to 1; empty if it cannot be computed",
        place="top",
        value=lambda evaluation: ceiling_scores(evaluation.truth, evaluation.ceiling_settings, evaluation.grid),
    ),
    Metric(
        name="coco_own",
        documentation="AP and AR with `ReportSettings(params=CocoParams(iou_thresholds, areas, max_detections))` "
        "(`--iou`, `--area`, `--max-dets`), equal to pycocotools with the same parameters",
        place="top",
        value=lambda evaluation: (
            own_scores(evaluation.truth, evaluation.detections, evaluation.params) if evaluation.params else {}
        ),
    ),
    Metric(
        name="detection",
        documentation="micro precision h/(h+f), recall h/(h+m), F1 2h/(2h+f+m) of hits, false boxes and missed objects "
        "at an IoU; pairs are matched one to one by descending IoU, without scores; `0.5:0.95` is the mean over ten "
        "thresholds; 0/0 is 0",
        place="top",
        measure=_rates_of("matches"),
        named=_named_rates(),
        figures=_rate_figures(headline=("precision", "recall", "f1", "f1_75", "f1_miou")),
    ),
    Metric(
        name="detection_class_agnostic",
        documentation="the same without labels",
        place="top",
        measure=_rates_of("matches_any_label"),
        named=_named_rates(end="_any_label"),
        figures=_rate_figures(end="_any_label"),
    ),
    Metric(
        name="mean_iou",
        documentation="mean over objects of the IoU with the matched box, 0 for missed objects; superfluous boxes do "
        "not lower it",
        place="top",
        measure=_mean_iou_of("matches"),
        figures=(Figure("mean_iou", headline=True),),
    ),
    Metric(
        name="mean_iou_class_agnostic",
        documentation="the same without labels",
        place="top",
        measure=_mean_iou_of("matches_any_label"),
        named=lambda values: {"mean_iou_any_label": values},
        figures=(Figure("mean_iou_any_label"),),
    ),
    Metric(
        name="pr_curves",
        documentation="COCO's precision at 101 recalls, mean over labels, at IoU .5, .75 and over .5:.95; the mean of "
        "a curve is its AP",
        place="top",
        value=lambda evaluation: pr_curves(evaluation.backend_scores),
    ),
    Metric(
        name="macro",
        documentation="mean over categories that have objects; its `0.5:0.95` F1 is Rex-Omni's F1@mIoU (Jiang et al. "
        "2025); a category without a hit scores 0, a category without objects is left out",
        place="analysis",
        measure=detection.macro_rates,
        named=_named_rates("macro_"),
        figures=_rate_figures("macro_"),
    ),
    Metric(
        name="class_agnostic_recall",
        documentation="recall at IoU .5 without labels, as in `detection_class_agnostic`",
        place="analysis",
        value=lambda evaluation: evaluation.detection_class_agnostic["0.5"]["recall"],
    ),
    Metric(
        name="count",
        documentation="number of predicted minus ground-truth objects of an image, signed and absolute; duplicates: "
        "unmatched boxes on an object (IoU ≥ .5, same label) that another box matched",
        place="analysis",
        measure=breakdowns.count_errors,
        named=_named_counts,
        figures=(
            Figure("count_error", "zero", is_share=False),
            Figure("count_absolute_error", "low", is_share=False),
            Figure("count_exact_share"),
            Figure("duplicates", "low", is_share=False),
        ),
    ),
    Metric(
        name="edge_bias",
        documentation="mean of prediction minus ground truth for each edge over pairs with IoU ≥ .5, in pixels and in "
        "bins",
        place="analysis",
        measure=breakdowns.edge_bias,
        named=_named_bias,
        figures=tuple(
            Figure(f"bias_{edge}_{unit}", "zero", is_share=False)
            for unit in ("pixels", "bins")
            for edge in breakdowns.EDGES
        ),
    ),
    Metric(
        name="by_size",
        documentation="recall and mean IoU of small, medium and large objects; empty without image sizes",
        place="analysis",
        measure=breakdowns.by_size,
        named=_named_rows("{key}_{row}", "recall", "mean_iou"),
        figures=tuple(
            Figure(f"{key}_{size}") for size in ("small", "medium", "large") for key in ("recall", "mean_iou")
        ),
        needs=lambda scored: scored.truth.sizes_known,
        absent={},
    ),
    _by_group(
        "by_object_count",
        "precision, recall and F1 by the number of objects in the image",
        breakdowns.by_object_count,
        "images",
        "f1",
        "f1_of_{}_objects",
    ),
    _by_group(
        "by_rank",
        "precision by position in the answer",
        breakdowns.by_rank,
        "detections",
        "precision",
        "precision_at_place_{}",
    ),
    Metric(
        name="f1_against_threshold",
        documentation="F1 at IoU .5 of the boxes with at least a given score",
        place="analysis",
        value=threshold_table,
        measure=detection.f1_at_thresholds,
        figures=tuple(Figure(detection.f1_name(t)) for t in detection.SCORE_THRESHOLDS),
    ),
    Metric(
        name="reliability",
        documentation="share of hits against score in ten intervals, and ECE, their weighted mean gap (Naeini et al. "
        "2015)",
        place="analysis",
        value=detection.reliability,
        measure=detection.calibration,
        named=lambda values: {"ece": values["ece"]},
        figures=(Figure("ece", "low"),),
        needs=detection.are_probabilities,
    ),
    Metric(
        name="errors",
        documentation="gain in AP50 if only one kind of error were repaired (TIDE, Bolya et al. 2020), "
        "counts equal to those of tidecv 1.0.1, costs up to .0025, since tidecv's steps of recall (x / 100) differ "
        "from COCO's in the last bit, except for equal scores, images without objects, crowd regions, and labels "
        "without objects (or without any after the repair), which tidecv orders otherwise, leaves out or counts as 0",
        place="analysis",
        measure=errors.error_costs,
        named=_named_rows("{key}_{row}", "cost"),
        figures=tuple(Figure(f"cost_{kind}", "low", is_share=False) for kind in errors.ERROR_KINDS),
        needs=lambda scored: bool(scored.objects_per_image.any()),
        absent={},
    ),
    Metric(
        name="confusion",
        documentation="confusion matrix of labels at IoU ≥ .5, including `(background)`; boxes choose objects by "
        "descending score, equal scores by IoU",
        place="analysis",
        value=errors.confusion,
        measure=errors.confused_shares,
        figures=(Figure("confused_*_as_*", "low"),),
    ),
    Metric(
        name="per_class",
        documentation="AP and AP50 of each category, its objects and boxes",
        place="top",
        value=lambda evaluation: coco.scores_by_class(
            evaluation.truth, evaluation.detections, evaluation.backend_scores
        ),
    ),
)


METRICS: Registry[Metric] = Registry("metric", ((row.name, row) for row in _ROWS))
"""All metrics by name, in the order in which they are shown: the built-in ones, then those that were registered."""


def register_metric(metric: Metric) -> Metric:
    """Add a metric to `evaluation.json`, intervals, report, console and comparisons of this process.

    Its value stands under `metrics` in `evaluation.json`.

    Args:
        metric: the row

    Raises:
        InputError: if the name or one of its figures is taken, or the row is to stand elsewhere

    Example:
        >>> from coord_eval import Metric, ratio_over_images
        >>> def missed(scored):
        ...     return ratio_over_images(scored.sum_objects(scored.matches.iou_N < 0.5), scored.objects_per_image)
        >>> row = Metric(name="missed", documentation="Share of objects without a box.", measure=missed)
        >>> register_metric(row).name
        'missed'
        >>> METRICS.remove("missed")
    """
    if metric.place != "metrics":
        raise InputError(
            f"metric {metric.name}: place: expected 'metrics' for a registered one, found {metric.place!r}"
        )
    for figure in metric.figures:
        if any(other.covers(figure.name) for row in METRICS.values() for other in row.figures):
            raise InputError(f"metric {metric.name}: a figure {figure.name!r} exists; choose another name")
    return METRICS.add(metric.name, metric)


def figure_of(name: str) -> Figure:
    """Return the figure with a name, as `resample` lists it.

    Raises:
        InputError: if no metric has such a figure

    Example:
        >>> figure_of("AP").goal
        'high'
    """
    for row in METRICS.values():
        for figure in row.figures:
            if figure.covers(name):
                return figure
    raise InputError(
        f"metric: no metric has a figure {name!r}; state it in `figures` of its metric, with * for what the data name"
    )


def headline(scored: Scored) -> Iterator[str]:
    """Yield the names of the figures that are shown first, out of about a hundred, also of those named by the data."""
    for row in METRICS.values():
        for figure in row.figures:
            if figure.headline and "*" in figure.name:
                numbers = row.numbers(scored)(np.ones((1, len(scored.truth)), np.int32))
                yield from filter(figure.covers, numbers)
            elif figure.headline:
                yield figure.name


HEADLINE = tuple(figure.name for row in _ROWS for figure in row.figures if figure.headline)
"""The built-in figures that are shown first."""


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
            raise InputError(f"unknown metric {unknown[0]!r}; known are {known}")
        return {name: values_B for name, values_B in result.items() if name in names}

    return compute
