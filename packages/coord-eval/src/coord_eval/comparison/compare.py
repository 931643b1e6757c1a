"""Paired comparison of two or more sets of answers to the same images, each of one or several seeds, and its report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.counts import fixed
from coord_codec.files import write_text
from coord_eval.comparison.differences import Difference, Differences, quality
from coord_eval.diagnosis.answers import NEAR_ZERO, learnt_nothing
from coord_eval.evaluation import Evaluation
from coord_eval.metrics.detection import PROBABILITIES
from coord_eval.metrics.draws import CONFIDENCE, half_width, interval
from coord_eval.metrics.figures import join_lines
from coord_eval.metrics.metric_table import headline
from coord_eval.metrics.thresholds import best_threshold
from coord_eval.page_options import ImageRoot
from coord_eval.resampling.bootstrap import Resamples, few_objects_note, resample
from coord_eval.resampling.permutation import exchange_p_values

_BELOW = 0.05
"""Least share that is told: of a run's boxes below all of another's scores, and of that one's in its lowest tenth."""
_NOTHING = f"AP below {NEAR_ZERO}, and no other reading of the numbers explains it; train for more steps"
"""What stands in place of the diagnosis of each run that found nothing."""


class Comparison(Differences):
    """The metrics of several runs, and the differences of each run from the first; `Differences` documents them."""

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
        from coord_eval.comparison.page import comparison_page

        write_text(folder / "comparison.html", comparison_page(self, image_root))
        return folder / "comparison.html"


