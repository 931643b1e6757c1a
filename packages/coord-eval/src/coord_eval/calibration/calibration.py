"""Calibration: a map from scores to the probability that a box has an IoU above .5 with an object of its label.

The map is strictly monotone, so that the order of the boxes of a label, and with it average precision, stays as it is.
It is isotonic regression (Zadrozny and Elkan 2002) of a few groups of boxes of similar score, smoothed towards the
overall share of hits, with straight lines between the groups, and a small part of the score itself, so that no two
scores become equal. Scores need be no shares: of margins and of per cent that part is x / (1 + |x|), where x is -1 and
1 at the lowest and the highest score of the fit, so that others may lie beyond. A category with enough boxes has a map
of its own, smoothed towards that of all.

Shapes: D detections.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_codec import InputError, geometry_of
from coord_codec.counts import counted
from coord_codec.files import read_json, write_text
from coord_eval.boxes.detections import Detections
from coord_eval.calibration.knots import Knots, fit_knots, interpolate
from coord_eval.intake.digests import digest_of_detections, digest_of_truth
from coord_eval.match.matching import Scored
from coord_eval.metrics.detection import PROBABILITIES
from coord_eval.metrics.thresholds import Threshold, ThresholdCurve, threshold_curve, wilson
from coord_eval.resampling.bootstrap import reliability_with_intervals

if TYPE_CHECKING:
    from coord_eval.intake.objects import ScoredObject
    from coord_eval.metrics.figures import Figures

VERSION = 1
"""Version of the file; increased when a field changes its meaning."""
LEAST = {"images": 20, "boxes": 50, "hits": 10, "misses": 2}
"""What a calibration needs."""
LEAST_OF_CLASS = {"boxes": 200, "hits": 20, "misses": 20}
"""What a category needs for a map of its own."""
_FOLDS = 5
"""Number of parts of the cross-validation."""
_TILT = 1e-3
"""Part of the score that is mixed in, so that the map is strictly monotone."""
_PRIOR_BOXES = 2.0
"""Weight in boxes of the overall share of hits in each group."""
_LEAST_OF_HIGHEST = 25
"""Fewest boxes of the group of the highest scores, of which a detector's list has few among many low ones.

