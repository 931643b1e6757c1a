"""Fuses files of predictions for the same images: an ensemble of any models' answers, without ground truth."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from coord_codec import BoxTable, InputError
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_codec.labels import normalize_label
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth, ImageId
from coord_eval.calibration.calibration import Calibration
from coord_eval.fusion.columns import fuse_detections
from coord_eval.intake.collecting import collect
from coord_eval.intake.joining import UNANSWERED
from coord_eval.intake.predictions import PredictionSource, load_predictions
from coord_eval.intake.records import Loaded
from coord_eval.intake.results import Form, ResultsList
from coord_eval.settings import AnswerSettings, FusionRule, LabelSettings

_SHOWN = 5
_LEAST_BOXES = 20
"""Fewest boxes of a file whose scores can be compared with another's."""
_UNLIKE, _KS_SURE = 0.2, 1.63
"""Least distance of two distributions of scores that is told, and the factor of the test at the level of .01."""
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
        rows = [self.records] if path.suffix.lower() == ".json" else self.records
        write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def fuse_predictions(
    files: Mapping[str, PredictionSource],
    *,
    method: str = "wbf",
    answers: AnswerSettings = AnswerSettings(),
    score_source: str = "auto",
    weights: Sequence[float] | None = None,
    calibrations: Mapping[str, Calibration] = MappingProxyType({}),
    alone: str | None = None,
) -> Ensemble:
    """Fuse predictions for the same images.

    Args:
        files: by name, each a `predictions.jsonl`, a COCO results list, or the records of either
        method: `METHOD[:IOU]`, such as `nms:0.6`
        answers: how the text of answers becomes boxes
        score_source: score of the boxes of text answers
        weights: a weight for each file, None for equal ones
        calibrations: by the name of a file, the map from its scores to probabilities
        alone: name of the one file whose boxes are kept as they are, as `coord_eval.choose_fusion` may advise

    Raises:
        InputError: if a calibration or `alone` names no file; if text answers and results lists are mixed, which name
            labels differently, or no image has answers in two files; or as `coord_eval.score`

    Example:
        >>> a = [{"image_id": 1, "text": '[{"bbox_2d": [100, 100, 500, 500], "label": "cat", "confidence": 0.9}]'}]
        >>> b = [{"image_id": 1, "text": '[{"bbox_2d": [100, 100, 500, 600], "label": "Cat", "confidence": 0.3}]'}]
        >>> fuse_predictions({"a": a, "b": b}, answers=AnswerSettings(scale=1000)).records[0]["text"]
        '[{"bbox_2d": [0.1, 0.1, 0.5, 0.525], "label": "cat", "confidence": 0.6}]'
    """
    rule = FusionRule.parse(method)
    answers.check_acts_in("fuse_predictions")
    if unknown := {*calibrations, *([alone] if alone is not None else [])} - {*files}:
        raise InputError(f"fuse: expected names of the files ({', '.join(files)}), found {', '.join(sorted(unknown))}")
    loaded = {name: load_predictions(source) for name, source in files.items()}
    lists = {name: rows for name, rows in loaded.items() if isinstance(rows, ResultsList)}
    if odd := [f"{name}: {rows.form.value}" for name, rows in lists.items() if rows.form is not Form.RESULTS]:
        raise InputError(
            f"fuse: {odd[0]}, which states no sizes or classes; coord-eval score --export makes a results list of it"
        )
    texts = {name: rows for name, rows in loaded.items() if not isinstance(rows, ResultsList)}
    is_text = any(texts.values())
    if is_text and any(map(len, lists.values())):
        of_texts, of_lists = (", ".join(name for name in kind if len(loaded[name])) for kind in (texts, lists))
        raise InputError(
            f"fuse: {of_texts} holds answers with labels, {of_lists} a results list with category ids, which cannot be "
            "compared; turn the answers into a results list (coord-eval score --export)"
        )
    truth, numbered, covered = _images(loaded.values(), is_text)
    by_position = [name for name, rows in lists.items() if rows.positions is not None]
    if by_position and len(by_position) < len(loaded):
        raise InputError(f"fuse: some of {', '.join(loaded)} state no image_id, and others do; give each image its id")
    truth = replace(truth, by_position=bool(by_position))
    if not truth.sizes_known and any(row.tile for row in chain.from_iterable(texts.values())):
        raise InputError("fuse: tiles need the size of their image; give each answer its width and height")
    sets = {name: collect(truth, rows, answers, LabelSettings(), score_source) for name, rows in loaded.items()}
    notes: list[str] = []
    for name, collected in sets.items():
        notes += [f"{name}: {note}" for note in collected.notes if UNANSWERED not in note]
        if dropped := collected.format["dropped"]:
            objects = counted(sum(dropped.values()), "object of the texts was", "objects of the texts were")
            reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
            notes.append(f"{name}: {objects} dropped: {reasons}")
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
    sources = {name: collected.score_source for name, collected in sets.items()}
    if len({*sources.values()}) > 1 and weights is None and not calibrations and alone is None:
        listed = ", ".join(f"{name} by {source}" for name, source in sources.items())
        notes.append(f"scores of several kinds are mixed ({listed}); calibrate them first, or weigh the files")
    runs = [collected.detections for collected in sets.values()]
    for n, name in enumerate(sets):
        if name in calibrations:
            runs[n], note = calibrations[name].applied(runs[n], sources[name], {})
            notes.append(f"{name}: {note}")
    for (name, source), run in zip(files.items(), runs, strict=True):
        if rule.method == "wbf" and alone is None and run.scores_D.min(initial=0) < 0:
            raise InputError(
                f"fuse: {name}: expected scores of at least 0, since wbf weighs boxes by them, found some from "
                f"{run.scores_D.min():.4g} on; calibrate it ({_calibrating(name, source)}) and add "
                f"--calibration {name}={_map_of(name)}, or use --method nms"
            )
    if len(runs) > 1 and not calibrations and weights is None and alone is None:
        notes.append(_unknown_gain(dict(zip(sets, runs, strict=True)), files))
    spelling: dict[str, str] = {}
    for n, run in enumerate(runs if is_text else []):  # labels that differ in case, spaces or hyphens alone are one
        labels = [spelling.setdefault(normalize_label(label), label) for label in run.table.labels]
        runs[n] = replace(run, table=BoxTable.concatenate([run.table.changed(labels=labels)]))
    if alone is None:
        fused, counts = fuse_detections(runs, rule, answers.geometry, weights)
    else:
        fused = runs[[*files].index(alone)]
        views_of_files = [{"boxes": len(run)} for run in runs]
        counts = {"boxes": sum(map(len, runs)), "objects": len(fused), "views": views_of_files}
    views = zip(sources.items(), counts.pop("views"), covered, strict=True)
    counts["files"] = {
        name: {**row, "score_source": source, "missing": len(truth) - len(own)} for (name, source), row, own in views
    }
    records = _answers(truth, numbered, fused.table) if is_text else _results(fused, lists.values())
    return Ensemble(
        tuple(records),
        {"rule": f"{alone} alone" if alone is not None else str(rule), "images": len(truth), **counts},
        tuple(notes),
    )


