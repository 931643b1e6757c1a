"""Chooses how several sets of answers are fused, or which is kept alone, on a few annotated images.

Fusion can lower AP below that of the better set: weighted boxes fusion divides the score of a box by the number of sets
that could have found it, so that a weaker set pulls down what the better one found alone, and scores of different
meaning sort the boxes wrongly. Weights and calibrated scores mend that on some data, so they are tried.

The highest of several AP on a few images is often that by chance: a fusion is chosen only if its gain is surely above
one that is worth a second set of answers.

Shapes: I images, K categories, D detections, B resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coord_codec import InputError
from coord_codec.counts import counted, fixed
from coord_eval.boxes.detections import Detections
from coord_eval.calibration.calibration import Calibration, fit_calibration, out_of_fold
from coord_eval.fusion.columns import fuse_detections
from coord_eval.match.matching import Scored
from coord_eval.metrics.coco import ApTable
from coord_eval.metrics.draws import draw_weights, interval
from coord_eval.metrics.figures import Figures
from coord_eval.metrics.sums import mean_of_present
from coord_eval.settings import FusionRule

_SHARES = (1.0, 2.0, 4.0, 8.0)
"""Weights of the best set that are tried, where each other set has 1."""
_LEAST_GAIN, _ERRORS = 0.01, 1.5
"""A fusion is chosen if its gain, less so many standard errors of it, is above this.

Where the true gain is about 0, of ten other halves of the images one or two gained less than -.003 by what gained more
than two standard errors here, without the least gain: what is drawn for the choice is lacking on the other side. Where
another set may be as good, to keep the best one is no surer than a fusion that gains more than a standard error.
"""


@dataclass(frozen=True)
class FusionTrial:
    """One way to use several sets of answers, and its AP on the annotated images.

    Attributes:
        name: what it is, for people
        ap: its AP; calibrated scores are those of maps of other folds
        gain: `ap` minus that of the best set alone
        low: lower end of the paired 95 % interval of the gain over images
        high: upper end
        standard_error: of the gain, the larger one of those over images (by resamples) and over categories, since an AP
            that is a mean over many rare categories varies more between sets of images than resamples of one set show
        alone: name of the set that is kept alone; None where all are fused
        weights: the weight of each set
        calibrated: whether the scores are calibrated first
    """

    name: str
    ap: float
    gain: float
    low: float
    high: float
    standard_error: float
    alone: str | None
    weights: tuple[float, ...]
    calibrated: bool

    @property
    def may_be_as_good(self) -> bool:
        """Whether it is not surely worse than the best set alone."""
        return self.gain + _ERRORS * self.standard_error > 0


@dataclass(frozen=True)
class FusionChoice:
    """What was tried, and what was chosen.

    Attributes:
        trials: each way that was tried, the best AP first
        chosen: the fusion with the highest gain of those that surely gain .01 (less 1.5 standard errors), or, where it
            is not sure which set is the best, that gain more than a standard error; without one, the best set alone
        calibrations: the map of each set, fitted to all annotated images; empty where the chosen one needs none
        images: number of annotated images
        notes: why calibrated scores were not tried, where they were not
    """

    trials: tuple[FusionTrial, ...]
    chosen: FusionTrial
    calibrations: Mapping[str, Calibration]
    images: int
    notes: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield the AP that each trial had on the annotated images, and what was chosen."""
        yield f"held-out AP on {counted(self.images, 'annotated image')}, and the difference from the best file alone:"
        for trial in self.trials:
            bounds = f"{fixed(trial.gain, 4, '+')} [{fixed(trial.low, 4, '+')}, {fixed(trial.high, 4, '+')}]"
            mark = "  <- chosen" if trial is self.chosen else ""
            yield f"  {trial.ap:.4f}  {'' if trial.alone and not trial.gain else bounds}  {trial.name}{mark}"
        if self.chosen.alone:
            yield (
                f"no fusion surely gains {_LEAST_GAIN:g} (its gain less {_ERRORS:g} standard errors; more than one "
                "where it is not sure which file is the best), so the best file is kept as it is"
            )
            others = [row for row in self.trials if row.alone and row is not self.chosen]
            if near := [row.name for row in others if row.may_be_as_good]:
                yield f"{', '.join(near)} may be as good: annotate more images to know"


