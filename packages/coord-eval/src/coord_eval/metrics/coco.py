"""The twelve COCO metrics (Lin et al. 2014, https://cocodataset.org/#detection-eval), from one matching.

- `coco_scores` samples precision at 101 recalls from the matching on which all other figures stand (`match.matching`).
  Its arrays are those of pycocotools to the last bit, which tests verify with ties, crowds, zero boxes, areas on
  the borders and IoUs on the thresholds; `backend="pycocotools"` computes them with that library instead.
- `ApTable` computes AP and AR under image weights, for intervals and error costs.

Shapes: B weightings, I images, T IoU thresholds, R recall points, K categories, L detection limits, d detections of one
category by descending score, h those of them that are hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.sorting import stable_order
from coord_eval.match.matching import RankedMatches, Scored
from coord_eval.metrics.sums import LabelSums, Measure, mean_of_present, ratio
from coord_eval.settings import MAX_DETECTIONS

RECALL_POINTS = np.linspace(0.0, 1.0, 101)
"""COCO's 101 recall values at which precision is sampled."""


class ApTable:
    """COCO's precision and recall of one set of matches.

    An image of weight 2 counts as two copies of it, whose boxes are next to each other among equal scores.
    """

    def __init__(self, truth: GroundTruth, detections: Detections, matches: RankedMatches) -> None:
        self.names, self.images = len(truth.categories), len(truth)
        self._matches, self._detections = matches, detections
        counted_N = matches.counted_N
        self._objects = LabelSums(truth.category_N[counted_N], truth.image_N[counted_N], self.names, self.images)
        # Detections that are ignored at every threshold do not change the result.
        relevant_D = (detections.category_D < self.names) & ~matches.ignored_TD.all(axis=0)
        order = matches.order_D[relevant_D[matches.order_D]]
        order = order[stable_order(detections.category_D[order])]
        bounds = np.searchsorted(detections.category_D[order], np.arange(self.names + 1))
        image_d, hit_Td = detections.image_D[order], matches.hit_TD.take(order, axis=1)
        counted_Td = ~matches.ignored_TD.take(order, axis=1)
        own_K = [slice(*ends) for ends in pairwise(bounds.tolist())]
        self._labels = [_Label(image_d[own], hit_Td[:, own], counted_Td[:, own]) for own in own_K]

    def average_precision(self, weights_BI: np.ndarray | None = None) -> np.ndarray:
        """Return AP [B, T, K], NaN for categories without objects; without weights each image counts once."""
        weights_BI = self._weights(weights_BI)
        objects_BK = self._objects(weights_BI)
        ap_BTK = np.full((len(weights_BI), len(self._matches.thresholds), self.names), np.nan)
        for k in np.nonzero(objects_BK.any(axis=0))[0]:
            rows_B = objects_BK[:, k] > 0
            ap_BTK[rows_B, :, k] = self._labels[k].average_precision(weights_BI[rows_B], objects_BK[rows_B, k])
        return ap_BTK

    def average_recall(self, limit: int, weights_BI: np.ndarray | None = None) -> np.ndarray:
        """Return recall [B, K], the mean over thresholds, of the `limit` best boxes of each label and image."""
        weights_BI = self._weights(weights_BI)
        rows = np.nonzero(self._matches.hit_TD & (self._matches.place_D < limit))[1]
        hits = LabelSums(self._detections.category_D[rows], self._detections.image_D[rows], self.names, self.images)
        objects_BK = self._objects(weights_BI)
        return ratio(hits(weights_BI), len(self._matches.thresholds) * objects_BK)

    def _weights(self, weights_BI: np.ndarray | None) -> np.ndarray:
        return np.ones((1, self.images), np.int32) if weights_BI is None else weights_BI.astype(np.int32)


class _Label:
    """The boxes of one category by descending score."""

    def __init__(self, image_d: np.ndarray, hit_Td: np.ndarray, counted_Td: np.ndarray) -> None:
        self._image_d, self._counted_Td = image_d, counted_Td
        self._hit_Th = [np.flatnonzero(hit_d) for hit_d in hit_Td]

    def average_precision(self, weights_BI: np.ndarray, objects_B: np.ndarray) -> np.ndarray:
        """Return AP [B, T]: the mean over 101 recalls of the highest precision at that recall or a higher one.

        Recall increases only at hits, so only hits are considered: each covers the recall values above the recall at
        the previous hit, up to its own.
        """
        weights_Bd = weights_BI[:, self._image_d]
        ap_BT = np.zeros((len(weights_BI), len(self._hit_Th)))
        counted_d: np.ndarray | None = None
        for t, hit_h in enumerate(self._hit_Th):
            if not len(hit_h):
                continue
            if counted_d is None or not np.array_equal(counted_d, self._counted_Td[t]):
                counted_d = self._counted_Td[t]
                boxes_Bd = np.cumsum(weights_Bd * counted_d, axis=1, dtype=np.int32)
            hits_Bh = np.cumsum(weights_Bd[:, hit_h], axis=1, dtype=np.int32)
            precision_Bh = hits_Bh / np.maximum(boxes_Bd[:, hit_h], 1)
            best_Bh = np.maximum.accumulate(precision_Bh[:, ::-1], axis=1)[:, ::-1]
            reached_Bh = np.searchsorted(RECALL_POINTS, hits_Bh / objects_B[:, None], side="right")
            reached_Bh[:, 1:] -= reached_Bh[:, :-1].copy()  # the points that each hit adds
            ap_BT[:, t] = (best_Bh * reached_Bh).sum(axis=1) / len(RECALL_POINTS)
        return ap_BT


