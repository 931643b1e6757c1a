"""Matches detections with objects: one to one by IoU without scores, and greedily by descending score as in COCO.

The greedy matching serves metrics that the backends do not offer: AP under image weights, error kinds, F1 by score
threshold.

Shapes: I images, T IoU thresholds, N objects, D detections, P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.sorting import stable_order
from coord_eval.match.overlaps import Pairs, overlapping_pairs
from coord_eval.settings import IOU_THRESHOLDS, MAX_DETECTIONS


@dataclass(frozen=True, eq=False)
class Matches:
    """One-to-one pairs of detections and objects.

    Pairs are chosen by descending IoU, with each object and each detection in at most one pair. The matching at a
    threshold t is therefore the pairs with an IoU of at least t, and the order of the detections has no effect.

    Attributes:
        iou_D: IoU of each detection with its object, 0 without one
        object_D: index of that object, -1 without one
        iou_N: IoU of each object with its detection, 0 without one
        best_D: highest IoU of each detection with any object of its label, paired or not
        crowd_D: largest share of a detection's area that lies in a crowd region of its label
    """

    iou_D: np.ndarray
    object_D: np.ndarray
    iou_N: np.ndarray
    best_D: np.ndarray
    crowd_D: np.ndarray

    def at(self, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the hits at an IoU threshold and of the detections that count: hits or in no crowd region."""
        hit_D = self.iou_D >= threshold
        return hit_D, hit_D | (self.crowd_D < threshold)


@dataclass(frozen=True, eq=False)
class ShapePairs:
    """Pairs of predicted and ground-truth shapes, matched at the first threshold of their measure.

    Attributes:
        similarity_D: similarity of each detection to its object, 0 without one
        similarity_N: similarity of each object to its detection, 0 without one
        geometry: that of the shapes, where they stand as a COCO file states them
    """

    similarity_D: np.ndarray
    similarity_N: np.ndarray
    geometry: str = ""


def match(truth: GroundTruth, detections: Detections, pairs: Pairs, *, by_score: bool = False) -> Matches:
    """Match detections with objects, by their overlapping pairs.

    By score, each detection in the order of the scores has the object with the highest IoU that is left; `pairs` are
    then those of the threshold at which the matches are asked for. Equal scores leave the order to the IoU.
    """
    crowd_P = truth.crowd_N[pairs.object_P]
    in_crowd, regular = pairs.take(crowd_P), pairs.take(~crowd_P)
    crowd_D, best_D = np.zeros(len(detections)), np.zeros(len(detections))
    np.maximum.at(crowd_D, in_crowd.det_P, in_crowd.iou_P)
    np.maximum.at(best_D, regular.det_P, regular.iou_P)
    keys = (-detections.scores_D[regular.det_P],) if by_score else ()
    ranked = regular.take(stable_order(*keys, -regular.iou_P))
    partners = ranked.take(_choose(ranked, np.zeros(len(truth.image_N), bool), len(detections)))
    iou_D, object_D = np.zeros(len(detections)), np.full(len(detections), -1)
    iou_N = np.zeros(len(truth.image_N))
    iou_D[partners.det_P] = iou_N[partners.object_P] = partners.iou_P
    object_D[partners.det_P] = partners.object_P
    return Matches(iou_D, object_D, iou_N, best_D, crowd_D)


def _choose(pairs: Pairs, crowd_N: np.ndarray, total: int) -> np.ndarray:
    """Return the indices of the pairs that a greedy matching in their order chooses, in no particular order.

    Each of `total` detections and each object is chosen once at most, but a crowd region any number of times. A pair
    that is the first of its detection and of its object is chosen whatever becomes of the others, so that each round
    chooses all of those at once; there are no more rounds than objects in the fullest image and label.
    """
    left_P = np.arange(len(pairs.det_P))
    det_P, object_P, crowd_P = pairs.det_P, pairs.object_P, crowd_N[pairs.object_P]
    first_D, first_N = np.empty(total, np.int64), np.empty(len(crowd_N), np.int64)
    taken_D, taken_N = np.zeros(total, bool), np.zeros(len(crowd_N), bool)
    chosen = []
    while len(left_P):
        first_D[det_P[::-1]] = left_P[::-1]  # of several values for one index the last one stays
        first_N[object_P[::-1]] = left_P[::-1]
        now = np.flatnonzero((first_D[det_P] == left_P) & (crowd_P | (first_N[object_P] == left_P)))
        chosen.append(left_P[now])
        taken_D[det_P[now]] = True
        taken_N[object_P[now]] = ~crowd_P[now]
        later = np.flatnonzero(~(taken_D[det_P] | taken_N[object_P]))
        left_P, det_P, object_P, crowd_P = left_P[later], det_P[later], object_P[later], crowd_P[later]
    return np.concatenate(chosen) if chosen else left_P


