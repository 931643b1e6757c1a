"""Diagnoses answers whose boxes match no objects: finds interpretations of their numbers that would match them.

The interpretations that match are reported with their AP and with how sure that is. `fits` judges them, and `labels`
says what is wrong with the labels of boxes that match.

Shapes: B boxes, D detections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coord_codec import InputError
from coord_codec.box_transforms import LAYOUTS
from coord_codec.counts import counted
from coord_codec.settings import takes_fields_of
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.diagnosis.fits import TOLD_APART, ImageFits, best_scored, is_sure
from coord_eval.diagnosis.labels import label_lines
from coord_eval.intake.answers import parse_all
from coord_eval.intake.collecting import collect_answers, collect_results
from coord_eval.intake.interpretations import RAW_SCALE, BestIou, Interpretation, RawNumbers, interpretations_by_fit
from coord_eval.intake.joining import LabelMatcher, join
from coord_eval.intake.predictions import PredictionSource, load_predictions
from coord_eval.intake.ranking import choose_source
from coord_eval.intake.records import Loaded
from coord_eval.intake.results import ResultsList
from coord_eval.match.matching import Scored
from coord_eval.metrics.coco import coco_scores
from coord_eval.metrics.figures import Figures
from coord_eval.parse.answer import POINT_ADVICE, Answer
from coord_eval.settings import AnswerSettings, LabelSettings

if TYPE_CHECKING:
    from coord_eval.intake.prediction import Prediction

NEAR_ZERO = 0.02
"""AP below which answers are diagnosed automatically."""
_LOW, _LOOKED_AT = 0.3, 200  # AP below which a diagnosis may be proposed, and number of answers that are looked at
_IMAGES_LOOKED_AT = 30  # likewise of the images of a results list
_BOXES_LOOKED_AT = 10  # likewise of the boxes of an image, the best-scored ones
_MATCHED_IMAGES = 200  # likewise of the images in which labels are compared
_SLIGHTLY = 0.005  # gain of mean best IoU from which an interpretation is mentioned
_LABELS_MATTER = 5  # factor of `NEAR_ZERO`: the class-agnostic AP from which the labels are the fault
_LISTED = 3
_MANY_IMAGES = 30  # from which on a reading that fits would be seen
_READ_RIGHT = "the way they are read fits best"
_TOO_FEW = "the boxes are too few to tell how their numbers are meant"


@takes_fields_of(answers=AnswerSettings, labels=LabelSettings)
def diagnose(
    evaluation: Figures,
    predictions: PredictionSource,
    *,
    answers: AnswerSettings = AnswerSettings(),
    labels: LabelSettings = LabelSettings(),
    force: bool = False,
) -> list[str]:
    """Return notes about interpretations of the numbers of the answers that would match the objects.

    `coord_eval.score` does this itself where AP is below .02, and with `ReportSettings(diagnose=True)` always.

    Args:
        evaluation: the evaluation of these predictions
        predictions: as for `coord_eval.score`
        answers: as for `coord_eval.score`; of the text all numbers are read, whatever source and scale it names
        labels: as for `coord_eval.score`
        force: diagnose whatever the AP is; by default only an AP below .02 is diagnosed

    Returns:
        One line for each interpretation with its AP, best first, or a line that none fits; empty if no diagnosis was
        needed.
    """
    return diagnose_loaded(evaluation, load_predictions(predictions), answers, labels, force=force)


def diagnose_loaded(
    evaluation: Figures,
    predictions: Loaded,
    settings: AnswerSettings,
    labels: LabelSettings,
    *,
    force: bool | None = None,
) -> list[str]:
    """Return the notes of `diagnose` for predictions that are loaded, with the settings of `coord_eval.score`."""
    ap, truth = evaluation.coco["AP"], evaluation.truth
    asked = force or 0 <= ap < NEAR_ZERO
    if not asked and (force is not None or not NEAR_ZERO <= ap < _LOW):
        return []
    settings = replace(settings, boxes="tokens", scale=RAW_SCALE, geometry="box")
    if not evaluation.counts["objects"]:
        return ["diagnosis: nothing to diagnose: the ground truth holds no boxes"] if force else []
    items = predictions if asked else _some(predictions)
    if not np.isfinite(truth.sizes_I2).all():
        return ["diagnosis: not possible: images of the ground truth state no size"] if force else []
    raw = _raw_numbers(truth, items, settings, labels, evaluation.score_source)
    points = evaluation.format["dropped"].get("point", 0) if asked else 0
    lines = [f"diagnosis: {counted(points, 'point')} where boxes are scored: {POINT_ADVICE}"] if points else []
    if not len(raw.numbers_B4):
        nothing = ["diagnosis: no boxes to diagnose: the answers hold none that can be read"] if force else []
        return lines or nothing
    if not best_scored(truth, raw.detections).any():
        return [*lines, "diagnosis: no box is in an image with objects: nothing to compare"] if asked else []
    judged = _Judged(evaluation, raw, most=None if asked else _BOXES_LOOKED_AT)
    best = judged.interpretations[0]
    wrong = ap < NEAR_ZERO and _labels_fail(ap, evaluation.coco_class_agnostic["AP"])
    most_images = None if asked else _MATCHED_IMAGES
    ap_by_labels = label_lines(evaluation, predictions, wrong=wrong, most_images=most_images)
    if not asked:  # some answers are looked at, and a diagnosis is proposed if they fit the objects far better
        fits = f"fits better (mean best IoU {best.fit:.3f}, not {judged.own:.3f}); --diagnose shows its AP"
        return ap_by_labels + ([f"diagnosis: {best.text} {fits}"] if judged.named() else [])
    lines += [f"diagnosis: as read, AP {ap:.3f}, mean best IoU {judged.own:.3f}", *ap_by_labels]

    def ap_text(candidate: Interpretation) -> str:
        return _ap_text(truth, _moved(truth, raw.detections, candidate))

    tried = f"{len(judged.interpretations)} tried"
    if good := judged.named():
        lines += [f"diagnosis: {w.text} would give {ap_text(w)}, mean best IoU {w.fit:.3f}" for w, _ in good]
        one = "" if len(good) == 1 else ", and the others fit nearly as well"
        return [*lines, f"diagnosis: how sure that is: {good[0][1].text(judged.read)}{one}"]
    if not judged.read.are_of_objects():
        if unsure := judged.unsure():
            return [*lines, f"diagnosis: {_TOO_FEW} ({tried}): {unsure}"]
        images = len(judged.read.own_I)
        few = "" if images >= _MANY_IMAGES else f"; boxes in {counted(images, 'image')} alone, more may tell"
        nearest = f"{tried}; the best, {best.name}: {best.fit:.3f}{few}"
        return [
            *lines,
            f"diagnosis: no scale, order, shift or resize fits, and no turned or mirrored image ({nearest})",
        ]
    if best.fit < judged.own + _SLIGHTLY:
        return [*lines, f"diagnosis: {_READ_RIGHT} ({tried}), so it is right: {judged.read.text()}"]
    gain = f"{ap_text(best)} instead of {ap:.3f}, mean best IoU {best.fit:.3f} instead of {judged.own:.3f}"
    return [*lines, f"diagnosis: {best.text} fits slightly better, too little to be sure: {gain}"]


class _Judged:
    """The interpretations of the numbers, best first, beside the way that they are read.

    Attributes:
        interpretations: of all boxes, judged by the best-scored ones
        own: mean best IoU of the best-scored boxes as read
        read: their fit by image
    """

    def __init__(self, evaluation: Figures, raw: RawNumbers, most: int | None) -> None:
        self._truth, seen = evaluation.truth, evaluation.detections
        is_judged_B = best_scored(self._truth, raw.detections, most)
        self._judged_j = np.flatnonzero(is_judged_B)
        self._image_j = raw.detections.image_D[self._judged_j]
        self._images = np.unique(self._image_j)
        self.interpretations = interpretations_by_fit(self._truth, replace(raw, judged_B=is_judged_B))
        # Boxes as read may be fewer, or have another source than the numbers.
        seen = seen.take(np.isin(seen.image_D, self._images))
        seen = seen.take(best_scored(self._truth, seen, most))
        read_d4 = LAYOUTS["xywh"](seen.boxes_D4) / np.tile(self._truth.sizes_I2[seen.image_D], 2)
        self.own = BestIou(self._truth, seen.image_D)(read_d4)
        self.read = ImageFits(self._truth, self._images, seen.image_D, read_d4)

    def fits(self, candidate: Interpretation) -> ImageFits:
        """Return the fit of an interpretation by image."""
        return ImageFits(self._truth, self._images, self._image_j, candidate.unit_B4[self._judged_j])

    def unsure(self) -> str:
        """Return the reading by which boxes fit their own objects best, where that may be chance; empty without one."""
        best = self.interpretations[0]
        fits = self.fits(best)
        if best.fit >= self.own + _SLIGHTLY and fits.may_be_of_objects():
            return f"most likely {best.text}, {fits.text(self.read)}"
        return f"most likely the way they are read, {self.read.text()}" if self.read.may_be_of_objects() else ""

    def named(self) -> list[tuple[Interpretation, ImageFits]]:
        """Return the interpretations that are clearly better than as read, and not surely worse than the best."""
        named: list[tuple[Interpretation, ImageFits]] = []
        for candidate in _distinct(self.interpretations):
            if candidate.fit < max(self.interpretations[0].fit / 2, self.own) or len(named) == _LISTED:
                break
            fits = self.fits(candidate)
            is_better = fits.is_clearly_better(self.read) and fits.are_of_objects()
            if is_better and not (named and is_sure(named[0][1].own_I - fits.own_I, TOLD_APART)):
                named.append((candidate, fits))
        return named


def learnt_nothing(evaluation: Figures) -> bool:
    """Whether AP is near 0, and no interpretation of the numbers or of the labels that was tried explains it."""
    told = [note for note in evaluation.notes if note.startswith("diagnosis: ")]
    explains = ("would give", "slightly better", "the labels are wrong", _READ_RIGHT, _TOO_FEW)
    tried = bool(told) or not len(evaluation.detections)
    return tried and 0 <= evaluation.coco["AP"] < NEAR_ZERO and not any(w in note for note in told for w in explains)


def _moved(truth: GroundTruth, detections: Detections, candidate: Interpretation) -> Detections:
    return detections.moved(candidate.unit_B4 * np.tile(truth.sizes_I2[detections.image_D], 2))


def _ap_text(truth: GroundTruth, detections: Detections) -> str:
    scored = Scored(truth=truth, detections=detections, score_source="results", bins=1)
    ap = coco_scores(scored).summary["AP"]
    if ap >= NEAR_ZERO:
        return f"AP {ap:.3f}"
    any_label = coco_scores(scored.with_one_label).summary["AP"]
    return f"AP {ap:.3f} ({any_label:.3f} for any label)" if _labels_fail(ap, any_label) else f"AP {ap:.3f}"


def _labels_fail(ap: float, any_label: float) -> bool:
    return ap < NEAR_ZERO and any_label >= _LABELS_MATTER * NEAR_ZERO


def _some(predictions: Loaded) -> Loaded:
    """Return some of the predictions: of a results list all boxes of some images."""
    if not isinstance(predictions, ResultsList):
        return predictions[:: -(-len(predictions) // _LOOKED_AT) or 1]
    image_R = predictions.table.image_N
    step = -(-len(predictions.table.image_ids) // _IMAGES_LOOKED_AT) or 1
    return predictions[np.flatnonzero(image_R % step == 0)]


def _raw_numbers(
    truth: GroundTruth, items: Loaded, settings: AnswerSettings, labels: LabelSettings, score_source: str
) -> RawNumbers:
    if isinstance(items, ResultsList):
        detections = collect_results(truth, items).detections
        return RawNumbers(detections, detections.boxes_D4, np.full((len(detections), 2), np.nan), "xywh", "results")
    # The numbers are those of the texts, whatever stands in place of their boxes.
    answer_records = [replace(item, objects=None) for item in items]
    images, joined = join(truth, ((p.image_id, p.image, p.where, (p.label, p.tile)) for p in answer_records))
    answers, _ = parse_all(truth, answer_records, images, settings, keep_flat=True)
    answers = [replace(a, objects=tuple(o for o in a if o.is_box)) for a in answers]
    collected = collect_answers(
        truth,
        answer_records,
        answers,
        images=images,
        joined=joined,
        labels=LabelMatcher(truth.categories, labels),
        score_source=_source(score_source, answers, answer_records),
    )
    rows = [
        (
            item.bins,
            prediction.input_size or (np.nan, np.nan),
            item.order,
            answer.scale is not None,
            prediction.tile or (0.0, 0.0, *truth.sizes_I2[image]),
        )
        for prediction, answer, image in zip(answer_records, answers, images, strict=True)
        if image >= 0
        for item in answer
    ]
    bins, inputs, orders, plain, views = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    ((order, _),) = Counter(order for order in orders if order in LAYOUTS).most_common(1) or [("xyxy", 0)]
    return RawNumbers(
        collected.detections,
        np.array(bins, np.float64).reshape(-1, 4),
        np.array(inputs, np.float64).reshape(-1, 2),
        order,
        "plain" if all(plain) else "tokens",
        view_B4=np.array(views).reshape(-1, 4) if any(record.tile for record in answer_records) else None,
    )


def _source(requested: str, answers: Sequence[Answer], predictions: Sequence[Prediction]) -> str:
    """Return the score source of the evaluation, or `constant` if a box that it dropped has no such score."""
    try:
        return choose_source(requested, answers, predictions)[0]
    except InputError:
        return "constant"


def _distinct(interpretations: Sequence[Interpretation]) -> Iterator[Interpretation]:
    """Yield the interpretations whose boxes differ from those of the better ones by more than rounding."""
    distinct: list[Interpretation] = []
    for candidate in interpretations:
        if all(np.abs(candidate.unit_B4 - other.unit_B4).max() > 0.002 for other in distinct):
            distinct.append(candidate)
            yield candidate