COCO_KEYS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""Names of the twelve metrics, in the order of `COCOeval.stats`."""


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """COCO's precision and recall of the objects of one area range, as pycocotools accumulates them.

    Attributes:
        precision_TRK: highest precision at each recall or a higher one; -1 for categories without objects
        recall_LTK: highest recall for each limit of detections; -1 for categories without objects
    """

    precision_TRK: np.ndarray
    recall_LTK: np.ndarray


def precision_recall(
    truth: GroundTruth, detections: Detections, matches: RankedMatches, limits: Sequence[int] = MAX_DETECTIONS
) -> PrecisionRecall:
    """Return precision and recall of one matching, whose limit of detections is the last of `limits`.

    Recall increases only at hits, so that precision is looked at there alone: each recall point is reached by a number
    of hits, and its precision is the highest of the hits from this one on.
    """
    names, thresholds = len(truth.categories), len(matches.thresholds)
    objects_K = np.bincount(truth.category_N[matches.counted_N], minlength=names)
    present_K = objects_K > 0
    best_TKR = np.zeros((thresholds, names, len(RECALL_POINTS)))
    recall_LTK = np.full((len(limits), thresholds, names), -1.0)
    needed_KR = _hits_needed(np.maximum(objects_K, 1))
    # Detections that are ignored at every threshold do not change the result.
    is_scored_D = (detections.category_D < names) & ~matches.ignored_TD.all(axis=0)
    order = matches.order_D[is_scored_D[matches.order_D]]
    order = order[stable_order(detections.category_D[order])]
    label_d, place_d = detections.category_D[order], matches.place_D[order]
    hit_Td, ignored_Td = (mask_TD.take(order, axis=1) for mask_TD in (matches.hit_TD, matches.ignored_TD))
    start_K = np.searchsorted(label_d, np.arange(names))
    for t in range(thresholds):
        if not t or not np.array_equal(ignored_Td[t], ignored_Td[t - 1]):
            boxes_d1 = np.append(0, np.cumsum(~ignored_Td[t]))
        at = np.flatnonzero(hit_Td[t])
        label_h = label_d[at]
        first_K = np.searchsorted(label_h, np.arange(names + 1))
        hits_K = np.diff(first_K)
        before_K = boxes_d1[start_K]
        hits_h = np.arange(len(at)) - first_K[label_h] + 1
        boxes_h = (boxes_d1[at + 1] - before_K[label_h]).astype(np.float64)
        precision_h = hits_h / (boxes_h + np.spacing(1))  # as pycocotools does
        begins = (first_K[:-1, None] + np.minimum(needed_KR - 1, hits_K[:, None])).ravel()
        is_empty = begins >= np.append(begins[1:], len(at))
        best = np.maximum.reduceat(np.append(precision_h, 0.0), begins) if names else np.zeros(0)
        best_KR = np.where(is_empty, 0.0, best).reshape(needed_KR.shape)
        best_TKR[t] = np.maximum.accumulate(best_KR[:, ::-1], axis=1)[:, ::-1]
        place_h = place_d[at] if len(limits) > 1 else at
        for place, limit in enumerate(limits):
            # No hit is beyond the last limit.
            is_last = place == len(limits) - 1
            found_K = hits_K if is_last else np.bincount(label_h[place_h < limit], minlength=names)
            recall_LTK[place, t, present_K] = found_K[present_K] / objects_K[present_K]
    best_TKR[:, ~present_K] = -1.0
    return PrecisionRecall(np.ascontiguousarray(best_TKR.transpose(0, 2, 1)), recall_LTK)


def _hits_needed(objects_K: np.ndarray) -> np.ndarray:
    """Return the least number of hits [K, R], 1 or more, that reaches each recall point of so many objects."""
    objects_K1 = objects_K[:, None]
    needed_KR = np.ceil(RECALL_POINTS * objects_K1)
    # The product is rounded, and what counts is the quotient.
    needed_KR -= (needed_KR - 1) / objects_K1 >= RECALL_POINTS
    needed_KR += needed_KR / objects_K1 < RECALL_POINTS
    at_least_one: np.ndarray = np.maximum(needed_KR, 1).astype(np.int64)
    return at_least_one


@dataclass(frozen=True, eq=False)
class CocoScores:
    """COCO's precision and recall of all objects, and of small, medium and large ones if image sizes are known."""

    all_areas: PrecisionRecall
    by_size: tuple[PrecisionRecall, ...]

    @property
    def summary(self) -> dict[str, float]:
        """The twelve metrics as `COCOeval.summarize` computes them; -1 where no object of that kind exists."""
        precision_TRK = self.all_areas.precision_TRK
        ap_S = [mean_present(part.precision_TRK) for part in self.by_size] or [-1.0] * 3
        ar_S = [mean_present(part.recall_LTK[-1]) for part in self.by_size] or [-1.0] * 3
        ap = [mean_present(part) for part in (precision_TRK, precision_TRK[0], precision_TRK[5])]
        ar = [mean_present(recall_TK) for recall_TK in self.all_areas.recall_LTK]
        return dict(zip(COCO_KEYS, (*ap, *ap_S, *ar, *ar_S), strict=True))

    def per_category(self) -> tuple[np.ndarray, np.ndarray]:
        """Return AP and AP50 of each category, -1 where it has no objects."""
        precision_KTR = np.ascontiguousarray(self.all_areas.precision_TRK.transpose(2, 0, 1))
        names, thresholds, points = precision_KTR.shape
        ap_K = precision_KTR.reshape(names, thresholds * points).mean(axis=1)
        ap50_K = precision_KTR[:, 0].mean(axis=1)
        return ap_K, ap50_K


