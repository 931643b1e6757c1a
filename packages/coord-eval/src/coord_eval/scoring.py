"""Scores a set of answers: from files or records to an `Evaluation`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coord_codec import CoordGrid, Geometry, InputError, MarkerFamily, Order, geometry_of
from coord_codec.counts import counted
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.calibration.calibration import Calibration
from coord_eval.diagnosis.answers import diagnose_loaded
from coord_eval.evaluation import Evaluation
from coord_eval.fusion.columns import FusionRule, fuse_detections, fusion_note
from coord_eval.intake.answers import AnswerSettings, PredictionSource, Progress, Scale, load_predictions, silent
from coord_eval.intake.collecting import Collected, collect, collector_paused
from coord_eval.intake.ground_truth import GroundTruthSource, load_ground_truth
from coord_eval.intake.joining import LabelSettings
from coord_eval.intake.results import states_shapes
from coord_eval.metrics.ceiling import CeilingSettings, no_ceiling
from coord_eval.metrics.coco import BACKENDS, beyond_limit
from coord_eval.metrics.coco_own import CocoParams
from coord_eval.metrics.figures import counts_of, nothing_to_match
from coord_eval.report.photograph import size_notes
from coord_eval.resampling.bootstrap import intervals_of
from coord_eval.shapes.scores import score_shapes

_DROP_ADVICE = {
    "wrong_arity": "their numbers are not those of the geometry; try another geometry (such as point) or a format",
    "unrecognised": "no format was found in them; name the format, and look at the texts",
    "no_coordinates": "no numbers were found beside their labels; name the format, and look at the texts",
    "truncated": "the answers end within them; allow more tokens",
}


@collector_paused()
def score(
    ground_truth: GroundTruthSource,
    predictions: PredictionSource,
    backend: str = "coord_eval",
    score_source: str = "auto",
    *,
    boxes: str = "tokens",
    format: str | MarkerFamily = "auto",
    scale: Scale = None,
    grid: CoordGrid = CoordGrid(),
    geometry: str | Geometry = "box",
    ignored_labels: str | Sequence[str] = (),
    synonyms: Mapping[str, Sequence[str]] | None = None,
    label_callback: Callable[[str], str | None] | None = None,
    markers: str | MarkerFamily = "obj",
    max_objects: int | None = None,
    order: Order = "top_left",
    bootstrap: int = 0,
    seed: int = 0,
    lenient: bool = False,
    params: CocoParams | None = None,
    in_order: bool = False,
    fuse: str | None = None,
    calibration: Calibration | str | Path | None = None,
    diagnose: bool | None = None,
    image_root: Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score answers against ground truth.

    An image without an answer counts as an empty answer. A box in an image without objects is a false positive. So is a
    box with a label that the data set does not have; it is never left out.

    Args:
        ground_truth: COCO JSON or instance JSON lines, a COCO dictionary, instances or an annotation set
        predictions: `predictions.jsonl`, a COCO results list, or the records of either; a table of them
        backend: what computes the COCO metrics: `coord_eval`, or `pycocotools`, the reference with the same values
        score_source: score by which boxes are sorted, `auto` or a name of `coord_eval.SCORE_SOURCES`; results lists
            keep their scores
        boxes: source of the boxes of text answers, see `AnswerSettings`, as for the next five
        format: format of the answers
        scale: divisor of plain numbers
        grid: grid of the coordinate tokens
        geometry: geometry of the objects
        ignored_labels: labels that name no object
        synonyms: other names of categories, from category to names
        label_callback: called with a label that no other layer matches; returns a category or None
        markers: marker family with which the ground truth is encoded for the quantisation ceiling, where this and the
            next two should be those of the training
        max_objects: object limit of an image, None for no limit
        order: object order; it has an effect only under an object limit
        bootstrap: number of bootstrap resamples of the images for confidence intervals, 0 for no intervals
        seed: seed of the resamples
        lenient: leave out faulty records of the ground truth and count them in the notes, instead of raising
        params: your own IoU thresholds, areas and detection limits; AP and AR with these are in `coco_own`
        in_order: answers name no images, and stand in the order of the ground truth's file; their number is that of
            the images
        fuse: `METHOD[:IOU]`, such as `nms:0.6`: fuse near-duplicates within each answer, by `wbf` or `nms`, see
            `coord_eval.fuse`; a note counts them
        calibration: a map from scores to probabilities, or the file of one, applied after `fuse`
        diagnose: whether other interpretations of the numbers are tried, which the notes then name; None: if AP is
            below .02
        image_root: folder of the images, whose sizes are compared with the stated ones; None for that of the ground
            truth
        progress: called with the name of a stage, the number of steps done and their total

    Raises:
        InputError: if the input cannot be scored; the message names file, line and field

    Example:
        >>> from coord_codec import Instance
        >>> cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}
        >>> images = [Instance(image="a.jpg", image_id=1, width=640, height=480, objects=[cat])]
        >>> answer = '[{"bbox_2d": [100, 200, 500, 600], "label": "cat"}]'
        >>> evaluation = score(images, [{"image_id": 1, "text": answer}], scale=1000)
        >>> round(evaluation["AP"], 3)
        1.0
    """
    # Settings
    if backend not in BACKENDS:
        raise InputError(f"backend: expected one of {', '.join(BACKENDS)}, found {backend!r}")
    answers = AnswerSettings(boxes, format, scale, grid, geometry, ignored_labels)
    labels = LabelSettings(synonyms, label_callback)
    ceiling = CeilingSettings(markers, max_objects, order)
    rule = FusionRule.parse(fuse) if fuse else None
    report = progress or silent

    # Reading
    report("read", 0, 2)
    of_shapes = None if in_order or geometry_of(geometry).is_box else load_predictions(predictions)
    as_stated = states_shapes(of_shapes, geometry)
    truth = load_ground_truth(ground_truth, lenient=lenient, geometry=geometry, as_stated=as_stated)
    report("read", 1, 2)
    loaded = load_predictions(predictions, truth if in_order else None) if of_shapes is None else of_shapes
    report("read", 2, 2)

    # Parsing, joining with the images, ranking
    collected = collect(truth, loaded, answers, labels, score_source, report)
    if in_order:
        told = "in_order had no effect: a results list names its images"
        if collected.answers:
            named = (truth.file_names[truth.image_ids.index(truth.ids_in_order[n])] for n in (0, -1))
            told = (
                f"{counted(len(collected.answers), 'answer is', 'answers are')} taken in the order of the ground "
                f"truth's images, from {' to '.join(named)}"
            )
        collected = replace(collected, notes=(told, *collected.notes))

    # Near-duplicates
    fusion: dict[str, Any] = {}
    if rule is not None:
        fused, counts = fuse_detections([collected.detections], rule, answers.geometry)
        collected = replace(collected, detections=fused, notes=(*collected.notes, fusion_note(rule, counts)))
        fusion = {"rule": str(rule), **counts}

    # Calibration
    if calibration is not None:
        fitted = calibration if isinstance(calibration, Calibration) else Calibration.read(calibration)
        detections, note = fitted.applied(collected.detections, collected.score_source, fusion)
        collected = replace(collected, detections=detections, notes=(*collected.notes, note))

    # Scores; what is not computed here is computed on first use
    report("score", 1, 3)
    shapes, shape_pairs = score_shapes(truth, collected.detections, answers.geometry, answers.grid)
    sizes = size_notes(image_root or truth.root, truth.file_names, truth.sizes_I2.tolist()) if truth.sizes_known else ()
    evaluation = Evaluation(
        truth=truth,
        detections=collected.detections,
        score_source=collected.score_source,
        bins=answers.grid.scale,
        backend=backend,
        format=collected.format,
        labels=collected.labels,
        unknown_labels=collected.unknown_labels,
        counts=counts_of(truth, collected.detections, collected.join),
        join=collected.join,
        notes=(*truth.notes, *sizes, *collected.notes, *_notes(truth, collected)),
        answers=collected.answers,
        shapes=shapes,
        shape_pairs=shape_pairs,
        grid=answers.grid,
        ceiling_settings=ceiling,
        params=params,
        fusion=fusion,
        calibrated=calibration is not None,
    )
    _ = evaluation.coco, evaluation.coco_own  # errors of the backend and of the parameters are raised here
    report("score", 2, 3)

    # Diagnosis and intervals
    found = diagnose_loaded(evaluation, loaded, answers, labels, force=diagnose) if diagnose is not False else []
    report("score", 3, 3)
    evaluation = evaluation.with_notes(after=found)
    return evaluation.with_intervals(*intervals_of(evaluation, bootstrap, seed, progress)) if bootstrap else evaluation


