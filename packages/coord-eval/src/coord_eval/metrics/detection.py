"""Precision, recall, F1 and mean IoU from the one-to-one matching without scores; F1 by score threshold; calibration.

Shapes: B weightings, I images, T IoU thresholds, K categories, D detections, S distinct scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coord_eval.match.matching import Matches, Scored
from coord_eval.metrics.sums import LabelSums, Measure, rates, ratio, weighted
from coord_eval.settings import IOU_THRESHOLDS

ROWS = {"0.5": slice(0, 1), "0.75": slice(5, 6), "0.5:0.95": slice(None)}
"""Rows of the tables, each with the indices of the IoU thresholds over which it is the mean."""


def micro_rates(scored: Scored, matches: Matches) -> Measure:
    """Prepare micro precision, recall and F1, pooled over images and labels.

    A hit is a detection that is matched at the threshold. All others are false positives, including those with unknown
    labels, but not those in crowd regions. A rate with denominator 0 is 0. `matches` are the one-to-one pairs of the
    set, of the same label or of any label.

    Returns:
        A measure with the rows `"0.5"`, `"0.75"` and `"0.5:0.95"` (the mean over ten thresholds).
    """
    by_threshold = [[scored.sum_detections(chosen_D) for chosen_D in matches.at(t)] for t in IOU_THRESHOLDS]
    hits_IT, counted_IT = np.array(by_threshold).transpose(1, 2, 0)
    sums = {"hits": hits_IT, "detections": counted_IT, "objects": scored.objects_per_image}

    def measure(weights_BI: np.ndarray) -> dict[str, Any]:
        s = weighted(weights_BI, sums)
        return _by_row(rates(s["hits"], s["detections"], s["objects"][:, None]))

    return measure


def mean_iou(scored: Scored, matches: Matches) -> Measure:
    """Prepare the mean over objects of the IoU with the matched detection, 0 for missed objects and without objects.

    Superfluous detections do not lower it.
    """
    sums = {"objects": scored.objects_per_image, "iou": scored.sum_objects(~scored.truth.crowd_N, matches.iou_N)}

    def measure(weights_BI: np.ndarray) -> np.ndarray:
        s = weighted(weights_BI, sums)
        return ratio(s["iou"], s["objects"], 0.0)

    return measure


def macro_rates(scored: Scored) -> Measure:
    """Prepare macro precision, recall and F1: the unweighted mean over labels, in the rows of `micro_rates`.

    F1 of the row `0.5:0.95` is what Rex-Omni (Jiang et al. 2025) calls F1@mIoU. The mean is over labels with at least
    one object; a label without a hit scores 0, and one without a detection has precision 0. Labels without objects and
    unknown labels are left out; both are part of the micro metrics.
    """
    truth, detections = scored.truth, scored.detections
    names, images = len(truth.categories), len(truth)

    def sums_of(category_X: np.ndarray, image_X: np.ndarray, chosen_X: np.ndarray) -> LabelSums:
        return LabelSums(category_X[chosen_X], image_X[chosen_X], names, images)

    objects = sums_of(truth.category_N, truth.image_N, ~truth.crowd_N)
    known_D = detections.category_D < names
    by_threshold: list[tuple[LabelSums, LabelSums]] = []
    previous_D = None
    for t in IOU_THRESHOLDS:
        hit_D, counted_D = scored.matches.at(t)
        counted_D = counted_D & known_D
        # Without crowd regions the same boxes count at every threshold, so their sums are computed only once.
        if previous_D is None or not np.array_equal(previous_D, counted_D):
            predicted = sums_of(detections.category_D, detections.image_D, counted_D)
        previous_D = counted_D
        by_threshold.append((sums_of(detections.category_D, detections.image_D, hit_D), predicted))

    def measure(weights_BI: np.ndarray) -> dict[str, Any]:
        objects_BK = objects(weights_BI)
        present_BK = objects_BK > 0
        labels_B = np.maximum(present_BK.sum(axis=1), 1)
        counted_BK = {predicted: predicted(weights_BI) for _, predicted in by_threshold}
        rows = [rates(hits(weights_BI), counted_BK[predicted], objects_BK) for hits, predicted in by_threshold]
        means = {key: [np.where(present_BK, row[key], 0.0).sum(axis=1) / labels_B for row in rows] for key in rows[0]}
        return _by_row({key: np.stack(values, axis=1) for key, values in means.items()})

    return measure


def _by_row(values: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Return for each row the mean of the values [B, T] over its thresholds."""
    return {
        row: {key: values_BT[:, chosen].mean(axis=1) for key, values_BT in values.items()}
        for row, chosen in ROWS.items()
    }


def image_table(scored: Scored) -> dict[str, Sequence[Any]]:
    """Return columns with a value for each image: number of objects, boxes and hits, F1 at IoU .5, mean IoU.

    F1 is 1 without objects and detections. Crowd regions and boxes in them are left out.
    """
    truth, matches = scored.truth, scored.matches
    hits_I, counted_I = (scored.sum_detections(chosen_D) for chosen_D in matches.at(0.5))
    iou_I = scored.sum_objects(~truth.crowd_N, matches.iou_N)
    return {
        "image_id": truth.image_ids,
        "image": truth.file_names,
        "objects": scored.objects_per_image.tolist(),
        "answered": counted_I.tolist(),
        "hits": hits_I.tolist(),
        "f1": ratio(2 * hits_I, scored.objects_per_image + counted_I, 1.0).tolist(),
        "mean_iou": ratio(iou_I, scored.objects_per_image, 0.0).tolist(),
    }


