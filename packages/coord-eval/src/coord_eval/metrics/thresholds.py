"""Precision, recall and F1 against the score threshold, and the threshold for a precision or recall that is wanted.

Shapes: D detections, I images, P points of the curve, K categories, B resamples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_eval.boxes.sorting import stable_order
from coord_eval.match.matching import Scored
from coord_eval.metrics.detection import ScoreCurve
from coord_eval.metrics.draws import draw_weights, interval

_POINTS = 100
"""Largest number of thresholds of a curve, besides that of the best F1."""
_SHOWN = 4
"""Most labels whose own thresholds are printed."""
_RATES = ("precision", "recall", "f1")
_NORMAL = 1.959964
"""The 97.5 % quantile of the normal distribution, for 95 % intervals."""


@dataclass(frozen=True)
class ClassRates:
    """Precision and recall of one category at a threshold, with their 95 % intervals (Wilson 1927).

    Attributes:
        objects: number of objects
        boxes: number of boxes with at least that score
        precision: share of the boxes that are hits; 0 without a box
        precision_low: lower end of its interval
        precision_high: upper end
        recall: share of the objects that are hit; 0 without an object
        recall_low: lower end of its interval
        recall_high: upper end
    """

    objects: int
    boxes: int
    precision: float
    precision_low: float
    precision_high: float
    recall: float
    recall_low: float
    recall_high: float


@dataclass(frozen=True)
class Threshold:
    """A score threshold, and what it gives at an IoU of .5 on the images of the curve.

    Attributes:
        value: the threshold: boxes with at least this score are kept
        wanted: what was asked for, such as `precision=0.9`
        precision: share of the kept boxes that are hits
        recall: share of the objects that are hit
        f1: their harmonic mean
        intervals: 95 % intervals over images of the three, as `low` and `high`
        classes: the same of each category
        before: of a threshold of calibrated scores the same one as the scores were, by label, under "" for labels
            without a map of their own; None where no score reaches it
        note: the chance that other images have the wanted precision or recall, and from which score on it is all but
            sure; empty where none was wanted
    """

    value: float
    wanted: str
    precision: float
    recall: float
    f1: float
    intervals: Mapping[str, Mapping[str, float]]
    classes: Mapping[str, ClassRates]
    note: str = ""
    before: Mapping[str, float | None] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [
            f"{rate} {getattr(self, rate):.3f} [{self.intervals[rate]['low']:.3f}, {self.intervals[rate]['high']:.3f}]"
            for rate in _RATES
        ]
        scores = [f"{name} {value:.4g}".strip() for name, value in self.before.items() if value is not None]
        if len(scores) > _SHOWN:
            scores = [*scores[:_SHOWN], f"and {len(scores) - _SHOWN} more labels"]
        before = f" ({', '.join(scores)} before calibration)" if scores else ""
        return f"score of at least {self.value:.4g}{before}: " + ", ".join(parts)


@dataclass(frozen=True)
class ThresholdCurve:
    """Precision, recall and F1 at IoU .5 of the boxes with at least a given score.

    Attributes:
        points: rows `threshold, precision, recall, f1` by descending threshold, at most 100 and that of the best F1;
            the last keeps every box
        intervals: for each point the lower and upper end of the 95 % intervals over images: rows `precision low, high,
            recall low, high, f1 low, high`
        classes: for each category its number of `objects`, and at each point the number of its `boxes` and `hits`
    """

    points: tuple[tuple[float, float, float, float], ...]
    intervals: tuple[tuple[float, float, float, float, float, float], ...]
    classes: Mapping[str, Mapping[str, Any]]

    def __post_init__(self) -> None:
        if len(self.intervals) != len(self.points):
            raise InputError(f"intervals: expected a row for each of {len(self.points)}, found {len(self.intervals)}")

    def choose(
        self, *, precision: float | None = None, recall: float | None = None, careful: bool = False
    ) -> Threshold:
        """Return the threshold with the highest recall at a precision, the highest precision at a recall, or best F1.

        A threshold with the wanted precision on these images misses it on about half of all other sets.

        Args:
            precision: the least precision
            recall: the least recall; neither of them for the best F1
            careful: choose a threshold at which the lower end of the 95 % interval reaches what is wanted

        Raises:
            InputError: if both are given, or what is wanted cannot be reached; the message says what can
        """
        if precision is not None and recall is not None:
            raise InputError("threshold: expected a precision or a recall, found both; each has a threshold of its own")
        for name, value in (("precision", precision), ("recall", recall)):
            if value is not None and not 0 < value <= 1:
                raise InputError(f"threshold: {name}: expected a share above 0 and up to 1, found {value!r:.80}")
        if not self.points:
            raise InputError("threshold: there is no box or no object, so no threshold can be chosen")
        table = np.array(self.points)
        if precision is None and recall is None:
            return self._at(int(table[:, 3].argmax()), "best f1")
        name, wanted = ("precision", precision) if precision is not None else ("recall", recall)
        assert wanted is not None
        own, other = (1, 2) if name == "precision" else (2, 1)
        reached_P = np.array(self.intervals)[:, 2 * own - 2] if careful else table[:, own]
        fits = np.nonzero(reached_P >= wanted)[0]
        if not len(fits):
            best, most = table[int(reached_P.argmax())], reached_P.max()
            bound = "highest lower end of its interval is" if careful else "highest is"
            raise InputError(
                f"threshold: a {name} of {wanted:g} cannot be reached: the {bound} {most:.3f}, at a score of "
                f"{best[0]:.4g}, with a {_RATES[other - 1]} of {best[other]:.3f}; ask for less"
            )
        return self._at(int(fits[table[fits, other].argmax()]), f"{name}={wanted:g}", careful)

    def at(self, threshold: float) -> Threshold:
        """Return what a threshold gives: the values of the highest point of the curve that is not above it."""
        below = [i for i, row in enumerate(self.points) if row[0] >= threshold]
        if not below:
            raise InputError(f"threshold: no box has a score of at least {threshold:g}")
        return self._at(below[-1], f"score={threshold:g}")

    def _at(self, i: int, wanted: str, careful: bool = False) -> Threshold:
        value, precision, recall, f1 = self.points[i]
        bounds = self.intervals[i]
        intervals = {rate: {"low": bounds[2 * r], "high": bounds[2 * r + 1]} for r, rate in enumerate(_RATES)}
        name, _, number = wanted.partition("=")
        note = "" if name not in ("precision", "recall") else self._chance(i, name, float(number), careful)
        classes = {label: _class_rates(row, i) for label, row in self.classes.items()}
        return Threshold(value, wanted, precision, recall, f1, intervals, classes, note)

    def _chance(self, i: int, name: str, wanted: float, careful: bool) -> str:
        """Return how probable it is that all images together have a precision or recall, and the careful threshold."""
        r = _RATES.index(name)
        low, high = self.intervals[i][2 * r : 2 * r + 2]
        spread = max((high - low) / (2 * _NORMAL), 1e-9)
        from statistics import NormalDist  # slow to import

        note = f"{NormalDist().cdf((self.points[i][1 + r] - wanted) / spread):.0%} chance of it on other images"
        if careful or low >= wanted:
            return note
        asked: dict[str, Any] = {name: wanted}
        try:
            value = self.choose(**asked, careful=True).value
        except InputError:
            return f"{note}; no threshold is sure to have it"
        return f"{note}; from a score of {value:.4g} on its interval lies above {wanted:g}"


def threshold_curve(scored: Scored, resamples: int = 200, seed: int = 0) -> ThresholdCurve:
    """Return the curve of a scored set, with intervals over images.

    Args:
        scored: the scored set, for example an `Evaluation`; the thresholds of calibrated scores are probabilities
        resamples: number of resamples of the images for the intervals
        seed: their seed

    Example:
        >>> from coord_eval import score
        >>> truth = {
        ...     "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 100}],
        ...     "categories": [{"id": 1, "name": "cat"}],
        ...     "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 40, 40]}],
        ... }
        >>> box = {"image_id": 1, "category_id": 1}
        >>> right, wrong = {"bbox": [10, 10, 40, 40], "score": 0.9}, {"bbox": [55, 10, 40, 40], "score": 0.4}
        >>> curve = threshold_curve(score(truth, [{**box, **right}, {**box, **wrong}]))
        >>> curve.points
        ((0.9, 1.0, 1.0, 1.0), (0.4, 0.5, 1.0, 0.6666666666666666))
        >>> curve.choose(precision=0.8).value
        0.9
    """
    curve, images = ScoreCurve(scored), len(scored.truth)
    if not len(curve.scores_S) or not scored.objects_per_image.any():
        return ThresholdCurve((), (), {})
    best = int(curve(np.ones((1, images), np.int32))["f1"][0, 1:].argmax())
    spread = np.linspace(0, len(curve.scores_S) - 1, min(_POINTS, len(curve.scores_S))).round().astype(int)
    shown = np.array(sorted({*spread.tolist(), best}))
    thresholds_P = curve.scores_S[shown]

    def rates(weights_BI: np.ndarray) -> np.ndarray:
        values = curve(weights_BI)
        return np.stack([values[rate][:, 1:][:, shown] for rate in _RATES])

    point_3P = rates(np.ones((1, images), np.int32))[:, 0]
    draws = [rates(weights_BI) for weights_BI in draw_weights(images, resamples, seed)] if resamples else []
    bounds: list[Any] = [] if draws else [tuple(row) for row in np.repeat(point_3P.T, 2, axis=1).tolist()]
    draws_3BP = np.concatenate(draws, axis=1) if draws else point_3P[:, None]
    for p in range(len(shown) if draws else 0):
        rows = [interval(float(point_3P[r, p]), draws_3BP[r, :, p], share=True) for r in range(3)]
        bounds.append(tuple(row[end] for row in rows for end in ("low", "high")))
    points = tuple(zip(thresholds_P.tolist(), *point_3P.tolist(), strict=True))
    return ThresholdCurve(points, tuple(bounds), dict(_by_class(scored, thresholds_P)))


def threshold_table(scored: Scored) -> dict[str, Any]:
    """Return the curve as `points`, and the `best_threshold`."""
    return {"best": best_threshold(scored), "points": list(map(list, threshold_curve(scored, resamples=0).points))}


def best_threshold(scored: Scored) -> dict[str, float] | None:
    """Return the `threshold` with the best F1 at an IoU of .5, the highest of several, and the rates that it gives.

    None if there are fewer than two scores to choose between, or no hit.
    """
    curve = ScoreCurve(scored)
    if len(curve.scores_S) < 2:
        return None
    rates = curve(np.ones((1, len(scored.truth)), np.int32))
    best = int(rates["f1"][0, 1:].argmax())
    if not rates["f1"][0, 1 + best]:
        return None
    return {"threshold": float(curve.scores_S[best]), **{name: float(rates[name][0, 1 + best]) for name in _RATES}}


def _by_class(scored: Scored, thresholds_P: np.ndarray) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the counts of each category that has objects or boxes; unknown labels are part of the totals alone."""
    truth, detections, ranked = scored.truth, scored.detections, scored.ranked
    objects_K = np.bincount(truth.category_N[~truth.crowd_N], minlength=len(truth.categories)).tolist()
    rows_d = np.flatnonzero(~ranked.ignored_TD[0])
    rows_d = rows_d[stable_order(detections.category_D[rows_d], detections.scores_D[rows_d])]
    first_K1 = np.searchsorted(detections.category_D[rows_d], np.arange(len(truth.categories) + 1)).tolist()
    for k, label in enumerate(truth.categories):
        own_d = rows_d[first_K1[k] : first_K1[k + 1]]
        if objects_K[k] or len(own_d):
            hit_d = own_d[ranked.hit_TD[0][own_d]]
            scores = {"boxes": detections.scores_D[own_d], "hits": detections.scores_D[hit_d]}
            counts = {key: (len(s) - np.searchsorted(s, thresholds_P, "left")).tolist() for key, s in scores.items()}
            yield label, {"objects": objects_K[k], **counts}


def _class_rates(row: Mapping[str, Any], i: int) -> ClassRates:
    objects, boxes, hits = row["objects"], row["boxes"][i], row["hits"][i]
    precision, recall = wilson(hits, boxes), wilson(hits, objects)
    return ClassRates(objects, boxes, *precision, *recall)


def wilson(successes: int, trials: int) -> tuple[float, float, float]:
    """Return a share and the ends of its 95 % interval (Wilson 1927); 0, 0 and 1 without trials.

    Example:
        >>> [round(value, 3) for value in wilson(9, 10)]
        [0.9, 0.596, 0.982]
    """
    if not trials:
        return 0.0, 0.0, 1.0
    share, z2 = successes / trials, _NORMAL**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _NORMAL / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return share, max(centre - half, 0.0), min(centre + half, 1.0)
