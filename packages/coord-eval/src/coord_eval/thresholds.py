"""What a score is worth: F1 against a threshold on it, and whether it can be read as a probability.

Shape legend: D detections.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coord_eval.ranked import RankedMatches

_POINTS = 50
BINS = 10
#: Scores from which on F1 has an interval.
F1_THRESHOLDS = tuple(b / BINS for b in range(1, BINS))
#: Sources whose values claim to be probabilities; a rank or a constant does not.
PROBABILITIES = ("coord_logprobs", "coord_desc_logprobs", "coord_min", "results")


def f1_curve(scores_D: np.ndarray, matches: RankedMatches, objects: int) -> dict[str, Any]:
    """Return F1 at IoU .5 when only boxes with at least a given score are kept.

    Boxes are matched by falling score, so leaving out the weak ones changes nothing for the others.

    Returns:
        ``best``: threshold, precision, recall and F1 where F1 is highest; ``points``: at most 50 rows
        ``[threshold, precision, recall, f1]`` from strict to lenient. Empty without detections.
    """
    order = matches.order_D[~matches.ignored_TD[0, matches.order_D]]
    if not len(order) or not objects:
        return {"best": None, "points": []}
    score_D = scores_D[order]
    hits_D = np.cumsum(matches.hit_TD[0, order])
    # Boxes of equal score come and go together.
    last = np.append(score_D[1:] != score_D[:-1], True)
    kept = np.nonzero(last)[0]
    precision = hits_D[kept] / (kept + 1)
    recall = hits_D[kept] / objects
    f1 = 2 * hits_D[kept] / (kept + 1 + objects)
    rows = np.stack([score_D[kept], precision, recall, f1], axis=1)
    best = rows[int(f1.argmax())]
    shown = np.unique(np.linspace(0, len(rows) - 1, min(_POINTS, len(rows))).round().astype(int))
    keys = ("threshold", "precision", "recall", "f1")
    return {"best": dict(zip(keys, best.tolist(), strict=True)), "points": rows[shown].tolist()}


def f1_name(threshold: float) -> str:
    """Return the name of the metric: F1 at IoU .5 of the boxes from a score on."""
    return f"f1_from_{threshold:.1f}"


def reliability(scores_D: np.ndarray, hit_D: np.ndarray, counted_D: np.ndarray) -> dict[str, Any] | None:
    """Return the reliability diagram and expected calibration error of scores in [0, 1].

    ECE (Naeini et al. 2015) is the mean over ten equal score intervals, weighted by their boxes, of the gap between
    mean score and share of hits at IoU .5.

    Returns:
        ``ece`` and ``bins``, rows ``[from, to, boxes, mean score, share of hits]`` of intervals with boxes; None
        when a score lies outside [0, 1] or there are no boxes.
    """
    score_d, hit_d = scores_D[counted_D], hit_D[counted_D]
    if not len(score_d) or score_d.min() < 0 or score_d.max() > 1:
        return None
    index = score_bins(score_d)
    bins, error = [], 0.0
    for b in range(BINS):
        chosen = index == b
        if chosen.any():
            confidence, accuracy = float(score_d[chosen].mean()), float(hit_d[chosen].mean())
            bins.append([b / BINS, (b + 1) / BINS, int(chosen.sum()), confidence, accuracy])
            error += abs(confidence - accuracy) * chosen.sum() / len(score_d)
    return {"ece": float(error), "bins": bins}


def score_bins(scores_D: np.ndarray) -> np.ndarray:
    """Return the interval, from 0, that each score in [0, 1] lies in."""
    bin_D: np.ndarray = np.minimum((scores_D * BINS).astype(int), BINS - 1)
    return bin_D
