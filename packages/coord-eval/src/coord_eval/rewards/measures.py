"""What is rewarded: functions of judged answers, each with a value in [0, 1] for every answer.

Shapes: I answers, T IoU thresholds, D boxes, L labels.
"""

from __future__ import annotations

import re

import numpy as np

from coord_codec import MARKERS
from coord_eval.metrics.sums import ratio
from coord_eval.parse.answer import Answer
from coord_eval.rewards.judged import JudgedAnswers


def f1(judged: JudgedAnswers, beta: float = 1.0) -> np.ndarray:
    """Return the F-measure, mean over IoU .50, .55, ..., .95: (1 + β²) hits / (β² objects + boxes)."""
    squared = beta * beta
    below_IT = squared * judged.objects_I[:, None] + judged.stated_IT
    return np.asarray(ratio((1 + squared) * judged.hits_IT, below_IT, 1.0).mean(axis=1))


def recall(judged: JudgedAnswers) -> np.ndarray:
    """Return the F-measure in which recall weighs twice as much as precision (F2)."""
    return f1(judged, beta=2.0)


def soft_f1(judged: JudgedAnswers) -> np.ndarray:
    """Return the F1 in which a pair counts with its IoU instead of 0 or 1."""
    matches = judged.scored.matches
    in_crowd_D = (matches.iou_D == 0) & (matches.crowd_D >= 0.5)
    stated_I = judged.scored.sum_detections(~in_crowd_D) + judged.dropped_I
    iou_I = judged.scored.sum_detections(~in_crowd_D, matches.iou_D)
    return ratio(2 * iou_I, judged.objects_I + stated_I, 1.0)


def expected_ap(judged: JudgedAnswers) -> np.ndarray:
    """Return the average precision that the boxes have on average over all their orders, mean over ten thresholds.

    A text has no scores, so that each of the D! orders of its D boxes is as likely. Of H hits among them, one at place
    r has on average (r - 1) (H - 1) / (D - 1) others before it, and the mean over the places is
    AP = H / N · ((1 - q) · (1 + 1/2 + ... + 1/D) + q D) / D with q = (H - 1) / (D - 1), for N objects. Labels are
    pooled: else a box with a label that the image does not have would cost nothing.
    """
    hits_IT, stated_IT = judged.hits_IT.astype(np.float64), judged.stated_IT
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, max(1, stated_IT.max(initial=0)) + 1))])
    q_IT = np.clip((hits_IT - 1) / np.maximum(stated_IT - 1, 1), 0, None)
    precision_IT = ((1 - q_IT) * harmonic[stated_IT] + q_IT * stated_IT) / np.maximum(stated_IT, 1)
    ap_IT = hits_IT * precision_IT / np.maximum(judged.objects_I, 1)[:, None]
    return np.asarray(np.where(judged.objects_I[:, None] > 0, ap_IT, stated_IT == 0).mean(axis=1))


def well_formed(judged: JudgedAnswers) -> np.ndarray:
    """Return the share of complete objects among the pieces of the answer.

    Pieces are objects, dropped pieces and, in formats with markers, words or numbers outside objects (one piece).
    """
    complete = [sum(item.completeness == "complete" for item in answer) for answer in judged.answers]
    loose = [_has_loose_words(text, answer) for text, answer in zip(judged.texts, judged.answers, strict=True)]
    pieces_I = np.array([len(answer) for answer in judged.answers]) + judged.dropped_I + np.array(loose, np.int64)
    return ratio(np.array(complete), pieces_I, 1.0)


_SPECIAL_TOKEN = re.compile(r"<\|[^|<>]*\|>")


def _has_loose_words(text: str, answer: Answer) -> bool:
    """Return whether an answer in markers has words outside its objects and dropped pieces."""
    if answer.format not in MARKERS:
        return False
    spans = sorted([*(item.span for item in answer.objects), *(drop.span for drop in answer.dropped)])
    begins = [0, *(end for _, end in spans)]
    ends = [*(begin for begin, _ in spans), len(text)]
    outside = "".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))
    return any(map(str.isalnum, _SPECIAL_TOKEN.sub("", outside)))


def duplicate_boxes(judged: JudgedAnswers) -> np.ndarray:
    """Return a mask [D] of the boxes that are duplicates.

    A duplicate is unmatched at IoU .5, and repeats an earlier box, or has an IoU of at least .5 with an object of its
    label that is matched with another box, as in the metric `count_errors`.
    """
    matches = judged.scored.matches
    hit_D, counted_D = matches.at(0.5)
    return np.asarray(~hit_D & (judged.repeated_D | ((matches.best_D >= 0.5) & counted_D)))


def no_duplicates(judged: JudgedAnswers) -> np.ndarray:
    """Return the share of boxes that are no duplicates."""
    boxes_I = np.array([len(answer) for answer in judged.answers])
    duplicates_I = judged.scored.sum_detections(duplicate_boxes(judged))
    return ratio(boxes_I - duplicates_I, boxes_I, 1.0)


def count(judged: JudgedAnswers) -> np.ndarray:
    """Return the overlap of the counts by label: Σ min / Σ max of the numbers of boxes and objects of each label.

    Boxes of labels that the image does not have and dropped pieces are counts without objects.
    """
    truth, detections = judged.scored.truth, judged.scored.detections
    counted_D = judged.scored.matches.at(0.5)[1]
    width, regular_N = len(truth.categories) + 1, ~truth.crowd_N

    # Labels belong to one ground truth each, so that the pairs of answer and label that occur are few
    keys_N = truth.image_N[regular_N] * width + truth.category_N[regular_N]
    keys_D = detections.image_D[counted_D] * width + detections.category_D[counted_D]
    keys_P, place_X = np.unique(np.concatenate([keys_N, keys_D]), return_inverse=True)
    objects_P = np.bincount(place_X[: len(keys_N)], minlength=len(keys_P))
    boxes_P = np.bincount(place_X[len(keys_N) :], minlength=len(keys_P))
    answer_P = keys_P // width
    least_I = np.bincount(answer_P, np.minimum(objects_P, boxes_P), minlength=len(judged.answers))
    most_I = np.bincount(answer_P, np.maximum(objects_P, boxes_P), minlength=len(judged.answers))
    return ratio(least_I, most_I + judged.dropped_I, 1.0)
