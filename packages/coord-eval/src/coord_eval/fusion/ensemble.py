"""Fuses files of predictions for the same images: an ensemble of any models' answers, without ground truth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import BoxTable, InputError
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_codec.labels import normalize_label
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth, ImageId
from coord_eval.fusion.detections import FusionRule, fuse_detections
from coord_eval.intake.answers import AnswerSettings, PredictionSource, load_predictions
from coord_eval.intake.collecting import collect
from coord_eval.intake.joining import UNANSWERED, LabelSettings
from coord_eval.intake.prediction import Prediction
from coord_eval.intake.results import CocoResult, ResultsList

_SHOWN = 5
_DIGITS = 6
"""Decimals of the fractions in fused answers."""


@dataclass(frozen=True)
class Ensemble:
    """The fused answers of several files.

    Attributes:
        records: for answers as text a record of `predictions.jsonl` for each image, whose text is JSON with `bbox_2d`
            in fractions of the image, `label` and `confidence`; for results lists the records of one
        counts: `images`, `files`: for each its counts as in `coord_eval.Fusion`, the source of its scores and its
            number of `missing` images; and in total `boxes` and `objects`
        notes: conditions that matter: images without an answer, scores that tell nothing, texts that were dropped
    """

    records: tuple[dict[str, Any], ...]
    counts: dict[str, Any]
    notes: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write the records, which `score` reads: a JSON list into a `.json` file, else JSON lines."""
        if path.suffix.lower() == ".json":
            write_text(path, json.dumps(list(self.records)) + "\n")
        else:
            write_text(path, "".join(json.dumps(record) + "\n" for record in self.records))


def fuse_predictions(
    files: Mapping[str, PredictionSource],
    *,
    method: str = "wbf",
    answers: AnswerSettings = AnswerSettings(),
    score_source: str = "auto",
    weights: Sequence[float] | None = None,
) -> Ensemble:
    """Fuse predictions for the same images.

    Args:
        files: by name, each a `predictions.jsonl`, a COCO results list, or the records of either
        method: `METHOD[:IOU]`, such as `nms:0.6`
        answers: how the text of answers becomes boxes
        score_source: score of the boxes of text answers
        weights: a weight for each file, None for equal ones

    Raises:
        InputError: if text answers and results lists are mixed, which name labels differently, or no image has answers
            in two files; or as `coord_eval.score`

    Example:
        >>> a = [{"image_id": 1, "text": '[{"bbox_2d": [100, 100, 500, 500], "label": "cat", "confidence": 0.9}]'}]
        >>> b = [{"image_id": 1, "text": '[{"bbox_2d": [100, 100, 500, 600], "label": "Cat", "confidence": 0.3}]'}]
        >>> fuse_predictions({"a": a, "b": b}, answers=AnswerSettings(scale=1000)).records[0]["text"]
        '[{"bbox_2d": [0.1, 0.1, 0.5, 0.525], "label": "cat", "confidence": 0.6}]'
    """
    rule = FusionRule.parse(method)
    loaded = {name: load_predictions(source) for name, source in files.items()}
    is_text = {name: not isinstance(rows, ResultsList) for name, rows in loaded.items() if len(rows)}
    if len({*is_text.values()}) > 1:
        texts, results = ([n for n, text in is_text.items() if text == wanted] for wanted in (True, False))
        raise InputError(
            f"fuse: {', '.join(texts)} holds answers with labels, {', '.join(results)} a results list with category "
            "ids, which cannot be compared; turn the answers into a results list (coord-eval score --export)"
        )
    rows_of_all = [row for rows in loaded.values() for row in rows]
    truth, known = _images(rows_of_all)
    positions = {isinstance(rows, ResultsList) and rows.positions is not None for rows in loaded.values()}
    if len(positions) > 1:
        raise InputError(f"fuse: some of {', '.join(loaded)} state no image_id, and others do; give each image its id")
    truth = replace(truth, by_position=True in positions)
    if not truth.sizes_known and any(isinstance(r, Prediction) and r.tile for r in rows_of_all):
        raise InputError("fuse: tiles need the size of their image; give each answer its width and height")
    runs, sources, notes = [], [], []
    names = _Labels(normalized=any(is_text.values()))
    for name, rows in loaded.items():
        collected = collect(truth, rows, answers, LabelSettings(), score_source)
        runs.append(names.renumbered(collected.detections))
        sources.append(collected.score_source)
        notes += [f"{name}: {note}" for note in collected.notes if UNANSWERED not in note]
        if dropped := collected.format["dropped"]:
            reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
            notes.append(
                f"{name}: {counted(sum(dropped.values()), 'object of the texts was', 'objects of the texts were')} "
                f"dropped: {reasons}"
            )
    covered = [_covered(truth, rows) for rows in loaded.values()]
    if len(loaded) > 1 and not any(a & b for i, a in enumerate(covered) for b in covered[:i]):
        raise InputError(
            f"fuse: no image has predictions in two of {', '.join(loaded)}; are these files of one data set?"
        )
    for name, own in zip(loaded, covered, strict=True):
        if lacking := [str(truth.image_ids[i]) for i in range(len(truth)) if i not in own]:
            notes.append(
                f"{name}: {len(lacking)} of {counted(len(truth), 'image has', 'images have')} no answer, as if it had "
                f"found nothing there: {', '.join(lacking[:_SHOWN])}{', ...' if len(lacking) > _SHOWN else ''}"
            )
    if len({*sources}) > 1 and weights is None:
        listed = ", ".join(f"{name} by {source}" for name, source in zip(loaded, sources, strict=True))
        notes.append(f"scores of several kinds are mixed ({listed}); calibrate them first, or weigh the files")
    fused, counts = fuse_detections(runs, rule, answers.geometry, truth.sizes_I2, weights)
    described = zip(files, counts.pop("views"), sources, covered, strict=True)
    counts["files"] = {
        name: {**row, "score_source": source, "missing": len(truth) - len(own)} for name, row, source, own in described
    }
    counts = {"rule": str(rule), "images": len(truth), **counts}
    if any(is_text.values()):
        records = tuple(_answers(truth, known, fused, names.labels))
    else:
        results_of_all = [row for row in rows_of_all if isinstance(row, CocoResult)]
        ids = {row.category or f"category_id {row.category_id}": row.category_id for row in results_of_all}
        if len({*ids.values()}) < len(ids):
            raise InputError("fuse: one category id has several names in these files; give them the same categories")
        records = tuple(_results(truth, fused, [ids[label] for label in names.labels]))
    return Ensemble(records, counts, tuple(notes))