def _notes(truth: GroundTruth, collected: Collected) -> list[str]:
    """Return notes on what leaves no box to match, on a missing ceiling, and on boxes that COCO leaves out."""
    detections, dropped = collected.detections, collected.format["dropped"]
    notes = [problem] if (problem := no_ceiling(truth)) else []
    if dropped and not len(detections):
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        notes.append(
            f"no box is left: all of {counted(sum(dropped.values()), 'object was', 'objects were')} dropped: {reasons}"
        )
    reason, count = max(dropped.items(), key=lambda item: item[1], default=("", 0))
    total = len(detections) + sum(dropped.values())
    if reason in _DROP_ADVICE and 2 * count > total:
        notes.append(
            f"{count} of {counted(total, 'object was', 'objects were')} dropped as {reason}: {_DROP_ADVICE[reason]}"
        )
    if len(detections) and (reason := nothing_to_match(truth, detections)):
        notes.append(reason)
    if left_out := beyond_limit(detections.image_D, detections.category_D):
        notes.append(f"COCO leaves out {counted(left_out, 'box', 'boxes')} beyond 100 of one label in one image")
    if lost := beyond_limit(truth.image_N[~truth.crowd_N], truth.category_N[~truth.crowd_N]):
        objects = counted(lost, "object is", "objects are")
        notes.append(
            f"{objects} beyond 100 of one label in one image, COCO's limit of boxes: no answer finds all of them, so "
            "that the ceiling is low; --max-dets (CocoParams) has AP and AR of other limits"
        )
    return notes
