"""Accuracy on referring expressions, as in RefCOCO (Yu et al. 2016, https://arxiv.org/abs/1608.00272).

Acc@.5 is the share of phrases for which the predicted box has an IoU of at least .5 with the box of the phrase.
Phrases with no or several targets (gRefCOCO, Liu et al. 2023, "GRES", https://arxiv.org/abs/2306.00968) are scored by
N-acc and by the share of phrases with F1 = 1 (He et al. 2023, "GREC", https://arxiv.org/abs/2308.16182).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

import numpy as np

from coord_codec import InputError, Instance, read_instances
from coord_codec.box_table import to_pixels
from coord_codec.box_transforms import LAYOUTS
from coord_codec.counts import counted
from coord_codec.files import finite_numbers
from coord_codec.labels import normalize_label
from coord_codec.settings import takes_fields_of
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.iou import box_iou
from coord_eval.boxes.pixels import boxes_in_pixels, from_corners
from coord_eval.intake.answers import assumed_scale_notes, dropped_notes, parse_all
from coord_eval.intake.ground_truth import load_ground_truth
from coord_eval.intake.interpretations import RAW_SCALE, RawNumbers, interpretations_by_fit, robust_line
from coord_eval.intake.prediction import Prediction
from coord_eval.intake.predictions import PredictionSource, load_predictions
from coord_eval.intake.results import ResultsList
from coord_eval.metrics.draws import interval
from coord_eval.parse.answer import Answer, ParsedObject
from coord_eval.settings import AnswerSettings, Progress, silent

_F1_IOU = 0.5
_LOW, _PLAUSIBLE, _FEWEST = 0.5, 0.4, 8
"""A share or IoU below which other scales are tried, from which one is proposed, and the fewest answers for that."""
_DECIMALS = 9
"""Decimals of an IoU that is compared with a threshold: areas of decimal sides are not exact in floating point."""
_THOUSANDTHS = (1000.0, 1000.0)

Which = Literal["first", "best", "score"]
"""Which box of an answer to a phrase with one target counts."""


@dataclass(frozen=True)
class ExpressionScores:
    """Accuracy over referring expressions.

    Attributes:
        phrases: number of phrases
        accuracy: share of phrases whose IoU is at least the threshold, for each threshold; this and the next two are
            over the phrases with one target
        mean_iou: mean IoU, which is 0 for an answer without a box
        point_in_box: share of phrases for which the answered point, or the centre of the answered box, lies in the box
            of the phrase: the measure of ScreenSpot (Cheng et al. 2024, https://arxiv.org/abs/2401.10935)
        without_box: number of answers without a box to phrases with a target, which count as wrong
        several_boxes: number of answers with more than one box to phrases with one target; `which` of them counts
        intervals: `value`, `low` and `high` of each accuracy (`"Acc@0.5"`), of `"mean_iou"` and of `"point_in_box"`:
            the central 95 % of resamples of the images, each with all its phrases; empty without resamples
        notes: conditions that matter when interpreting the metrics
        no_target: number of phrases that name nothing in the image
        several_targets: number of phrases that name several objects
        n_acc: share of the phrases without a target whose answer has no box, neither read nor dropped; None without
            such phrases
        which: the box that counts of several: `first`, `best` or `score`
        precision_f1: share of all phrases with F1 = 1: each target has an answered box of its own with an IoU of at
            least .5 and no box is left; without a target, as for `n_acc`. None if every phrase has one target
    """

    phrases: int
    accuracy: dict[str, float]
    mean_iou: float
    without_box: int
    several_boxes: int
    point_in_box: float = 0.0
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    no_target: int = 0
    several_targets: int = 0
    n_acc: float | None = None
    precision_f1: float | None = None
    which: Which = "first"

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as plain types, unrounded."""
        return asdict(self)


def score_expressions(
    boxes: Iterable[Sequence[float] | Sequence[Sequence[float]]],
    answers: Iterable[Answer],
    thresholds: Sequence[float] = (0.5,),
    *,
    images: Sequence[Hashable] | None = None,
    sizes: Sequence[tuple[float, float]] | None = None,
    resamples: int = 1000,
    seed: int = 0,
    which: Which = "first",
) -> ExpressionScores:
    """Score answers to referring expressions by their boxes, regardless of the descriptions.

    Of an answer to a phrase with one target one box counts, of other answers all boxes.

    Args:
        boxes: `(x1, y1, x2, y2)` of each phrase in [0, 1], or a list of such boxes, empty if nothing is meant
        answers: the parsed answer to each phrase, in the same order
        thresholds: lowest IoU of a correct box, one or more values
        images: any identifier of the image of each phrase, since intervals resample images; None if every phrase has
            its own image
        sizes: width and height of the image of each phrase, in whose pixels boxes are compared; None for the unit of
            each answer's numbers, or thousandths
        resamples: number of resamples of the images, 0 for no intervals
        seed: seed of the resamples
        which: the box that counts of several: the `first`; the `best`, with the highest IoU, as some harnesses have it,
            which rewards answers of many boxes; or that of the highest `score` that the answer states

    Raises:
        InputError: if the numbers of answers or images differ from that of boxes, or a box has not four numbers

    Example:
        >>> from coord_eval import parse_answer
        >>> answer = parse_answer('[{"bbox_2d": [100, 100, 300, 300], "label": "left cup"}]', scale=1000)
        >>> score_expressions([(0.1, 0.1, 0.3, 0.4)], [answer]).accuracy
        {'0.5': 1.0}
    """
    targets, answers = [_targets(given, n) for n, given in enumerate(boxes, 1)], list(answers)
    names = list(range(len(targets)) if images is None else images)
    for found, noun in ((answers, "answer"), (names, "image")):
        if len(found) != len(targets):
            raise InputError(
                f"expressions: {counted(len(targets), 'box', 'boxes')} and {counted(len(found), noun)}; give each "
                f"phrase its {noun}"
            )
    if which not in get_args(Which):
        raise InputError(f"which: expected one of {', '.join(get_args(Which))}, found {which!r}")
    phrases = range(len(targets))
    single = [i for i in phrases if len(targets[i]) == 1]
    no_target = [i for i in phrases if not targets[i]]
    units = [_unit(answer) for answer in answers] if sizes is None else sizes
    chosen = [_chosen(targets[i], answers[i].objects, units[i], which) for i in single]
    firsts = [_iou_and_centre(targets[i], found, units[i]) for i, found in zip(single, chosen, strict=True)]
    iou = np.array([found[0].max(initial=0.0) for found in firsts])
    inside = np.array([float(found[1]) for found in firsts])
    measured = {f"Acc@{t:g}": (single, (np.round(iou, _DECIMALS) >= t).astype(np.float64)) for t in thresholds}
    measured |= {"mean_iou": (single, iou), "point_in_box": (single, inside)}
    if len(single) < len(targets):
        all_found = np.array([float(_all_found(targets[i], answers[i], units[i])) for i in phrases])
        measured |= {"precision_f1": (list(phrases), all_found), "n_acc": (no_target, all_found[no_target])}
    mean = {name: float(values.mean()) for name, (rows, values) in measured.items() if rows}
    return ExpressionScores(
        phrases=len(targets),
        accuracy={f"{t:g}": mean.get(f"Acc@{t:g}", 0.0) for t in thresholds},
        mean_iou=mean.get("mean_iou", 0.0),
        point_in_box=mean.get("point_in_box", 0.0),
        without_box=sum(not answers[i].objects for i in phrases if targets[i]),
        several_boxes=sum(len(answers[i]) > 1 for i in single),
        intervals={
            name: _interval(values, [names[i] for i in rows], resamples, seed)
            for name, (rows, values) in measured.items()
            if rows and resamples
        },
        no_target=len(no_target),
        several_targets=len(targets) - len(single) - len(no_target),
        n_acc=mean.get("n_acc"),
        precision_f1=mean.get("precision_f1"),
        which=which,
    )


def _chosen(
    targets: Sequence[Sequence[float]], objects: Sequence[ParsedObject], unit: Sequence[float], which: Which
) -> Sequence[ParsedObject]:
    """Return the box that counts, none if there is none."""
    if len(objects) < 2 or which == "first":
        return objects[:1]
    if which == "best":
        return [objects[int(_iou_and_centre(targets, objects, unit)[0][0].argmax())]]
    return [max(objects, key=lambda item: -1.0 if item.score is None else item.score)]


def _targets(given: Sequence[float] | Sequence[Sequence[float]], number: int) -> list[tuple[float, ...]]:
    """Return the boxes of a phrase, which are given as one box or as a list of boxes."""
    boxes: list[Any] = list(given)
    if boxes and not hasattr(boxes[0], "__len__"):
        boxes = [boxes]
    for box in boxes:
        if len(box) != 4:
            raise InputError(f"expressions, phrase {number}: expected x1, y1, x2, y2 of each box, found {box!r:.80}")
    return [finite_numbers(list(box), 4, f"expressions, phrase {number}") for box in boxes]


def _all_found(targets: Sequence[Sequence[float]], answer: Answer, unit: Sequence[float]) -> bool:
    """Return whether F1 is 1: the boxes of an answer and the targets pair off with an IoU of at least .5.

    As in GREC the pair with the highest IoU is taken first. A box that was dropped is an answered box too.
    """
    if not targets:
        return not answer.objects and all(drop.reason == "unrecognised" for drop in answer.dropped)
    if len(answer.objects) != len(targets):
        return False
    iou_TA = np.round(_iou_and_centre(targets, answer.objects, unit)[0], _DECIMALS)
    for _ in targets:
        target, found = np.unravel_index(int(iou_TA.argmax()), iou_TA.shape)
        if iou_TA[target, found] < _F1_IOU:
            return False
        iou_TA[target, :] = iou_TA[:, found] = -1.0
    return True


def _interval(value_N: np.ndarray, images: Sequence[Hashable], resamples: int, seed: int) -> dict[str, float]:
    """Return the interval of the mean over phrases when images are resampled with all their phrases."""
    index = {image: i for i, image in enumerate(dict.fromkeys(images))}
    image_N = np.array([index[image] for image in images])
    # Number of times that each image is drawn in each resample.
    drawn_BI = np.random.default_rng(seed).multinomial(len(index), np.full(len(index), 1 / len(index)), resamples)
    means_B = drawn_BI @ np.bincount(image_N, value_N) / (drawn_BI @ np.bincount(image_N))
    return interval(float(value_N.mean()), means_B, True)


@takes_fields_of(answers=AnswerSettings)
def score_expression_files(
    ground_truth: str | Path | Sequence[Instance],
    predictions: PredictionSource,
    thresholds: Sequence[float] = (0.5,),
    *,
    answers: AnswerSettings = AnswerSettings(),
    progress: Progress | None = None,
    which: Which = "first",
) -> ExpressionScores:
    """Score a file of answers against a file of phrases, line by line.

    Args:
        ground_truth: instance JSON lines, a phrase each, which is the description of its object or objects; a line
            without objects is a phrase that names nothing in the image. An image with several phrases has several lines
        predictions: `predictions.jsonl`, the answer to each phrase in the same order; if both files state the image or
            its id, they have to agree
        thresholds: lowest IoU of a correct box, one or more values
        answers: how answers become boxes; the geometry is `point` if they are points, which else are dropped
        progress: called with the name of a stage, the number of steps done and their total
        which: the box that counts of several, see `score_expressions`

    Raises:
        InputError: if the files do not match; the message names the line
    """
    answers.check_acts_in("score_expression_files")
    instances = _read_phrases(ground_truth)
    for number, item in enumerate(instances, 1):
        names = dict.fromkeys(target.desc for target in item.objects)
        if len(names) > 1:
            raise InputError(
                f"ground truth, phrase {number} ({item.image}): expected one phrase as the description of all objects, "
                f"found {', '.join(map(repr, names)):.80}; give each phrase a line of its own"
            )
    loaded_records = load_predictions(predictions)
    if isinstance(loaded_records, ResultsList):
        raise InputError("expressions: expected answers as text, found a COCO results list")
    texts = loaded_records
    if len(texts) != len(instances):
        raise InputError(
            f"expressions: {counted(len(instances), 'phrase')} and {counted(len(texts), 'answer')}; give "
            "one answer a phrase, in order"
        )
    for prediction, item in zip(texts, instances, strict=True):
        _check_same_image(prediction, item)
    # Several phrases can share an image, so each line is treated as a separate image.
    lines = load_ground_truth([item.model_copy(update={"image_id": None}) for item in instances])
    options = replace(answers, need_labels=False)
    parsed, notes = parse_all(lines, texts, range(len(texts)), options, progress or silent)
    parsed, moved = _by_phrase(instances, parsed)
    boxes = [[target.bbox for target in item.objects] for item in instances]
    images = [item.image for item in instances]
    sizes = [(float(width), float(height)) for width, height in lines.sizes_I2] if lines.sizes_known else None
    scores = score_expressions(boxes, parsed, thresholds, images=images, sizes=sizes, which=which)
    found = _diagnosis(lines, texts, replace(options, scale=RAW_SCALE), scores)
    told = (*notes, *dropped_notes(parsed), *moved, *assumed_scale_notes(parsed))
    return replace(scores, notes=(*told, *found))


def _diagnosis(
    lines: GroundTruth, texts: Sequence[Prediction], options: AnswerSettings, scores: ExpressionScores
) -> list[str]:
    """Return a note on the scale or order in which the answered boxes, or points, would fit those of the phrases."""
    is_point = options.geometry == "point"
    own = scores.point_in_box if is_point else scores.mean_iou
    single_I = np.bincount(lines.image_N, minlength=len(texts)) == 1
    if own >= _LOW or single_I.sum() < _FEWEST:
        return []
    answers, _ = parse_all(lines, texts, range(len(texts)), options, keep_flat=True)
    firsts = [(i, answers[i].objects[0]) for i in np.flatnonzero(single_I).tolist() if answers[i].objects]
    usable = [(i, item) for i, item in firsts if item.is_box or (is_point and len(item.numbers) == 2)]
    if len(usable) < _FEWEST:
        return []
    image_B = np.array([i for i, _ in usable], np.int64)
    object_B = np.searchsorted(lines.image_N, image_B)
    numbers_BC = np.array([item.numbers for _, item in usable], np.float64)
    if is_point:
        tried = [(order, _fitted_points(lines, image_B, object_B, numbers_BC, order)) for order in ("xy", "yx")]
        order, (name, fit) = max(tried, key=lambda found: found[1][1])
        name = f"{'y before x, ' * (order == 'yx')}{name}"
    else:
        ones_B, category_B = np.ones(len(image_B)), lines.category_N[object_B]
        detections = Detections.of(lines, image_B, category_B, numbers_BC, ones_B, np.zeros(len(image_B)))
        inputs_B2 = np.array([texts[i].input_size or (np.nan, np.nan) for i, _ in usable], np.float64)
        order = usable[0][1].order
        raw = RawNumbers(detections, numbers_BC, inputs_B2, order if order in LAYOUTS else "xyxy", "plain")
        best = interpretations_by_fit(lines, raw)[0]
        name, fit = best.text, best.fit
    if fit < max(_PLAUSIBLE, 2 * own):
        return []
    return [f"diagnosis: {name} would give {'point in box' if is_point else 'mean IoU'} {fit:.3f}, not {own:.3f}"]


def _fitted_points(
    lines: GroundTruth, image_B: np.ndarray, object_B: np.ndarray, points_B2: np.ndarray, order: str
) -> tuple[str, float]:
    """Return the map of points, as fractions of the image, that fits the centres of the boxes, and how many it hits."""
    points_B2 = points_B2[:, ::-1] if order == "yx" else points_B2
    size_B2 = lines.sizes_I2[image_B]
    low_B2, side_B2 = (lines.boxes_N4[object_B][:, axes] / size_B2 for axes in (slice(0, 2), slice(2, 4)))
    parts, inside_B = [], np.ones(len(image_B), bool)
    for axis, name in enumerate("xy"):
        unit_B = points_B2[:, axis] / size_B2[:, axis]
        a, b = robust_line(unit_B, low_B2[:, axis] + side_B2[:, axis] / 2)
        offset_B = a * unit_B + b - low_B2[:, axis]
        inside_B &= (offset_B >= 0) & (offset_B <= side_B2[:, axis])
        parts.append(f"{name} times {a:.3f}" + (f" {b:+.3f}" if abs(b) >= 5e-3 else ""))
    return f"points as fractions of the image's size, {', '.join(parts)}", float(inside_B.mean())


def _read_phrases(source: str | Path | Sequence[Instance]) -> list[Instance]:
    if not isinstance(source, str | Path):
        return list(source)
    try:
        # `read_annotations` would refuse the repeated images.
        return list(read_instances(source, strict=True).instances)
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror}); check the path") from error