def compare(
    runs: Mapping[str, Evaluation | Sequence[Evaluation]],
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """Compare evaluations of the same ground truth with the first of them.

    Every resample draws the same images for all runs, so that the effect of easy and hard images cancels in the
    difference. `Difference.differs` states that a difference exceeds the variation between samples of the images, with
    Holm's correction over the headline metrics and all runs; a single interval has no such correction. Give the
    evaluations of several training seeds of each run to see the variation between them too, which neither covers:
    `Difference.over_seeds`. `Comparison.verdict` takes both into account.

    Args:
        runs: evaluations by name: of each run one, or one for each seed, as many as of the others and in their order
        resamples: number of bootstrap resamples of the images
        seed: seed of the resamples
        progress: called with the name of a stage, the number of steps done and their total

    Raises:
        InputError: for runs without names, fewer than two evaluations, other numbers of seeds, or different truths
    """
    if not isinstance(runs, Mapping):
        raise InputError(f'compare: expected runs by name, {{"base": a, "new": b}}, found {type(runs).__name__}')
    groups = {name: [run] if isinstance(run, Evaluation) else list(run) for name, run in runs.items()}
    seeds = {name: len(group) for name, group in groups.items()}
    if sum(seeds.values()) < 2:
        raise InputError(f"compare: expected at least two runs, found {sum(seeds.values())}")
    if len(set(seeds.values())) > 1:
        raise InputError(f"compare: expected as many seeds of each run, found {seeds}; leave out what has no pair")
    first, *others = groups
    for name, group in groups.items():
        for run in group:
            _check_same_truth(first, groups[first][0], name, run)
    by_seed = {name: [resample(run, resamples, seed, progress) for run in group] for name, group in groups.items()}
    drawn = {name: _mean(of_seeds) for name, of_seeds in by_seed.items()}
    sources = {name: ", ".join(sorted({run.score_source for run in group})) for name, group in groups.items()}
    notes = [*few_objects_note(groups[first][0])]
    if len(set(sources.values())) > 1:
        notes.append("runs are ranked by different scores: AP differs for that reason too; compare F1 and mean IoU")
    figures = [dict.fromkeys(headline(run)) for group in groups.values() for run in group]
    tested = [name for name in figures[0] if all(name in of_run for of_run in figures)]
    if missing := sorted({name for of_run in figures for name in of_run} - {*tested}):
        notes.append(f"{', '.join(missing)}: not a figure of every run, so not compared")
    # No p-value is below 1 / (permutations + 1), which Holm's method multiplies by the number of tests.
    permutations = max(resamples, math.ceil(len(others) * len(tested) / (1 - CONFIDENCE)))
    p_values = {name: exchange_p_values(groups[first], groups[name], permutations, seed, tested) for name in others}
    return Comparison(
        metrics={name: _with_seeds_of(run.intervals(), by_seed[name]) for name, run in drawn.items()},
        differences={
            name: {m: replace(d, over_seeds=_spread(by_seed[first], by_seed[name], m)) for m, d in rows.items()}
            for name, rows in paired_differences(drawn, p_values).items()
        },
        class_gains={name: _class_gains(groups[first], groups[name]) for name in others},
        score_sources=sources,
        notes=(*notes, *_least_scores_note(groups), *_notes_of_runs(groups)),
        resamples=resamples,
        permutations=permutations,
        seed=seed,
        runs=groups,
    )


def _mean(seeds: Sequence[Resamples]) -> Resamples:
    """Return the mean of each metric over seeds; the resamples of all of them drew the same images."""
    names = [name for name in seeds[0].point if all(name in run.point for run in seeds)]
    point = {name: math.fsum(run.point[name] for run in seeds) / len(seeds) for name in names}
    draws = {name: np.mean([run.draws[name] for run in seeds], axis=0) for name in names}
    return Resamples(point, draws, seeds[0].seed)


def _with_seeds_of(rows: dict[str, dict[str, Any]], seeds: Sequence[Resamples]) -> dict[str, dict[str, Any]]:
    if len(seeds) > 1:
        for name, row in rows.items():
            row["seeds"] = [run.point[name] for run in seeds]
            row["over_seeds"] = half_width(row["seeds"])
    return rows


def _spread(first: Sequence[Resamples], other: Sequence[Resamples], name: str) -> float | None:
    return half_width([b.point[name] - a.point[name] for a, b in zip(first, other, strict=True)])


def _least_scores_note(groups: Mapping[str, Sequence[Evaluation]]) -> Iterator[str]:
    """Yield a note if the scores of one run begin abruptly where another has many boxes already: a list that is cut."""
    score_D = {name: np.concatenate([run.detections.scores_D for run in group]) for name, group in groups.items()}
    least = {name: own_D.min() for name, own_D in score_D.items() if len(own_D)}
    sources = {run.score_source for group in groups.values() for run in group}
    if len(sources) > 1 or not least or not sources <= {*PROBABILITIES}:
        return
    latest = max(least, key=lambda name: least[name])
    begin, cut_D = least[latest], score_D[latest]
    below = {name: float((score_D[name] < begin).mean()) for name in least}
    at_first = (cut_D <= begin + (cut_D.max() - begin) / 10).mean()
    if max(below.values()) < _BELOW or at_first < _BELOW:
        return
    parts = []
    for name, value in least.items():
        share = f", {below[name]:.0%} of its boxes below {begin:.2g}" if below[name] else ""
        best = [found["f1"] for run in groups[name] if (found := best_threshold(run))]
        f1 = f", best F1 {fixed(math.fsum(best) / len(best), 3)}" if best else ""
        parts.append(f"{name} from {value:.2g}{share}{f1}")
    yield (
        f"the scores begin differently: {'; '.join(parts)}: precision, recall and F1 are of all boxes and differ for "
        "that reason; compare AP, or the F1 at the best threshold of each, or cut all files at one score"
    )


def _notes_of_runs(groups: Mapping[str, Sequence[Evaluation]]) -> list[str]:
    """Return the notes on the shared ground truth, then those of the runs, each once with the names it is about."""
    runs = [(name, run) for name, group in groups.items() for run in group]
    truth = runs[0][1].truth.notes
    shared = (*truth, *few_objects_note(runs[0][1]))
    own: dict[str, dict[str, None]] = {}
    for name, run in runs:
        notes = [note for note in (*run.notes, *join_lines(run)) if note not in shared]
        if learnt_nothing(run):
            notes = [_NOTHING, *(note for note in notes if not note.startswith("diagnosis: "))]
        for note in notes:
            own.setdefault(note, {})[name] = None
    if all(learnt_nothing(run) for _, run in runs):
        del own[_NOTHING]
        truth = (f"no run has learnt to find anything: {_NOTHING}", *truth)
    return [*truth, *(f"{', '.join(names)}: {note}" for note, names in own.items())]


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
        gain_B = quality(name, other.draws[name]) - quality(name, first.draws[name])
        gain_B = gain_B[~np.isnan(gain_B)]
        better = float((gain_B > 0).mean()) if len(gain_B) else 0.0
        result[name] = Difference(bounds["value"], bounds["low"], bounds["high"], better)
    return result


def _class_gains(first: Sequence[Evaluation], other: Sequence[Evaluation]) -> dict[str, float]:
    """Return the mean over seeds of the AP gained by label, of each label with objects; the largest change first."""
    gains = {
        name: float(
            np.mean([b.per_class[name]["AP"] - a.per_class[name]["AP"] for a, b in zip(first, other, strict=True)])
        )
        for name in other[0].per_class
    }
    return dict(sorted(gains.items(), key=lambda item: -abs(item[1])))
