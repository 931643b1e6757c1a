"""Judges every label of a ground truth by the answers of a model, and by the likelihood it gives the labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec.box_transforms import LAYOUTS
from coord_codec.counts import counted
from coord_codec.files import InputError
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.sorting import places_in_images
from coord_eval.calibration.calibration import Calibration
from coord_eval.intake.collecting import Collected, collect, collector_paused
from coord_eval.intake.digests import digest_of, digest_of_detections, digest_of_truth
from coord_eval.intake.ground_truth import GroundTruthSource, load_ground_truth
from coord_eval.intake.joining import UNANSWERED
from coord_eval.intake.predictions import PredictionSource, load_predictions
from coord_eval.review.confidence import SURE_IOU, Compared, compare
from coord_eval.review.evidence import LabelEvidence, gather
from coord_eval.review.findings import Proposal, ReviewFinding
from coord_eval.review.likelihood import LabelLikelihood, goes_on, read_likelihoods, surprises
from coord_eval.review.planted import LEAST_LABELS, judged_by_planted_faults
from coord_eval.review.probability import LABEL_KINDS, Probabilities, probabilities, with_possible_kinds
from coord_eval.review.result import Review
from coord_eval.settings import AnswerSettings, LabelSettings

LEAST_AGREEMENT = 0.5
"""A model that finds a smaller share of the labels is doubted rather than the labels."""
_SAME_BOX_IOU = 0.75
"""IoU from which on an answer of another name says that the box is right."""
LEAST_PROBABILITY = 0.05
"""Probability from which on a suspicion is a finding, unless the caller says otherwise."""


@collector_paused()
def review(
    ground_truth: GroundTruthSource,
    predictions: PredictionSource,
    *,
    likelihoods: str | Path | Sequence[LabelLikelihood] | None = None,
    answers: AnswerSettings = AnswerSettings(),
    labels: LabelSettings = LabelSettings(),
    score_source: str = "auto",
    calibration: Calibration | str | Path | None = None,
    least: float = LEAST_PROBABILITY,
) -> Review:
    """Judge every label: the probability that it is wrong, what kind of fault it has, and what it should be.

    Three depths, by what there is. Scores alone: an answer of another name at a label's place, one beside it, none
    where the model seldom misses an object, or a confident one without a label. With the spreads of coordinates in the
    predictions: distances between answer and label in units of these. With likelihoods: how improbable the model finds
    the name and the coordinates of the label itself.

    Without likelihoods probabilities are those that faults planted into half of the labels tell about the other half,
    from 150 labels on; a note says what they rest on.

    The model must not have learnt the labels that it judges: one that has repeats their faults. Without likelihoods,
    labels of images for which the predictions have no record are not judged; a results list does not tell these images
    from those without a box.

    Args:
        ground_truth: as `coord_eval.score` takes it; every record must be valid
        predictions: as `coord_eval.score` takes them
        likelihoods: a `likelihoods.jsonl`, or its records; None for none
        answers: how the text of answers becomes boxes
        labels: how labels are matched with categories
        score_source: score of the answers, see `coord_eval.SCORE_SOURCES`
        calibration: map from scores to probabilities; None: scores are compared with the labels of this set
        least: probability from which on a suspicion is a finding

    Raises:
        InputError: if the input cannot be used; the message names file and field

    Example:
        >>> from coord_codec import Instance
        >>> cats = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}, {"desc": "dog", "bbox": [0.6, 0.6, 0.9, 0.9]}]
        >>> images = [Instance(image=f"{i}.jpg", image_id=i, width=640, height=480, objects=cats) for i in range(50)]
        >>> wrong = [{"desc": "dog", "bbox": [0.1, 0.2, 0.5, 0.6]}, cats[1]]
        >>> images[7] = Instance(image="7.jpg", image_id=7, width=640, height=480, objects=wrong)
        >>> cat, dog = "[100, 200, 500, 600]", "[600, 600, 900, 900]"
        >>> text = f'[{{"bbox_2d": {cat}, "label": "cat"}}, {{"bbox_2d": {dog}, "label": "dog"}}]'
        >>> answers = [{"image_id": i, "text": text} for i in range(50)]
        >>> found = review(images, answers, answers=AnswerSettings(scale=1000))
        >>> first = found.findings[0]
        >>> first.image_id, first.object, first.label, first.kind, first.proposal.desc
        (7, 0, 'dog', 'renamed', 'cat')
    """
    if not 0 <= least <= 1:
        raise InputError(f"least: expected a probability in [0, 1], found {least!r}")
    answers.check_acts_in("review")
    labels.check_acts_in("review")
    truth = load_ground_truth(ground_truth)
    collected = collect(truth, load_predictions(predictions), answers, labels, score_source)
    digest = digest_of_truth(truth)
    notes = [*truth.notes, *collected.notes]
    if likelihoods is None and 0 < len(collected.answers) < len(truth):
        truth, notes = _of_asked_images(truth, collected, notes)
    detections = collected.detections
    if calibration is not None:
        detections, note = Calibration.read(calibration).applied(detections, collected.score_source, {})
        notes.append(note)
    if truth.drawn:
        notes.append(f"labels are drawn as {', '.join(truth.drawn)}, and judged by their bounding boxes")
    notes += _on_answers(truth, detections)
    records = read_likelihoods(likelihoods) if isinstance(likelihoods, (str, Path)) else likelihoods
    surprise = None
    if records is not None:
        surprise, told = surprises(truth, records)
        notes += told
    compared = compare(truth, detections, calibration is not None)
    notes += _on_agreement((compared.partner_iou_N >= SURE_IOU)[~truth.crowd_N]) if len(detections) else []
    evidence = gather(truth, detections, compared, collected.spread_D4, surprise)
    found, answers_d, planted = _probabilities(truth, detections, compared, evidence, records)
    found = with_possible_kinds(found, _possible_kinds(compared, evidence, records is not None))
    judgement = _Judgement(truth, collected.detections, compared, evidence, found, answers_d)
    if records is None and len(detections):
        notes.append(judgement.by_answers_alone(planted))
    if crowds := int(truth.crowd_N.sum()):
        notes.append(f"{counted(crowds, 'crowd region is', 'crowd regions are')} not judged")
    rests_on: dict[str, Any] = {
        "coord_eval": version("coord-eval"),
        "ground_truth": digest,
        "predictions": digest_of_detections(collected.detections),
        "likelihoods": None if records is None else digest_of([item.to_dict() for item in records]),
        "score_source": collected.score_source,
        "calibrated": calibration is not None,
        "spreads": collected.spread_D4 is not None,
        "planted_faults": planted,
        "least": float(least),
        "rates": found.rates,
    }
    suspicions, judged = judgement.suspicions(least), judgement.judged()
    return Review(tuple(suspicions), tuple(judged), tuple(notes), rests_on, truth, collected.detections)


def _of_asked_images(truth: GroundTruth, collected: Collected, notes: Sequence[str]) -> tuple[GroundTruth, list[str]]:
    """Return the labels of images of which the predictions have a record, and the notes with one on the others."""
    asked_N = np.isin(truth.image_N, list(collected.answers))
    labels = counted(int((~asked_N).sum()), "label is", "labels are")
    kept = [note for note in notes if UNANSWERED not in note]
    return truth.take(asked_N), [*kept, f"{collected.join.unanswered}: their {labels} not judged"]


def _probabilities(
    truth: GroundTruth,
    detections: Detections,
    compared: Compared,
    evidence: LabelEvidence,
    records: Sequence[LabelLikelihood] | None,
) -> tuple[Probabilities, np.ndarray, int]:
    """Return the probabilities, the answers that may show a missing label, and the number of planted faults.

    Probabilities by likelihoods, and those of few labels, rest on no planted fault.
    """
    judged_N, answers_d = ~truth.crowd_N, evidence.answers_d
    if records is None:
        # An answer beside a label of its name that it hardly overlaps may be that of another object.
        iou_D = np.where(compared.partner_D < 0, 0.0, np.append(compared.partner_iou_N, 0.0)[compared.partner_D])
        unsupported_d = np.flatnonzero((iou_D < SURE_IOU) & (compared.crowd_D < SURE_IOU))
        fitted = judged_by_planted_faults(truth, detections, compared, unsupported_d)
        if fitted is not None:
            return fitted[0], unsupported_d, fitted[1]
    goes_on_d = None if records is None else goes_on(truth, records)[detections.image_D[answers_d]]
    found = probabilities(evidence.figures_NF, evidence.figures_dF, judged_N, records is not None, goes_on_d)
    return found, answers_d, 0


def _possible_kinds(compared: Compared, evidence: LabelEvidence, with_likelihoods: bool) -> np.ndarray:
    """Return which kinds [N, K] something tells of each label: an answer of its name or of another, or a twin.

    An answer of another name with nearly the same box tells of the name alone. Likelihoods tell of another name without
    an answer.
    """
    rival_N = (compared.rival_N >= 0) | with_likelihoods
    possible = {
        "renamed": rival_N,
        "moved": compared.partner_N >= 0,
        "spurious": np.ones(len(rival_N), bool),
        "duplicate": evidence.twin_N >= 0,
        "mixed": (rival_N & (compared.rival_iou_N < _SAME_BOX_IOU)) | with_likelihoods,
    }
    return np.stack([possible[kind] for kind in LABEL_KINDS], axis=1)


def _on_answers(truth: GroundTruth, detections: Detections) -> list[str]:
    """Return a note where no answer has a box, or none the name of a label."""
    if not len(detections):
        return ["no answer has a box: every label is judged by its absence alone"]
    if (detections.category_D < len(truth.categories)).any():
        return []
    answered, labelled = ", ".join(detections.unknown[:3]), ", ".join(truth.categories[:3])
    return [
        f"no answer has the name of a label: answers say {answered}, labels {labelled}; the model was trained on "
        "others, and these suspicions mean nothing"
    ]


def _on_agreement(agreed_N: np.ndarray) -> list[str]:
    """Return a note where the answers agree with few of the labels."""
    if not len(agreed_N) or agreed_N.mean() >= LEAST_AGREEMENT:
        return []
    return [
        f"the answers agree with {agreed_N.sum():,} of {counted(len(agreed_N), 'label')} (same name, IoU .5): "
        "either most labels are wrong or, more likely, the model does not know the task, and then these "
        "probabilities mean little; look at its scores first"
    ]


@dataclass(eq=False)
class _Judgement:
    """The probabilities of all labels and answers, of which it makes records."""

    truth: GroundTruth
    detections: Detections
    compared: Compared
    evidence: LabelEvidence
    found: Probabilities
    answers_d: np.ndarray

    def __post_init__(self) -> None:
        self._wrong_N = self.found.kind_NK.sum(axis=1)
        self._kinds = [LABEL_KINDS[k] for k in self.found.kind_NK.argmax(axis=1).tolist()]
        self._places, self._images = places_in_images(self.truth.image_N).tolist(), self.truth.image_N.tolist()
        partner_N, rival_N = (self.compared.partner_N, self.compared.rival_N)
        speaks = {"renamed": rival_N, "mixed": rival_N, "moved": partner_N}
        none_N = np.full(len(partner_N), -1)
        by_kind_KN = np.stack([speaks.get(kind, none_N) for kind in LABEL_KINDS])
        self._answers = by_kind_KN[self.found.kind_NK.argmax(axis=1), np.arange(len(partner_N))].tolist()
        self._boxes, self._said_boxes = (
            list(map(tuple, LAYOUTS["xywh"](boxes).tolist()))
            for boxes in (self.truth.boxes_N4, self.detections.boxes_D4)
        )
        self._ranks, self._scores = self.detections.rank_D.tolist(), self.detections.scores_D.tolist()
        self._said, self._probability = self.detections.category_D.tolist(), self._wrong_N.tolist()
        self._names = self.truth.category_N.tolist()

    def judged(self) -> list[ReviewFinding]:
        """Return every label in the order of the ground truth."""
        return [self._of_label(n) for n in np.nonzero(~self.truth.crowd_N)[0].tolist()]

    def suspicions(self, least: float) -> list[ReviewFinding]:
        """Return the suspicions by descending probability.

        An answer that contradicts a label shows a missing one only where that is more probable.
        """
        wrong = np.nonzero((self._wrong_N >= least) & ~self.truth.crowd_N)[0].tolist()
        figures_N = {name: value_N.tolist() for name, value_N in self.evidence.named_N.items()}
        figures_N |= {
            f"p_{kind}": share_N.tolist() for kind, share_N in zip(LABEL_KINDS, self.found.kind_NK.T, strict=True)
        }
        findings = [
            self._of_label(n, {name: v[n] for name, v in figures_N.items() if math.isfinite(v[n])}) for n in wrong
        ]
        told = {self._answers[n]: self._probability[n] for n in wrong}
        for place, d in enumerate(self.answers_d.tolist()):
            if self.found.missing_d[place] >= max(least, told.get(d, 0.0)):
                findings.append(self._of_answer(place, d))
        return sorted(findings, key=lambda item: -item.probability)

    def by_answers_alone(self, planted: int) -> str:
        """Return what the number of labels expected to be wrong rests on, where nobody asked about the labels."""
        unanswered_N = (self.compared.partner_N < 0) & (self.compared.rival_N < 0) & ~self.truth.crowd_N
        expected, of_unanswered = float(self._wrong_N.sum()), float(self._wrong_N[unanswered_N].sum())
        labels = counted(int(unanswered_N.sum()), "label")
        rests_on = f"simulated models, since faults are planted only into {LEAST_LABELS} labels or more"
        if planted:
            rests_on = f"{planted} faults planted into one half of these labels at a time, by which the other is judged"
        return (
            f"these labels are judged by answers alone: of the {expected:.1f} that are expected to be wrong "
            f"{of_unanswered:.1f} are among {labels} that no answer is near, and an object that the model misses "
            "looks the same; only likelihoods of the labels tell them apart (the trainer's command review, uv run "
            f"apps/trainer review MODEL ANNOTATIONS, computes them); the figure rests on {rests_on}"
        )

    def _finding(self, image: int, d: int, **fields: Any) -> ReviewFinding:
        """Return a finding with the rank of the answer that speaks for it, -1 for none, and what it proposes."""
        answer = proposal = None
        if d >= 0:
            answer = self._ranks[d]
            proposal = Proposal(self.detections.table.labels[self._said[d]], self._said_boxes[d], self._scores[d])
        image_id, name = self.truth.image_ids[image], self.truth.file_names[image]
        return ReviewFinding(image_id=image_id, image=name, answer=answer, proposal=proposal, **fields)

    def _of_label(self, n: int, figures: Mapping[str, float] | None = None) -> ReviewFinding:
        return self._finding(
            self._images[n],
            self._answers[n],
            object=self._places[n],
            kind=self._kinds[n],
            probability=self._probability[n],
            label=self.truth.categories[self._names[n]],
            box_xyxy=self._boxes[n],
            evidence=figures or {},
        )

    def _of_answer(self, place: int, d: int) -> ReviewFinding:
        figures = {"confidence": float(self.compared.confidence_D[d]), "unmatched": self.compared.unmatched}
        return self._finding(
            int(self.detections.image_D[d]),
            d,
            object=None,
            kind="missing",
            probability=float(self.found.missing_d[place]),
            label=None,
            box_xyxy=None,
            evidence=figures,
        )