BINS = 10
SCORE_THRESHOLDS = tuple(b / BINS for b in range(1, BINS))
"""Score thresholds at which F1 has a confidence interval."""
PROBABILITIES = (
    *("expected_iou", "hit_probability", "coord_logprobs", "coord_desc_logprobs", "coord_min", "stated", "results"),
)
"""Score sources whose values are meant as probabilities, unlike a rank or a constant."""


class ScoreCurve:
    """Precision, recall and F1 at IoU .5 of the detections with at least a given score.

    Detections are matched in order of descending score, so that leaving out low scores does not affect the others.
    Detections of equal score are kept or left out together.
    """

    def __init__(self, scored: Scored) -> None:
        ranked = scored.ranked
        order = ranked.order_D[~ranked.ignored_TD[0, ranked.order_D]]
        self._image_d, self._hit_d = scored.detections.image_D[order], ranked.hit_TD[0, order]
        self._objects_I = scored.objects_per_image
        score_d = scored.detections.scores_D[order]
        last = np.nonzero(np.append(score_d[1:] != score_d[:-1], True)[: len(score_d)])[0]
        self.scores_S = score_d[last]
        self._kept = np.concatenate([[0], last + 1])

    def __call__(self, weights_BI: np.ndarray, empty: float = 0.0) -> dict[str, np.ndarray]:
        """Return `precision`, `recall` and `f1` [B, 1 + S]: without detections, then at each of `scores_S`."""
        weights_Bd = weights_BI[:, self._image_d]
        counted_BS, hits_BS = (
            np.pad(np.cumsum(chosen_Bd, axis=1), ((0, 0), (1, 0)))[:, self._kept]
            for chosen_Bd in (weights_Bd, weights_Bd * self._hit_d)
        )
        return rates(hits_BS, counted_BS, (weights_BI @ self._objects_I)[:, None], empty)


def f1_name(threshold: float) -> str:
    """Return the name of the figure: F1 at IoU .5 of the detections with at least this score."""
    return f"f1_from_{threshold:.1f}"


def f1_at_thresholds(scored: Scored) -> Measure:
    """Prepare F1 at each of `SCORE_THRESHOLDS`, NaN without objects and detections and if not `are_probabilities`."""
    curve = ScoreCurve(scored) if are_probabilities(scored) else None

    def measure(weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        if curve is None:
            return {f1_name(t): np.full(len(weights_BI), np.nan) for t in SCORE_THRESHOLDS}
        f1_BS = curve(weights_BI, empty=np.nan)["f1"]
        return {f1_name(t): f1_BS[:, (curve.scores_S >= t).sum()] for t in SCORE_THRESHOLDS}

    return measure


def are_probabilities(scored: Scored) -> bool:
    """Return whether scores are meant as probabilities and lie in [0, 1]."""
    score_d = scored.detections.scores_D[~scored.ranked.ignored_TD[0]]
    meant = scored.score_source in PROBABILITIES
    return bool(meant and len(score_d) and score_d.min() >= 0 and score_d.max() <= 1)


def calibration(scored: Scored) -> Measure:
    """Prepare the reliability diagram and expected calibration error of scores in [0, 1].

    ECE (Naeini et al. 2015) is the mean gap between mean score and share of hits at IoU .5 over ten equal score
    intervals, weighted by their numbers of boxes.

    Returns:
        A measure with `ece` [B] and, of each interval [B, 10], its signed part of it (`gaps`), `boxes`, mean `score`
        and share of `hits`, NaN where empty.
    """
    scores_D, hit_D = scored.detections.scores_D, scored.ranked.hit_TD[0]
    bin_D = np.minimum((scores_D * BINS).astype(int), BINS - 1)
    chosen = [~scored.ranked.ignored_TD[0] & (bin_D == b) for b in range(BINS)]
    sums = {
        "boxes": np.stack([scored.sum_detections(chosen_D) for chosen_D in chosen], axis=1),
        "score": np.stack([scored.sum_detections(chosen_D, scores_D) for chosen_D in chosen], axis=1),
        "hits": np.stack([scored.sum_detections(chosen_D & hit_D) for chosen_D in chosen], axis=1),
    }

    def measure(weights_BI: np.ndarray) -> dict[str, Any]:
        s = weighted(weights_BI, sums)
        gaps_BX = ratio(s["score"] - s["hits"], s["boxes"].sum(axis=1, keepdims=True))
        return {
            "ece": np.abs(gaps_BX).sum(axis=1),
            "gaps": gaps_BX,
            "boxes": s["boxes"],
            "score": ratio(s["score"], s["boxes"]),
            "hits": ratio(s["hits"], s["boxes"]),
        }

    return measure


def reliability(scored: Scored) -> dict[str, Any]:
    """Return `ece` and `bins`, rows `[from, to, boxes, mean score, share of hits]`."""
    values = calibration(scored)(np.ones((1, len(scored.truth)), np.int32))
    columns = zip(*(values[key][0].tolist() for key in ("boxes", "score", "hits")), strict=True)
    bins = [[b / BINS, (b + 1) / BINS, int(n), score, hits] for b, (n, score, hits) in enumerate(columns) if n]
    return {"ece": float(values["ece"][0]), "bins": bins}
