"""Diagnoses answers whose boxes match no objects: finds interpretations of their numbers that would match them.

Every order, scale, resized, rotated and mirrored input is tried on the whole set, then one affine map for all boxes in
each order, fitted on labels that occur once in the image and in its answer, and on ranked coordinates whatever their
labels. Each interpretation is reported with its AP. If the boxes match and the labels do not, pairs of labels are
reported.

Shapes: B boxes, I images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from coord_codec import CoordGrid, InputError, MarkerFamily
from coord_eval.data.ground_truth import GroundTruth
from coord_eval.data.predictions import CocoResult, Detections, Prediction
from coord_eval.intake.answers import AnswerOptions, PredictionSource, load_predictions, parse_all
from coord_eval.intake.collecting import collect_answers, collect_results
from coord_eval.intake.joining import LabelMatcher, join
from coord_eval.intake.ranking import choose_source
from coord_eval.intake.scale import RAW_SCALE, mean_best_iou
from coord_eval.intake.transforms import COMMON_INPUTS, COMMON_SQUARES, LAYOUTS, TURNS, resized_sizes
from coord_eval.metrics.coco import CocoTable, coco_scores, one_label
from coord_eval.metrics.evaluation import EvaluationData
from coord_eval.parse.answer import Answer

NEAR_ZERO = 0.02
"""AP below which answers are diagnosed automatically."""
_PLAUSIBLE, _CLEARLY = 0.4, 1.25  # mean best IoU that a way must reach, and its ratio to that of the boxes as scored
_SLIGHTLY = 0.005  # gain of mean best IoU from which a way is mentioned
_LABELS_MATTER = 5  # factor of `NEAR_ZERO`: the class-agnostic AP from which the labels are the fault
_LISTED, _LABELS_LISTED = 3, 5
_FITTED = 0.01  # gain of mean best IoU from which a fitted way is preferred to one without fitted numbers
_IMAGES = 300  # number of images on which common input sizes are tried
_PAIRS = 8  # smallest number of objects to fit an affine map on
_RESIZED = ((28, 56 * 56, 28 * 28 * 1280), (28, 56 * 56, 28 * 28 * 16384), (32, 256 * 256, 4096 * 4096))
"""Pixels per side of a token, and limits of pixels, of the processors of Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""


_FIELDS = {
    "xyxy": "x1, y1, x2, y2",
    "xywh": "x, y, width, height",
    "cxcywh": "centre x, centre y, width, height",
    "yxyx": "y1, x1, y2, x2",
    "yxhw": "y, x, height, width",
    "cycxhw": "centre y, centre x, height, width",
}
_TURNED = {
    2: "mirrored left to right",
    3: "turned upside down",
    4: "mirrored top to bottom",
    6: "turned clockwise",
    7: "mirrored along the rising diagonal",
    8: "turned counter-clockwise",
}
"""EXIF orientations, without the first, which changes nothing, and the fifth, which is the order y, x."""


@dataclass(frozen=True)
class Way:
    """One interpretation of the numbers of all answers.

    Attributes:
        name: description
        unit_B4: corners in [0, 1]
        fit: mean over boxes of the best IoU with any object of their image
        advice: change after which the numbers are interpreted in this way
        is_fitted: whether parameters were fitted on the ground truth
    """

    name: str
    unit_B4: np.ndarray
    fit: float
    advice: str = ""
    is_fitted: bool = False

    @property
    def text(self) -> str:
        """Name with the advice."""
        return f"{self.name} ({self.advice})" if self.advice else self.name


@dataclass(frozen=True)
class _RawNumbers:
    """The numbers of all boxes as the answers state them.

    Attributes:
        detections: one row per box
        numbers_B4: the four numbers of each box
        input_B2: size of the model input, NaN where it is not stated
        order: order of the numbers by the answer format, a key of `LAYOUTS`
        kind: coordinate tokens, plain numbers of an answer, or numbers of a results list
    """

    detections: Detections
    numbers_B4: np.ndarray
    input_B2: np.ndarray
    order: str
    kind: Literal["tokens", "plain", "results"]

    def advice(self, layout: str, option: str) -> str:
        """Return the change after which the numbers are interpreted in that order, or the option for it."""
        if self.kind == "results":
            return f"bbox holds {_FIELDS[layout]}; COCO's results have x, y, width, height in pixels of the image"
        if layout != self.order:
            return (
                f"answers hold {_FIELDS[layout]} and are read as {_FIELDS[self.order]}: the model learned that order "
                "from the prompt or the training data; change it there, or in these answers"
            )
        return option if self.kind == "plain" else ""