AREAS = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))
"""COCO's area ranges in pixels, both ends included: all, small, medium, large."""


@dataclass(frozen=True, eq=False)
class RankedMatches:
    """Greedy matching by descending score, as COCO defines it.

    Attributes:
        thresholds: the T IoU thresholds
        hit_TD: whether the detection is matched with an object of its label that counts
        ignored_TD: whether the detection is neither a hit nor a false positive: it lies in a crowd region, matches an
            object outside the area range, is outside that range itself, or exceeds the limit of its label and image
        object_D: index of the object that is matched at the first threshold, -1 without one
        order_D: detections by descending score, ties in the order of image and answer
        place_D: rank of the detection among those of its label and image by descending score, from 0
        counted_N: whether the object counts: it is no crowd region and within the area range
    """

    thresholds: tuple[float, ...]
    hit_TD: np.ndarray
    ignored_TD: np.ndarray
    object_D: np.ndarray
    order_D: np.ndarray
    place_D: np.ndarray
    counted_N: np.ndarray


@dataclass(frozen=True, eq=False)
class Ranking:
    """Detections by descending score, on which COCO's matchings of one set stand.

    Attributes:
        order_D: as in `RankedMatches`
        place_D: as in `RankedMatches`
        pairs: overlapping pairs of the same label, by descending score, descending IoU, and descending object: of
            equal IoUs COCO chooses the last object
        alone: those whose detection and object are in no other pair, which are matched at every threshold up to their
            IoU
    """

    order_D: np.ndarray
    place_D: np.ndarray
    pairs: Pairs
    alone: Pairs


def rank(truth: GroundTruth, detections: Detections, pairs: Pairs) -> Ranking:
    """Sort detections, and their overlapping pairs of the same label, by descending score."""
    order_D = stable_order(-detections.scores_D, detections.image_D)
    rank_D = np.empty(len(order_D), np.int64)
    rank_D[order_D] = np.arange(len(order_D))
    ranked = pairs.take(stable_order(rank_D[pairs.det_P], -pairs.iou_P, -pairs.object_P))
    is_only_D = np.bincount(pairs.det_P, minlength=len(detections)) == 1
    is_only_N = np.bincount(pairs.object_P, minlength=len(truth.image_N)) == 1
    alone_P = is_only_D[ranked.det_P] & is_only_N[ranked.object_P]
    return Ranking(order_D, _places(detections, order_D), ranked.take(~alone_P), ranked.take(alone_P))


