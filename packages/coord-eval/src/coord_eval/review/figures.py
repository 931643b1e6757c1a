"""The figures by which faults planted into a set are told from its labels, of any labels beside the same answers.

A real detector answers much more than there is: many boxes of low score, parts, groups, several of one object. So a
label is supported by any answer of its name, however unsure, and contradicted by those of another name that no other
label explains; how often this detector misses labels of a class, size and crowding is told by the set itself.

Shapes: N labels, D answers, M labels or rows that are judged, F figures, P pairs, K categories.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.sorting import stable_order
from coord_eval.match.overlaps import Pairs, overlapping_pairs, pairs_within
from coord_eval.review.confidence import LEAST_IOU, SURE_IOU, Compared
from coord_eval.review.evidence import log_odds

_PRIOR = 5.0
"""Weight in labels of the mean share of supported labels, and in answers of that of supported answers, of a class."""


class SetFigures:
    """The figures of labels and answers of a set, which are compared already."""

    def __init__(self, truth: GroundTruth, detections: Detections, compared: Compared) -> None:
        regular = np.flatnonzero(~truth.crowd_N)
        self._truth, self._of_truth = truth.take(regular), regular
        self._detections, self._confidence_D = detections, compared.confidence_D
        self._place_N = np.full(len(truth.image_N), -1)
        self._place_N[regular] = np.arange(len(regular))
        own, width = self._truth, len(detections.table.labels) + 1
        self._width = width
        # Answers beside labels of their name, by answer, the best label first
        found = compared.pairs
        self._pairs = Pairs(found.det_P, self._place_N[found.object_P], found.iou_P)
        same_P = detections.category_D[self._pairs.det_P] == own.category_N[self._pairs.object_P]
        pairs = self._pairs.take(same_P)
        order = np.lexsort((-pairs.iou_P, pairs.det_P))
        self._same = pairs.take(order)
        self._first_D = np.searchsorted(self._same.det_P, np.arange(len(detections) + 1))
        self._iou_N = _most(pairs.iou_P, pairs.object_P, len(own.image_N))
        best_D = self._first_D[:-1]
        has_D = np.diff(self._first_D) > 0
        self._best_label_D = np.full(len(detections), -1)
        self._best_label_D[has_D] = self._same.object_P[best_D[has_D]]
        self._iou_D = np.zeros(len(detections))
        self._iou_D[has_D] = self._same.iou_P[best_D[has_D]]
        has_second_D = np.diff(self._first_D) > 1
        self._second_iou_D = np.zeros(len(detections))
        self._second_iou_D[has_second_D] = self._same.iou_P[best_D[has_second_D] + 1]
        # Counts and best confidences by image and name
        self._labels = Detections.of(own, own.image_N, own.category_N, own.boxes_N4, *np.ones((2, len(own.image_N))))
        self._answered = _Lookup(detections.image_D * width + detections.category_D, self._confidence_D)
        self._labelled = _Lookup(own.image_N * width + own.category_N, np.ones(len(own.image_N)))
        self._pairs_of_labels = pairs_within(own.image_N, np.zeros_like(own.image_N), own.boxes_N4)
        self._mass_I = np.bincount(detections.image_D, self._confidence_D, len(truth))

    def rates(self, of_I: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how often labels, and answers, of each name are supported in some images [I], as log-odds [K]."""
        own, answers = self._truth, self._detections
        use_N, use_D = of_I[own.image_N], of_I[answers.image_D]
        found_K = self._rate(self._iou_N[use_N] >= SURE_IOU, own.category_N[use_N])
        return found_K, self._rate(self._iou_D[use_D] >= SURE_IOU, answers.category_D[use_D])

    def _rate(self, hit_n: np.ndarray, name_n: np.ndarray) -> np.ndarray:
        mean = (float(hit_n.sum()) + 1) / (len(hit_n) + 2)
        count_K, hits_K = (np.bincount(name_n, weight_n, self._width) for weight_n in (None, hit_n))
        return log_odds((hits_K + _PRIOR * mean) / (count_K + _PRIOR))

    def of_own_labels(self) -> np.ndarray:
        """Return the figures of the labels of the set, without crowd regions, each beside the others."""
        return self._of_labels(self._truth, self._of_truth, self._pairs, self._pairs_of_labels)

    def of_labels(self, judged: GroundTruth, source_M: np.ndarray, like_M: np.ndarray) -> np.ndarray:
        """Return the figures [M, F] of labels, each beside the labels of the set but its source.

        `source_M` is the label of the set that each is made of, -1 for one beside all of them; `like_M` is the first
        one with the same box in the same image. The last figure is 1 for a label without any answer of its name, 0 for
        a supported one.
        """
        rows, like_M = np.unique(like_M, return_inverse=True)
        boxes = judged.take(rows)
        pairs, beside = (
            _of_objects(overlapping_pairs(boxes, others, use_categories=False), like_M)
            for others in (self._detections, self._labels)
        )
        return self._of_labels(judged, source_M, pairs, beside)

    def _of_labels(self, judged: GroundTruth, source_M: np.ndarray, pairs: Pairs, beside: Pairs) -> np.ndarray:
        own, answers, count = self._truth, self._detections, len(judged.image_N)
        source_M = np.where(source_M < 0, -1, self._place_N[source_M])
        det_P, at_P, iou_P = pairs.det_P, pairs.object_P, pairs.iou_P
        said_P = self._confidence_D[det_P]
        same_P = answers.category_D[det_P] == judged.category_N[at_P]
        explained_P = np.where(
            (source_M[at_P] >= 0) & (self._best_label_D[det_P] == source_M[at_P]),
            self._second_iou_D[det_P],
            self._iou_D[det_P],
        )
        rival_P = ~same_P * (1 - np.clip(explained_P / SURE_IOU, 0, 1))

        def most(value_P: np.ndarray) -> np.ndarray:
            return _most(value_P, at_P, count)

        best_M, any_M = most(iou_P * same_P), most(iou_P)
        sure_M, near_M = most(said_P * same_P * (iou_P >= SURE_IOU)), most(said_P * same_P * (iou_P >= 0.25))
        told_P = said_P * same_P * (iou_P >= 0.3)
        strongest_M = most(iou_P * ((told_P > 0) & (told_P >= most(told_P)[at_P])))
        # The partner, as sure and as near as any, is larger or smaller than the label
        value_P = said_P * iou_P * same_P * (iou_P >= LEAST_IOU)
        partner_P = (value_P > 0) & (value_P >= most(value_P)[at_P])
        area_D, area_M = np.prod(answers.boxes_D4[:, 2:], axis=1), np.prod(judged.boxes_N4[:, 2:], axis=1)
        larger_P = np.log(np.maximum(area_D[det_P], 1e-6) / np.maximum(area_M[at_P], 1e-6)) * partner_P
        larger_M, smaller_M, partner_said_M = most(larger_P), most(-larger_P), most(said_P * partner_P)
        off_partner_M = np.log(1.02 - most(iou_P * partner_P))
        # An answer belongs to the label of its name that it overlaps most.
        own_P = same_P & (iou_P >= explained_P)
        owned_M, owned_sure_M = most(iou_P * own_P), most(said_P * own_P * (iou_P >= SURE_IOU))
        rival_M, rival_iou_M = log_odds(most(said_P * rival_P * (iou_P >= SURE_IOU))), most(iou_P * rival_P)
        # Other labels
        beside = beside.take(beside.det_P != source_M[beside.object_P])
        is_twin_P = own.category_N[beside.det_P] == judged.category_N[beside.object_P]
        twin_M = _most(beside.iou_P * is_twin_P, beside.object_P, count)
        other_M = _most(beside.iou_P * ~is_twin_P, beside.object_P, count)
        ahead_P = (self._iou_N[beside.det_P] - best_M[beside.object_P]) * (is_twin_P & (beside.iou_P >= SURE_IOU))
        ahead_M = _most(ahead_P, beside.object_P, count)
        second_M = log_odds(_most(beside.iou_P * is_twin_P * (ahead_P >= 0), beside.object_P, count))
        # The name in its image, size, and crowding by what is answered, since spurious labels are one more each
        key_M = judged.image_N * self._width + judged.category_N
        present_M = log_odds(self._answered.most(key_M))
        of_source_M = (source_M >= 0) & (own.category_N[source_M] == judged.category_N)
        namesakes_M = np.log1p(self._labelled.count(key_M) - of_source_M)
        crowd_M = np.log1p(self._mass_I[judged.image_N])
        size_M = 0.5 * np.log(np.maximum(np.prod(judged.boxes_N4[:, 2:], axis=1), 1e-6))
        image_M = 0.5 * np.log(np.prod(self._truth.sizes_I2[judged.image_N], axis=1))
        alone_M = 1 - np.clip(best_M / SURE_IOU, 0, 1)
        relative_M = np.nan_to_num(size_M - image_M)
        aspect_M = np.abs(np.log(np.maximum(judged.boxes_N4[:, 2], 1e-6) / np.maximum(judged.boxes_N4[:, 3], 1e-6)))
        support_M = log_odds(sure_M)
        figures = [
            *(np.clip(best_M, low, high) for low, high in ((0, 0.5), (0.5, 0.7), (0.7, 0.85), (0, 1))),
            strongest_M,
            *(np.clip(twin_M, low, high) for low, high in ((0, 0.5), (0.5, 0.75), (0.75, 1))),
            *(np.clip(rival_iou_M, low, high) for low, high in ((0, 0.5), (0, 1))),
            *(np.clip(any_M, low, high) for low, high in ((0, 0.5), (0, 1))),
            *(np.clip(other_M, low, high) for low, high in ((0, 0.5), (0.5, 1))),
            *(support_M, log_odds(near_M), most(said_P * iou_P * same_P), rival_M, most(said_P * iou_P * rival_P)),
            *(support_M * rival_M / 5, np.maximum(rival_M - support_M, 0), ahead_M, aspect_M),
            *(namesakes_M, crowd_M, size_M, relative_M, present_M, (1 - alone_M) * present_M),
            *(np.clip(owned_M, low, high) for low, high in ((0, 0.5), (0.5, 1))),
            *(log_odds(owned_sure_M), twin_M * (1 - np.clip(owned_M / SURE_IOU, 0, 1))),
            *(larger_M, smaller_M, larger_M * partner_said_M, smaller_M * partner_said_M, off_partner_M),
            *(off_partner_M * partner_said_M, second_M, np.log(1.02 - rival_iou_M), np.clip(rival_iou_M, 0.5, 0.7)),
            *(alone_M * x_M for x_M in (size_M, relative_M, namesakes_M, crowd_M, present_M)),
            alone_M,
        ]
        return np.stack(figures, axis=1)

    @cached_property
    def has_twin_N(self) -> np.ndarray:  # noqa: N802
        """Whether each label of the set, without crowd regions, overlaps another one of its name by `SURE_IOU`."""
        own, pairs = self._truth, self._pairs_of_labels
        beside_P = (pairs.iou_P > SURE_IOU) & (pairs.det_P != pairs.object_P)
        beside_P &= own.category_N[pairs.det_P] == own.category_N[pairs.object_P]
        return np.isin(np.arange(len(own.image_N)), pairs.object_P[beside_P])

    def removals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels that an answer would show if they were removed, and the best such answer.

        One of the label's name is better than any other, and then a more confident one.
        """
        pairs = self._pairs.take(self._pairs.iou_P >= SURE_IOU)
        same_P = self._detections.category_D[pairs.det_P] == self._truth.category_N[pairs.object_P]
        order = np.lexsort((-self._confidence_D[pairs.det_P], ~same_P, pairs.object_P))
        labels, first = np.unique(pairs.object_P[order], return_index=True)
        return self._of_truth[labels], pairs.det_P[order][first]

    def of_answers(self, row_M: np.ndarray, removed_M: np.ndarray) -> np.ndarray:
        """Return the figures [M, F] of answers as signs of a missing label, each with one label of the set removed.

        `row_M` are answers, and `removed_M` labels of the set, -1 for none.
        """
        own, answers, count = self._truth, self._detections, len(row_M)
        removed_M = np.where(removed_M < 0, -1, self._place_N[removed_M])
        image_M, name_M, said_M = answers.image_D[row_M], answers.category_D[row_M], self._confidence_D[row_M]
        beside = _of_rows(self._pairs, row_M)
        beside = beside.take(beside.object_P != removed_M[beside.det_P])
        same_P = own.category_N[beside.object_P] == name_M[beside.det_P]
        area_M = np.prod(answers.boxes_D4[row_M, 2:], axis=1)
        common_P = _common(beside, area_M, np.prod(own.boxes_N4[:, 2:], axis=1))
        label_M = _most(beside.iou_P * same_P, beside.det_P, count)
        other_M = _most(beside.iou_P * ~same_P, beside.det_P, count)
        inside_M = _most(common_P / area_M[beside.det_P] * same_P, beside.det_P, count)
        around_M = _most(
            common_P / np.maximum(np.prod(own.boxes_N4[:, 2:], axis=1), 1e-9)[beside.object_P] * same_P,
            beside.det_P,
            count,
        )
        # Better answers of its name
        repeat_D, within_D, place_D = self._repeats
        removed_name_M = np.where(removed_M >= 0, own.category_N[removed_M], -1)
        labels_M = self._labelled.count(image_M * self._width + name_M) - (removed_name_M == name_M)
        better_M = place_D[row_M]
        size_M = 0.5 * np.log(np.maximum(area_M, 1e-6))
        relative_M = np.nan_to_num(size_M - 0.5 * np.log(np.prod(own.sizes_I2[image_M], axis=1)))
        confidence_M = log_odds(said_M)
        figures = [
            *(np.clip(label_M, low, high) for low, high in ((0, 0.25), (0.25, 0.5), (0.5, 1))),
            *(np.clip(other_M, low, high) for low, high in ((0, 0.5), (0.5, 1))),
            *(inside_M, around_M, repeat_D[row_M], within_D[row_M]),
            *(confidence_M, np.maximum(confidence_M, -2), confidence_M * (1 - label_M)),
            *(np.log1p(labels_M), np.log1p(better_M), np.clip(labels_M - better_M, -3, 3), size_M, relative_M),
            *((labels_M == 0) * 1.0, (better_M == 0) * 1.0, (labels_M == 0) * confidence_M),
        ]
        return np.stack(figures, axis=1)

    @cached_property
    def _repeats(self) -> tuple[np.ndarray, ...]:
        """What better answers say of each answer [D].

        The largest IoU with one of its name, the largest share of it within such a one, and its place among those of
        its name and image.
        """
        answers = self._detections
        order = np.lexsort((-self._confidence_D, answers.image_D * self._width + answers.category_D))
        key_d = (answers.image_D * self._width + answers.category_D)[order]
        place_D = np.zeros(len(order), np.int64)
        place_D[order] = np.arange(len(order)) - np.searchsorted(key_d, key_d)
        pairs = pairs_within(answers.image_D, answers.category_D, answers.boxes_D4)
        rank_D = np.argsort(np.argsort(-self._confidence_D, kind="stable"))
        pairs = pairs.take(rank_D[pairs.object_P] < rank_D[pairs.det_P])
        area_D = np.maximum(np.prod(answers.boxes_D4[:, 2:], axis=1), 1e-9)
        share_P = _common(pairs, area_D, area_D) / area_D[pairs.det_P]
        columns = (pairs.iou_P, share_P)
        return *(_most(value_P, pairs.det_P, len(answers)) for value_P in columns), place_D


def _of_rows(pairs: Pairs, row_M: np.ndarray) -> Pairs:
    """Return the pairs of some detections, which may be there more than once; `det_P` is their place in `row_M`."""
    order = stable_order(pairs.det_P)
    sorted_P = pairs.det_P[order]
    first_M, end_M = (np.searchsorted(sorted_P, row_M, side) for side in ("left", "right"))
    count_M = end_M - first_M
    at_P = np.repeat(np.arange(len(row_M)), count_M)
    place_P = np.arange(len(at_P)) + np.repeat(first_M - (np.cumsum(count_M) - count_M), count_M)
    chosen_P = order[place_P]
    return Pairs(at_P, pairs.object_P[chosen_P], pairs.iou_P[chosen_P])


def _of_objects(pairs: Pairs, row_M: np.ndarray) -> Pairs:
    """Return the pairs of some objects, which may be there more than once; `object_P` is their place in `row_M`."""
    found = _of_rows(Pairs(pairs.object_P, pairs.det_P, pairs.iou_P), row_M)
    return Pairs(found.object_P, found.det_P, found.iou_P)


class _Lookup:
    """Number and largest value of the rows of each key."""

    def __init__(self, key_N: np.ndarray, value_N: np.ndarray) -> None:
        self._keys, place_N = np.unique(key_N, return_inverse=True)
        self._count = np.append(np.bincount(place_N, minlength=len(self._keys)), 0)
        self._most = np.append(_most(value_N, place_N, len(self._keys)), 0.0)

    def _places(self, key_M: np.ndarray) -> np.ndarray:
        place_M = np.searchsorted(self._keys, key_M)
        is_known_M = np.append(self._keys, -1)[place_M] == key_M
        return np.where(is_known_M, place_M, len(self._keys))

    def count(self, key_M: np.ndarray) -> np.ndarray:
        """Return the number of rows of some keys."""
        return np.asarray(self._count[self._places(key_M)])

    def most(self, key_M: np.ndarray) -> np.ndarray:
        """Return the largest value of some keys, 0 without one."""
        return np.asarray(self._most[self._places(key_M)])


def _most(value_P: np.ndarray, at_P: np.ndarray, count: int) -> np.ndarray:
    """Return the largest value at each place, at least 0."""
    most = np.zeros(count)
    np.maximum.at(most, at_P, value_P)
    return most


def _common(pairs: Pairs, area_D: np.ndarray, area_N: np.ndarray) -> np.ndarray:
    """Return the area that the boxes of each pair have in common, from their IoU."""
    return np.asarray(pairs.iou_P / (1 + pairs.iou_P) * (area_D[pairs.det_P] + area_N[pairs.object_P]))
