"""Scores a set of answers: from files or records to an `Evaluation`, with the quantisation ceiling.

The ceiling is the score of the ground truth itself: sorted, cut at the object limit, quantised on the grid, encoded as
the text of an answer and parsed back. No model can recover what these steps lose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import (
    CoordGrid,
    Form,
    Geometry,
    InputError,
    Instance,
    MarkerFamily,
    Object,
    Order,
    Style,
    encode_target,
    geometry_of,
)
from coord_codec.records import check_description
from coord_eval.data.ground_truth import GroundTruth, GroundTruthSource, load_ground_truth
from coord_eval.data.predictions import Detections, Prediction, from_records
from coord_eval.intake.answers import AnswerOptions, PredictionSource, Progress, Scale, silent
from coord_eval.intake.collecting import collect, collect_answers, collector_paused
from coord_eval.intake.joining import LabelMatcher, join
from coord_eval.match.matching import Scored, match
from coord_eval.metrics.bootstrap import few_objects_note, resample
from coord_eval.metrics.coco import BACKENDS, CocoScores, CocoTable, beyond_limit, coco_scores, one_label
from coord_eval.metrics.detection import micro_rates
from coord_eval.metrics.evaluation import EvaluationData, point
from coord_eval.metrics.own import CocoParams, own_scores, pr_curves
from coord_eval.parse.parser import parse_answer
from coord_eval.report.evaluation import ReportSection, write_report
from coord_eval.report.photograph import ImageRoot
from coord_eval.shapes.scores import score_shapes


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation(EvaluationData):
    """All metrics of one set of answers, the matched boxes they were computed from, and their report.

    `EvaluationData` documents the fields.
    """

    def write_report(
        self,
        folder: str | Path,
        *,
        image_root: str | ImageRoot | None = None,
        title: str | None = None,
        sections: Sequence[ReportSection] = (),
        max_overlays: int = 12,
    ) -> Path:
        """Write `evaluation.json` and `report.html` into a folder, each atomically.

        Args:
            folder: created if missing; reports of an earlier evaluation are replaced
            image_root: folder of the images, outside of which no file is read, or a function from the name of an
                image to its file; by default the folder of the ground truth
            title: heading of the report
            sections: further sections, shown in front of the others
            max_overlays: maximum number of images drawn with ground truth and answer

        Returns:
            The path of `report.html`.

        Raises:
            OSError: if the folder cannot be written
        """
        return write_report(
            self, folder, image_root=image_root, title=title, sections=sections, max_overlays=max_overlays
        )


@collector_paused()
def score(
    ground_truth: GroundTruthSource,
    predictions: PredictionSource,
    backend: str = "pycocotools",
    score_source: str = "auto",
    *,
    boxes: str = "tokens",
    format: str | MarkerFamily = "auto",
    scale: Scale = None,
    grid: CoordGrid = CoordGrid(),
    markers: str | MarkerFamily = "obj",
    max_objects: int | None = None,
    order: Order = "top_left",
    synonyms: Mapping[str, Sequence[str]] | None = None,
    label_callback: Callable[[str], str | None] | None = None,
    bootstrap: int = 0,
    seed: int = 0,
    lenient: bool = False,
    params: CocoParams | None = None,
    progress: Progress | None = None,
    geometry: str | Geometry = "box",
    ignored_labels: str | Sequence[str] = (),
) -> Evaluation:
    """Score answers against ground truth.

    An image without an answer counts as an empty answer. A box in an image without objects is a false positive. So is a
    box with a label that the data set does not have; it is never left out.

    Args:
        ground_truth: COCO JSON or instance JSON lines, a COCO dictionary, instances or an annotation set
        predictions: `predictions.jsonl`, a COCO results list, or the records of either
        backend: library that computes the COCO metrics: `pycocotools`, or `faster-coco-eval` (extra `fast`)
        score_source: score by which boxes are sorted, `auto` or a name of `coord_eval.SCORE_SOURCES`; results lists
            keep their scores
        boxes: source of the boxes: `tokens` of the text, or `expected`, `median` or `best_iou` of the distributions
            that the predictions give for the same tokens
        format: format of the answers, see `coord_eval.parse_answer`
        scale: divisor of plain numbers in the answers. `"pixels"` is the image size given in the prediction, else in
            the ground truth; `"input_pixels"` the size of the model's input, given in the prediction as `input_width`
            and `input_height`; `"infer"` finds one scale for the whole set and notes the evidence; None assumes that of
            the grid (1000) and adds a note
        grid: grid of the coordinate tokens
        markers: marker family in which the quantisation ceiling is encoded
        max_objects: object limit of the ceiling; use the limit that the model was trained with
        order: object order of the ceiling; it has an effect only under an object limit
        synonyms: other names of categories, from category to names
        label_callback: called with a label that no other layer matches; returns a category or None
        bootstrap: number of bootstrap resamples of the images for confidence intervals, 0 for none
        seed: seed of the resamples
        lenient: leave out faulty records of the ground truth and count them in the notes, instead of raising
        params: your own IoU thresholds, areas and detection limits; AP and AR with these are in `coco_own`
        progress: called with the name of a stage, the number of steps done and their total
        geometry: geometry of the objects in the answers, see `coord_codec.GEOMETRIES`; the COCO metrics use the
            bounding boxes of shapes, and `shapes` has the scores of the shapes themselves
        ignored_labels: labels that name no object, such as the `noise` of a model trained with noise objects; objects
            with such a label are dropped and counted

    Raises:
        InputError: if the input cannot be scored; the message names file, line and field

    Example:
        >>> from coord_codec import Instance
        >>> cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}
        >>> images = [Instance(image="a.jpg", image_id=1, width=640, height=480, objects=[cat])]
        >>> answer = '[{"bbox_2d": [100, 200, 500, 600], "label": "cat"}]'
        >>> round(score(images, [{"image_id": 1, "text": answer}], scale=1000).coco["AP"], 3)
        1.0
    """
    if backend not in BACKENDS:
        raise InputError(f"backend: expected one of {', '.join(BACKENDS)}, found {backend!r}")
    report = progress or silent
    options = AnswerOptions(boxes, format, scale, grid, geometry_of(geometry).name, ignored_labels)
    report("read", 0, 2)
    ground_truth = load_ground_truth(ground_truth, lenient=lenient, geometry=geometry)
    report("read", 1, 2)
    collected, by_image = collect(
        ground_truth,
        predictions,
        options,
        synonyms=synonyms,
        label_callback=label_callback,
        score_source=score_source,
        progress=report,
    )
    detections = collected.detections
    unanswered = collected.join.images - collected.join.answered
    ceiling, notes = ceiling_scores(
        ground_truth, markers=markers, order=order, max_objects=max_objects, grid=grid, backend=backend
    )
    report("score", 1, 4)
    scores = coco_scores(ground_truth, detections, backend)
    report("score", 2, 4)
    same = len(np.unique(detections.scores_D)) < 2
    constant = dict(scores.summary) if same else CocoTable(ground_truth, detections.with_constant_score()).summary()
    report("score", 3, 4)
    agnostic = CocoTable(*one_label(ground_truth, detections)).summary()
    report("score", 4, 4)
    scored = Scored(
        truth=ground_truth,
        detections=detections,
        matches=match(ground_truth, detections),
        matches_any_label=match(ground_truth, detections, use_categories=False),
        score_source=collected.score_source,
        bins=grid.scale,
    )
    micro, micro_any_label = (
        point(micro_rates(scored, matches), scored) for matches in (scored.matches, scored.matches_any_label)
    )
    if left_out := beyond_limit(detections):
        notes = [*notes, f"COCO leaves out {left_out} boxes beyond 100 of one label in one image"]
    shapes, shape_pairs = score_shapes(ground_truth, detections, geometry_of(geometry), grid)
    evaluation = Evaluation(
        coco=scores.summary,
        coco_constant_score=constant,
        coco_class_agnostic=agnostic,
        score_source=scored.score_source,
        backend=backend,
        detection=micro["rates"],
        detection_class_agnostic=micro_any_label["rates"],
        mean_iou=micro["mean_iou"],
        mean_iou_class_agnostic=micro_any_label["mean_iou"],
        format=collected.format,
        labels=collected.labels,
        unknown_labels=collected.unknown_labels,
        ceiling=ceiling,
        counts={**_counts(ground_truth, detections), "images_without_answer": unanswered},
        join=collected.join,
        per_class=_per_class(ground_truth, detections, scores),
        notes=(*ground_truth.notes, *collected.notes, *notes),
        truth=ground_truth,
        detections=detections,
        matches=scored.matches,
        matches_any_label=scored.matches_any_label,
        answers=by_image,
        bins=scored.bins,
        pr_curves=pr_curves(scores),
        coco_own=own_scores(ground_truth, detections, params) if params else {},
        shapes=shapes,
        shape_pairs=shape_pairs,
    )
    if not bootstrap:
        return evaluation
    return replace(
        evaluation,
        intervals=resample(evaluation, bootstrap, seed, progress).intervals(),
        notes=(*evaluation.notes, *few_objects_note(evaluation)),
    )


def _counts(ground_truth: GroundTruth, detections: Detections) -> dict[str, int]:
    return {
        "images": len(ground_truth),
        "objects": int((~ground_truth.crowd_N).sum()),
        "crowd_regions": int(ground_truth.crowd_N.sum()),
        "detections": len(detections),
        "unknown_label_detections": int((detections.category_D >= len(ground_truth.categories)).sum()),
        "beyond_coco_limit": beyond_limit(detections),
    }


def _per_class(ground_truth: GroundTruth, detections: Detections, scores: CocoScores) -> dict[str, dict[str, float]]:
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


def oracle_predictions(
    ground_truth: GroundTruthSource,
    *,
    markers: str | MarkerFamily = "obj",
    style: Style = "markers",
    form: Form = "tokens",
    order: Order = "top_left",
    max_objects: int | None = None,
    grid: CoordGrid = CoordGrid(),
) -> list[dict[str, Any]]:
    """Return a prediction record for each image, with the encoded ground truth as its text.

    Crowd regions are left out. Boxes are clipped to the image; a box without area after clipping is left out.

    Args:
        ground_truth: as for `coord_eval.load_ground_truth`; every image needs its size
        markers: marker family, see `coord_codec.encode_target`
        style: `markers` or `json`
        form: `tokens` or `numbers`
        order: order of the objects
        max_objects: maximum number of objects in an image, None for no limit
        grid: grid that quantises the coordinates

    Raises:
        InputError: if the ground truth cannot be read, or an image with objects states no size

    Example:
        >>> from coord_codec import Instance
        >>> cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.3, 0.4]}
        >>> oracle_predictions([Instance(image="a.jpg", width=9, height=9, objects=[cat])])[0]["text"]
        '<obj_start>cat<|coord_100|><|coord_200|><|coord_300|><|coord_400|><obj_end>'
    """
    ground_truth = load_ground_truth(ground_truth)
    objects: list[list[Object]] = [[] for _ in ground_truth.image_ids]
    for n in range(len(ground_truth.image_N)):
        image = int(ground_truth.image_N[n])
        width, height = ground_truth.size_of(image)
        x, y, w, h = ground_truth.boxes_N4[n]
        x1, y1, x2, y2 = (
            min(max(float(v), 0.0), 1.0) for v in (x / width, y / height, (x + w) / width, (y + h) / height)
        )
        if not ground_truth.crowd_N[n] and x1 < x2 and y1 < y2:
            name = ground_truth.categories[ground_truth.category_N[n]]
            objects[image].append(Object(desc=name, bbox=(x1, y1, x2, y2)))
    records = []
    for image, image_id in enumerate(ground_truth.image_ids):
        name = ground_truth.file_names[image] or str(image_id)
        instance = Instance(image="any", objects=tuple(objects[image]))
        text = encode_target(
            instance, markers=markers, style=style, form=form, order=order, max_objects=max_objects, grid=grid
        )
        records.append({"image_id": image_id, "image": name, "text": text, "finish_reason": "stop"})
    return records


def ceiling_scores(
    ground_truth: GroundTruth,
    *,
    markers: str | MarkerFamily,
    order: Order,
    max_objects: int | None,
    grid: CoordGrid,
    backend: str,
) -> tuple[dict[str, float], list[str]]:
    """Score the encoded ground truth as if it were the model's answers.

    Returns:
        The twelve COCO metrics with all scores set to 1, and notes; empty with a note if they cannot be computed.
    """
    if not np.isfinite(ground_truth.sizes_I2).all():
        return {}, ["no ceiling: some images state no size"]
    if len(set(ground_truth.categories)) != len(ground_truth.categories):
        return {}, ["no ceiling: two categories share a name"]
    try:
        for name in ground_truth.categories:
            check_description(name)
    except ValueError as error:
        return {}, [f"no ceiling: the name of a category cannot be written in a target text: {error}"]
    records = oracle_predictions(ground_truth, markers=markers, order=order, max_objects=max_objects, grid=grid)
    predictions = [p for p in from_records(records, "ceiling") if isinstance(p, Prediction)]
    answers = [parse_answer(p.text, markers, grid=grid) for p in predictions]
    images, joined = join(ground_truth, ((p.image_id, p.image, p.where, None) for p in predictions))
    collected = collect_answers(
        ground_truth,
        predictions,
        answers,
        images=images,
        joined=joined,
        labels=LabelMatcher(ground_truth.categories),
        score_source="constant",
    )
    return coco_scores(ground_truth, collected.detections, backend).summary, []
