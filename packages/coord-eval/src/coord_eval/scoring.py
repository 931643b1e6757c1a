"""From files to numbers: the one function that puts the parts together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from coord_codec import CoordGrid, MarkerFamily, Order
from coord_eval.bootstrap import resample
from coord_eval.coco import BACKENDS, CocoScores, beyond_limit, coco_scores
from coord_eval.coco_table import CocoTable
from coord_eval.collecting import collect_answers
from coord_eval.collector import collector_paused
from coord_eval.detection_metrics import detection_table, mean_iou
from coord_eval.detections import Detections
from coord_eval.errors import InputError
from coord_eval.evaluation import Evaluation
from coord_eval.intake import PredictionSource, Progress, Reading, Scale, silent, take_in
from coord_eval.joining import join
from coord_eval.labels import LabelMatcher
from coord_eval.matching import match
from coord_eval.one_label import one_label
from coord_eval.oracle import oracle_records
from coord_eval.parsing import parse_answer
from coord_eval.predictions import Prediction, from_records
from coord_eval.truth import GroundTruth
from coord_eval.truth_files import TruthSource, load_ground_truth

_DEFAULT_GRID = CoordGrid()


@collector_paused()
def score(
    ground_truth: TruthSource,
    predictions: PredictionSource,
    backend: str = "pycocotools",
    score_source: str = "auto",
    *,
    boxes: str = "tokens",
    format: str | MarkerFamily = "auto",
    scale: Scale = None,
    grid: CoordGrid = _DEFAULT_GRID,
    markers: str | MarkerFamily = "obj",
    max_objects: int | None = None,
    order: Order = "top_left",
    synonyms: Mapping[str, Sequence[str]] | None = None,
    label_callback: Callable[[str], str | None] | None = None,
    bootstrap: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Score answers against ground truth.

    Images without an answer count as answered with nothing, and images without objects count: whatever is
    answered there is false. Labels that the data set doesn't have count as false, never as absent.

    Args:
        ground_truth: COCO JSON or instance JSON lines, a COCO dictionary or instances.
        predictions: ``predictions.jsonl``, a COCO results list, or the records of either.
        backend: What computes the COCO numbers: ``pycocotools``, or ``faster-coco-eval`` (extra ``fast``).
        score_source: ``auto`` or a name of :data:`coord_eval.SCORE_SOURCES`; results lists keep their scores.
        boxes: What boxes are read from: ``tokens`` as they were said, or ``expected``, the expectation that
            the producer states at the same places.
        format: Format of the answers, see :func:`coord_eval.parse_answer`.
        scale: What plain numbers in the answers are divided by; ``"pixels"`` takes the size that a prediction
            states, else the picture's; ``"input_pixels"`` the size that the model saw, which predictions state
            as ``input_width`` and ``input_height``; ``"infer"`` finds one for the whole set and notes why; None
            assumes the grid's (1000) and notes that.
        grid: Grid of the coordinate tokens.
        markers: Marker family in which the ceiling is encoded.
        max_objects: Object limit that the ceiling is under, the one the model was trained with.
        order: Object order of the ceiling; it matters under a limit.
        synonyms: Further names of categories.
        label_callback: Asked last for the category of a label.
        bootstrap: Resamples of the pictures for intervals; 0 for none.
        seed: Of the resamples.
        progress: Called with a stage's name, what is done and what there is to do.

    Raises:
        InputError: When the input cannot be scored; the message names file, line and field.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend: expected one of {', '.join(BACKENDS)}, found {backend!r}")
    report = progress or silent
    report("read", 0, 2)
    truth = load_ground_truth(ground_truth)
    report("read", 1, 2)
    reading = Reading(boxes=boxes, format=format, scale=scale, grid=grid)
    collected, by_image = take_in(
        truth,
        predictions,
        reading,
        labels=lambda: LabelMatcher(truth.categories, synonyms or {}, label_callback),
        score_source=score_source,
        progress=report,
    )
    ceiling, notes = _ceiling(
        truth, markers=markers, order=order, max_objects=max_objects, grid=grid, backend=backend
    )
    report("score", 1, 4)
    scores = coco_scores(truth, collected.detections, backend)
    report("score", 2, 4)
    constant = _constant(truth, collected.detections, scores)
    report("score", 3, 4)
    agnostic = CocoTable(*one_label(truth, collected.detections)).summary()
    report("score", 4, 4)
    any_label = match(truth, collected.detections, use_categories=False)
    matches = match(truth, collected.detections)
    crowd_N = truth.crowd_N
    evaluation = Evaluation(
        coco=scores.summary,
        coco_constant_score=constant,
        coco_class_agnostic=agnostic,
        score_source=collected.score_source,
        backend=backend,
        detection=detection_table(matches, crowd_N),
        detection_class_agnostic=detection_table(any_label, crowd_N),
        mean_iou=mean_iou(matches, crowd_N),
        mean_iou_class_agnostic=mean_iou(any_label, crowd_N),
        format=collected.format,
        labels=collected.labels,
        unknown_labels=collected.unknown_labels,
        ceiling=ceiling,
        counts=_counts(truth, collected.detections),
        join=collected.join,
        per_class=_per_class(truth, collected.detections, scores),
        notes=(*truth.notes, *collected.notes, *notes, *_limit_note(collected.detections)),
        truth=truth,
        detections=collected.detections,
        matches=matches,
        matches_any_label=any_label,
        answers=by_image,
        bins=grid.scale,
    )
    if not bootstrap:
        return evaluation
    return replace(evaluation, intervals=resample(evaluation, bootstrap, seed, progress).intervals())


def oracle_predictions(ground_truth: TruthSource, **options: Any) -> list[dict[str, Any]]:
    """Return prediction records whose text is the encoded truth; options as in :func:`oracle_records`.

    Raises:
        InputError: When the ground truth cannot be read.
    """
    return oracle_records(load_ground_truth(ground_truth), **options)


def _constant(truth: GroundTruth, detections: Detections, scores: CocoScores) -> dict[str, float]:
    """Return the twelve numbers under a constant score; ``scores`` has them where all scores are equal."""
    if len(np.unique(detections.scores_D)) < 2:
        return dict(scores.summary)
    return CocoTable(truth, detections.with_constant_score()).summary()


def _ceiling(
    truth: GroundTruth,
    *,
    markers: str | MarkerFamily,
    order: Order,
    max_objects: int | None,
    grid: CoordGrid,
    backend: str,
) -> tuple[dict[str, float], list[str]]:
    """Score the encoded truth the way answers are scored."""
    if not np.isfinite(truth.sizes_I2).all():
        return {}, ["no ceiling: some images state no size"]
    if len(set(truth.categories)) != len(truth.categories):
        return {}, ["no ceiling: two categories share a name"]
    records = oracle_records(truth, markers=markers, order=order, max_objects=max_objects, grid=grid)
    predictions = [p for p in from_records(records, "ceiling") if isinstance(p, Prediction)]
    answers = [parse_answer(p.text, markers, grid=grid) for p in predictions]
    images, joined = join(truth, ((p.image_id, p.image, p.where) for p in predictions))
    labels = LabelMatcher(truth.categories)
    collected = collect_answers(
        truth, predictions, answers, images=images, joined=joined, labels=labels, score_source="constant"
    )
    return coco_scores(truth, collected.detections, backend).summary, []


def _counts(truth: GroundTruth, detections: Detections) -> dict[str, int]:
    return {
        "images": len(truth),
        "objects": int((~truth.crowd_N).sum()),
        "crowd_regions": int(truth.crowd_N.sum()),
        "detections": len(detections),
        "unknown_label_detections": int((detections.category_D >= len(truth.categories)).sum()),
        "beyond_coco_limit": beyond_limit(detections),
    }


def _per_class(truth: GroundTruth, detections: Detections, scores: CocoScores) -> dict[str, dict[str, float]]:
    """Return AP, AP50, objects and detections of each category that has either."""
    ap_K, ap50_K = scores.per_category()
    names = len(truth.categories)
    objects_K = np.bincount(truth.category_N[~truth.crowd_N], minlength=names)
    found_K = np.bincount(detections.category_D[detections.category_D < names], minlength=names)
    return {
        name: {
            "AP": float(ap_K[k]),
            "AP50": float(ap50_K[k]),
            "objects": int(objects_K[k]),
            "detections": int(found_K[k]),
        }
        for k, name in enumerate(truth.categories)
        if objects_K[k] or found_K[k]
    }


def _limit_note(detections: Detections) -> list[str]:
    left_out = beyond_limit(detections)
    return [f"COCO leaves out {left_out} boxes beyond 100 of one label in one picture"] if left_out else []
