"""AP50 lost to each kind of error, after TIDE (Bolya et al. 2020, https://arxiv.org/abs/2008.08115), and confusions.

Every false detection has one kind, and a missed object that no other error explains is `missed`. The cost of a kind is
the AP50 gained if only its errors were repaired. The confusion matrix of labels includes background.

The counts equal those of tidecv 1.0.1 in images with objects, without crowd regions; tidecv leaves out the boxes of
images without objects. The costs equal its costs if no scores are equal (whose order is COCO's here), except for a
step of recall: tidecv samples recall at `x / 100`, COCO and this module at `linspace(0, 1, 101)`, which differ in the
last bit, so that a recall of exactly .7 counts in the one and not in the other: up to .0025 of AP50, and 0 once tidecv
samples as COCO does. They need every predicted label to have objects, and still some after the missed ones are removed.
Otherwise tidecv counts a label without objects as AP 0 in the mean over labels, where COCO leaves it out: this lowers
its AP and its costs by the same share, and hides the gain from repairing missed objects. Here the mean over labels is
COCO's, before and after a repair.

Shapes: B weightings, I images, D detections, N objects, K categories, E entries of the confusion matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.match.matching import RankedMatches, Scored
from coord_eval.match.overlaps import Pairs
from coord_eval.metrics.coco import ApTable
from coord_eval.metrics.sums import Measure, mean_of_present, ratio, weighted

_FOREGROUND, _BACKGROUND = 0.5, 0.1
ERROR_KINDS = {
    "localisation": "right label, IoU between .1 and .5",
    "label": "IoU of at least .5 with an object of another label",
    "duplicate": "right label and IoU of at least .5, but the object is matched with another box",
    "background": "IoU below .1 with every object",
    "label_and_localisation": "another label, IoU between .1 and .5",
    "missed": "an object that no detection and no error above explains",
}
"""Kinds of errors in the order in which they are tested."""
_LOCALISATION, _LABEL = 0, 1


@dataclass(frozen=True, eq=False)
class ErrorKinds:
    """What is wrong with each detection and object, at IoU .5 and in the order of the scores.

    Attributes:
        kind_D: index of the kind of each false detection in `ERROR_KINDS`, -1 for hits and ignored ones
        target_D: the object that a false detection was meant for, -1 without one
        found_N: whether a detection has found the object
        missed_N: whether the object is missed and no false detection explains it
    """

    kind_D: np.ndarray
    target_D: np.ndarray
    found_N: np.ndarray
    missed_N: np.ndarray


def error_costs(scored: Scored) -> Measure:
    """Prepare the count and the cost in AP50 of each error kind; a cost is NaN without objects.

    A repair concerns a single image, so it is independent of the image weights and made once. A box with an unknown
    label is an error of the label, or background.
    """
    truth, detections, ranked = scored.truth, scored.detections, scored.ranked
    kinds = classify_errors(scored)
    base = ApTable(truth, detections, ranked)
    repaired = {name: ApTable(truth, *_repair(name, scored, kinds)) for name in ERROR_KINDS}
    counts = {
        name: scored.sum_objects(kinds.missed_N) if name == "missed" else scored.sum_detections(kinds.kind_D == number)
        for number, name in enumerate(ERROR_KINDS)
    }

    def measure(weights_BI: np.ndarray) -> dict[str, Any]:
        before_BK = base.average_precision(weights_BI)[:, 0]
        count = weighted(weights_BI, counts)
        rows = {}
        for name, table in repaired.items():
            after_BK = table.average_precision(weights_BI)[:, 0]
            # If all objects of a label were missed, none is left after the repair; its AP is then 1.
            after_BK = np.where(np.isnan(after_BK) & ~np.isnan(before_BK), 1.0, after_BK)
            rows[name] = {"count": count[name], "cost": mean_of_present(after_BK) - mean_of_present(before_BK)}
        return rows

    return measure


def _repair(name: str, scored: Scored, kinds: ErrorKinds) -> tuple[Detections, RankedMatches]:
    """Return detections and matches as they would be without errors of one kind."""
    detections, matches = scored.detections, scored.ranked
    if name == "missed":
        return detections, replace(matches, counted_N=matches.counted_N & ~kinds.missed_N)
    wrong_D = kinds.kind_D == list(ERROR_KINDS).index(name)
    hit_D, ignored_D = matches.hit_TD[0].copy(), matches.ignored_TD[0] | wrong_D
    label_D = detections.category_D.copy()
    if name in ("localisation", "label"):
        # Of all localisation and label errors on an unmatched object, the one with the highest score becomes a hit when
        # its kind is repaired; the others are removed.
        claimed_N = kinds.found_N.copy()
        candidate_D = (kinds.kind_D == _LOCALISATION) | (kinds.kind_D == _LABEL)
        for d in matches.order_D[candidate_D[matches.order_D]]:
            target = kinds.target_D[d]
            if claimed_N[target]:
                continue
            claimed_N[target] = True
            if wrong_D[d]:
                hit_D[d], ignored_D[d] = True, False
                label_D[d] = scored.truth.category_N[target]
    return detections.changed(label_N=label_D), replace(matches, hit_TD=hit_D[None], ignored_TD=ignored_D[None])


def classify_errors(scored: Scored) -> ErrorKinds:
    """Find the kind of every detection that is neither a hit nor ignored."""
    truth, detections, matches = scored.truth, scored.detections, scored.ranked
    false_D = ~matches.hit_TD[0] & ~matches.ignored_TD[0]
    kind_D = np.full(len(detections), -1)
    target_D = np.full(len(detections), -1)
    found_N, explained_N = np.zeros((2, len(truth.image_N)), bool)
    found_N[matches.object_D[matches.hit_TD[0]]] = True
    names = list(ERROR_KINDS)
    kind_D[false_D] = names.index("background")
    # An image's first object stands for the objects of a box that overlaps none.
    regular_N = ~truth.crowd_N
    first_I = np.full(len(truth), -1)
    rows_n = np.nonzero(regular_N)[0][::-1]
    first_I[truth.image_N[rows_n]] = rows_n
    false_D &= first_I[detections.image_D] >= 0
    pairs = scored.pairs_any_label
    pairs = pairs.take(regular_N[pairs.object_P] & false_D[pairs.det_P])
    same_P = detections.category_D[pairs.det_P] == truth.category_N[pairs.object_P]
    best_same_D, nearest_same_D = _nearest(pairs.take(same_P), first_I[detections.image_D])
    best_other_D, nearest_other_D = _nearest(pairs.take(~same_P), first_I[detections.image_D])
    is_localisation_D = (best_same_D >= _BACKGROUND) & (best_same_D < _FOREGROUND)
    is_label_D = best_other_D >= _FOREGROUND
    conditions = [
        is_localisation_D,
        is_label_D,
        best_same_D >= _FOREGROUND,
        np.maximum(best_same_D, best_other_D) < _BACKGROUND,
    ]
    kind_D[false_D] = np.select(conditions, range(4), names.index("label_and_localisation"))[false_D]
    target_D[false_D] = np.where(is_localisation_D, nearest_same_D, nearest_other_D)[false_D]
    explained_N[target_D[false_D & (is_localisation_D | is_label_D)]] = True
    return ErrorKinds(kind_D, target_D, found_N, ~found_N & ~truth.crowd_N & ~explained_N)


def _nearest(pairs: Pairs, default_D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the highest IoU of each detection, and the first object with it, or the default without pairs."""
    best_D, object_D = np.zeros(len(default_D)), default_D.copy()
    np.maximum.at(best_D, pairs.det_P, pairs.iou_P)
    nearest = pairs.take(pairs.iou_P == best_D[pairs.det_P])
    object_D[nearest.det_P[::-1]] = nearest.object_P[::-1]  # of several the last one assigned stays
    return best_D, object_D