def choose_fusion(
    lists: Mapping[str, Figures],
    rule: FusionRule | None = None,
    *,
    weights: Sequence[float] | None = None,
    seed: int = 0,
    resamples: int = 200,
) -> FusionChoice:
    """Choose calibration and weights on annotated images, or the best set of answers alone.

    Args:
        lists: by name, what `coord_eval.score` returned for each, with the same ground truth
        rule: how boxes are fused; None for weighted boxes fusion at its default IoU
        weights: the only weights to try; None for one, two, four and eight times as much for the best set as for
            each other
        seed: seed of the folds of the calibrations and of the resamples
        resamples: number of resamples of the images

    Raises:
        InputError: for fewer than two sets, or without an object of a known label, so that there is no AP
    """
    if len(lists) < 2:
        raise InputError(f"fuse: expected at least two files to choose from, found {len(lists)}")
    truth = next(iter(lists.values())).truth
    notes: list[str] = []
    calibrations: dict[str, Calibration] = {}
    try:
        calibrations = {name: fit_calibration(scored, seed=seed) for name, scored in lists.items()}
    except InputError as error:
        notes.append(f"calibrated scores are not tried: {error}")
    raw = [scored.detections for scored in lists.values()]
    mapped = [scored.detections.changed(score_N=out_of_fold(scored, seed)) for scored in lists.values() if calibrations]

    images = len(truth)
    weights_BI = np.concatenate([np.ones((1, images), np.int32), *draw_weights(images, resamples, seed)])

    def by_category(detections: Detections) -> np.ndarray:
        """Return AP [1 + B, K] of all images, then of resamples of them."""
        scored = Scored(truth=truth, detections=detections, score_source="results", bins=1000)
        ap_BK: np.ndarray = ApTable(truth, detections, scored.coco_matches).average_precision(weights_BI).mean(axis=1)
        return ap_BK[:, ~np.isnan(ap_BK[0])]

    alone = {name: by_category(scored.detections) for name, scored in lists.items()}
    best = max(alone, key=lambda name: alone[name][0].sum())
    best_BK = alone[best]
    if not best_BK.size:
        raise InputError("fuse: --ground-truth: no object of a known label, so that there is no AP to choose by")

    def trial(name: str, ap_BK: np.ndarray, *rest: object) -> FusionTrial:
        gain, *gain_B = mean_of_present(ap_BK - best_BK).tolist()
        bounds = interval(gain, np.array(gain_B))
        errors = [np.nanstd(gain_B), np.std(ap_BK[0] - best_BK[0]) / max(best_BK.shape[1] - 1, 1) ** 0.5]
        ap = float(ap_BK[0].mean())
        return FusionTrial(name, ap, gain, bounds["low"], bounds["high"], float(max(errors)), *rest)  # type: ignore[arg-type]

    ones = (1.0,) * len(lists)
    trials = [trial(f"{name} alone", alone[name], name, ones, False) for name in lists]
    tried = [tuple(weights)] if weights else [tuple(w if name == best else 1.0 for name in lists) for w in _SHARES]
    rule = rule or FusionRule()
    if rule.method == "wbf" and any(run.scores_D.min(initial=0) < 0 for run in raw):
        notes.append("scores as they are are not tried: some are below 0, and wbf weighs boxes by them")
        raw = []
    for is_calibrated, runs in ((False, raw), (True, mapped)):
        for own in tried if runs else ():
            fused, _ = fuse_detections(runs, rule, "box", own)
            listed = ", ".join(f"{name} {weight:g}" for name, weight in zip(lists, own, strict=True))
            name = f"fused, {'calibrated, ' * is_calibrated}weights {listed}"
            trials.append(trial(name, by_category(fused), None, own, is_calibrated))
    trials.sort(key=lambda row: -row.ap)
    chosen = sure_trial(trials, next(row for row in trials if row.alone == best))
    used = calibrations if chosen.calibrated else {}
    return FusionChoice(tuple(trials), chosen, used, images, tuple(notes))


def sure_trial(trials: Sequence[FusionTrial], kept: FusionTrial) -> FusionTrial:
    """Return the first fusion of some trials that is chosen in place of the best set alone, else this."""
    is_best_sure = not any(row.may_be_as_good for row in trials if row.alone and row is not kept)
    errors, least = (_ERRORS, _LEAST_GAIN) if is_best_sure else (1.0, 0.0)
    fusions = (row for row in trials if row.alone is None)
    return next((row for row in fusions if row.gain - errors * row.standard_error > least), kept)