def _images(rows: Sequence[Prediction | CocoResult]) -> tuple[GroundTruth, list[bool]]:
    """Return the images of all predictions as ground truth without objects, and whether each has an id of its own."""
    names: dict[ImageId, str] = {}
    sizes: dict[ImageId, tuple[float, float]] = {}
    ids: dict[str, ImageId] = {}
    nameless: dict[str, tuple[float, float] | None] = {}
    for row in rows:
        size = None
        if isinstance(row, Prediction) and row.width and row.height:
            size = (row.width, row.height)
        image = row.image
        if row.image_id is None:
            assert image is not None
            nameless[image] = nameless.get(image) or size
            continue
        image_id = ids.setdefault(str(row.image_id), row.image_id)  # "42" and 42 are one image
        if isinstance(row, CocoResult) and image and names.get(image_id, image) not in ("", image):
            raise InputError(f"fuse: image_id {image_id!r} is {names[image_id]!r} and {image!r}; number images alike")
        names[image_id] = names.get(image_id) or image or ""
        if size:
            sizes.setdefault(image_id, size)
    by_name = {name: image_id for image_id, name in names.items() if name}
    known = dict.fromkeys(names, True)
    for image, size in nameless.items():
        image_id = by_name.get(image, image)
        if image_id not in names:
            names[image_id], known[image_id] = image, False
        if size:
            sizes.setdefault(image_id, size)
    order = list(names)
    all_sized = len(sizes) == len(order) and bool(order)
    sizes_I2 = [sizes[image_id] if all_sized else (1.0, 1.0) for image_id in order]
    file_names = [names[image_id] for image_id in order]
    images = BoxTable.of([], [], [], image_ids=order, names=file_names, sizes_I2=sizes_I2, labels=())
    truth = GroundTruth.of(images, (), all_sized)
    return truth, [known[image_id] for image_id in order]


def _covered(truth: GroundTruth, rows: Iterable[Prediction | CocoResult]) -> set[int]:
    """Return the images for which there is a prediction, be it an empty one."""
    places = {str(image_id): i for i, image_id in enumerate(truth.image_ids)}
    names = {name: i for i, name in enumerate(truth.file_names) if name}
    return {places[str(row.image_id)] if row.image_id is not None else names[row.image or ""] for row in rows}


class _Labels:
    """The labels of all runs; if normalised, those that differ in case, spaces or hyphens alone are one."""

    def __init__(self, normalized: bool) -> None:
        self._normalized = normalized
        self.labels: list[str] = []
        self._numbers: dict[str, int] = {}

    def renumbered(self, run: Detections) -> Detections:
        """Return a run without categories of its own with the numbers of the common labels."""
        number_K = []
        for label in run.unknown:
            key = normalize_label(label) if self._normalized else label
            if key not in self._numbers:
                self._numbers[key] = len(self.labels)
                self.labels.append(label)
            number_K.append(self._numbers[key])
        return replace(run, category_D=np.array(number_K, np.int64)[run.category_D], unknown=())


def _answers(
    truth: GroundTruth, known: Sequence[bool], fused: Detections, labels: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield a record of `predictions.jsonl` for each image, empty answers included."""
    by_image: dict[int, list[int]] = {}
    for d, image in enumerate(fused.image_D.tolist()):
        by_image.setdefault(image, []).append(d)
    for image, image_id in enumerate(truth.image_ids):
        width, height = truth.sizes_I2[image].tolist()
        items = []
        for d in by_image.get(image, []):
            x, y, w, h = fused.boxes_D4[d].tolist()
            box = [_fraction(v) for v in (x / width, y / height, (x + w) / width, (y + h) / height)]
            confidence = round(float(fused.scores_D[d]), _DIGITS)
            items.append({"bbox_2d": box, "label": labels[fused.category_D[d]], "confidence": confidence})
        record: dict[str, Any] = {"image_id": image_id} if known[image] else {}
        if truth.file_names[image]:
            record["image"] = truth.file_names[image]
        if truth.sizes_known:
            record |= {"width": int(width), "height": int(height)}
        yield {**record, "text": json.dumps(items), "finish_reason": "stop"}


def _fraction(value: float) -> float:
    """Return a fraction for a text; never a plain 1, since an answer whose numbers are all 0 or 1 is no fraction."""
    return float(min(max(round(value, _DIGITS), 0.0), 1 - 10**-_DIGITS))


def _results(truth: GroundTruth, fused: Detections, category_ids: Sequence[ImageId]) -> Iterator[dict[str, Any]]:
    """Yield the records of a results list."""
    columns = (fused.image_D, fused.category_D, fused.boxes_D4, fused.scores_D)
    for image, k, box, score in zip(*(column.tolist() for column in columns), strict=True):
        yield {"image_id": truth.image_ids[image], "category_id": category_ids[k], "bbox": box, "score": score}
