"""Diagnoses labels by the objects that boxes match whatever their label: ids of another list, few names, wrong names.

Shapes: K categories, P matched boxes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from coord_codec.counts import counted
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.records import Loaded
from coord_eval.intake.results import ResultsList
from coord_eval.match.matching import Scored
from coord_eval.metrics.coco import coco_scores
from coord_eval.metrics.figures import Figures

_MATCHED = 0.5
"""IoU from which on a box is of the object that it matches."""
_RIGHT = 0.5
"""Share of matched boxes of right label from which on the labels are not the fault."""
_FEW_NAMES = 0.5
"""Share of the categories with objects up to which answers have few names."""
_SURE = 2.5
"""Standard deviations by which another meaning of the ids must be right more often than the one that is read."""
_LISTED = 5
_OF_COCO = tuple(k for k in range(1, 91) if k not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83))
"""Ids of the 80 categories of COCO's instances, of 91 that were planned."""


def label_lines(evaluation: Figures, predictions: Loaded, *, wrong: bool, most_images: int | None = None) -> list[str]:
    """Return what is found out about the labels of boxes that match objects: nothing if they are right.

    `wrong` says that boxes match and labels do not, so that pairs of labels are listed. Boxes are matched in at most
    `most_images` of the answered images, in all of them if it is None.
    """
    scored = evaluation if most_images is None else _in_some_images(evaluation, most_images)
    matches, detections = scored.matches_any_label, evaluation.detections
    hit_D, _ = matches.at(_MATCHED)
    answered_P, true_P = scored.detections.category_D[hit_D], scored.truth.category_N[matches.object_D[hit_D]]
    if not len(answered_P):
        return []
    if isinstance(predictions, ResultsList) and (line := _of_ids(evaluation, predictions, answered_P, true_P)):
        return [line]
    if (answered_P == true_P).mean() >= _RIGHT:
        return [line] if (line := _of_few_names(evaluation)) else []
    if not wrong:
        return []
    names = detections.table.labels
    pairs = Counter((a, t) for a, t in zip(answered_P.tolist(), true_P.tolist(), strict=True) if a != t)
    listed = ", ".join(f"{names[a]!r} -> {names[t]!r} ({n})" for (a, t), n in pairs.most_common(_LISTED))
    more = f" and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
    return [
        "diagnosis: the boxes match objects and the labels are wrong: "
        f"AP {evaluation.coco_class_agnostic['AP']:.3f} for any label; answered -> true: {listed}{more}"
    ]


def _in_some_images(evaluation: Figures, most: int) -> Scored:
    """Return the boxes and objects of some of the answered images, drawn with a fixed seed."""
    truth, detections = evaluation.truth, evaluation.detections
    answered = np.unique(detections.image_D)
    if len(answered) <= most:
        return evaluation
    images = np.random.default_rng(0).choice(answered, most, replace=False)
    some = truth.take(np.isin(truth.image_N, images)), detections.take(np.isin(detections.image_D, images))
    return Scored(truth=some[0], detections=some[1], score_source="results", bins=1)


def _of_few_names(evaluation: Figures) -> str:
    """Return a line where answers have few of the names; those that are missing make AP small, not the boxes."""
    truth, detections = evaluation.truth, evaluation.detections
    with_objects = np.unique(truth.category_N[~truth.crowd_N])
    answered = np.intersect1d(detections.category_D, with_objects)
    if not 0 < len(answered) <= _FEW_NAMES * len(with_objects):
        return ""
    ap_by_name = {truth.categories[k]: evaluation.per_class[truth.categories[k]]["AP"] for k in answered.tolist()}
    listed = ", ".join(f"{name!r} {ap:.3f}" for name, ap in list(ap_by_name.items())[:_LISTED])
    more = f" and {len(answered) - _LISTED} more" if len(answered) > _LISTED else ""
    return (
        f"diagnosis: of {counted(len(with_objects), 'category', 'categories')} with objects {len(answered)} "
        f"{'is' if len(answered) == 1 else 'are'} answered, and the AP of the others is 0; mean AP of those answered "
        f"{np.mean(list(ap_by_name.values())):.3f}: {listed}{more}"
    )


def _of_ids(evaluation: Figures, results: ResultsList, answered_P: np.ndarray, true_P: np.ndarray) -> str:
    """Return a line where the ids mean the categories of another list, by the labels of the boxes that match."""
    truth, detections = evaluation.truth, evaluation.detections
    id_of = dict(zip(results.table.labels, (key for key, _ in results.categories), strict=True))
    # Where results name their categories, the names count, and the ids mean nothing.
    if any(name for _, name in results.categories) or not all(isinstance(key, int) for key in truth.category_ids):
        return ""
    ids = [*truth.category_ids, *(id_of.get(label) for label in detections.unknown)]
    right_P = answered_P == true_P
    best = ("", np.zeros(0, np.int64), right_P)
    for meaning, category_by_id in _meanings(truth):
        index_K = np.array([category_by_id.get(key, -1) for key in ids])
        meant_P = index_K[answered_P] == true_P
        if meant_P.sum() > best[2].sum():
            best = (meaning, index_K, meant_P)
    meaning, index_K, meant_P = best
    gained, lost = int((meant_P & ~right_P).sum()), int((right_P & ~meant_P).sum())
    if gained - lost <= _SURE * np.sqrt(gained + lost):
        return ""
    as_meant = _with_categories(detections, index_K)
    ap = coco_scores(Scored(truth=truth, detections=as_meant, score_source="results", bins=1)).summary["AP"]
    return (
        f"diagnosis: category_id {meaning} would give AP {ap:.3f}: of "
        f"{counted(len(true_P), 'box that matches an object', 'boxes that match objects')} {int(meant_P.sum()):,} then "
        f"have its label, {int(right_P.sum()):,} as read; write the ids of the ground truth"
    )


def _meanings(truth: GroundTruth) -> Iterator[tuple[str, dict[Any, int]]]:
    """Yield what ids may mean in place of the ids of the ground truth: words, and the index of a category by id."""
    place = {key: k for k, key in enumerate(truth.category_ids)}
    by_name = sorted(range(len(truth.categories)), key=lambda k: truth.categories[k])
    lists = {"the ground truth's ids in ascending order": list(range(len(place))), "its names by alphabet": by_name}
    if set(place) <= set(_OF_COCO):
        lists = {"COCO's 80 categories": [place.get(key, -1) for key in _OF_COCO], **lists}
    for first in (1, 0):
        for name, indices in lists.items():
            last = len(indices) - 1 + first
            yield f"as the position in {name}, from {first} to {last},", dict(enumerate(indices, first))
    if len(place) == len(_OF_COCO):
        yield "as COCO's own id, of 1 to 90,", dict(zip(_OF_COCO, range(len(place)), strict=True))
    for step in (1, -1):
        yield f"{'less' if step > 0 else 'plus'} 1", {key + step: k for key, k in place.items()}  # type: ignore[operator]


def _with_categories(detections: Detections, index_K: np.ndarray) -> Detections:
    """Return detections whose labels are exchanged; those that then mean no category get a label of their own."""
    labels = [*detections.table.labels, "(no category)"]
    label_D = index_K[detections.category_D]
    return detections.changed(labels=labels, label_N=np.where(label_D < 0, len(labels) - 1, label_D))
