"""Paired comparison of two or more sets of answers to the same images, and its report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from coord_codec import InputError
from coord_codec.arguments import expect
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_eval.compared_runs import ComparedRuns, Difference
from coord_eval.comparison_page import comparison_page
from coord_eval.draws import CONFIDENCE, interval
from coord_eval.evaluation import Evaluation, join_lines
from coord_eval.metric_table import figure_of, headline
from coord_eval.report.photograph import ImageRoot
from coord_eval.resampling.bootstrap import Resamples, few_objects_note, resample
from coord_eval.resampling.permutation import exchange_p_values


class Comparison(ComparedRuns):
    """The metrics of several runs, and the differences of each run from the first; `ComparedRuns` has the fields."""

    def write_report(self, folder: str | Path, *, image_root: str | ImageRoot | None = None) -> Path:
        """Write `comparison.json` and `comparison.html`; return the path of the latter.

        Args:
            folder: created if missing
            image_root: folder of the images, or a function from the name of an image to its file; by default the
                folder of the ground truth

        Raises:
            OSError: if the folder cannot be written
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "comparison.json", self.to_json())
        write_text(folder / "comparison.html", comparison_page(self, image_root))
        return folder / "comparison.html"


def compare(
    runs: Mapping[str, Evaluation],
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """Compare evaluations of the same ground truth with the first of them.

    Every resample draws the same images for all runs, so that the effect of easy and hard images cancels in the
    difference. `Difference.differs` states that a difference exceeds the variation between samples of the images, with
    Holm's correction over the headline metrics and all runs. A single interval has no such correction, and neither
    covers the variation between training seeds.

    Args:
        runs: evaluations by name
        resamples: number of bootstrap resamples of the images
        seed: seed of the resamples
        progress: called with the name of a stage, the number of steps done and their total

    Raises:
        InputError: for runs without names, fewer than two runs, or runs over different ground truth
    """
    if not isinstance(runs, Mapping):
        raise InputError(f'compare: expected runs by name, {{"base": a, "new": b}}, found {type(runs).__name__}')
    if len(runs) < 2:
        raise InputError(f"compare: expected at least two runs, found {len(runs)}")
    expect("resamples", resamples, int)
    expect("seed", seed, int)
    for name, run in runs.items():
        expect(f"runs[{name!r}]", run, Evaluation)
    first, *others = runs
    for name in others:
        _check_same_truth(first, runs[first], name, runs[name])
    drawn = {name: resample(run, resamples, seed, progress) for name, run in runs.items()}
    sources = {name: run.score_source for name, run in runs.items()}
    notes: tuple[str, ...] = tuple(few_objects_note(runs[first]))
    if len(set(sources.values())) > 1:
        notes = (*notes, "runs are ranked by different scores: AP differs for that reason too; compare F1 and mean IoU")
    p_values = {name: exchange_p_values(runs[first], runs[name], resamples, seed, headline()) for name in others}
    return Comparison(
        metrics={name: run.intervals() for name, run in drawn.items()},
        differences=paired_differences(drawn, p_values),
        class_gains={name: _class_gains(runs[first], runs[name]) for name in others},
        score_sources=sources,
        notes=(*notes, *_smallest_p_note(p_values, resamples), *_notes_of_runs(runs)),
        resamples=resamples,
        seed=seed,
        runs=dict(runs),
    )


def _smallest_p_note(p_values: Mapping[str, Mapping[str, float]], resamples: int) -> list[str]:
    """Return a note that more resamples are needed if the smallest p-value possible, adjusted, is above .05."""
    values = [p for row in p_values.values() for p in row.values()]
    smallest = len(values) / (resamples + 1)
    if not values or smallest < 1 - CONFIDENCE or min(values) * (resamples + 1) > 1 + 1e-9:
        return []
    enough = math.ceil(len(values) / (1 - CONFIDENCE))
    return [
        f"{counted(resamples, 'resample')} cannot give a p below {min(smallest, 1):.3f}, so no difference "
        "can be significant: "
        f"use at least {enough}"
    ]


def _notes_of_runs(runs: Mapping[str, Evaluation]) -> list[str]:
    """Return the notes on the shared ground truth once, then the notes of each run, prefixed with its name."""
    truth = next(iter(runs.values())).truth.notes
    shared = (*truth, *few_objects_note(next(iter(runs.values()))))
    own = {name: (*run.notes, *join_lines(run)) for name, run in runs.items()}
    return [*truth, *(f"{name}: {note}" for name, notes in own.items() for note in notes if note not in shared)]


def _check_same_truth(first: str, a: Evaluation, second: str, b: Evaluation) -> None:
    same_names = (a.truth.image_ids, a.truth.categories) == (b.truth.image_ids, b.truth.categories)
    arrays = ("boxes_N4", "category_N", "crowd_N")
    if not same_names or not all(np.array_equal(getattr(a.truth, key), getattr(b.truth, key)) for key in arrays):
        raise InputError(f"compare: {first} and {second} were scored against different ground truth")


def paired_differences(
    drawn: Mapping[str, Resamples], p_values: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, Difference]]:
    """Return each run's difference from the first, with p-values adjusted by Holm's method over runs and metrics."""
    first, *others = drawn
    differences = {name: _differences(drawn[first], drawn[name]) for name in others}
    tested = sorted((p, run, m) for run, rows in p_values.items() for m, p in rows.items() if m in differences[run])
    largest = 0.0
    for step, (p, run, name) in enumerate(tested):
        largest = min(max(largest, (len(tested) - step) * p), 1.0)
        differences[run][name] = replace(differences[run][name], p=largest, differs=largest < 1 - CONFIDENCE)
    return differences


def _differences(first: Resamples, other: Resamples) -> dict[str, Difference]:
    result = {}
    for name in [name for name in other.point if name in first.point]:
        value = other.point[name] - first.point[name]
        if np.isnan(value):
            continue
        bounds = interval(value, other.draws[name] - first.draws[name])
        gain_B = _quality(name, other.draws[name]) - _quality(name, first.draws[name])
        gain_B = gain_B[~np.isnan(gain_B)]
        better = float((gain_B > 0).mean()) if len(gain_B) else 0.0
        result[name] = Difference(bounds["value"], bounds["low"], bounds["high"], better)
    return result


def _quality(name: str, values_B: np.ndarray) -> np.ndarray:
    """Return values of which a larger one is better."""
    goal = figure_of(name).goal
    return values_B if goal == "high" else -values_B if goal == "low" else -np.abs(values_B)


def _class_gains(first: Evaluation, other: Evaluation) -> dict[str, float]:
    gains = {}
    for name, row in other.per_class.items():
        before = first.per_class.get(name, {"AP": -1.0})["AP"]
        if row["AP"] >= 0 and before >= 0:
            gains[name] = row["AP"] - before
    return dict(sorted(gains.items(), key=lambda item: -abs(item[1])))
