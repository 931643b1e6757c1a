"""What a comparison holds, as its page reads it: below both, so that nothing imports in a circle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from coord_eval.evaluation import Evaluation


@dataclass(frozen=True)
class Difference:
    """One metric of a run compared with the first run.

    Attributes:
        value: the run's metric minus that of the first run
        low: lower end of the paired 95 % interval
        high: upper end
        share_better: share of the resamples in which the run is strictly better: higher, or lower if the metric is an
            error, or nearer to 0 if that error has a sign
        p: for the headline metrics, the p-value of a paired permutation test over images (the probability of at
            least this difference between equal runs), adjusted by Holm's method (1979) over these metrics and all runs;
            None for the other metrics, which are exploratory
        differs: whether `p` is below .05; among comparisons of equal runs at most 5 % have such a metric
    """

    value: float
    low: float
    high: float
    share_better: float
    p: float | None = None
    differs: bool = False

    @property
    def p_text(self) -> str:
        """The adjusted p-value as text, with a mark where the runs differ; empty for an exploratory metric."""
        return "" if self.p is None else f"{self.p:.3f}{' *' if self.differs else ''}"


@dataclass(frozen=True, eq=False)
class ComparedRuns:
    """What a `Comparison` holds: the metrics of several runs, and the differences of each run from the first.

    Attributes:
        metrics: metrics of each run with their intervals
        differences: paired difference of each metric, for each run but the first
        class_gains: AP minus the first run's AP by label, largest change first, for each run but the first
        score_sources: score by which the detections of each run are sorted
        notes: conditions that matter when interpreting the metrics
        resamples: number of resamples
        seed: seed of the resamples
        runs: the evaluations, from which the report draws images; not a part of `to_dict`
    """

    metrics: dict[str, dict[str, dict[str, float]]]
    differences: dict[str, dict[str, Difference]]
    class_gains: dict[str, dict[str, float]]
    score_sources: dict[str, str]
    notes: tuple[str, ...]
    resamples: int
    seed: int
    runs: Mapping[str, Evaluation] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, values unrounded."""
        values = asdict(replace(self, runs={}))
        del values["runs"]
        return values

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
