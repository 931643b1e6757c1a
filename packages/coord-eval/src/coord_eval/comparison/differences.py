"""The differences of several runs from the first one, in text and as `comparison.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from coord_codec.counts import counted, fixed
from coord_codec.pages import fragment, notes, table
from coord_eval.comparison.training import TrainingCurves
from coord_eval.metrics.figures import Figures
from coord_eval.metrics.metric_table import figure_of


@dataclass(frozen=True)
class Difference:
    """One metric of a run compared with the first run.

    Attributes:
        value: the run's metric minus that of the first run
        low: lower end of the paired 95 % interval over images, seeds averaged
        high: upper end
        share_better: share of the resamples in which the run is strictly better: higher, or lower if the metric is an
            error, or nearer to 0 if that error has a sign
        p: for the headline metrics, the p-value of a paired permutation test over images (the probability of at
            least this difference between equal runs), adjusted by Holm's method (1979) over these metrics and all runs;
            None for the other metrics, which are exploratory
        differs: whether `p` is below .05; among comparisons of equal runs at most 5 % have such a metric
        over_seeds: half width of the 95 % interval of `value` over seeds, paired in their order; None for one seed
    """

    value: float
    low: float
    high: float
    share_better: float
    p: float | None = None
    differs: bool = False
    over_seeds: float | None = None

    @property
    def p_text(self) -> str:
        """The adjusted p-value as text, with a mark where the runs differ; empty for an exploratory metric."""
        return "" if self.p is None else f"{self.p:.3f}{' *' if self.differs else ''}"


@dataclass(frozen=True, eq=False)
class Differences:
    """The metrics of several runs, and the differences of each run from the first.

    Attributes:
        metrics: metrics of each run with their intervals; of several seeds the mean, with the values `seeds` and
            `over_seeds`, the half width of the 95 % interval of the mean (Student's t)
        differences: paired difference of each metric, for each run but the first
        class_gains: AP minus the first run's AP by label, largest change first, for each run but the first
        score_sources: score by which the detections of each run are sorted
        notes: conditions that matter when interpreting the metrics
        resamples: number of resamples
        permutations: number of permutations behind each p-value: `resamples`, or as many as a difference needs that is
            to be significant beside all others
        seed: seed of the resamples
        runs: the evaluations of each run, one a seed, from which the report draws images; not a part of `to_dict`
        training: how the runs were trained, where their logs are known; see `training_curves`
    """

    metrics: dict[str, dict[str, dict[str, Any]]]
    differences: dict[str, dict[str, Difference]]
    class_gains: dict[str, dict[str, float]]
    score_sources: dict[str, str]
    notes: tuple[str, ...]
    resamples: int
    permutations: int
    seed: int
    runs: Mapping[str, Sequence[Figures]] = field(default_factory=dict, repr=False)
    training: TrainingCurves | None = None

    def verdict(self, run: str) -> str:
        """Return AP of a run and of the first in one line, and in which headline metrics it is better or worse.

        A metric counts if it differs over images, and with several seeds if its interval over seeds is without 0 too.
        """
        first = next(iter(self.metrics))
        ap = [f"{row['AP']['value']:.3f}" for row in (self.metrics[first], self.metrics[run]) if "AP" in row]
        leading = f"AP {' -> '.join(ap)}, " if len(ap) == 2 else ""
        sides: dict[str, list[str]] = {"better": [], "worse": []}
        for name, d in self.differences[run].items():
            if d.differs and (d.over_seeds is None or abs(d.value) > d.over_seeds):
                before, after = quality(name, np.array([self.metrics[r][name]["value"] for r in (first, run)]))
                sides["better" if after > before else "worse"].append(f"{name} {fixed(d.value, 3, '+')}")
        found = "; ".join(f"{side} in {', '.join(names)}" for side, names in sides.items() if names)
        return f"{run} against {first}: {leading}{found or 'no headline metric differs'}"

    def lines(self) -> Iterator[str]:
        """Yield a summary: the headline metrics of each run, its differences from the first one, and the verdict."""
        first, *others = self.metrics
        common = (name for name in self.metrics[first] if all(name in row for row in self.metrics.values()))
        shown = [name for name in common if figure_of(name).headline]
        for run in () if others and max(map(len, self.runs.values()), default=1) == 1 else self.metrics:
            yield f"{run}, mean over {counted(len(self.runs[run]), 'seed')}"
            yield from (f"  {name:9} {with_seeds(self.metrics[run][name], 4)}" for name in shown)
        for run in others:
            yield f"{run} against {first}"
            for name in shown:
                d = self.differences[run][name]
                before, after = (self.metrics[r][name]["value"] for r in (first, run))
                seeds = "" if d.over_seeds is None else f"  ± {d.over_seeds:.4f} over seeds"
                yield (
                    f"  {name:9} {before:7.4f} -> {after:7.4f}  {fixed(d.value, 4, '+')} "
                    f"[{fixed(d.low, 4, '+')}, {fixed(d.high, 4, '+')}]{seeds}  "
                    f"better in {100 * d.share_better:.1f} %  p {d.p_text}"
                )
        yield (
            f"{counted(self.resamples, 'resample')} of the images, {counted(self.permutations, 'permutation')}, seed "
            f"{self.seed}, paired 95 % intervals; * differs, p by Holm's method over these metrics and all runs: at "
            "most 5 % of comparisons of equal runs have a *"
        )
        yield from map(self.verdict, others)
        yield from self.training.lines() if self.training else ()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdicts, and the headline metrics of each run."""
        first = next(iter(self.metrics))
        shown = [name for name in self.metrics[first] if figure_of(name).headline]
        rows = [(run, *(fixed(row[name]["value"], 3) for name in shown)) for run, row in self.metrics.items()]
        return fragment(notes(list(map(self.verdict, self.differences))) + table(("run", *shown), rows))

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, values unrounded."""
        values = asdict(replace(self, runs={}))
        del values["runs"]
        return values | {"verdicts": [self.verdict(run) for run in self.differences]}

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def quality(name: str, values_B: np.ndarray) -> np.ndarray:
    """Return values of which a larger one is better."""
    goal = figure_of(name).goal
    return values_B if goal == "high" else -values_B if goal == "low" else -np.abs(values_B)


def with_seeds(row: Mapping[str, Any], digits: int) -> str:
    """Return a metric as text: its value, the interval over seeds if there is one, and that over images."""
    spread = f" ± {row['over_seeds']:.{digits}f}" if "over_seeds" in row else ""
    return f"{row['value']:.{digits}f}{spread} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