BACKGROUND = "(background)"
UNKNOWN = "(unknown label)"
_PAIRS = 15


def confusion(scored: Scored) -> dict[str, dict[str, int]]:
    """Return the confusion matrix of labels.

    Any label may match any object with an IoU of at least .5. Boxes choose in the order of their scores, as in COCO's
    own matching and in hotcoco; where scores are equal the IoU decides, as it does in Ultralytics. An unmatched
    object counts as predicted background, an unmatched box as true background; crowd regions are left out.

    Returns:
        `{true label: {predicted label: count}}`, without zeros.
    """
    names, (true_E, predicted_E, _) = _names(scored), _entries(scored)
    first_K = _first_of_name(names)
    codes = first_K[true_E] * len(names) + first_K[predicted_E]
    codes_C, first_C, count_C = np.unique(codes, return_index=True, return_counts=True)
    table: dict[str, dict[str, int]] = {}
    for c in np.lexsort((first_C, -count_C)).tolist():
        true, predicted = divmod(int(codes_C[c]), len(names))
        table.setdefault(names[true], {})[names[predicted]] = int(count_C[c])
    return dict(sorted(table.items()))


def confused_shares(scored: Scored) -> Measure:
    """Prepare the share of a label's objects that were predicted as another, for the most frequent such pairs."""
    names, (true_E, predicted_E, image_E) = _names(scored), _entries(scored)
    first_K = _first_of_name(names)
    true_E, predicted_E = first_K[true_E], first_K[predicted_E]
    pairs = confused_pairs(confusion(scored))

    def measure(weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        weights_BE = weights_BI[:, image_E]
        shares = {}
        for true, predicted, _ in pairs:
            of_true_E = true_E == names.index(true)
            both_E = of_true_E & (predicted_E == names.index(predicted))
            share_B = ratio(weights_BE[:, both_E].sum(axis=1), weights_BE[:, of_true_E].sum(axis=1))
            shares[confused_name(true, predicted)] = share_B
        return shares

    return measure


def confused_pairs(table: dict[str, dict[str, int]]) -> list[tuple[str, str, int]]:
    """Return the most frequent pairs of different labels without background: true label, predicted label, count."""
    pairs = [
        (count, true, predicted)
        for true, row in table.items()
        for predicted, count in row.items()
        if BACKGROUND not in (true, predicted) and true != predicted
    ]
    return [(true, predicted, count) for count, true, predicted in sorted(pairs, reverse=True)[:_PAIRS]]


def confused_name(true: str, answered: str) -> str:
    """Return the name of the figure: the share of a label's objects that are predicted as another."""
    return f"confused_{true}_as_{answered}"


def _names(scored: Scored) -> list[str]:
    return [*scored.truth.categories, UNKNOWN, BACKGROUND]


def _first_of_name(names: list[str]) -> np.ndarray:
    """Return for each label the first one of its name, since categories with the same name are one label."""
    first = {name: k for k, name in reversed(list(enumerate(names)))}
    return np.array([first[name] for name in names])


def _entries(scored: Scored) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return true label, predicted label (indices of `_names`) and image of every entry of the confusion matrix.

    Detections come first, in their order, then the unmatched objects.
    """
    truth, detections, matches = scored.truth, scored.detections, scored.confused
    unknown, background = len(truth.categories), len(truth.categories) + 1
    hit_D, counted_D = matches.at(0.5)
    true_D = np.full(len(detections), background)
    true_D[hit_D] = truth.category_N[matches.object_D[hit_D]]
    missed_N = ~truth.crowd_N & (matches.iou_N < 0.5)
    return (
        np.concatenate([true_D[counted_D], truth.category_N[missed_N]]),
        np.concatenate([np.minimum(detections.category_D, unknown)[counted_D], np.full(missed_N.sum(), background)]),
        np.concatenate([detections.image_D[counted_D], truth.image_N[missed_N]]),
    )
