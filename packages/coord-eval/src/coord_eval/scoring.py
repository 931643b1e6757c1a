"""Scores a set of answers: from files or records to an `Evaluation`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coord_codec import InputError, geometry_of
from coord_codec.counts import counted
from coord_codec.settings import takes_fields_of
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.diagnosis.answers import diagnose_loaded
from coord_eval.evaluation import Evaluation
from coord_eval.intake.collecting import Collected, collect, collector_paused
from coord_eval.intake.ground_truth import GroundTruthSource, load_ground_truth
from coord_eval.intake.predictions import PredictionSource, load_predictions
from coord_eval.intake.results import states_shapes
from coord_eval.metrics.ceiling import no_ceiling
from coord_eval.metrics.coco import beyond_limit
from coord_eval.metrics.figures import counts_of, nothing_to_match
from coord_eval.report.photograph import size_notes
from coord_eval.settings import (
    BACKEND,
    AnswerSettings,
    CeilingSettings,
    FusionRule,
    LabelSettings,
    ReportSettings,
    silent,
)
from coord_eval.shapes.scores import score_shapes

_DROP_ADVICE = {
    "wrong_arity": "their numbers are not those of the geometry; try another geometry (such as point) or a format",
    "unrecognised": "no format was found in them; name the format, and look at the texts",
    "no_coordinates": "no numbers were found beside their labels; name the format, and look at the texts",
    "truncated": "the answers end within them; allow more tokens",
}


@takes_fields_of(answers=AnswerSettings, labels=LabelSettings, ceiling=CeilingSettings, report=ReportSettings)
@collector_paused()
def score(
    ground_truth: GroundTruthSource,
    predictions: PredictionSource,
    backend: str = "coord_eval",
    score_source: str = "auto",
    *,
    answers: AnswerSettings = AnswerSettings(),
    labels: LabelSettings = LabelSettings(),
    ceiling: CeilingSettings = CeilingSettings(),
    report: ReportSettings = ReportSettings(),
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
        answers: how answers become boxes
        labels: how labels are read and matched with categories
        ceiling: how the ground truth is encoded for the quantisation ceiling
        report: what is computed and told besides

    Raises:
        InputError: if the input cannot be scored; the message names file, line and field

    Example:
        >>> from coord_codec import Instance
        >>> cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}
        >>> images = [Instance(image="a.jpg", image_id=1, width=640, height=480, objects=[cat])]
        >>> answer = '[{"bbox_2d": [100, 200, 500, 600], "label": "cat"}]'
        >>> evaluation = score(images, [{"image_id": 1, "text": answer}], answers=AnswerSettings(scale=1000))
        >>> round(evaluation["AP"], 3)
        1.0
    """
    # Settings
    if problem := BACKEND.expected_name(backend):
        raise InputError(f"backend: {problem}")
    rule = FusionRule.parse(answers.fuse) if answers.fuse else None
    in_order, geometry, progress = answers.in_order, answers.geometry, report.progress or silent

    # Reading
    progress("read", 0, 2)
    of_shapes = None if in_order or geometry_of(geometry).is_box else load_predictions(predictions)
    as_stated = states_shapes(of_shapes, geometry)
    truth = load_ground_truth(ground_truth, lenient=labels.lenient, geometry=geometry, as_stated=as_stated)
    progress("read", 1, 2)
    loaded = load_predictions(predictions, truth if in_order else None) if of_shapes is None else of_shapes
    progress("read", 2, 2)

    # Parsing, joining with the images, ranking
    collected = collect(truth, loaded, answers, labels, score_source, progress)
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
        from coord_eval.fusion.columns import fuse_detections, fusion_note  # this and the next two are rarely needed

        fused, counts = fuse_detections([collected.detections], rule, answers.geometry)
        collected = replace(collected, detections=fused, notes=(*collected.notes, fusion_note(rule, counts)))
        fusion = {"rule": str(rule), **counts}

    # Calibration
    if answers.calibration is not None:
        from coord_eval.calibration.calibration import Calibration

        fitted = Calibration.read(answers.calibration)
        detections, note = fitted.applied(collected.detections, collected.score_source, fusion)
        collected = replace(collected, detections=detections, notes=(*collected.notes, note))

    # Scores; what is not computed here is computed on first use
    progress("score", 1, 3)
    shapes, shape_pairs = score_shapes(truth, collected.detections, answers.geometry, answers.grid)
    root = report.image_root or truth.root
    sizes = size_notes(root, truth.file_names, truth.sizes_I2.tolist()) if truth.sizes_known else ()
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
        params=report.params,
        fusion=fusion,
        calibrated=answers.calibration is not None,
    )
    _ = evaluation.coco, evaluation.coco_own  # errors of the backend and of the parameters are raised here
    progress("score", 2, 3)

    # Diagnosis and intervals
    found = []
    if report.diagnose is not False:
        found = diagnose_loaded(evaluation, loaded, answers, labels, force=report.diagnose)
    progress("score", 3, 3)
    evaluation = evaluation.with_notes(after=found)
    if not report.bootstrap:
        return evaluation
    from coord_eval.resampling.bootstrap import intervals_of

    return evaluation.with_intervals(*intervals_of(evaluation, report.bootstrap, report.seed, report.progress))


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