def coco_scores(scored: Scored, backend: str = "coord_eval") -> CocoScores:
    """Return COCO's precision and recall; detections with labels that the ground truth does not have count nowhere."""
    truth, detections = scored.truth, scored.detections
    if backend == "pycocotools":
        from coord_eval.metrics.pycoco import by_pycocotools

        all_areas, *by_size = (PrecisionRecall(*arrays) for arrays in by_pycocotools(truth, detections))
        return CocoScores(all_areas, tuple(by_size) if truth.sizes_known else ())
    by_size = [
        precision_recall(truth, detections, matches, MAX_DETECTIONS[-1:]) for matches in scored.coco_matches_by_size
    ]
    return CocoScores(precision_recall(truth, detections, scored.coco_matches), tuple(by_size))


def coco_measure(scored: Scored) -> Measure:
    """Prepare AP, AP50, AP75 and AR with 1, 10 and 100 detections from our own matching, NaN where undefined."""
    table = ApTable(scored.truth, scored.detections, scored.coco_matches)

    def measure(weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        recall = {f"AR{limit}": table.average_recall(limit, weights_BI) for limit in MAX_DETECTIONS}
        return ap_summary(table, weights_BI) | {name: mean_of_present(part) for name, part in recall.items()}

    return measure


def coco_measure_by_size(scored: Scored) -> Measure:
    """Prepare AP and AR of small, medium and large objects from our own matching; empty if sizes are unknown."""
    tables = [ApTable(scored.truth, scored.detections, matches) for matches in scored.coco_matches_by_size]

    def measure(weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        values = {}
        for size, table in zip("sml", tables, strict=False):
            values[f"AP{size}"] = mean_of_present(table.average_precision(weights_BI))
            values[f"AR{size}"] = mean_of_present(table.average_recall(MAX_DETECTIONS[-1], weights_BI))
        return values

    return measure


def ap_summary(table: ApTable, weights_BI: np.ndarray, ending: str = "") -> dict[str, np.ndarray]:
    """Return AP, AP50 and AP75 [B], the mean over labels; `ending` is added to the names."""
    ap_BTK = table.average_precision(weights_BI)
    parts = {"AP": ap_BTK, "AP50": ap_BTK[:, 0], "AP75": ap_BTK[:, 5]}
    return {f"{name}{ending}": mean_of_present(part) for name, part in parts.items()}


def scores_by_class(
    ground_truth: GroundTruth, detections: Detections, scores: CocoScores
) -> dict[str, dict[str, float]]:
    """Return AP, AP50, objects and detections of each category that has either."""
    ap_K, ap50_K = scores.per_category()
    names = len(ground_truth.categories)
    objects_K = np.bincount(ground_truth.category_N[~ground_truth.crowd_N], minlength=names)
    detections_K = np.bincount(detections.category_D[detections.category_D < names], minlength=names)
    rows = zip(ground_truth.categories, ap_K, ap50_K, objects_K, detections_K, strict=True)
    return {
        name: {"AP": float(ap), "AP50": float(ap50), "objects": int(objects), "detections": int(boxes)}
        for name, ap, ap50, objects, boxes in rows
        if objects or boxes
    }


def beyond_limit(image_D: np.ndarray, category_D: np.ndarray) -> int:
    """Count the boxes beyond the best 100 of each image and category, which COCO leaves out; or objects likewise."""
    if not len(image_D):
        return 0
    keys_D = image_D * (category_D.max() + 1) + category_D
    counts = np.unique(keys_D, return_counts=True)[1]
    return int(np.clip(counts - MAX_DETECTIONS[-1], 0, None).sum())


def mean_present(values: np.ndarray) -> float:
    """Return the mean of the values other than NaN and -1, which pycocotools uses for undefined; -1 without any."""
    present = values[values > -1]
    return float(present.mean()) if present.size else -1.0
