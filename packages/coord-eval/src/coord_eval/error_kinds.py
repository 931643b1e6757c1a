"""What each kind of error costs, after TIDE (Bolya et al. 2020, https://arxiv.org/abs/2008.08115).

Every false detection has one kind, every missed object that no other error explains is ``missed``; the cost of a
kind is the AP50 that would be won if just its errors were repaired. Shape legend: D detections, N objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coord_eval.detections import Detections
from coord_eval.matching import iou_xywh
from coord_eval.ranked import RankedMatches, interpolated_ap, mean_present
from coord_eval.truth import GroundTruth

_FOREGROUND, _BACKGROUND = 0.5, 0.1
#: Kinds in the order in which they are asked for.
ERROR_KINDS = {
    "localisation": "right label, IoU between .1 and .5",
    "label": "IoU of at least .5 with an object of another label",
    "duplicate": "right label and place, but the object was found already",
    "background": "no object of any label with an IoU of .1",
    "label_and_localisation": "another label, IoU between .1 and .5",
    "missed": "an object that no detection and no error above explains",
}


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Kind of each false detection, and the object it would have hit."""

    kind_D: np.ndarray
    target_D: np.ndarray
    explained_N: np.ndarray


def error_costs(
    truth: GroundTruth, detections: Detections, matches: RankedMatches
) -> dict[str, dict[str, float]]:
    """Return count and cost in AP50 of each error kind.

    Args:
        truth: The objects.
        detections: The answers; unknown labels are errors of the label, or of background.
        matches: Ranked matching at IoU .5.
    """
    hit_D, ignored_D = matches.hit_TD[0], matches.ignored_TD[0]
    kinds = _classify(truth, detections, matches)

    def repaired(
        hits: np.ndarray, ignored: np.ndarray, labels: np.ndarray, without_N: np.ndarray | None = None
    ) -> float:
        return _ap50(
            truth, matches.order_D, hit_D=hits, ignored_D=ignored, label_D=labels, without_N=without_N
        )

    base = repaired(hit_D, ignored_D, detections.category_D)
    found_N = np.zeros(len(truth.image_N), bool)
    found_N[matches.object_TD[0][hit_D]] = True
    missed_N = ~found_N & ~truth.crowd_N & ~kinds.explained_N
    costs = {}
    for number, name in enumerate(ERROR_KINDS):
        wrong_D = kinds.kind_D == number
        if name == "missed":
            fixed = repaired(hit_D, ignored_D, detections.category_D, missed_N)
            costs[name] = {"count": int(missed_N.sum()), "cost": fixed - base}
            continue
        hits, ignored, labels = hit_D.copy(), ignored_D | wrong_D, detections.category_D
        if name in ("localisation", "label"):
            # The best ranked of them hits the object it meant, if nobody else did; the others go.
            claimed_N = found_N.copy()
            labels = labels.copy()
            for d in matches.order_D[wrong_D[matches.order_D]]:
                target = kinds.target_D[d]
                if not claimed_N[target]:
                    claimed_N[target] = True
                    hits[d], ignored[d] = True, False
                    labels[d] = truth.category_N[target]
        fixed = repaired(hits, ignored, labels)
        costs[name] = {"count": int(wrong_D.sum()), "cost": fixed - base}
    return costs


def _classify(truth: GroundTruth, detections: Detections, matches: RankedMatches) -> _Kinds:
    """Find the kind of every detection that is neither a hit nor ignored."""
    false_D = ~matches.hit_TD[0] & ~matches.ignored_TD[0]
    kind_D = np.full(len(detections), -1)
    target_D = np.full(len(detections), -1)
    explained_N = np.zeros(len(truth.image_N), bool)
    names = list(ERROR_KINDS)
    kind_D[false_D] = names.index("background")
    regular = np.nonzero(~truth.crowd_N)[0]
    by_image = regular[np.argsort(truth.image_N[regular], kind="stable")]
    bounds = np.searchsorted(truth.image_N[by_image], np.arange(len(truth) + 1))
    rows = np.nonzero(false_D)[0]
    rows = rows[np.argsort(detections.image_D[rows], kind="stable")]
    starts = np.searchsorted(detections.image_D[rows], np.arange(len(truth) + 1))
    for image in np.unique(detections.image_D[rows]):
        rows_d = rows[starts[image] : starts[image + 1]]
        objects_n = by_image[bounds[image] : bounds[image + 1]]
        if not len(objects_n):
            continue
        iou_dn = iou_xywh(detections.boxes_D4[rows_d], truth.boxes_N4[objects_n])
        same_dn = detections.category_D[rows_d][:, None] == truth.category_N[objects_n][None]
        same, other = np.where(same_dn, iou_dn, 0.0), np.where(same_dn, 0.0, iou_dn)
        best_same, best_other = same.max(axis=1), other.max(axis=1)
        conditions = [
            (best_same >= _BACKGROUND) & (best_same < _FOREGROUND),
            best_other >= _FOREGROUND,
            best_same >= _FOREGROUND,
            np.maximum(best_same, best_other) < _BACKGROUND,
        ]
        kind_D[rows_d] = np.select(conditions, range(4), names.index("label_and_localisation"))
        target = np.where(conditions[0], same.argmax(axis=1), other.argmax(axis=1))
        target_D[rows_d] = objects_n[target]
        explains = conditions[0] | (~conditions[0] & conditions[1])
        explained_N[target_D[rows_d][explains]] = True
    return _Kinds(kind_D, target_D, explained_N)


def _ap50(
    truth: GroundTruth,
    order_D: np.ndarray,
    *,
    hit_D: np.ndarray,
    ignored_D: np.ndarray,
    label_D: np.ndarray,
    without_N: np.ndarray | None = None,
) -> float:
    """Return AP50 of changed hits and labels, over fewer objects where some are left out."""
    counted_N = ~truth.crowd_N if without_N is None else ~truth.crowd_N & ~without_N
    objects_K = np.bincount(truth.category_N[counted_N], minlength=len(truth.categories))
    all_K = np.bincount(truth.category_N[~truth.crowd_N], minlength=len(truth.categories))
    order = order_D[~ignored_D[order_D]]
    by_label = order[np.argsort(label_D[order], kind="stable")]
    bounds = np.searchsorted(label_D[by_label], np.arange(len(truth.categories) + 1))
    values = np.full(len(truth.categories), np.nan)
    for k in np.nonzero(all_K)[0]:
        rows = by_label[bounds[k] : bounds[k + 1]]
        hit = hit_D[rows].astype(float)
        # A label of which everything was missed has nothing left to find: repaired, it is perfect.
        values[k] = interpolated_ap(hit, 1 - hit, objects_K[k]) if objects_K[k] else 1.0
    return mean_present(values)