def _unknown_gain(runs: Mapping[str, Detections], files: Mapping[str, PredictionSource]) -> str:
    """Return a note that fusing may give less than the better file alone, how to know, and whether scores look unlike.

    The best boxes of each file are compared, as many as the shortest file has, by the test of Kolmogorov and Smirnov.
    Scores of equal distribution may mean different things as well.
    """
    scores = {name: np.sort(run.scores_D)[::-1] for name, run in runs.items()}
    fewest = min(map(len, scores.values()))
    best = [own[:fewest] for own in scores.values()]
    distances = [_ks_distance(a, b) for i, a in enumerate(best) for b in best[:i]]
    unlike = ""
    if fewest >= _LEAST_BOXES and max(distances, default=0) > max(_UNLIKE, _KS_SURE * math.sqrt(2 / fewest)):
        listed = ", ".join(
            f"{name} has {counted(len(own), 'box', 'boxes')} with a median of {np.median(own):.2g}"
            for name, own in scores.items()
        )
        unlike = f"the scores hardly mean the same ({listed}); "
    commands = "; ".join(_calibrating(name, source) for name, source in files.items())
    options = " ".join(f"--calibration {name}={_map_of(name)}" for name in files)
    return (
        f"{unlike}fusing may give less than the better file alone, which cannot be known without annotations: with "
        f"some annotated images G, --ground-truth G chooses what is best there; or calibrate each ({commands}) and add "
        f"{options}"
    )


def _calibrating(name: str, source: PredictionSource) -> str:
    """Return the command that calibrates a file on annotated images G."""
    file = source if isinstance(source, str | Path) else name
    return f"coord-eval calibrate --ground-truth G --predictions {file} --out {_map_of(name)}"


def _map_of(name: str) -> str:
    return f"{Path(name).stem}-calibration.json"


