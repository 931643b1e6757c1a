"""Figures that are ratios of sums over pictures, for any weighting of the pictures.

Shape legend: B weightings, I images, N objects, D detections, K categories, C ratios.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from coord_eval.confusion import UNKNOWN, confused_name, confused_pairs, confusion
from coord_eval.detection_metrics import IOU_THRESHOLDS
from coord_eval.evaluation import Evaluation
from coord_eval.localisation import CROWDING, EDGES, RANKS, SIZES, chosen_by, count_by_image, edge_errors
from coord_eval.macro_figures import KEYS, LEVELS, MacroFigures
from coord_eval.matching import Matches
from coord_eval.ranked import ranked_matches
from coord_eval.thresholds import BINS, F1_THRESHOLDS, PROBABILITIES, f1_name, score_bins


@dataclass(frozen=True, eq=False)
class _Ratio:
    """One sum over pictures by another.

    Attributes:
        part_I: What each picture adds above the line.
        whole_I: And below it.
        nothing: Value where the sum below is 0.
    """

    part_I: np.ndarray
    whole_I: np.ndarray
    nothing: float = np.nan


class ImageRatios:
    """Precision, recall and F1, IoU, counts, bias, calibration and breakdowns of one evaluation."""

    def __init__(self, evaluation: Evaluation) -> None:
        """Sum up every picture once."""
        ratios = dict(
            chain(
                _detection(evaluation, evaluation.matches, ""),
                _detection(evaluation, evaluation.matches_any_label, "_any_label"),
                _counts(evaluation),
                _bias(evaluation),
                _sizes(evaluation),
                _crowding(evaluation),
                _ranks(evaluation),
                _scores(evaluation),
                _confusions(evaluation),
            )
        )
        self._names = list(ratios)
        self._part_IC = np.stack([ratio.part_I for ratio in ratios.values()], axis=1).astype(float)
        self._whole_IC = np.stack([ratio.whole_I for ratio in ratios.values()], axis=1).astype(float)
        self._nothing_C = np.array([ratio.nothing for ratio in ratios.values()])
        self._macro = MacroFigures(evaluation)

    def figures(self, weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        """Return each figure [B], NaN where there is nothing to measure.

        Args:
            weights_BI: How often each picture counts, whole numbers.
        """
        part_BC, whole_BC = weights_BI @ self._part_IC, weights_BI @ self._whole_IC
        nothing_BC = np.broadcast_to(self._nothing_C, part_BC.shape).copy()
        ratio_BC = np.divide(part_BC, whole_BC, out=nothing_BC, where=whole_BC > 0)
        found = dict(zip(self._names, ratio_BC.T, strict=True))
        levels = {
            f"{key}{level}{ending}": np.mean([found[f"{key}{ending}@{t}"] for t in chosen], axis=0)
            for ending in ("", "_any_label")
            for level, chosen in LEVELS.items()
            for key in KEYS
        }
        gaps = [np.abs(values) for name, values in found.items() if name.startswith("ece@")]
        calibration = {"ece": np.sum(gaps, axis=0)} if gaps else {}
        rest = {name: values for name, values in found.items() if "@" not in name}
        return {**levels, **self._macro.figures(weights_BI), **rest, **calibration}


def _detection(evaluation: Evaluation, matches: Matches, ending: str) -> Iterator[tuple[str, _Ratio]]:
    """Micro precision, recall and F1 at each threshold, ``precision@0``, and mean IoU."""
    truth, images = evaluation.truth, len(evaluation.truth)
    regular_N = ~truth.crowd_N
    objects_I = np.bincount(truth.image_N[regular_N], minlength=images)
    for t, threshold in enumerate(IOU_THRESHOLDS):
        hit_D = matches.iou_D >= threshold
        counted_D = hit_D | (matches.crowd_D < threshold)
        hits_I = np.bincount(evaluation.detections.image_D[hit_D], minlength=images)
        answered_I = np.bincount(evaluation.detections.image_D[counted_D], minlength=images)
        yield f"precision{ending}@{t}", _Ratio(hits_I, answered_I, 0.0)
        yield f"recall{ending}@{t}", _Ratio(hits_I, objects_I, 0.0)
        yield f"f1{ending}@{t}", _Ratio(2 * hits_I, answered_I + objects_I, 0.0)
    iou_I = np.bincount(truth.image_N[regular_N], matches.iou_N[regular_N], minlength=images)
    yield f"mean_iou{ending}", _Ratio(iou_I, objects_I, 0.0)


def _counts(evaluation: Evaluation) -> Iterator[tuple[str, _Ratio]]:
    """Answered minus true objects a picture, and duplicates in all."""
    error_I, duplicates_I = count_by_image(evaluation.truth, evaluation.detections, evaluation.matches)
    each_I = np.ones(len(error_I))
    yield "count_error", _Ratio(error_I, each_I)
    yield "count_absolute_error", _Ratio(np.abs(error_I), each_I)
    yield "count_exact_share", _Ratio(error_I == 0, each_I)
    yield "duplicates", _Ratio(duplicates_I, each_I / len(each_I))


def _bias(evaluation: Evaluation) -> Iterator[tuple[str, _Ratio]]:
    """Signed mean error of each edge."""
    truth, detections, images = evaluation.truth, evaluation.detections, len(evaluation.truth)
    found_d, pixels_d4, bins_d4 = edge_errors(truth, detections, evaluation.matches, evaluation.bins)
    for unit, error_d4 in (("pixels", pixels_d4), ("bins", bins_d4)):
        known_d = np.isfinite(error_d4).all(axis=1)
        image_d = detections.image_D[found_d[known_d]]
        pairs_I = np.bincount(image_d, minlength=images)
        for side, edge in enumerate(EDGES):
            sum_I = np.bincount(image_d, error_d4[known_d, side], minlength=images)
            yield f"bias_{edge}_{unit}", _Ratio(sum_I, pairs_I)


def _sizes(evaluation: Evaluation) -> Iterator[tuple[str, _Ratio]]:
    """Recall at IoU .5 and mean IoU of small, medium and large objects."""
    truth, images = evaluation.truth, len(evaluation.truth)
    for name, low, high in SIZES if truth.sizes_known else ():
        chosen_N = ~truth.crowd_N & (truth.area_N >= low) & (truth.area_N < high)
        image_n, iou_n = truth.image_N[chosen_N], evaluation.matches.iou_N[chosen_N]
        objects_I = np.bincount(image_n, minlength=images)
        yield f"recall_{name}", _Ratio(np.bincount(image_n, iou_n >= 0.5, minlength=images), objects_I)
        yield f"mean_iou_{name}", _Ratio(np.bincount(image_n, iou_n, minlength=images), objects_I)


def _crowding(evaluation: Evaluation) -> Iterator[tuple[str, _Ratio]]:
    """F1 at IoU .5 of pictures with so many objects."""
    f1 = dict(_detection(evaluation, evaluation.matches, ""))["f1@0"]
    objects_I = np.bincount(
        evaluation.truth.image_N[~evaluation.truth.crowd_N], minlength=len(evaluation.truth)
    )
    for name, chosen_I in chosen_by(CROWDING, objects_I):
        yield f"f1_of_{name}_objects", _Ratio(f1.part_I * chosen_I, f1.whole_I * chosen_I)


def _ranks(evaluation: Evaluation) -> Iterator[tuple[str, _Ratio]]:
    """Precision at IoU .5 of the first, second, … object of the answers."""
    detections, matches, images = evaluation.detections, evaluation.matches, len(evaluation.truth)
    hit_D = matches.iou_D >= 0.5
    counted_D = hit_D | (matches.crowd_D < 0.5)
    for name, chosen_D in chosen_by(RANKS, detections.rank_D):
        hits_I = np.bincount(detections.image_D[chosen_D & hit_D], minlength=images)
        boxes_I = np.bincount(detections.image_D[chosen_D & counted_D], minlength=images)
        yield f"precision_at_place_{name}", _Ratio(hits_I, boxes_I)


def _scores(evaluation: Evaluation) -> Iterator[tuple[str, _Ratio]]:
    """F1 of the boxes from a score on, and the gap between score and share of hits: ``ece@0`` and so on."""
    truth, detections, images = evaluation.truth, evaluation.detections, len(evaluation.truth)
    if evaluation.score_source not in PROBABILITIES:
        return
    ranked = ranked_matches(truth, detections, [0.5])
    hit_D, counted_D = ranked.hit_TD[0], ~ranked.ignored_TD[0]
    score_D = detections.scores_D
    if not counted_D.any() or score_D[counted_D].min() < 0 or score_D[counted_D].max() > 1:
        return
    objects_I = np.bincount(truth.image_N[~truth.crowd_N], minlength=images)
    for threshold in F1_THRESHOLDS:
        kept_D = counted_D & (score_D >= threshold)
        hits_I = np.bincount(detections.image_D[kept_D & hit_D], minlength=images)
        boxes_I = np.bincount(detections.image_D[kept_D], minlength=images)
        yield f1_name(threshold), _Ratio(2 * hits_I, boxes_I + objects_I)
    bin_D = score_bins(score_D)
    boxes_I = np.bincount(detections.image_D[counted_D], minlength=images)
    gap_D = score_D - hit_D
    for b in range(BINS):
        chosen_D = counted_D & (bin_D == b)
        gap_I = np.bincount(detections.image_D[chosen_D], gap_D[chosen_D], minlength=images)
        yield f"ece@{b}", _Ratio(gap_I, boxes_I)


def _confusions(evaluation: Evaluation) -> Iterator[tuple[str, _Ratio]]:
    """Share of the objects of a label that were answered as another, of the most frequent such pairs."""
    truth, detections, matches = evaluation.truth, evaluation.detections, evaluation.matches_any_label
    images, index = len(truth), {name: k for k, name in enumerate(truth.categories)}
    found_D = matches.iou_D >= 0.5
    image_d, true_d = detections.image_D[found_D], truth.category_N[matches.object_D[found_D]]
    answered_d = np.minimum(detections.category_D[found_D], len(index))
    regular_N = ~truth.crowd_N
    image_n, label_n = truth.image_N[regular_N], truth.category_N[regular_N]
    for true, answered, _ in confused_pairs(confusion(truth, detections, matches)):
        other = len(index) if answered == UNKNOWN else index[answered]
        pairs_I = np.bincount(image_d[(true_d == index[true]) & (answered_d == other)], minlength=images)
        objects_I = np.bincount(image_n[label_n == index[true]], minlength=images)
        yield confused_name(true, answered), _Ratio(pairs_I, objects_I)
