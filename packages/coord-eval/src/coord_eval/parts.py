"""Merges evaluations of parts of a set of images, which other processes or machines have made.

Shapes: D detections, P pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_eval.boxes.detections import Detections
from coord_eval.evaluation import Evaluation
from coord_eval.intake.joining import UNANSWERED, JoinReport
from coord_eval.match.overlaps import Pairs
from coord_eval.metrics.figures import counts_of
from coord_eval.resampling.bootstrap import intervals_of
from coord_eval.shapes.scores import score_shapes

_SAME = ("score_source", "backend", "bins", "grid", "ceiling_settings", "params", "calibrated")
"""Attributes that parts have in common."""


def merge(parts: Sequence[Evaluation], *, bootstrap: int = 0, seed: int = 0) -> Evaluation:
    """Merge evaluations of parts of the predictions into that of all of them.

    Each part is what `score` returns for the predictions of some of the images, beside the ground truth of all; it may
    come from another process (it can be pickled). Boxes and the IoU of their pairs are taken from the parts; boxes
    stand in the order of images, so that the result does not depend on how the images were divided, to the last bit,
    and equals `score` of all predictions in that order.

    Args:
        parts: the evaluations; no image has predictions in two of them
        bootstrap: as for `score`, as the next
        seed: as for `score`

    Raises:
        InputError: if there is no part, parts have other ground truth or settings, or an image is in two of them. What
            `score` finds from a set as a whole may differ between its parts: state score_source and scale

    Example:
        >>> from coord_codec import Instance
        >>> from coord_eval import score
        >>> cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}
        >>> images = [Instance(image=f"{n}.jpg", image_id=n, width=640, height=480, objects=[cat]) for n in (1, 2)]
        >>> boxes = [{"image_id": n, "category_id": 1, "bbox": [64, 96, 256, 192], "score": 0.9} for n in (1, 2)]
        >>> parts = [score(images, [box]) for box in boxes]
        >>> [round(part["AP"], 3) for part in parts], round(merge(parts)["AP"], 3)
        ([0.505, 0.505], 1.0)
    """
    if not parts:
        raise InputError("parts: expected one evaluation or more, found none")
    first = next((part for part in parts if len(part.detections)), parts[0])
    for n, part in enumerate(parts):
        _check_alike(first, part, f"parts[{n}]")
    detections, pairs = _joined(parts)
    sources = [part.join for part in parts]
    examples = dict.fromkeys(example for join in sources for example in join.unknown_examples)
    join = JoinReport(
        images=len(first.truth),
        answered=len(_once([_answered(part) for part in parts], first)),
        by_name=sum(part.by_name for part in sources),
        unknown=sum(part.unknown for part in sources),
        unknown_examples=tuple(examples)[:5],
    )
    changes: dict[str, Any] = {name: _sum([getattr(part, name) for part in parts]) for name in ("format", "labels")}
    unknown_labels: Counter[str] = Counter()
    for part in parts:
        unknown_labels.update(part.unknown_labels)
    geometry = first.shapes.get("geometry", "box")
    changes["shapes"], changes["shape_pairs"] = score_shapes(first.truth, detections, geometry, first.grid)
    merged = replace(
        first,
        **changes,
        detections=detections,
        unknown_labels=dict(unknown_labels.most_common()),
        counts=counts_of(first.truth, detections, join),
        join=join,
        notes=_notes(parts, join),
        answers={image: answer for part in parts for image, answer in part.answers.items()},
        fusion=_sum([part.fusion for part in parts]),
        intervals={},
    )
    merged.__dict__.update(pairs)
    return merged.with_intervals(*intervals_of(merged, bootstrap, seed)) if bootstrap else merged


def _check_alike(first: Evaluation, part: Evaluation, place: str) -> None:
    """Raise an error for a part with other ground truth or settings; one without boxes has no source of scores."""
    own, its = first.truth, part.truth
    columns = ("image_N", "category_N", "boxes_N4", "area_N", "crowd_N")
    is_same = (own.image_ids, own.categories) == (its.image_ids, its.categories)
    if not is_same or not all(np.array_equal(getattr(own, name), getattr(its, name)) for name in columns):
        raise InputError(f"{place}: its ground truth is another one; score each part beside that of all images")
    for name in _SAME:
        expected, found = getattr(first, name), getattr(part, name)
        if expected != found and (name != "score_source" or len(part.detections)):
            raise InputError(f"{place}: {name}: expected {expected!r} as in other parts, found {found!r}; state it")


def _answered(part: Evaluation) -> set[int]:
    """Return the images of which a part has predictions."""
    return {*part.detections.image_D.tolist(), *part.answers}


def _once(images: Sequence[set[int]], first: Evaluation) -> set[int]:
    """Return all images of parts; raise an error for one that is in two of them."""
    known: set[int] = set()
    for n, own in enumerate(images):
        if twice := known & own:
            image_id = first.truth.image_ids[min(twice)]
            raise InputError(f"parts[{n}]: image {image_id!r} is in another part too; an image belongs to one part")
        known |= own
    return known


def _joined(parts: Sequence[Evaluation]) -> tuple[Detections, dict[str, Pairs]]:
    """Return the boxes of all parts in the order of images, and their overlapping pairs."""
    together = Detections.concatenate([part.detections for part in parts])
    order = np.argsort(together.image_D, kind="stable")
    place_D = np.argsort(order)
    detections = together.take(order)
    starts = np.cumsum([0, *(len(part.detections) for part in parts)]).tolist()
    joined = {}
    for name in ("pairs", "pairs_any_label"):
        own = [getattr(part, name) for part in parts]
        det_P = place_D[np.concatenate([pairs.det_P + start for pairs, start in zip(own, starts, strict=False)])]
        object_P = np.concatenate([pairs.object_P for pairs in own])
        label_P = detections.category_D[det_P] if name == "pairs" else np.zeros(len(det_P), np.int64)
        rows = np.lexsort((object_P, det_P, label_P, detections.image_D[det_P]))
        joined[name] = Pairs(det_P, object_P, np.concatenate([pairs.iou_P for pairs in own])).take(rows)
    return detections, joined


def _sum(counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of counts by key, also of those in dictionaries and lists; texts are those of the first."""
    total: dict[str, Any] = {}
    alike = all(part.keys() == counts[0].keys() for part in counts)
    for key in counts[0] if alike else sorted({key for part in counts for key in part}):
        values = [part[key] for part in counts if key in part]
        if isinstance(values[0], Mapping):
            total[key] = _sum(values)
        elif isinstance(values[0], list):
            total[key] = [_sum(rows) for rows in zip(*values, strict=True)]
        else:
            total[key] = values[0] if isinstance(values[0], str) else sum(values)
    return total


def _notes(parts: Sequence[Evaluation], join: JoinReport) -> tuple[str, ...]:
    """Return what all parts note once, what some of them note with their place, and the images without an answer."""
    shared = [note for note in parts[0].notes if all(note in part.notes for part in parts)]
    notes = [note for note in shared if UNANSWERED not in note]
    for n, part in enumerate(parts):
        notes += [f"part {n + 1}: {note}" for note in part.notes if note not in shared and UNANSWERED not in note]
    if join.unanswered:
        notes.append(f"{join.unanswered}, which counts as an empty answer")
    return tuple(notes)
