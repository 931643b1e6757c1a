"""Collects the boxes of text answers or a results list in one table of detections, and counts what is left out."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_codec import Geometry, geometry_of
from coord_codec.box_table import PIXEL_DECIMALS
from coord_codec.counts import counted
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.pixels import boxes_in_pixels
from coord_eval.boxes.sorting import places_in_images
from coord_eval.intake.answers import assumed_scale_notes, parse_all, unrecognised_notes
from coord_eval.intake.joining import LABEL_LAYERS, JoinReport, LabelMatcher, check_any_known, join
from coord_eval.intake.placing_results import in_pixels, joined_results
from coord_eval.intake.ranking import choose_source, object_scores, with_one_unit
from coord_eval.intake.records import Loaded
from coord_eval.intake.results import ResultsList
from coord_eval.intake.stated_shapes import GEOMETRY_OF, SHAPES, drawn_points
from coord_eval.parse.answer import Answer, ParsedObject, corners
from coord_eval.settings import AnswerSettings, LabelSettings, Progress, silent

if TYPE_CHECKING:
    from coord_eval.intake.prediction import Prediction


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector while millions of small objects are created, none of which is garbage.

    Its repeated search for reference cycles would take a fifth of the time for a large set.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True, eq=False)
class Collected:
    """Detections of a set of predictions, and counts about them.

    Attributes:
        detections: the boxes
        score_source: source of the scores by which they are sorted
        format: counts of parsed and dropped answers, see `format_health`; all 0 for results lists
        labels: number of objects by the layer that matched their label
        unknown_labels: number of occurrences of each unknown label
        join: how answers were assigned to images
        notes: conditions that matter when interpreting the metrics
        spread_D4: standard deviation of each side of each box in pixels, NaN where the predictions state none; None
            without any
        answers: by image index the text and the parsed answer; empty for a results list
    """

    detections: Detections
    score_source: str
    format: dict[str, Any]
    labels: dict[str, int]
    unknown_labels: dict[str, int]
    join: JoinReport
    notes: tuple[str, ...]
    spread_D4: np.ndarray | None = None
    answers: dict[int, tuple[str, Answer]] = field(default_factory=dict)


def collect(
    ground_truth: GroundTruth,
    predictions: Loaded,
    settings: AnswerSettings,
    labels: LabelSettings,
    score_source: str = "auto",
    progress: Progress = silent,
) -> Collected:
    """Turn text answers or a COCO results list into detections.

    A results list states boxes, categories and scores itself: a note lists options that affect text answers only.
    """
    if isinstance(predictions, ResultsList):
        ranking = ["score_source"] if score_source != "auto" else []
        used = () if predictions.shapes_R is None else ("geometry",)
        of_texts = [n for n in settings.changed("texts") if n not in used]
        unused = [*of_texts, *ranking, *labels.changed("texts")] if len(predictions) else []
        reason = f"{predictions.form.value}, which states boxes, labels and scores itself"
        notes = (f"{reason}: {', '.join(unused)} had no effect",) if unused else ()
        collected = collect_results(ground_truth, predictions, settings.geometry)
        return replace(collected, notes=(*collected.notes, *notes))
    images, joined = join(ground_truth, ((p.image_id, p.image, p.where, (p.label, p.tile)) for p in predictions))
    matcher = LabelMatcher(ground_truth.categories, labels)
    answers, notes_of_parsing = parse_all(ground_truth, predictions, images, settings, progress)
    answers, notes_on_unit = with_one_unit(answers)
    notes_of_parsing += notes_on_unit
    collected = collect_answers(
        ground_truth, predictions, answers, images=images, joined=joined, labels=matcher, score_source=score_source
    )
    if unsized := int(np.isnan(ground_truth.sizes_I2[:, 0]).sum()):
        stated = counted(unsized, "image states no size: boxes of its answer", "images state no size: boxes of answers")
        notes_of_parsing.append(f"{stated} cannot be placed there")
    if joined.unanswered:
        notes_of_parsing.append(f"{joined.unanswered}, which counts as an empty answer")
    by_image = _by_image(predictions, answers, images)
    return replace(collected, notes=(*notes_of_parsing, *collected.notes), answers=by_image)


def _by_image(
    predictions: Sequence[Prediction], answers: Sequence[Answer], images: Sequence[int]
) -> dict[int, tuple[str, Answer]]:
    """Return text and parsed answer by image index; several answers for an image are joined."""
    by_image: dict[int, tuple[str, Answer]] = {}
    for prediction, answer, image in zip(predictions, answers, images, strict=True):
        if image in by_image:
            before, first = by_image[image]
            by_image[image] = (f"{before}\n{prediction.text}", replace(first, objects=first.objects + answer.objects))
        elif image >= 0:
            by_image[image] = (prediction.text, answer)
    return by_image


def collect_answers(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    answers: Sequence[Answer],
    *,
    images: Sequence[int],
    joined: JoinReport,
    labels: LabelMatcher,
    score_source: str,
) -> Collected:
    """Convert the boxes of parsed answers to pixels and assign categories; `join` returned `images` and `joined`."""
    known = [i for i, image in enumerate(images) if image >= 0]
    answers_A, predictions_A = [answers[i] for i in known], [predictions[i] for i in known]
    source, notes = choose_source(score_source, answers_A, predictions_A)
    found: list[ParsedObject] = []
    scores: list[float] = []
    asked: dict[int, list[tuple[float, ...] | None]] = {}
    spreads: dict[int, Sequence[float]] = {}
    image_A, part_A, count_A, region_A4 = [], [], [], []
    for i, answer, prediction in zip(known, answers_A, predictions_A, strict=True):
        image = images[i]
        parts = asked.setdefault(image, [])
        if prediction.tile not in parts:
            parts.append(prediction.tile)
        objects = answer.objects if prediction.objects is None else prediction.objects
        if not objects:
            continue
        if prediction.objects is None:
            scores += object_scores(source, answer, prediction)
        else:
            scores += [item.score or 0.0 for item in objects]
        if prediction.coord_spread is not None:
            stated = ((n, _spread(item, prediction)) for n, item in enumerate(objects, len(found)))
            spreads |= {n: spread for n, spread in stated if spread is not None}
        found += objects
        image_A.append(image)
        part_A.append(parts.index(prediction.tile))
        count_A.append(len(objects))
        region_A4.append(prediction.tile or (0.0, 0.0, *ground_truth.size_of(image)))

    # Columns
    image_D, part_D = (np.repeat(np.array(column, np.int64), count_A) for column in (image_A, part_A))
    region_D4 = np.repeat(np.array(region_A4, np.float64).reshape(-1, 4), count_A, axis=0)
    boxes_D4 = boxes_in_pixels(found, region_D4[:, 2:])
    if region_D4[:, :2].any():
        boxes_D4[:, :2] = np.round(boxes_D4[:, :2] + region_D4[:, :2], PIXEL_DECIMALS)
    category_D, layers, unknown = _categories(found, labels, len(ground_truth.categories))
    columns = (image_D, category_D, boxes_D4, scores, places_in_images(image_D), tuple(unknown))
    detections = Detections.of(ground_truth, *columns, shapes=_points_in_pixels(found, region_D4))
    if any(parts != [None] for parts in asked.values()):
        of_image = {image: tuple(parts) for image, parts in asked.items()}
        detections = replace(detections, asked=of_image, part_D=part_D)
    spread_D4 = None
    if spreads:
        spread_D4 = np.full((len(found), 4), np.nan)
        spread_D4[list(spreads)] = list(spreads.values())
        spread_D4 *= np.tile(region_D4[:, 2:], 2)
    notes = [
        *notes,
        *assumed_scale_notes(answers),
        *unrecognised_notes(answers, predictions),
        *_size_notes(ground_truth, predictions, images),
    ]
    if stated_boxes := sum(prediction.objects is not None for prediction in predictions_A):
        notes.append(f"the boxes of {counted(stated_boxes, 'answer')} are the fused ones that the records state")
    health, times = format_health(answers_A, predictions_A), dict(unknown.most_common())
    return Collected(detections, source, health, layers, times, joined, tuple(notes), spread_D4)


def _points_in_pixels(found: Sequence[ParsedObject], region_D4: np.ndarray) -> list[list[tuple[float, float]]]:
    """Return the points of each object; an empty list if all of them are boxes."""
    if not any(item.points for item in found):
        return []
    shapes = zip(found, region_D4.tolist(), strict=True)
    return [[(x0 + x * w, y0 + y * h) for x, y in item.points] for item, (x0, y0, w, h) in shapes]


def _categories(
    found: Sequence[ParsedObject], labels: LabelMatcher, known: int
) -> tuple[np.ndarray, dict[str, int], Counter[str]]:
    """Return the category [D] of each object, the number of objects by matching layer, and that of unknown labels.

    Each label that the data set does not have gets its own index, from `known` on.
    """
    times = Counter(item.desc for item in found)
    layers = dict.fromkeys(LABEL_LAYERS, 0)
    unknown: Counter[str] = Counter()
    category_of: dict[str, int] = {}
    for label, count in times.items():
        category, layer = labels.match(label)
        layers[layer] += count
        if category is None:
            category = known + len(unknown)
            unknown[label] = count
        category_of[label] = category
    return np.array([category_of[item.desc] for item in found], np.int64), layers, unknown


def collect_results(ground_truth: GroundTruth, results: ResultsList, geometry: str | Geometry = "box") -> Collected:
    """Convert a COCO results list, keeping its pixels, categories and scores, and the shapes of a geometry."""
    results, images, categories, notes = joined_results(ground_truth, results)
    table = results.table
    place_R = images[table.image_N]
    is_absent_R = place_R < 0
    absent = [repr(name or image_id) for image_id, name in zip(table.image_ids, table.names, strict=True)]
    left_out = [absent[image] for image in table.image_N[is_absent_R].tolist()]
    check_any_known(len(results), left_out, ground_truth)
    table, image_D = table.take(~is_absent_R), place_R[~is_absent_R]
    shapes_D = None if results.shapes_R is None else results.shapes_R[~is_absent_R]
    stated_D = table.label_N

    # Each category that the data set does not have gets its own index, in the order in which they occur
    category_D = categories[stated_D]
    is_unknown_D = category_D < 0
    kinds, first_U, times_U = np.unique(stated_D[is_unknown_D], return_index=True, return_counts=True)
    unknown: Counter[str] = Counter()
    for u in np.argsort(first_U).tolist():
        unknown[table.labels[kinds[u]]] += int(times_U[u])
    places = {label: place for place, label in enumerate(unknown, len(ground_truth.categories))}
    index_K = np.zeros(len(results.categories), np.int64)
    index_K[kinds] = [places[table.labels[kind]] for kind in kinds]
    category_D[is_unknown_D] = index_K[stated_D[is_unknown_D]]
    layers = dict.fromkeys(LABEL_LAYERS, 0) | {"exact": int((~is_unknown_D).sum()), "unknown": int(is_unknown_D.sum())}

    placed = replace(
        table,
        image_N=image_D,
        label_N=category_D,
        order_N=places_in_images(image_D),
        image_ids=ground_truth.image_ids,
        names=ground_truth.file_names,
        sizes_I2=ground_truth.sizes_I2,
        labels=(*ground_truth.categories, *unknown),
    )
    if results.form.in_fractions:
        placed, shapes_D = in_pixels(ground_truth, placed, shapes_D)
    if shapes_D is not None and geometry_of(geometry).is_box:
        notes.append(_boxes_alone(shapes_D))
    elif shapes_D is not None:
        outlines = [drawn_points(shape, geometry_of(geometry).name) for shape in shapes_D]
        starts = np.cumsum([0, *map(len, outlines)])
        placed = placed.changed(vertices_V2=np.array([*chain(*outlines)]).reshape(-1, 2), starts_N1=starts)
    detections = Detections(placed, len(ground_truth.categories), stated_D=shapes_D)
    answered = len({*images[images >= 0].tolist()})  # some without a box, as an empty label file tells
    joined = JoinReport(len(ground_truth), answered, 0, len(left_out), tuple(dict.fromkeys(left_out))[:5])
    if not len(results):
        images_are = counted(len(ground_truth), "image is", "images are")
        notes.append(f"the predictions are empty: {images_are} without an answer")
    elif joined.unanswered:
        notes.append(f"{joined.unanswered}, which counts as an empty answer")
    scores_R = results.table.score_N
    if len(results) > 1 and (scores_R == scores_R[0]).all():
        notes.append(f"all {len(results)} boxes have the score {scores_R[0]:g}, so that AP depends on their order")
    times = dict(unknown.most_common())
    return Collected(detections, "results", format_health([], []), layers, times, joined, tuple(notes))


def _boxes_alone(shapes_D: np.ndarray) -> str:
    """Return a note on shapes that are not scored."""
    fields = Counter(field for shape in shapes_D if shape is not None for field in SHAPES if field in shape)
    field, count = fields.most_common(1)[0]
    geometry = GEOMETRY_OF[field]
    return (
        f"{counted(count, 'box states', 'boxes state')} a {field} field: boxes alone are scored; geometry {geometry} "
        "scores the shapes as pycocotools does"
    )


def _spread(item: ParsedObject, prediction: Prediction) -> Sequence[float] | None:
    """Return the standard deviation of each side of a box in [0, 1]; None where it is not stated."""
    known, places = prediction.coord_spread or (), item.coord_indices
    if len(places) != 4 or places[-1] >= len(known) or item.order not in ("xyxy", "yxyx"):
        return None
    return corners(item.order, [known[place] for place in places])


def format_health(answers: Sequence[Answer], predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Count parsed, truncated, dropped and repaired answers and objects.

    `parsed` counts the answers with at least one object or explicitly without any; `truncated` those that were cut off,
    according to their text or `finish_reason: length`; `clean` those without a drop or repair.
    """
    objects = [item for answer in answers for item in answer.objects]
    dropped = Counter(drop.reason for answer in answers for drop in answer.dropped)
    pairs = list(zip(answers, predictions, strict=True))
    return {
        "answers": len(answers),
        "parsed": sum(a.status != "failed" and p.finish_reason != "error" for a, p in pairs),
        "truncated": sum(a.truncated or p.finish_reason == "length" for a, p in pairs),
        "objects": len(objects),
        "dropped": dict(sorted(dropped.items())),
        "clean": sum(a.status in ("ok", "empty") and all(o.completeness == "complete" for o in a) for a in answers),
        "empty": sum(answer.status == "empty" for answer in answers),
        "errors": sum(p.finish_reason == "error" for p in predictions),
        "repeats": sum(answer.repeats for answer in answers),
        "completeness": _counts(item.completeness for item in objects),
        "repairs": _counts(repair for item in objects for repair in item.repairs),
        "formats": _counts(answer.format for answer in answers),
    }


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _size_notes(ground_truth: GroundTruth, predictions: Sequence[Prediction], images: Sequence[int]) -> list[str]:
    """Return a note with the number of answers whose image size has another aspect ratio than the ground truth's."""
    count = 0
    for prediction, image in zip(predictions, images, strict=True):
        if image < 0 or not ground_truth.sizes_known or not prediction.width or not prediction.height:
            continue
        width, height = ground_truth.sizes_I2[image]
        count += abs(prediction.width * height / (prediction.height * width) - 1) > 0.1
    stated = counted(count, "answer states", "answers state")
    return [f"{stated} another aspect ratio than the ground truth: rotated images?"] if count else []