A map that is flat above the mean of a large group is too low there: of the highest hundredth of a real one's boxes, .87
were hits, and .62 were expected with groups of equal size, .85 with this one.
"""
_PRIOR_BOXES_OF_CLASS = 20.0
"""Weight in boxes of the map of all categories in each group of one category."""


@dataclass(frozen=True)
class Calibration:
    """A map from scores to probabilities, and what it rests on.

    Attributes:
        knots: the map of all categories
        classes: the maps of categories with enough boxes
        score_source: the source of the scores that it maps, see `coord_eval.SCORE_SOURCES`
        range: lowest and highest score of those that it was fitted to, or 0 and 1 for scores that are shares
        fused: the rule by which near-duplicates were fused before, as `score(fuse=...)` takes it; None without one
        rests_on: `images`, `boxes`, `hits`, `iou` of a hit, digests of `ground_truth` and `predictions` and `seed`, and
            what the caller added
        reliability: `before` and `after`: `ece`, the 95 % interval of the error itself, and `bins`, rows `from, to,
            boxes, mean score, share of hits, low, high`. `after` is cross-validated: each image by a map of the others;
            `before` is empty for scores that are no shares
        thresholds: precision and recall against the threshold of a calibrated score, cross-validated as well
    """

    knots: Knots
    score_source: str
    thresholds: ThresholdCurve
    classes: Mapping[str, Knots] = field(default_factory=dict)
    range: tuple[float, float] = (0.0, 1.0)
    fused: str | None = None
    rests_on: Mapping[str, Any] = field(default_factory=dict)
    reliability: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not -math.inf < self.range[0] < self.range[1] < math.inf:
            raise InputError(f"range: expected a lowest and a higher finite score, found {self.range!r:.80}")
        for name, knots in (("knots", self.knots), *self.classes.items()):
            ascending = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(knots))
            are_shares = all(0 <= value <= 1 for knot in knots for value in knot[self.range != (0, 1) :])
            if not knots or not ascending or not are_shares:
                raise InputError(
                    f"{name}: expected pairs of score and probability in [0, 1], both ascending, found {knots!s:.80}"
                )

    def __call__(self, scores: Sequence[float] | np.ndarray, labels: Sequence[str] | None = None) -> np.ndarray:
        """Return the calibrated scores [D].

        Args:
            scores: scores of the kind that it was fitted to
            labels: the label of each; None, or a label without a map of its own, for the map of all

        Raises:
            InputError: if a score is not finite, or not in [0, 1] although the map is for scores that are shares
        """
        score_D = np.asarray(scores, np.float64)
        share_D = self._share_of(score_D)
        if score_D.size and not (np.isfinite(score_D).all() and share_D.min() >= 0 and share_D.max() <= 1):
            wanted = "scores in [0, 1], as those that it was fitted to" if self.range == (0, 1) else "finite scores"
            raise InputError(
                f"calibration: expected {wanted}, found {score_D.min():g} to {score_D.max():g}; calibrate scores of "
                "another unit with a map of their own"
            )
        probability_D = interpolate(self.knots, score_D)
        if labels is not None and self.classes:
            for label, knots in self.classes.items():
                own = [d for d, name in enumerate(labels) if name == label]
                probability_D[own] = interpolate(knots, score_D[own])
        calibrated_D: np.ndarray = (1 - _TILT) * probability_D + _TILT * share_D
        return calibrated_D

    def _share_of(self, score_D: np.ndarray) -> np.ndarray:
        """Return scores as numbers from 0 to 1, in the same order."""
        low, high = self.range
        if (low, high) == (0, 1):
            return score_D
        x_D = (2 * score_D - (low + high)) / (high - low)
        share_D: np.ndarray = 0.5 + 0.5 * x_D / (1 + np.abs(x_D))
        return share_D

    def before(self, calibrated: float, label: str | None = None) -> float | None:
        """Return the score that the map takes to a calibrated one: the least of those that reach it; None without one.

        Args:
            calibrated: a calibrated score
            label: whose map to take; None for that of all
        """
        labels = None if label is None else [label]
        low, high = self.range
        if self.range != (0, 1):  # scores may lie beyond those of the fit
            low, high = 2 * low - high, 2 * high - low
        if self([high], labels)[0] < calibrated:
            return None
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self([middle], labels)[0] >= calibrated else (middle, high)
        return high

    def apply(self, objects: Sequence[ScoredObject]) -> list[ScoredObject]:
        """Return objects with calibrated scores.

        Example:
            >>> from coord_eval import ScoredObject
            >>> calibration = Calibration(((0.2, 0.1), (0.8, 0.9)), "constant", ThresholdCurve((), (), {}))
            >>> cat = ScoredObject("cat", (0, 0, 1, 1), (0, 0, 1000, 1000), (0, 40), score=0.5)
            >>> [round(o.score, 4) for o in calibration.apply([cat])]
            [0.5]
        """
        scores = self([o.score for o in objects], [o.desc for o in objects])
        return [o._replace(score=score) for o, score in zip(objects, scores.tolist(), strict=True)]

    def applied(self, detections: Detections, score_source: str, fusion: Mapping[str, Any]) -> tuple[Detections, str]:
        """Return detections with calibrated scores, and a note on what the calibration rests on.

        Args:
            detections: the detections
            score_source: the source of their scores
            fusion: how near-duplicates were fused, as in `Evaluation.fusion`

        Raises:
            InputError: if the calibration is for other scores
        """
        self.check(score_source, fusion.get("rule"))
        labels = [detections.table.labels[k] for k in detections.category_D.tolist()]
        note = f"scores are calibrated: P(IoU > .5), from {self.rests_on.get('boxes', 'unknown')} boxes"
        (low, high), scores_D = self.range, detections.scores_D
        if self.range != (0, 1) and len(scores_D) and scores_D.max() <= 1 < low + (high - low) / 10:
            note += f"; it is for scores from {low:.4g} to {high:.4g}, and these end at {scores_D.max():.4g}: one unit?"
        if self.rests_on.get("predictions") == digest_of_detections(detections):
            note = f"{note}, which are these very ones: see the cross-validated reliability in the calibration instead"
        return detections.changed(score_N=self(detections.scores_D, labels)), note

    def choose(
        self, *, precision: float | None = None, recall: float | None = None, careful: bool = False
    ) -> Threshold:
        """Return the threshold of calibrated scores for a precision or recall, else for the best F1.

        Its `before` is the same threshold of the scores as they were.

        Raises:
            InputError: if it cannot be reached
        """
        chosen = self.thresholds.choose(precision=precision, recall=recall, careful=careful)
        before = {"": self.before(chosen.value), **{name: self.before(chosen.value, name) for name in self.classes}}
        return replace(chosen, before=before)

    def lines(self) -> Iterator[str]:
        """Yield what it rests on, how reliable scores are, and thresholds, of scores as they were and calibrated."""
        rests_on = self.rests_on
        own = f": {', '.join(sorted(self.classes))}" if self.classes else ""
        yield (
            f"fitted to {rests_on['boxes']:,} boxes in {rests_on['images']:,} images, {rests_on['hits']:,} of them "
            f"hits, scored by {self.score_source}: {counted(len(self.knots), 'knot')}, "
            f"{counted(len(self.classes), 'category has', 'categories have')} a map of its own{own}"
        )
        if not self.reliability["before"]:
            low, high = self.range
            yield f"the scores, from {low:.4g} to {high:.4g}, are no probabilities, and become such"
        for title, key in (("before", "before"), ("after, cross-validated", "after")):
            if row := self.reliability[key]:
                interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
                yield f"calibration error {title}: {row['ece']:.3f}; that of more images lies in {interval}"
        if bins := self.reliability["after"]["bins"]:
            first, last, boxes, mean, share, *_ = bins[-1]
            _, low, high = wilson(round(share * boxes), boxes)
            verdict = "too low" if mean < low else "too high" if mean > high else ""
            yield (
                f"the highest scores, {first:.1f} to {last:.1f}: {counted(boxes, 'box', 'boxes')}, mean {mean:.3f}, of "
                f"which {share:.3f} [{low:.3f}, {high:.3f}] hit{': they are ' * bool(verdict)}{verdict}"
            )
        asked: tuple[dict[str, Any], ...] = ({"precision": 0.9}, {"recall": 0.95}, {})
        for wanted in asked:
            title = ", ".join(f"{name} {value:g}" for name, value in wanted.items()) or "best F1"
            try:
                threshold = self.choose(**wanted)
            except InputError as error:
                yield f"{title}: {str(error).removeprefix('threshold: ')}"
            else:
                yield f"{title}: {threshold}" + (f"; {threshold.note}" if threshold.note else "")

    def check(self, score_source: str, fused: str | None = None) -> None:
        """Check that the map is for scores of this source.

        Raises:
            InputError: if it was fitted to scores of another source, or to boxes that were fused in another way
        """
        if score_source != self.score_source:
            raise InputError(
                f"calibration: it is for scores of the source {self.score_source}, and these are of {score_source}; "
                "choose the score source, or calibrate again"
            )
        if fused != self.fused:
            raise InputError(
                f"calibration: it is for boxes fused by {self.fused or 'nothing'}, and these are fused by "
                f"{fused or 'nothing'}; fuse them alike, or calibrate again"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, which `from_dict` reads."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "calibration") -> Calibration:
        """Return the calibration that `to_dict` wrote.

        Raises:
            InputError: if the values are of another version, or not those of a calibration
        """
        found = values.get("version") if isinstance(values, Mapping) else type(values).__name__
        if found != VERSION:
            raise InputError(f"{where}: version: expected a calibration of version {VERSION}, found {found!r:.80}")
        from coord_codec.records import validated

        return validated(cls, values, where)

    def to_json(self) -> str:
        """Return `to_dict` as JSON text; all numbers are finite."""
        return json.dumps(self.to_dict(), allow_nan=False) + "\n"

    def write(self, path: str | Path) -> None:
        """Write `to_json` into a file, atomically."""
        write_text(path, self.to_json())

    @classmethod
    def read(cls, source: Calibration | str | Path) -> Calibration:
        """Return the calibration of a file that `write` wrote; a calibration as it is.

        Raises:
            InputError: naming the file
        """
        return source if isinstance(source, Calibration) else cls.from_dict(read_json(source), str(source))


def fit_calibration(
    evaluation: Figures, *, seed: int = 0, resamples: int = 200, rests_on: Mapping[str, Any] | None = None
) -> Calibration:
    """Fit a calibration to scored answers, on images that the model was not trained on.

    The scores may be of any unit, such as margins or per cent.

    A box is a hit if COCO's matching at an IoU of .5 pairs it with an object of its label; boxes that COCO ignores are
    left out.

    Args:
        evaluation: what `coord_eval.score` returned
        seed: seed of the folds and of the resamples
        resamples: number of resamples of the images for the intervals
        rests_on: what else should stand in the file, such as the name of the model

    Raises:
        InputError: if scores do not tell boxes apart, or there are too few images, boxes, hits or misses; the message
            says what is needed
    """
    if evaluation.shapes and not geometry_of(evaluation.shapes["geometry"]).has_extent:
        raise InputError("calibration: points have no IoU, so their scores have no probability of one above .5")
    if len(evaluation.detections) and evaluation.score_source not in PROBABILITIES:
        raise InputError(
            f"calibration: expected scores that tell boxes apart, found those of the source {evaluation.score_source}; "
            "choose another score source, or predict with scores"
        )
    counted_D = ~evaluation.ranked.ignored_TD[0]
    hit_D = evaluation.ranked.hit_TD[0]
    images = len(evaluation.truth)
    found = {
        "images": images,
        "boxes": int(counted_D.sum()),
        "hits": int(hit_D[counted_D].sum()),
        "misses": int((counted_D & ~hit_D).sum()),
    }
    if lacking := [f"{least} {name} (found {found[name]})" for name, least in LEAST.items() if found[name] < least]:
        raise InputError(f"calibration: too little to rest on: it needs at least {', '.join(lacking)}; add images")
    if len(np.unique(evaluation.detections.scores_D[counted_D])) < 2:
        raise InputError("calibration: all boxes have the same score, which cannot tell hits from misses")
    if evaluation.calibrated:
        raise InputError("calibration: these scores are calibrated already; fit it to the scores as they were")
    knots, classes = _fit(evaluation, np.ones(images, bool))
    calibrated = evaluation.with_scores(out_of_fold(evaluation, seed), evaluation.score_source)
    range_ = _range_of(evaluation.detections.scores_D)
    return Calibration(
        knots=knots,
        score_source=evaluation.score_source,
        thresholds=threshold_curve(calibrated, resamples, seed),
        classes=classes,
        range=range_,
        fused=evaluation.fusion.get("rule"),
        rests_on={
            **found,
            "iou": 0.5,
            "ground_truth": digest_of_truth(evaluation.truth),
            "predictions": digest_of_detections(evaluation.detections),
            "seed": seed,
            "folds": _FOLDS,
            **(rests_on or {}),
        },
        reliability={
            "before": reliability_with_intervals(evaluation, resamples, seed) if range_ == (0, 1) else {},
            "after": reliability_with_intervals(calibrated, resamples, seed),
        },
    )


def _range_of(scores_D: np.ndarray) -> tuple[float, float]:
    """Return the lowest and highest score; 0 and 1 for scores that may be shares.

    Raises:
        InputError: if one is not finite
    """
    low, high = float(scores_D.min(initial=0)), float(scores_D.max(initial=1))
    if not math.isfinite(high - low):
        raise InputError(f"calibration: expected finite scores, found {low:g} to {high:g}; leave such boxes out")
    return (0.0, 1.0) if (low, high) == (0, 1) else (float(scores_D.min()), float(scores_D.max()))


def _fit(scored: Scored, used_I: np.ndarray) -> tuple[Knots, dict[str, Knots]]:
    """Return the map of all categories, and those of categories with enough boxes, from the images used."""
    detections, ranked = scored.detections, scored.ranked
    chosen = np.nonzero(~ranked.ignored_TD[0] & used_I[detections.image_D])[0]
    score_d, hit_d = detections.scores_D[chosen], ranked.hit_TD[0, chosen]
    knots = fit_knots(score_d, hit_d, float(hit_d.mean()) if len(hit_d) else 0.5, _PRIOR_BOXES, _LEAST_OF_HIGHEST)
    classes = {}
    for k, label in enumerate(scored.truth.categories):
        own_d = detections.category_D[chosen] == k
        counts = {"boxes": own_d.sum(), "hits": hit_d[own_d].sum(), "misses": (~hit_d[own_d]).sum()}
        if all(counts[name] >= least for name, least in LEAST_OF_CLASS.items()):
            classes[label] = fit_knots(score_d[own_d], hit_d[own_d], knots, _PRIOR_BOXES_OF_CLASS, _LEAST_OF_HIGHEST)
    return knots, classes


def out_of_fold(scored: Scored, seed: int) -> np.ndarray:
    """Return the calibrated score [D] of each box, by the map of the images of the other folds."""
    images = len(scored.truth)
    fold_I = np.random.default_rng(seed).permutation(images) % min(_FOLDS, images)
    fold_D = fold_I[scored.detections.image_D]
    names = [*scored.truth.categories, *scored.detections.unknown]
    labels = [names[k] for k in scored.detections.category_D.tolist()]
    after_D = np.zeros(len(scored.detections))
    range_ = _range_of(scored.detections.scores_D)
    for fold in range(_FOLDS):
        own = np.nonzero(fold_D == fold)[0]
        if len(own):
            knots, classes = _fit(scored, fold_I != fold)
            fitted = Calibration(knots, scored.score_source, ThresholdCurve((), (), {}), classes, range_)
            after_D[own] = fitted(scored.detections.scores_D[own], [labels[d] for d in own])
    return after_D