def diagnose(
    evaluation: EvaluationData,
    predictions: PredictionSource,
    *,
    format: str | MarkerFamily = "auto",
    grid: CoordGrid = CoordGrid(),
    force: bool = False,
    synonyms: Mapping[str, Sequence[str]] | None = None,
    label_callback: Callable[[str], str | None] | None = None,
    ignored_labels: Sequence[str] = (),
) -> list[str]:
    """Return notes about interpretations of the numbers of the answers that would match the objects.

    Args:
        evaluation: the evaluation of these predictions
        predictions: as for `coord_eval.score`
        format: as for `coord_eval.score`
        grid: as for `coord_eval.score`
        force: diagnose whatever the AP is; by default only an AP below .02 is diagnosed
        synonyms: as for `coord_eval.score`
        label_callback: as for `coord_eval.score`
        ignored_labels: as for `coord_eval.score`

    Returns:
        One line for each interpretation with its AP, best first, or a line that none fits; empty if no diagnosis was
        needed.
    """
    ap = evaluation.coco["AP"]
    if not force and not 0 <= ap < NEAR_ZERO:
        return []
    truth = evaluation.truth
    options = AnswerOptions(format=format, scale=RAW_SCALE, grid=grid, ignored_labels=tuple(ignored_labels))
    labels = partial(LabelMatcher, truth.categories, synonyms or {}, label_callback)
    if not evaluation.counts["objects"]:
        return ["diagnosis: nothing to diagnose: the ground truth holds no boxes"] if force else []
    raw = _raw_numbers(truth, predictions, options, labels, evaluation.score_source)
    if not len(raw.numbers_B4):
        return ["diagnosis: no boxes to diagnose: the answers hold none that can be read"] if force else []
    ways = sorted(_ways(truth, raw), key=lambda way: -way.fit)
    # A fitted map that is hardly better is one of the other ways with rounded parameters.
    best_fixed = max(way.fit for way in ways if not way.is_fitted)
    ways = [way for way in ways if not way.is_fitted or way.fit >= best_fixed + _FITTED]
    own = _fit(truth, evaluation.detections.image_D, _corners(evaluation))
    needed = max(_PLAUSIBLE, _CLEARLY * own, ways[0].fit / 2)
    good = [way for way in _distinct(ways) if way.fit >= needed][:_LISTED]
    lines = [f"diagnosis: as read, AP {ap:.3f}, mean best IoU {own:.3f}", *_label_lines(evaluation)]

    def ap_text(way: Way) -> str:
        return _ap_text(truth, _moved(truth, raw.detections, way), evaluation.backend)

    if good:
        return [*lines, *(f"diagnosis: {w.text} would give {ap_text(w)}, mean best IoU {w.fit:.3f}" for w in good)]
    best = ways[0]
    if own < _PLAUSIBLE:
        tried = f"{len(ways)} tried; the best, {best.name}: {best.fit:.3f}"
        return [*lines, f"diagnosis: no scale, order, shift or resize fits, and no turned or mirrored image ({tried})"]
    if best.fit < own + _SLIGHTLY:
        return [*lines, f"diagnosis: the way they are read fits best ({len(ways)} tried)"]
    gain = f"{ap_text(best)} instead of {ap:.3f}, mean best IoU {best.fit:.3f} instead of {own:.3f}"
    return [*lines, f"diagnosis: {best.text} fits slightly better, too little to be sure: {gain}"]


def _moved(truth: GroundTruth, detections: Detections, way: Way) -> Detections:
    size_B2 = truth.sizes_I2[detections.image_D]
    low_B2 = way.unit_B4[:, :2] * size_B2
    return replace(detections, boxes_D4=np.concatenate([low_B2, way.unit_B4[:, 2:] * size_B2 - low_B2], axis=1))