def _check_same_image(prediction: Prediction, item: Instance) -> None:
    """Raise an error if an answer names another image than the phrase at the same position."""
    has_name = prediction.image is not None
    found, expected = (prediction.image, item.image) if has_name else (prediction.image_id, item.image_id)
    if has_name:
        same = PurePath(str(found)).name == PurePath(item.image).name
    else:
        same = expected is None or str(found) == str(expected)
    if not same:
        raise InputError(
            f"{prediction.where}: about {found!r}, but the phrase at this position is about {expected!r}; "
            "answers must have the order of the phrases"
        )


def _by_phrase(instances: Sequence[Instance], answers: Sequence[Answer]) -> tuple[list[Answer], list[str]]:
    """Bring the answers of each image into the order of its phrases if each names another phrase of that image.

    Returns:
        The answers, and a note with their number if some were moved.
    """
    ordered, moved = list(answers), 0
    by_image: dict[str, list[int]] = {}
    for i, item in enumerate(instances):
        by_image.setdefault(item.image, []).append(i)
    for rows in by_image.values():
        if not all(instances[i].objects for i in rows):  # a phrase without a target is not stated
            continue
        phrases = {normalize_label(instances[i].objects[0].desc): i for i in rows}
        named = {normalize_label(answers[i].objects[0].desc): i for i in rows if answers[i].objects}
        if len(phrases) < len(rows) or phrases.keys() != named.keys() or phrases == named:
            continue
        for name, i in phrases.items():
            ordered[i] = answers[named[name]]
            moved += named[name] != i
    note = (
        f"{counted(moved, 'answer')} stood in another order than the phrases of their image: joined by the "
        "phrase they name"
    )
    return ordered, [note] if moved else []


def _unit(answer: Answer) -> Sequence[float]:
    """Return the unit in which the numbers of an answer are whole."""
    return next((item.scale for item in answer if item.scale and min(item.scale) > 1), _THOUSANDTHS)


def _iou_and_centre(
    targets: Sequence[Sequence[float]], found: Sequence[ParsedObject], unit: Sequence[float]
) -> tuple[np.ndarray, bool]:
    """Return the IoU [T, A] of targets and boxes, and whether the first box has its centre in the first target.

    A point is parsed as a tiny box around it.
    """
    sides_4 = np.tile(np.array(unit, np.float64), 2)
    corners_T4 = to_pixels(np.array(targets, np.float64).reshape(-1, 4), sides_4, 1)
    targets_T4 = from_corners(corners_T4)
    boxes_A4 = boxes_in_pixels(found, np.tile(sides_4[:2], (len(found), 1)))
    if not len(found):
        return np.zeros((len(targets), 0)), False
    x, y = (boxes_A4[0, :2] + boxes_A4[0, 2:] / 2).tolist()
    x1, y1, x2, y2 = corners_T4[0].tolist()
    return box_iou(targets_T4[:, None], boxes_A4), x1 <= x <= x2 and y1 <= y <= y2
