"""A metric as one row: what it computes, where it stands in `evaluation.json`, and how it is resampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

from coord_codec import InputError
from coord_eval.match.matching import Scored
from coord_eval.metrics.sums import Measure, ratio

_COUNTS = ("count", "objects", "images", "detections", "duplicates")


@dataclass(frozen=True)
class Figure:
    """A number that a metric contributes to intervals and comparisons.

    Attributes:
        name: its name; `*` stands for any text, for names that depend on the data
        goal: the best values: `high`, `low`, or `zero` for errors with a sign
        is_share: whether values lie in [0, 1], to which an interval is then limited
        headline: whether it is shown first, and tested for differences of runs
    """

    name: str
    goal: Literal["high", "low", "zero"] = "high"
    is_share: bool = True
    headline: bool = False

    def covers(self, name: str) -> bool:
        """Return whether the figure has this name."""
        return name == self.name or ("*" in self.name and fnmatchcase(name, self.name))


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One row of the table of metrics, `coord_eval.METRICS`.

    Attributes:
        name: key in `evaluation.json`
        documentation: one or two sentences, in Markdown, for the README
        measure: function of a scored set; it returns a function of image weights [B, I], the number of times that each
            of I images counts in each of B weightings, which returns values [B]; all that does not depend on the
            weights is computed once. None for a metric without intervals
        value: function of an `Evaluation` that returns the value in `evaluation.json`; by default that of `measure`
            with each image counted once
        place: where the value stands: `top` (a field of `Evaluation`), `analysis`, `metrics`, or `none` for a row that
            adds figures only
        figures: the numbers for intervals and comparisons; by default one with the name of the metric
        named: function of the values of `measure` that returns the numbers by the names of `figures`; by default the
            values themselves, or the only number
        needs: whether a set has what the metric needs
        absent: value in `evaluation.json` where it has not

    Example:
        >>> from coord_eval import ratio_over_images
        >>> def missed(scored):
        ...     return ratio_over_images(scored.sum_objects(scored.matches.iou_N < 0.5), scored.objects_per_image)
        >>> row = Metric(name="missed", documentation="Share of objects without a box.", measure=missed)
        >>> row.figures
        (Figure(name='missed', goal='high', is_share=True, headline=False),)
    """

    name: str
    documentation: str
    measure: Callable[[Scored], Measure] | None = None
    value: Callable[[Any], Any] | None = None
    place: Literal["top", "analysis", "metrics", "none"] = "metrics"
    figures: tuple[Figure, ...] = ()
    named: Callable[[Any], Mapping[str, np.ndarray]] | None = None
    needs: Callable[[Scored], bool] | None = None
    absent: Any = None

    def __post_init__(self) -> None:
        if self.measure is None and self.value is None:
            raise InputError(f"metric {self.name}: expected a measure or a value, found neither")
        if self.measure is not None and self.named is None and not self.figures:
            object.__setattr__(self, "figures", (Figure(self.name),))

    def is_defined(self, scored: Scored) -> bool:
        """Return whether a set has what the metric needs."""
        return self.needs is None or self.needs(scored)

    def value_of(self, evaluation: Scored) -> Any:
        """Return the value as it stands in `evaluation.json`: plain types."""
        if not self.is_defined(evaluation):
            return self.absent
        if self.value is not None:
            return self.value(evaluation)
        assert self.measure is not None
        return point(self.measure(evaluation), evaluation)

    def numbers(self, scored: Scored) -> Callable[[np.ndarray], Mapping[str, np.ndarray]]:
        """Return the function of image weights [B, I] that returns the figures [B] by name, NaN where undefined."""
        if self.measure is None or not self.is_defined(scored):
            names = [figure.name for figure in self.figures if "*" not in figure.name]
            return lambda weights_BI: dict.fromkeys(names, np.full(len(weights_BI), np.nan))
        measure = self.measure(scored)

        def numbers(weights_BI: np.ndarray) -> Mapping[str, np.ndarray]:
            values = measure(weights_BI)
            if self.named is not None:
                return self.named(values)
            return values if isinstance(values, Mapping) else {self.name: values}

        return numbers


def point(measure: Measure, scored: Scored) -> Any:
    """Return the values of a measure with each image counted once, as plain numbers; 0 where a denominator is 0."""
    return _plain(measure(np.ones((1, len(scored.truth)), np.int32)))


def _plain(values: Any, name: str = "") -> Any:
    if isinstance(values, Mapping):
        return {key: _plain(value, key) for key, value in values.items()}
    return int(values[0]) if name in _COUNTS else float(np.nan_to_num(values[0]))


def ratio_over_images(numerator_I: np.ndarray, denominator_I: np.ndarray) -> Measure:
    """Return the measure that divides two sums over images; undefined where the denominator is 0.

    Args:
        numerator_I: contribution of each image
        denominator_I: likewise; ones for the mean over images
    """
    numerator_I, denominator_I = np.asarray(numerator_I, np.float64), np.asarray(denominator_I, np.float64)
    return lambda weights_BI: ratio(weights_BI @ numerator_I, weights_BI @ denominator_I)
