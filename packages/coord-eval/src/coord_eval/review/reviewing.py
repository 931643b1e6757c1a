"""Judges every label of a ground truth by the answers of a model, and by the likelihood it gives the labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec.counts import counted
from coord_codec.files import InputError
from coord_eval.arguments import expect
from coord_eval.calibration import Calibration, digest_of, digest_of_detections, digest_of_truth
from coord_eval.detections import Detections
from coord_eval.ground_truth import GroundTruth, GroundTruthSource, load_ground_truth
from coord_eval.intake.answers import AnswerSettings, Loaded, PredictionSource, load_predictions
from coord_eval.intake.collecting import Collected, collect, collector_paused
from coord_eval.intake.joining import ImageIndex, LabelSettings
from coord_eval.predictions import Prediction
from coord_eval.review.confidence import Compared, compare
from coord_eval.review.evidence import Evidence, gather
from coord_eval.review.findings import Box, Finding, JudgedLabel, Proposal, Review
from coord_eval.review.likelihood import LabelLikelihood, read_likelihoods
from coord_eval.review.probability import LABEL_KINDS, Probabilities, probabilities

LEAST_PROBABILITY = 0.05
"""Probability from which on a suspicion is a finding, unless the caller says otherwise."""
_FARTHEST = 0.02
"""Distance in fractions of the image from which on a likelihood is about another box."""


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

    The model must not have learnt the labels that it judges: one that has repeats their faults.

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
    # Settings
    for name, value, kind in (("answers", answers, AnswerSettings), ("labels", labels, LabelSettings)):
        expect(name, value, kind)
    expect("least", least, float, int)
    if not 0 <= least <= 1:
        raise InputError(f"least: expected a probability in [0, 1], found {least!r}")

    # Reading
    truth = load_ground_truth(ground_truth)
    loaded = load_predictions(predictions)
    collected = collect(truth, loaded, answers, labels, score_source)
    detections = collected.detections
    notes = [*truth.notes, *collected.notes]
    if calibration is not None:
        fitted = calibration if isinstance(calibration, Calibration) else Calibration.read(calibration)
        detections, note = fitted.applied(detections, truth.categories, collected.score_source, {})
        notes.append(note)
    if not len(detections):
        notes.append("no answer has a box: every label is judged by its absence alone")
    index_N = _places(truth.image_N)
    records = read_likelihoods(likelihoods) if isinstance(likelihoods, (str, Path)) else likelihoods
    surprises = None
    if records is not None:
        surprises, told = _surprises(truth, index_N, records)
        notes += told

    # Evidence and probabilities
    compared = compare(truth, detections, calibration is not None)
    spread_D4 = _spreads(truth, detections, loaded, collected)
    evidence = gather(truth, detections, compared, spread_D4, surprises)
    found = probabilities(evidence.figures_NF, evidence.figures_dF, ~truth.crowd_N, surprises is not None)
    builder = _Builder(truth, collected.detections, compared, evidence, found, index_N)
    judged, findings = builder.judged(), builder.findings(least)
    if crowds := int(truth.crowd_N.sum()):
        notes.append(f"{counted(crowds, 'crowd region is', 'crowd regions are')} not judged")
    rests_on: dict[str, Any] = {
        "coord_eval": version("coord-eval"),
        "ground_truth": digest_of_truth(truth),
        "predictions": digest_of_detections(collected.detections),
        "likelihoods": None if records is None else digest_of([item.to_dict() for item in records]),
        "score_source": collected.score_source,
        "calibrated": calibration is not None,
        "spreads": spread_D4 is not None,
        "least": float(least),
        "rates": found.rates,
    }
    return Review(tuple(findings), tuple(judged), tuple(notes), rests_on, truth, collected.detections)


def _places(image_N: np.ndarray) -> np.ndarray:
    """Return the index of each label within its image."""
    seen: Counter[int] = Counter()
    places = []
    for image in image_N.tolist():
        places.append(seen[image])
        seen[image] += 1
    return np.array(places, np.int64)


def _spreads(truth: GroundTruth, detections: Detections, loaded: Loaded, collected: Collected) -> np.ndarray | None:
    """Return the standard deviation of each side of each answer in pixels; NaN where the predictions have none."""
    spread_D4 = np.full((len(detections), 4), np.nan)
    rows = dict(
        zip(
            zip(detections.image_D.tolist(), detections.rank_D.tolist(), strict=True),
            range(len(detections)),
            strict=True,
        )
    )
    index = ImageIndex(truth)
    for item in loaded:
        if not isinstance(item, Prediction) or item.coord_spread is None or item.tile or item.objects is not None:
            continue
        image = index.by_id(item.image_id) if item.image_id is not None else index.by_name(item.image or "")
        if image is None or image not in collected.answers or collected.answers[image][0] != item.text:
            continue  # several answers for one image
        width, height = truth.size_of(image)
        for rank, parsed in enumerate(collected.answers[image][1].objects):
            places = parsed.coord_indices
            if (
                len(places) == 4
                and parsed.order != "yxyx"
                and max(places) < len(item.coord_spread)
                and (image, rank) in rows
            ):
                sides = np.array([item.coord_spread[place] for place in places])
                spread_D4[rows[image, rank]] = sides * (width, height, width, height)
    return spread_D4 if np.isfinite(spread_D4).any() else None


def _surprises(
    truth: GroundTruth, index_N: np.ndarray, records: Sequence[LabelLikelihood]
) -> tuple[tuple[np.ndarray, np.ndarray], list[str]]:
    """Return how improbable the model finds the name and the box of each label, and notes.

    Both are log-odds against the label, less the median of the set, so that 0 is usual; labels without a record get 0.
    A box counts by its two most improbable coordinates, since a moved side leaves the others as they were.

    Raises:
        InputError: if a record is about a label that the ground truth does not have, or has with another name or box
    """
    index = ImageIndex(truth)
    rows = {key: n for n, key in enumerate(zip(truth.image_N.tolist(), index_N.tolist(), strict=True))}
    name_N, box_N = np.full(len(truth.image_N), np.nan), np.full(len(truth.image_N), np.nan)
    for record in records:
        image = index.by_id(record.image_id)
        n = None if image is None else rows.get((image, record.object))
        where = f"likelihoods: image {record.image_id!r}, object {record.object}"
        if n is None:
            raise InputError(f"{where}: the ground truth has no such label; were they made for these annotations?")
        _check_same(truth, n, record, where)
        probability = record.name_probability(truth.categories[truth.category_N[n]])
        if probability is not None:
            name_N[n] = -_log_odds(probability)
        surprise = _of_coordinates(record)
        if surprise is not None:
            box_N[n] = surprise
    regular_N = ~truth.crowd_N
    lacking = int((np.isnan(name_N) & np.isnan(box_N) & regular_N).sum())
    told = [f"{counted(lacking, 'label has', 'labels have')} no likelihood and are judged by the answers alone"]
    return (_usual_removed(name_N), _usual_removed(box_N)), told if lacking else []


def _check_same(truth: GroundTruth, n: int, record: LabelLikelihood, where: str) -> None:
    name = truth.categories[truth.category_N[n]]
    if record.desc is not None and record.desc != name:
        raise InputError(
            f"{where}: it is about {record.desc!r}, and the ground truth has {name!r} there; judge it again"
        )
    size = truth.sizes_I2[truth.image_N[n]]
    if record.bbox is not None and np.isfinite(size).all():
        x, y, w, h = truth.boxes_N4[n]
        own = np.array([x, y, x + w, y + h]) / np.tile(size, 2)
        if len(record.bbox) != 4 or np.abs(own - record.bbox).max() > _FARTHEST:
            raise InputError(
                f"{where}: it is about the box {list(record.bbox)}, and the ground truth has {own.round(4).tolist()} "
                "there; judge it again"
            )


def _of_coordinates(record: LabelLikelihood) -> float | None:
    if record.coord_window_mass:
        values = [-_log_odds(mass) for mass in record.coord_window_mass]
    elif record.coord_logprobs:
        values = [-value for value in record.coord_logprobs]
    else:
        return None
    return float(np.mean(sorted(values)[-2:]))


def _log_odds(probability: float) -> float:
    kept = min(max(probability, 1e-4), 1 - 1e-4)
    return math.log(kept / (1 - kept))


def _usual_removed(value_N: np.ndarray) -> np.ndarray:
    known_N = np.isfinite(value_N)
    if not known_N.any():
        return np.zeros(len(value_N))
    return np.where(known_N, np.clip(value_N - np.median(value_N[known_N]), -4, 12), 0.0)


class _Builder:
    """Makes records of arrays."""

    def __init__(
        self,
        truth: GroundTruth,
        detections: Detections,
        compared: Compared,
        evidence: Evidence,
        found: Probabilities,
        index_N: np.ndarray,
    ) -> None:
        self._truth, self._detections, self._compared = truth, detections, compared
        self._evidence, self._found, self._index_N = evidence, found, index_N
        self._names = [*truth.categories, *detections.unknown]
        self._wrong_N = found.kind_NK.sum(axis=1)
        self._kind_N = found.kind_NK.argmax(axis=1)

    def judged(self) -> list[JudgedLabel]:
        truth = self._truth
        return [
            JudgedLabel(
                image_id=truth.image_ids[truth.image_N[n]],
                object=int(self._index_N[n]),
                label=truth.categories[truth.category_N[n]],
                box_xyxy=_corners(truth.boxes_N4[n]),
                probability=float(self._wrong_N[n]),
                kind=LABEL_KINDS[self._kind_N[n]],
                answer=self._rank(self._answer(n)),
            )
            for n in np.nonzero(~truth.crowd_N)[0].tolist()
        ]

    def findings(self, least: float) -> list[Finding]:
        """Return the suspicions by descending probability; an answer that a suspected label is about is not missing."""
        truth, found = self._truth, self._found
        wrong = np.nonzero((self._wrong_N >= least) & ~truth.crowd_N)[0].tolist()
        findings = [self._of_label(n) for n in wrong]
        told = {self._answer(n) for n in wrong}
        for place, d in enumerate(self._evidence.answers_d.tolist()):
            if found.missing_d[place] >= least and d not in told:
                findings.append(self._of_answer(place, d))
        return sorted(findings, key=lambda item: -item.probability)

    def _answer(self, n: int) -> int:
        """Return the answer that speaks for the fault of a label: by its kind the rival, the partner or none."""
        kind = LABEL_KINDS[self._kind_N[n]]
        partner, rival = int(self._compared.partner_N[n]), int(self._compared.rival_N[n])
        return {"renamed": rival, "mixed": rival, "moved": partner}.get(kind, -1)

    def _rank(self, d: int) -> int | None:
        return None if d < 0 else int(self._detections.rank_D[d])

    def _proposal(self, d: int) -> Proposal | None:
        if d < 0:
            return None
        name = self._names[self._detections.category_D[d]]
        return Proposal(name, _corners(self._detections.boxes_D4[d]), float(self._detections.scores_D[d]))

    def _of_label(self, n: int) -> Finding:
        truth, image, d = self._truth, int(self._truth.image_N[n]), self._answer(n)
        figures = {name: float(values[n]) for name, values in self._evidence.named_N.items()}
        shares = dict(zip(LABEL_KINDS, self._found.kind_NK[n].tolist(), strict=True))
        return Finding(
            image_id=truth.image_ids[image],
            image=truth.file_names[image],
            object=int(self._index_N[n]),
            answer=self._rank(d),
            kind=LABEL_KINDS[self._kind_N[n]],
            probability=float(self._wrong_N[n]),
            label=truth.categories[truth.category_N[n]],
            box_xyxy=_corners(truth.boxes_N4[n]),
            proposal=self._proposal(d),
            evidence={name: value for name, value in figures.items() if math.isfinite(value)}
            | {f"p_{kind}": share for kind, share in shares.items()},
        )

    def _of_answer(self, place: int, d: int) -> Finding:
        truth, image = self._truth, int(self._detections.image_D[d])
        figures = {"confidence": float(self._compared.confidence_D[d]), "unmatched": self._compared.unmatched}
        return Finding(
            image_id=truth.image_ids[image],
            image=truth.file_names[image],
            object=None,
            answer=self._rank(d),
            kind="missing",
            probability=float(self._found.missing_d[place]),
            label=None,
            box_xyxy=None,
            proposal=self._proposal(d),
            evidence=figures,
        )


def _corners(box: Mapping[int, float] | np.ndarray) -> Box:
    x, y, w, h = (float(value) for value in box)
    return x, y, x + w, y + h