def _ks_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest distance of the distribution functions of two samples (Smirnov 1948)."""
    at = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(own), at, "right") / max(len(own), 1) for own in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max(initial=0))


def _images(files: Iterable[Loaded], is_text: bool) -> tuple[GroundTruth, int, list[set[int]]]:
    """Return the images of all predictions as ground truth without objects, and more about them.

    Returns:
        The images, how many have an id of their own, which come first, and for each file the images for which it has a
        prediction, be it an empty one.
    """
    rows = [list(_stated(predictions)) for predictions in files]
    names: dict[ImageId, str] = {}
    ids: dict[str, ImageId] = {}
    for image_id, image, _ in chain.from_iterable(rows):
        if image_id is None:
            continue
        key = ids.setdefault(str(image_id), image_id)  # "42" and 42 are one image
        if not is_text and image and names.get(key, image) not in ("", image):
            raise InputError(f"fuse: image_id {key!r} is {names[key]!r} and {image!r}; number images alike")
        names[key] = names.get(key) or image
    by_name: dict[str, ImageId] = {name: image_id for image_id, name in names.items() if name}
    numbered = len(names)
    sizes: dict[ImageId, tuple[float, float]] = {}
    found: list[list[ImageId]] = []
    for own in rows:
        found.append([by_name.get(name, name) if image_id is None else ids[str(image_id)] for image_id, name, _ in own])
        for key, (_, _, size) in zip(found[-1], own, strict=True):
            names.setdefault(key, str(key))
            if size:
                sizes.setdefault(key, size)
    is_sized = len(sizes) == len(names) > 0
    sizes_I2 = [sizes[image_id] if is_sized else (1.0, 1.0) for image_id in names]
    images = BoxTable.of([], [], [], image_ids=[*names], names=[*names.values()], sizes_I2=sizes_I2, labels=())
    place = {image_id: i for i, image_id in enumerate(names)}
    return GroundTruth.of(images, (), is_sized), numbered, [{place[key] for key in keys} for keys in found]


def _stated(rows: Loaded) -> Iterator[tuple[ImageId | None, str, tuple[float, float] | None]]:
    """Yield id, name and size of the image of each answer, or of those of a results list, as far as they are stated."""
    if isinstance(rows, ResultsList):
        for image_id, name in zip(rows.table.image_ids, rows.table.names, strict=True):
            yield image_id, name, None
    else:
        for row in rows:
            yield row.image_id, row.image or "", (row.width, row.height) if row.width and row.height else None


def _answers(truth: GroundTruth, numbered: int, fused: BoxTable) -> Iterator[dict[str, Any]]:
    """Yield a record of `predictions.jsonl` for each image, empty answers included."""
    items: list[list[dict[str, Any]]] = [[] for _ in truth.image_ids]
    fractions_D4 = fused.boxes_N4 / np.tile(truth.sizes_I2[fused.image_N], 2)
    columns = (fused.image_N, fused.label_N, fractions_D4, fused.score_N)
    for image, label, box, score in zip(*(column.tolist() for column in columns), strict=True):
        item = {"bbox_2d": [_fraction(v) for v in box], "label": fused.labels[label]}
        items[image].append({**item, "confidence": round(score, _DIGITS)})
    for image, image_id in enumerate(truth.image_ids):
        record: dict[str, Any] = {"image_id": image_id} if image < numbered else {}
        if truth.file_names[image]:
            record["image"] = truth.file_names[image]
        if truth.sizes_known:
            width, height = truth.sizes_I2[image].tolist()
            record |= {"width": int(width), "height": int(height)}
        yield {**record, "text": json.dumps(items[image]), "finish_reason": "stop"}


def _fraction(value: float) -> float:
    """Return a fraction for a text; never a plain 1, since an answer whose numbers are all 0 or 1 is no fraction."""
    return float(min(max(round(value, _DIGITS), 0.0), 1 - 10**-_DIGITS))


def _results(fused: Detections, lists: Iterable[ResultsList]) -> Iterator[dict[str, Any]]:
    """Yield the records of a results list, whose labels have the category ids of the lists."""
    table = fused.table
    ids: dict[str, ImageId] = {}
    for rows in lists:
        ids |= {label: category_id for label, (category_id, _) in zip(rows.table.labels, rows.categories, strict=True)}
    if len({*ids.values()}) < len(ids):
        raise InputError("fuse: one category id has several names in these files; give them the same categories")
    columns = (fused.image_D, fused.category_D, fused.boxes_D4, fused.scores_D)
    for image, label, box, score in zip(*(column.tolist() for column in columns), strict=True):
        image_id, category_id = table.image_ids[image], ids[table.labels[label]]
        yield {"image_id": image_id, "category_id": category_id, "bbox": box, "score": score}
