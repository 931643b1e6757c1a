"""Two or more sets of answers about the same pictures, compared in pairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coord_eval.bootstrap import HEADLINE, Resamples, interval, resample
from coord_eval.errors import InputError
from coord_eval.evaluation import Evaluation
from coord_eval.html_text import safe
from coord_eval.report_style import page
from coord_eval.report_tables import folded, section, table
from coord_eval.writing import write_text

#: Metrics that are best at 0.
_ERRORS = ("count_error", "count_absolute_error", "duplicates", "ece")


@dataclass(frozen=True)
class Difference:
    """One metric of a run against the first run.

    Attributes:
        value: Run minus first run.
        low: Lower end of the paired 95 % interval.
        high: Upper end.
        share_better: Share of the resamples in which the run is strictly better: higher, or lower where the metric
            is an error, or nearer to 0 where that has a sign.
    """

    value: float
    low: float
    high: float
    share_better: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs side by side.

    Attributes:
        metrics: For each run its metrics with interval.
        differences: For each run but the first the paired difference of each metric.
        class_gains: For each run but the first AP minus the first run's AP by label, largest change first.
        score_sources: What each run is ranked by.
        notes: What a reader of the numbers has to know.
        resamples: How many.
        seed: What they came from.
    """

    metrics: dict[str, dict[str, dict[str, float]]]
    differences: dict[str, dict[str, Difference]]
    class_gains: dict[str, dict[str, float]]
    score_sources: dict[str, str]
    notes: tuple[str, ...]
    resamples: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, values unrounded."""
        return asdict(self)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def write_report(self, folder: str | Path) -> Path:
        """Write ``comparison.json`` and ``comparison.html``; return the path of the latter.

        Raises:
            OSError: When the folder cannot be written.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "comparison.json", self.to_json())
        write_text(folder / "comparison.html", page("Comparison", _render(self)))
        return folder / "comparison.html"


def compare(
    runs: Mapping[str, Evaluation],
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """Compare evaluations of the same ground truth; the first is what the others are measured against.

    Every resample draws the same pictures for all runs, so that what is common to them, easy and hard pictures,
    cancels in the difference. An interval that excludes 0 says that the difference is larger than the draw of the
    pictures; it says nothing about training seeds.

    Args:
        runs: Evaluations by name.
        resamples: Draws of the pictures.
        seed: Of the draws.
        progress: Called with a stage's name, what is done and what there is to do.

    Raises:
        InputError: For fewer than two runs, or runs over different ground truth.
    """
    if len(runs) < 2:
        raise InputError(f"compare: expected at least two runs, found {len(runs)}")
    names = list(runs)
    base = runs[names[0]]
    for name in names[1:]:
        _check_same_truth(names[0], base, name, runs[name])
    drawn = {name: resample(run, resamples, seed, progress) for name, run in runs.items()}
    sources = {name: run.score_source for name, run in runs.items()}
    notes: tuple[str, ...] = ()
    if len(set(sources.values())) > 1:
        notes = (
            "runs are ranked by different scores: AP differs for that reason too; compare F1 and mean IoU",
        )
    return Comparison(
        metrics={name: drawn[name].intervals() for name in names},
        differences={name: _differences(drawn[names[0]], drawn[name]) for name in names[1:]},
        class_gains={name: _class_gains(base, runs[name]) for name in names[1:]},
        score_sources=sources,
        notes=notes,
        resamples=resamples,
        seed=seed,
    )


def _check_same_truth(first: str, a: Evaluation, second: str, b: Evaluation) -> None:
    same = (
        a.truth.image_ids == b.truth.image_ids
        and a.truth.categories == b.truth.categories
        and np.array_equal(a.truth.boxes_N4, b.truth.boxes_N4)
        and np.array_equal(a.truth.category_N, b.truth.category_N)
        and np.array_equal(a.truth.crowd_N, b.truth.crowd_N)
    )
    if not same:
        raise InputError(f"compare: {first} and {second} were scored against different ground truth")


def _differences(first: Resamples, other: Resamples) -> dict[str, Difference]:
    result = {}
    for name in [name for name in other.point if name in first.point]:
        value = other.point[name] - first.point[name]
        if np.isnan(value):
            continue
        bounds = interval(value, other.draws[name] - first.draws[name])
        gain_B = _quality(name, other.draws[name]) - _quality(name, first.draws[name])
        gain_B = gain_B[~np.isnan(gain_B)]
        result[name] = Difference(**bounds, share_better=float((gain_B > 0).mean()) if len(gain_B) else 0.0)
    return result


def _quality(name: str, values_B: np.ndarray) -> np.ndarray:
    """Turn a metric so that more is better."""
    lower_is_better = name in _ERRORS or name.startswith(("bias_", "confused_"))
    return -np.abs(values_B) if lower_is_better else values_B


def _class_gains(first: Evaluation, other: Evaluation) -> dict[str, float]:
    gains = {}
    for name, row in other.per_class.items():
        before = first.per_class.get(name, {"AP": -1.0})["AP"]
        if row["AP"] >= 0 and before >= 0:
            gains[name] = row["AP"] - before
    return dict(sorted(gains.items(), key=lambda item: -abs(item[1])))


def _render(comparison: Comparison) -> str:
    runs = list(comparison.metrics)
    how = f"{comparison.resamples} resamples of the pictures, seed {comparison.seed}, 95 % intervals"
    rows = []
    for metric in dict.fromkeys(name for run in runs for name in comparison.metrics[run]):
        cells = (comparison.metrics[run].get(metric) for run in runs)
        shown = ("n/a" if c is None else "{value:.3f} [{low:.3f}, {high:.3f}]".format(**c) for c in cells)
        rows.append((metric, *shown))
    parts = [f"<p>{safe(how)}.</p>", *(f"<p>{safe(note)}</p>" for note in comparison.notes)]
    head = ("", *runs)
    first = [row for row in rows if row[0] in HEADLINE]
    others = [row for row in rows if row[0] not in HEADLINE]
    parts.append(section("Metrics", table(head, first) + folded("all metrics", table(head, others))))
    for run, differences in comparison.differences.items():
        head = ("", "difference", "paired 95 % interval", "better in")
        lines = {
            name: (name, f"{d.value:+.4f}", f"[{d.low:+.4f}, {d.high:+.4f}]", f"{100 * d.share_better:.1f} %")
            for name, d in differences.items()
        }
        html = table(head, [row for name, row in lines.items() if name in HEADLINE])
        more = folded(
            "all metrics", table(head, [row for name, row in lines.items() if name not in HEADLINE])
        )
        gains = [(name, f"{gain:+.3f}") for name, gain in list(comparison.class_gains[run].items())[:30]]
        html += table(("label", "AP gained"), gains) if gains else ""
        parts.append(section(f"{run} against {runs[0]}", f'<div class="columns">{html}</div>{more}'))
    return "\n".join(parts)