def _ap_text(truth: GroundTruth, detections: Detections, backend: str) -> str:
    ap = coco_scores(truth, detections, backend).summary["AP"]
    if ap >= NEAR_ZERO:
        return f"AP {ap:.3f}"
    any_label = CocoTable(*one_label(truth, detections)).summary()["AP"]
    return f"AP {ap:.3f} ({any_label:.3f} for any label)" if _labels_fail(ap, any_label) else f"AP {ap:.3f}"


def _labels_fail(ap: float, any_label: float) -> bool:
    return ap < NEAR_ZERO and any_label >= _LABELS_MATTER * NEAR_ZERO


def _label_lines(evaluation: EvaluationData) -> list[str]:
    """Return the most frequent pairs of answered and true label if the boxes match objects and the labels do not."""
    any_label = evaluation.coco_class_agnostic["AP"]
    if not _labels_fail(evaluation.coco["AP"], any_label):
        return []
    truth, detections, matches = evaluation.truth, evaluation.detections, evaluation.matches_any_label
    hit_D, _ = matches.at(0.5)
    answered_d, true_d = detections.category_D[hit_D], truth.category_N[matches.object_D[hit_D]]
    names = [*truth.categories, *detections.unknown]
    pairs = Counter((a, t) for a, t in zip(answered_d.tolist(), true_d.tolist(), strict=True) if a != t)
    listed = ", ".join(f"{names[a]!r} -> {names[t]!r} ({n})" for (a, t), n in pairs.most_common(_LABELS_LISTED))
    remainder = f" and {len(pairs) - _LABELS_LISTED} more" if len(pairs) > _LABELS_LISTED else ""
    return [
        f"diagnosis: the boxes match objects and the labels are wrong: AP {any_label:.3f} for any label; "
        f"answered -> true: {listed}{remainder}"
    ]


def _raw_numbers(
    truth: GroundTruth,
    predictions: PredictionSource,
    options: AnswerOptions,
    labels: Callable[[], LabelMatcher],
    score_source: str,
) -> _RawNumbers:
    items = load_predictions(predictions)
    results = [item for item in items if isinstance(item, CocoResult)]
    if len(results) == len(items):
        detections = collect_results(truth, results).detections
        return _RawNumbers(detections, detections.boxes_D4, np.full((len(detections), 2), np.nan), "xywh", "results")
    answer_records = [item for item in items if isinstance(item, Prediction)]
    images, joined = join(truth, ((p.image_id, p.image, p.where, (p.label, p.tile)) for p in answer_records))
    answers, _ = parse_all(truth, answer_records, images, options, keep_flat=True)
    answers = [replace(a, objects=tuple(o for o in a if o.geometry == "box" and len(o.bins) == 4)) for a in answers]
    collected = collect_answers(
        truth,
        answer_records,
        answers,
        images=images,
        joined=joined,
        labels=labels(),
        score_source=_source(score_source, answers, answer_records),
    )
    rows = [
        (item.bins, prediction.input_size or (np.nan, np.nan), item.order, answer.scale is not None)
        for prediction, answer, image in zip(answer_records, answers, images, strict=True)
        if image >= 0
        for item in answer
    ]
    bins, inputs, orders, plain = zip(*rows, strict=True) if rows else ((), (), (), ())
    ((order, _),) = Counter(order for order in orders if order in LAYOUTS).most_common(1) or [("xyxy", 0)]
    return _RawNumbers(
        collected.detections,
        np.array(bins, np.float64).reshape(-1, 4),
        np.array(inputs, np.float64).reshape(-1, 2),
        order,
        "plain" if all(plain) else "tokens",
    )


def _source(requested: str, answers: Sequence[Answer], predictions: Sequence[Prediction]) -> str:
    """Return the score source of the evaluation, or `constant` if a box that it dropped has no such score."""
    try:
        return choose_source(requested, answers, predictions)[0]
    except InputError:
        return "constant"