def ranked_matches_by_area(
    truth: GroundTruth,
    detections: Detections,
    thresholds: Sequence[float] = IOU_THRESHOLDS,
    limit: int = MAX_DETECTIONS[-1],
    areas: Sequence[tuple[float, float]] = AREAS,
    ranking: Ranking | None = None,
) -> list[RankedMatches]:
    """Match as COCO does, once for each area range; `limit` boxes of one label and image are considered.

    `ranking` is that of the detections, if it is known already, with all pairs that reach the lowest threshold.
    """
    total = len(detections)
    lowered = [min(t, 1 - 1e-10) for t in thresholds]  # as COCO does
    if ranking is None:
        pairs = overlapping_pairs(truth, detections)
        ranking = rank(truth, detections, pairs.take(pairs.iou_P >= min(lowered)))
    place_D = ranking.place_D
    pairs, alone = (part.take(place_D[part.det_P] < limit) for part in (ranking.pairs, ranking.alone))
    area_D = detections.boxes_D4[:, 2] * detections.boxes_D4[:, 3]
    results = []
    for low, high in areas:
        counted_N = ~truth.crowd_N & (truth.area_N >= low) & (truth.area_N <= high)
        outside_D = (area_D < low) | (area_D > high)
        object_D = np.full(total, -1)
        hit_TD = np.zeros((len(thresholds), total), bool)
        ignored_TD = np.repeat((outside_D | (place_D >= limit))[None], len(thresholds), axis=0)
        near = _counted_first(pairs, counted_N)
        # A detection outside the range is ignored, whichever object outside the range it matches.
        single = alone.take(counted_N[alone.object_P] | ~outside_D[alone.det_P])
        for t in sorted(range(len(lowered)), key=lowered.__getitem__):  # each leaves fewer pairs for the next
            near, single = (part.take(part.iou_P >= lowered[t]) for part in (near, single))
            for matched in (near.take(_choose(near, truth.crowd_N, total)), single):
                is_hit_P = counted_N[matched.object_P]
                hit_TD[t, matched.det_P], ignored_TD[t, matched.det_P] = is_hit_P, ~is_hit_P
                if t == 0:
                    object_D[matched.det_P] = np.where(is_hit_P, matched.object_P, -1)
        results.append(
            RankedMatches(
                thresholds=tuple(thresholds),
                hit_TD=hit_TD,
                ignored_TD=ignored_TD,
                object_D=object_D,
                order_D=ranking.order_D,
                place_D=place_D,
                counted_N=counted_N,
            )
        )
    return results


def _counted_first(pairs: Pairs, counted_N: np.ndarray) -> Pairs:
    """Sort ranked pairs so that objects that count precede the others of the same detection, as COCO prefers them."""
    counted_P = counted_N[pairs.object_P]
    if counted_P.all():
        return pairs
    begins_P = np.diff(pairs.det_P, prepend=-1) != 0
    return pairs.take(stable_order(2 * np.cumsum(begins_P) + ~counted_P))


def _places(detections: Detections, order_D: np.ndarray) -> np.ndarray:
    """Return the rank of each detection by descending score among those of its label and image."""
    key_D = detections.image_D * (detections.category_D.max(initial=0) + 1) + detections.category_D
    order = order_D[stable_order(key_D[order_D])]
    begins = np.diff(key_D[order], prepend=-1) != 0
    starts = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    place_D = np.empty(len(order), np.int64)
    place_D[order] = np.arange(len(order)) - starts
    return place_D


