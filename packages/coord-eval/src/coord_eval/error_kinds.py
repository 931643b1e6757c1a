"""What each kind of error costs, after TIDE (Bolya et al. 2020, https://arxiv.org/abs/2008.08115).

Every false detection has one kind, every missed object that no other error explains is ``missed``; the cost of a
kind is the AP50 that would be won if just its errors were repaired.

Shape legend: D detections, N objects, B weightings, I pictures, K categories.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coord_eval.ap_table import ApTable
from coord_eval.coco_table import mean_of_present
from coord_eval.detections import Detections
from coord_eval.matching import iou_xywh
from coord_eval.ranked import RankedMatches
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


class ErrorCosts:
    """AP50 that repairing each kind of error would win, for any weighting of the pictures.

    A repair stays within its picture, so it can be made once and weighed many times.
    """

    def __init__(self, truth: GroundTruth, detections: Detections, matches: RankedMatches) -> None:
        """Repair each kind by itself.

        Args:
            truth: The objects.
            detections: The answers; unknown labels are errors of the label, or of background.
            matches: Ranked matching at IoU .5.
        """
        kinds = _classify(truth, detections, matches)
        found_N = np.zeros(len(truth.image_N), bool)
        found_N[matches.object_TD[0][matches.hit_TD[0]]] = True
        missed_N = ~found_N & ~truth.crowd_N & ~kinds.explained_N
        self.counts = {
            name: int((missed_N if name == "missed" else kinds.kind_D == number).sum())
            for number, name in enumerate(ERROR_KINDS)
        }
        self._base = ApTable(truth, detections, matches)
        self._repaired = {
            name: ApTable(truth, *_repair(name, truth, detections, matches, kinds, found_N, missed_N))
            for name in ERROR_KINDS
        }

    def costs(self, weights_BI: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return the cost [B] of each kind; a single weighting, each picture once, by default."""
        before_BK = self._base.average_precision(weights_BI)[:, 0]
        costs = {}
        for name, table in self._repaired.items():
            after_BK = table.average_precision(weights_BI)[:, 0]
            # A label of which everything was missed has nothing left to find: repaired, it is perfect.
            after_BK = np.where(np.isnan(after_BK) & ~np.isnan(before_BK), 1.0, after_BK)
            costs[name] = mean_of_present(after_BK) - mean_of_present(before_BK)
        return costs


def error_costs(
    truth: GroundTruth, detections: Detections, matches: RankedMatches
) -> dict[str, dict[str, float]]:
    """Return count and cost in AP50 of each error kind; arguments as of :class:`ErrorCosts`."""
    found = ErrorCosts(truth, detections, matches)
    return {
        name: {"count": found.counts[name], "cost": float(cost_B[0])}
        for name, cost_B in found.costs().items()
    }


def _repair(
    name: str,
    truth: GroundTruth,
    detections: Detections,
    matches: RankedMatches,
    kinds: _Kinds,
    found_N: np.ndarray,
    missed_N: np.ndarray,
) -> tuple[Detections, RankedMatches]:
    """Return detections and matches as they would be without errors of one kind."""
    if name == "missed":
        return detections, replace(matches, counted_N=matches.counted_N & ~missed_N)
    wrong_D = kinds.kind_D == list(ERROR_KINDS).index(name)
    hit_D, ignored_D = matches.hit_TD[0].copy(), matches.ignored_TD[0] | wrong_D
    label_D = detections.category_D.copy()
    if name in ("localisation", "label"):
        # The best ranked of them hits the object it meant, if nobody else did; the others go.
        claimed_N = found_N.copy()
        for d in matches.order_D[wrong_D[matches.order_D]]:
            target = kinds.target_D[d]
            if not claimed_N[target]:
                claimed_N[target] = True
                hit_D[d], ignored_D[d] = True, False
                label_D[d] = truth.category_N[target]
    return (
        replace(detections, category_D=label_D),
        replace(matches, hit_TD=hit_D[None], ignored_TD=ignored_D[None]),
    )


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