def _ways(truth: GroundTruth, raw: _RawNumbers) -> Iterator[Way]:
    image_B = raw.detections.image_D
    read_B4 = LAYOUTS[raw.order](raw.numbers_B4)
    for divisor, option, divisor_B2 in _divisors(truth, raw):
        for layout, to_corners in LAYOUTS.items():
            unit_B4 = to_corners(raw.numbers_B4) / np.tile(divisor_B2, 2)
            order = "" if layout == "xyxy" else f" as {layout}"
            advice = raw.advice(layout, option)
            yield Way(f"numbers{order} {divisor}", unit_B4, _fit(truth, image_B, unit_B4), advice)
        for orientation, turned in _TURNED.items():
            # From the sixth orientation on, the axes are exchanged, and with them width and height of the image.
            sides_B2 = divisor_B2[:, ::-1] if orientation > 4 else divisor_B2
            unit_B4 = TURNS[orientation](read_B4 / np.tile(sides_B2, 2))
            advice = f"the images that the model saw or learned from were {turned}, and their boxes were not"
            yield Way(f"numbers {divisor}, {turned}", unit_B4, _fit(truth, image_B, unit_B4), advice)
    size_B2 = truth.sizes_I2[image_B]
    for suffix, divisor_B2 in (("", np.full_like(size_B2, 1000)), (" of the image's size", size_B2)):
        if not np.isfinite(divisor_B2).all():
            continue
        for layout, to_corners in LAYOUTS.items():
            unit_B4 = to_corners(raw.numbers_B4) / np.tile(divisor_B2, 2)
            yield from _affine(truth, raw, layout, unit_B4, suffix)


def _divisors(truth: GroundTruth, raw: _RawNumbers) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield possible divisors of the numbers: description, option for it, and the divisors of x and y."""
    size_B2 = truth.sizes_I2[raw.detections.image_D]
    for number in (1000, 999, 1, 100, 1024):
        yield f"divided by {number}", f"--scale {number}", np.full_like(size_B2, number)
    if not truth.sizes_known or not np.isfinite(size_B2).all():
        return
    yield "in pixels of the image", "--scale pixels", size_B2
    if np.isfinite(raw.input_B2).all():
        yield "in pixels of the model's input", "--scale input_pixels", raw.input_B2
    few_B = np.isin(raw.detections.image_D, np.arange(0, len(truth.sizes_I2), -(-len(truth.sizes_I2) // _IMAGES)))
    image_b, size_b2 = raw.detections.image_D[few_B], size_B2[few_B]
    read_b4 = LAYOUTS[raw.order](raw.numbers_B4[few_B])
    side = max(COMMON_SQUARES, key=lambda side: _fit(truth, image_b, read_b4 / side))
    yield f"in pixels of a copy of {side} x {side} pixels", f"--scale {side}", np.full_like(size_B2, side)
    fit_by_limits = {
        limits: _fit(truth, image_b, read_b4 / np.tile(resized_sizes(size_b2, *limits), 2))
        for limits in (*_RESIZED, *COMMON_INPUTS)
    }
    usual = max(fit_by_limits, key=fit_by_limits.__getitem__)
    is_clearer = fit_by_limits[usual] >= max(map(fit_by_limits.__getitem__, _RESIZED)) + _FITTED
    for factor, low, high in (*_RESIZED, *([usual] if is_clearer else [])):
        name = f"in pixels of an input resized to multiples of {factor} and at most {high} pixels"
        option = "give input_width and input_height, --scale input_pixels"
        yield name, option, resized_sizes(size_B2, factor, low, high)


def _affine(truth: GroundTruth, raw: _RawNumbers, layout: str, unit_B4: np.ndarray, suffix: str) -> Iterator[Way]:
    """Yield the boxes after one map `a x + b` per axis, fitted on unambiguous pairs or on ranks whatever the labels."""
    image_B = raw.detections.image_D
    corners_N4 = LAYOUTS["xywh"](truth.boxes_N4) / np.tile(truth.sizes_I2[truth.image_N], 2)
    rows, objects = _unambiguous_pairs(truth, raw.detections)
    fitted: list[Way] = []
    for ranked in (False, True):
        moved_B4, parts = unit_B4.copy(), []
        for axis, name in enumerate("xy"):
            if ranked:
                x, y = _ranked_sides(truth, image_B, unit_B4[:, axis::2], corners_N4[:, axis::2])
            else:
                x, y = unit_B4[rows][:, axis::2].ravel(), corners_N4[objects][:, axis::2].ravel()
            if len(x) < 2 * _PAIRS:
                break
            a, b = _robust_line(x, y)
            moved_B4[:, axis::2] = a * unit_B4[:, axis::2] + b
            parts.append(f"{name} times {a:.3f}" + (f" {b:+.3f}" if abs(b) >= 5e-4 else ""))
        if len(parts) == 2:
            order = "" if layout == "xyxy" else f" as {layout}"
            prefix = f"numbers{order} as fractions{suffix}" if suffix else f"numbers{order} divided by 1000"
            advice = raw.advice(layout, "") if layout != raw.order else ""
            fit = _fit(truth, image_B, moved_B4)
            fitted.append(Way(f"{prefix}, {', '.join(parts)}", moved_B4, fit, advice, is_fitted=True))
    if fitted:
        yield max(fitted, key=lambda way: way.fit)


def _ranked_sides(
    truth: GroundTruth, image_B: np.ndarray, sides_B2: np.ndarray, sides_N2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pair coordinates of boxes and objects by rank, on images with as many of both; no map changes the ranks."""
    images = len(truth.sizes_I2)
    not_crowd = np.flatnonzero(~truth.crowd_N)
    image_N = truth.image_N[not_crowd]
    same_I = np.bincount(image_B, minlength=images) == np.bincount(image_N, minlength=images)
    chosen_B, chosen_N = np.flatnonzero(same_I[image_B]), np.flatnonzero(same_I[image_N])

    def ranked(image: np.ndarray, sides: np.ndarray) -> np.ndarray:
        return np.concatenate([sides[np.lexsort((sides[:, k], image)), k] for k in (0, 1)])

    return ranked(image_B[chosen_B], sides_B2[chosen_B]), ranked(image_N[chosen_N], sides_N2[not_crowd][chosen_N])