def one_label(truth: GroundTruth, detections: Detections, pairs: Pairs) -> tuple[GroundTruth, Detections, Pairs]:
    """Return objects, detections and `pairs`, with every label, unknown ones included, replaced by the same one.

    Scoring the result gives the values of COCO's `useCats=0`. Order decides among equal scores and equal IoUs; within
    an image it is the order of the categories, as in COCO, with all unknown labels last.
    """
    by_N = stable_order(truth.category_N)
    none_N = np.zeros(len(by_N), np.int64)
    merged = replace(truth.take(by_N), categories=("(any label)",), category_ids=(1,), category_N=none_N)
    by_D = stable_order(np.minimum(detections.category_D, len(truth.categories)))
    boxes = replace(detections.take(by_D), known=1).changed(label_N=np.zeros(len(by_D), np.int64), labels=("",))
    moved = Pairs(stable_order(by_D)[pairs.det_P], stable_order(by_N)[pairs.object_P], pairs.iou_P)
    return merged, boxes, moved.take(stable_order(merged.image_N[moved.object_P], moved.det_P, moved.object_P))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Scored:
    """Detections of one set of images beside the ground truth; matches are computed on first use.

    What a figure needs once is computed for it and not kept: a matching of a large set at ten thresholds is large.

    Attributes:
        truth: the ground truth
        detections: the boxes to score
        score_source: source of the scores by which detections are sorted
        bins: bins per image side, the unit of localisation errors: the grid's scale
        shape_pairs: pairs of shapes other than boxes; None for boxes
    """

    truth: GroundTruth
    detections: Detections
    score_source: str
    bins: int
    shape_pairs: ShapePairs | None = None

    @cached_property
    def matches(self) -> Matches:
        """One-to-one pairs of the same label."""
        return match(self.truth, self.detections, self.pairs)

    @cached_property
    def matches_any_label(self) -> Matches:
        """One-to-one pairs when any label may match any object."""
        return match(self.truth, self.detections, self.pairs_any_label)

    @cached_property
    def confused(self) -> Matches:
        """One-to-one pairs by descending score when any label may match any object, with an IoU of at least .5."""
        near = self.pairs_any_label.take(self.pairs_any_label.iou_P >= IOU_THRESHOLDS[0])
        return match(self.truth, self.detections, near, by_score=True)

    @cached_property
    def pairs(self) -> Pairs:
        """Overlapping pairs of the same label, on which all matchings stand."""
        return overlapping_pairs(self.truth, self.detections)

    @cached_property
    def pairs_any_label(self) -> Pairs:
        """Overlapping pairs whatever their labels."""
        return overlapping_pairs(self.truth, self.detections, use_categories=False)

    @cached_property
    def ranking(self) -> Ranking:
        """Detections by descending score, and their pairs of the same label with an IoU of at least .5."""
        return rank(self.truth, self.detections, self.pairs.take(self.pairs.iou_P >= IOU_THRESHOLDS[0]))

    @cached_property
    def ranked(self) -> RankedMatches:
        """COCO's greedy matching at IoU .5."""
        all_ = self.coco_matches
        first = {name: getattr(all_, name)[:1] for name in ("thresholds", "hit_TD", "ignored_TD")}
        return replace(all_, **first)

    @cached_property
    def coco_matches(self) -> RankedMatches:
        """COCO's greedy matching at its ten thresholds."""
        return ranked_matches_by_area(self.truth, self.detections, areas=AREAS[:1], ranking=self.ranking)[0]

    @property
    def coco_matches_by_size(self) -> list[RankedMatches]:
        """COCO's greedy matching of small, medium and large objects; empty if image sizes are unknown."""
        if not self.truth.sizes_known:
            return []
        return ranked_matches_by_area(self.truth, self.detections, areas=AREAS[1:], ranking=self.ranking)

    @property
    def with_constant_score(self) -> Scored:
        """The same boxes with all scores set to 1."""
        return self.with_scores(np.ones(len(self.detections)), "constant")

    def with_scores(self, scores_D: np.ndarray, source: str) -> Scored:
        """Return the same boxes with other scores."""
        detections = self.detections.changed(score_N=scores_D)
        same = Scored(truth=self.truth, detections=detections, score_source=source, bins=self.bins)
        same.__dict__["pairs"] = self.pairs  # the score moves no box
        return same

    @property
    def with_one_label(self) -> Scored:
        """The same boxes and objects with every label replaced by the same one."""
        truth, detections, pairs = one_label(self.truth, self.detections, self.pairs_any_label)
        merged = Scored(truth=truth, detections=detections, score_source=self.score_source, bins=self.bins)
        merged.__dict__["pairs"] = pairs
        return merged

    @cached_property
    def objects_per_image(self) -> np.ndarray:
        """Number of objects of each image, without crowd regions."""
        return self.sum_objects(~self.truth.crowd_N)

    def sum_objects(self, chosen_N: np.ndarray, values_N: np.ndarray | None = None) -> np.ndarray:
        """Count the chosen objects of each image, or sum `values_N` over them."""
        values_n = None if values_N is None else values_N[chosen_N]
        return np.bincount(self.truth.image_N[chosen_N], values_n, minlength=len(self.truth))

    def sum_detections(self, chosen_D: np.ndarray, values_D: np.ndarray | None = None) -> np.ndarray:
        """Count the chosen detections of each image, or sum `values_D` over them."""
        values_d = None if values_D is None else values_D[chosen_D]
        return np.bincount(self.detections.image_D[chosen_D], values_d, minlength=len(self.truth))
