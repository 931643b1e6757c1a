"""Collects the boxes of text answers or a results list in one table of detections, and counts what is left out."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.labels import normalize_label
from coord_eval.boxes.detections import Detections
from coord_eval.intake.answers import (
    AnswerSettings,
    Loaded,
    Progress,
    assumed_scale_notes,
    parse_all,
    silent,
    unrecognised_notes,
)
from coord_eval.intake.ground_truth import GroundTruth
from coord_eval.intake.joining import (
    LABEL_LAYERS,
    ImageIndex,
    JoinReport,
    LabelMatcher,
    LabelSettings,
    check_any_known,
    join,
)
from coord_eval.intake.predictions import CocoResult, Prediction, StatedObject
from coord_eval.intake.ranking import choose_source, object_scores
from coord_eval.parse.answer import Answer, ParsedObject, corners


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
    results = [item for item in predictions if isinstance(item, CocoResult)]
    if len(results) == len(predictions):
        ranking = ["score_source"] if score_source != "auto" else []
        unused = [*settings.of_text, *ranking, *labels.given] if results else []
        reason = "a COCO results list, which states boxes, labels and scores itself"
        notes = (f"{reason}: {', '.join(unused)} had no effect",) if unused else ()
        collected = collect_results(ground_truth, results)
        return replace(collected, notes=(*collected.notes, *notes))
    text_predictions = [item for item in predictions if isinstance(item, Prediction)]
    images, joined = join(ground_truth, ((p.image_id, p.image, p.where, (p.label, p.tile)) for p in text_predictions))
    matcher = labels.matcher(ground_truth.categories)
    answers, notes_of_parsing = parse_all(ground_truth, text_predictions, images, settings, progress)
    collected = collect_answers(
        ground_truth, text_predictions, answers, images=images, joined=joined, labels=matcher, score_source=score_source
    )
    if unanswered := joined.images - joined.answered:
        notes_of_parsing.append(
            f"{unanswered} of {counted(joined.images, 'image is', 'images are')} without an answer, which "
            "counts as an empty answer"
        )
    by_image = _by_image(text_predictions, answers, images)
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
    indices = [i for i, image in enumerate(images) if image >= 0]
    source, notes = choose_source(score_source, [answers[i] for i in indices], [predictions[i] for i in indices])
    table = _Table(len(ground_truth.categories))
    ranks: Counter[int] = Counter()
    for i in indices:
        image, prediction = images[i], predictions[i]
        part = table.part(image, prediction.tile)
        if prediction.objects is None:
            objects: Sequence[ParsedObject | StatedObject] = answers[i].objects
            scores = object_scores(source, answers[i], prediction) if objects else []
        else:
            objects, scores = prediction.objects, [item.score for item in prediction.objects]
        if not objects:
            continue
        left, top, width, height = prediction.tile or (0.0, 0.0, *ground_truth.size_of(image))
        for item, score in zip(objects, scores, strict=True):
            category, layer = labels.match(item.desc)
            x1, y1, x2, y2 = item.box
            box = (left + x1 * width, top + y1 * height, (x2 - x1) * width, (y2 - y1) * height)
            table.add(image, category, layer, item.desc, box, score, ranks[image])
            table.part_of.append(part)
            table.shapes.append(tuple((left + x * width, top + y * height) for x, y in item.points))
            table.spreads.append(_spread(item, prediction, (width, height, width, height)))
            ranks[image] += 1
    health = format_health([answers[i] for i in indices], [predictions[i] for i in indices])
    notes = [
        *notes,
        *assumed_scale_notes(answers),
        *unrecognised_notes(answers, predictions),
        *_size_notes(ground_truth, predictions, images),
        *_stated_notes([predictions[i] for i in indices]),
    ]
    return table.finish(source, health, joined, notes)


def collect_results(ground_truth: GroundTruth, results: Sequence[CocoResult]) -> Collected:
    """Convert a COCO results list, keeping its pixels, categories and scores."""
    images, categories, notes = _joined_by_name(ground_truth, results)
    table = _Table(len(ground_truth.categories))
    absent: list[str] = []
    ranks: dict[int, int] = {}
    for image_id, category_id, bbox, score, image_name, category_name in results:
        image = images[image_id, image_name]
        if image is None:
            absent.append(repr(image_name or image_id))
            continue
        rank = ranks[image] = ranks.get(image, -1) + 1
        if (category := categories[category_id, category_name]) is not None:
            table.rows.append((image, category, *bbox, score, rank))
        else:
            table.add(image, None, "unknown", category_name or f"category_id {category_id}", bbox, score, rank)
    table.layers["exact"] += len(results) - len(absent) - table.layers["unknown"]
    check_any_known(len(results), absent, ground_truth)
    joined = JoinReport(len(ground_truth), len(ranks), 0, len(absent), tuple(dict.fromkeys(absent))[:5])
    empty = f"the predictions are empty: {counted(len(ground_truth), 'image is', 'images are')} without an answer"
    notes += [] if results else [empty]
    if len(results) > 1 and all(result.score == results[0].score for result in results):
        notes.append(f"all {len(results)} boxes have the score {results[0].score:g}, so that AP depends on their order")
    return table.finish("results", format_health([], []), joined, notes)


def _spread(item: ParsedObject | StatedObject, prediction: Prediction, unit: Sequence[float]) -> Sequence[float] | None:
    """Return the standard deviation of each side of a box in pixels; None where it is not stated."""
    if not isinstance(item, ParsedObject):
        return None
    known, places = prediction.coord_spread or (), item.coord_indices
    if len(places) != 4 or places[-1] >= len(known) or item.order not in ("xyxy", "yxyx"):
        return None
    sides = corners(item.order, [known[place] for place in places])
    return [side * length for side, length in zip(sides, unit, strict=True)]


_Places = dict[tuple[Any, str | None], int | None]


def _joined_by_name(truth: GroundTruth, results: Sequence[CocoResult]) -> tuple[_Places, _Places, list[str]]:
    """Return the index of each image and category of a results list, by name, else by id; and notes.

    Raises:
        InputError: if ids are known under other names, and no name is known: then neither says what is meant
    """
    index = ImageIndex(truth)
    # Results of other libraries may name their categories in place of an id.
    ids: dict[Any, int] = {name: k for k, name in enumerate(truth.categories)}
    ids |= {category_id: k for k, category_id in enumerate(truth.category_ids)}
    names = {normalize_label(name): k for k, name in enumerate(truth.categories)}
    names |= {name: k for k, name in enumerate(truth.categories)}

    def places_of(kind: str, own: Sequence[str], pairs: set[Any], by_id: Any, by_name: Any) -> _Places:
        places: _Places = {}
        odd, moved = "", 0
        for key, name in pairs:
            place = before = by_id(key)
            if name and (place is None or own[place] not in ("", name)):
                place = by_name(name)
                if place is None and before is not None:
                    if PurePath(own[before]).name == PurePath(name).name:
                        place = before  # one of several files of that name
                    else:
                        odd = f"{kind} {key!r} is {name!r} there and {own[before]!r} in the ground truth"
            places[key, name] = place
            moved += None is not before != place
        if odd and all(place is None for (_, name), place in places.items() if name):
            raise InputError(f"predictions: {odd}, which knows none of the names; are these files of one data set?")
        if moved:
            notes.append(
                f"{moved} of {len(pairs)} values of {kind} mean something else in the ground truth: names count"
            )
        return places

    notes: list[str] = []
    images, labels = ({(r.image_id, r.image) for r in results}, {(r.category_id, r.category) for r in results})
    return (
        places_of("image_id", truth.file_names, images, index.by_id, index.by_name),
        places_of(
            "category_id",
            truth.categories,
            labels,
            ids.get,
            lambda name: names.get(name, names.get(normalize_label(name))),
        ),
        notes,
    )


class _Table:
    """Rows of detections; each label that the data set does not have gets its own category index."""

    def __init__(self, categories: int) -> None:
        self.categories = categories
        self.rows: list[tuple[float, ...]] = []
        self.layers = dict.fromkeys(LABEL_LAYERS, 0)
        self.unknown: Counter[str] = Counter()
        self.unknown_index: dict[str, int] = {}
        self.shapes: list[tuple[tuple[float, float], ...]] = []
        self.asked: dict[int, list[tuple[float, ...] | None]] = {}
        self.part_of: list[int] = []
        self.spreads: list[Sequence[float] | None] = []

    def part(self, image: int, tile: tuple[float, ...] | None) -> int:
        """Return the index of a part of an image among those that the model was given."""
        asked = self.asked.setdefault(image, [])
        if tile not in asked:
            asked.append(tile)
        return asked.index(tile)

    def add(
        self, image: int, category: int | None, layer: str, label: str, box: Sequence[float], score: float, rank: int
    ) -> None:
        """Add a box `x, y, width, height`; `category` is None for an unknown label, `layer` is the matching layer."""
        self.layers[layer] += 1
        if category is None:
            self.unknown[label] += 1
            category = self.categories + self.unknown_index.setdefault(label, len(self.unknown_index))
        self.rows.append((image, category, *box, score, rank))

    def finish(self, source: str, health: dict[str, Any], joined: JoinReport, notes: Sequence[str]) -> Collected:
        """Return the rows as detections, with the counts."""
        table = np.array(self.rows, dtype=np.float64).reshape(-1, 8)
        image_D, category_D, rank_D = table.T[[0, 1, 7]].astype(np.int64)
        shapes = tuple(self.shapes) if any(self.shapes) else ()
        detections = Detections(
            image_D, category_D, table[:, 2:6], table[:, 6], rank_D, tuple(self.unknown_index), shapes
        )
        if any(parts != [None] for parts in self.asked.values()):
            asked = {image: tuple(parts) for image, parts in self.asked.items()}
            detections = replace(detections, asked=asked, part_D=np.array(self.part_of, np.int64))
        unknown = dict(self.unknown.most_common())
        spread_D4 = np.array([row or [np.nan] * 4 for row in self.spreads]) if any(self.spreads) else None
        return Collected(detections, source, health, self.layers, unknown, joined, tuple(notes), spread_D4)


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


def _stated_notes(predictions: Sequence[Prediction]) -> list[str]:
    """Return a note with the number of answers whose boxes are not those of their text."""
    count = sum(prediction.objects is not None for prediction in predictions)
    return [f"the boxes of {count} answers are the fused ones that the records state"] if count else []


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
    return (
        [
            f"{counted(count, 'answer states', 'answers state')} another aspect ratio than the ground "
            "truth: rotated images?"
        ]
        if count
        else []
    )