def _unambiguous_pairs(truth: GroundTruth, detections: Detections) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and objects that are the only one of their label in their image."""
    width = len(truth.categories) + len(detections.unknown) + 1
    key_D, key_N = detections.image_D * width + detections.category_D, truth.image_N * width + truth.category_N
    unique = [keys[counts == 1] for keys, counts in (np.unique(k, return_counts=True) for k in (key_D, key_N))]
    shared = np.intersect1d(*unique)
    order_D, order_N = np.argsort(key_D, kind="stable"), np.argsort(key_N, kind="stable")
    return (order_D[np.searchsorted(key_D[order_D], shared)], order_N[np.searchsorted(key_N[order_N], shared)])


def _robust_line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Fit y = a x + b, and repeat the fit three times without outliers."""
    inlier = np.ones(len(x), bool)
    a, b = 1.0, 0.0
    for _ in range(4):
        if inlier.sum() < _PAIRS or np.ptp(x[inlier]) == 0:
            break
        a, b = np.polyfit(x[inlier], y[inlier], 1).tolist()
        error = np.abs(a * x + b - y)
        inlier = error <= 2.5 * np.median(error[inlier]) + 1e-9
    return a, b


def _corners(evaluation: EvaluationData) -> np.ndarray:
    detections = evaluation.detections
    corners: np.ndarray = LAYOUTS["xywh"](detections.boxes_D4)
    corners = corners / np.tile(evaluation.truth.sizes_I2[detections.image_D], 2)
    return corners


def _fit(truth: GroundTruth, image_B: np.ndarray, unit_B4: np.ndarray) -> float:
    return mean_best_iou(truth, image_B, unit_B4) if len(image_B) else 0.0


def _distinct(ways: Sequence[Way]) -> Iterator[Way]:
    """Yield the ways whose boxes differ from those of the better ones by more than rounding."""
    distinct: list[Way] = []
    for way in ways:
        if all(np.abs(way.unit_B4 - other.unit_B4).max() > 0.002 for other in distinct):
            distinct.append(way)
            yield way
