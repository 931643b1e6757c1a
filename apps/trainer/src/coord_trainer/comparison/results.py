"""Scores a comparison's finished runs by decoding, with intervals over seeds and over images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from coord_codec.files import read_json, read_json_lines
from coord_data.image_set import ImageSet
from coord_eval import METRICS, Evaluation, figure_of, resample
from coord_trainer.answers.score import CHECKPOINT_SCORES, score_predictions
from coord_trainer.comparison.plan import Group, PlannedRun
from coord_trainer.config.decoding import Decoding, prediction_files

_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
"""Two-sided 95 % quantiles of Student's t by degrees of freedom; the last is used for more than it lists."""

_COLUMNS = {
    "AP": "AP",
    "AP50": "AP50",
    "AP75": "AP75",
    "APs": "AP small",
    "APm": "AP medium",
    "APl": "AP large",
    "AP_constant_score": "AP, constant score",
    "mean_iou": "mean IoU",
    "AP_any_label": "AP any label",
    "f1_miou_any_label": "F1 any label",
    "mean_iou_any_label": "mean IoU any label",
}
"""The figures out of the hundred of coord-eval's table of metrics that are compared, with their titles."""
_PAIRED = ("AP", "AP50", "AP_any_label", "mean_iou")
"""Those of them with an interval over resampled images; registered metrics have one too."""
PARSED = "parsed"
"""Column of the share of answers that parse, which is no figure of a metric."""


def columns() -> dict[str, str]:
    """Return the compared figures of coord-eval's table of metrics, those of registered metrics too, with titles."""
    return _COLUMNS | {name: name for name in registered_figures()}


def paired_figures() -> tuple[str, ...]:
    """Return the figures that have an interval over resampled images, by their name in `coord_eval.resample`."""
    return (*_PAIRED, *registered_figures())


def registered_figures() -> list[str]:
    """Return the figures of the metrics that a user has registered."""
    rows = [row for row in METRICS.values() if row.place == "metrics"]
    return [figure.name for row in rows for figure in row.figures if "*" not in figure.name]


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """One run under one decoding.

    Attributes:
        evaluation: its scores.
        values: its metrics by the title of their column; -1 for a share without a value, else NaN.
        draws: figures on resampled images [B]; the same images for every run.
        mass: total probability of all coordinate tokens, at each coordinate of the answers.
        spread: standard deviation of each coordinate, in [0, 1].
    """

    evaluation: Evaluation
    values: dict[str, float]
    draws: dict[str, np.ndarray]
    mass: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, eq=False)
class GroupComparison:
    """The contents of the report.

    Attributes:
        groups: with a finished run; the others are compared with the first.
        runs: the finished ones.
        scored: (group name, decoding) -> one entry per finished seed.
        logs: group name -> the lines of metrics.jsonl of each finished seed.
        manifests: group name -> the manifest of each finished seed.
        resamples: number of resamples of the images.
    """

    groups: Sequence[Group]
    runs: Sequence[PlannedRun]
    scored: dict[tuple[str, Decoding], list[ScoredRun]]
    logs: dict[str, list[list[dict[str, Any]]]]
    manifests: dict[str, list[dict[str, Any]]]
    resamples: int
    notes: tuple[str, ...] = ()


def collect(groups: Sequence[Group], runs: Sequence[PlannedRun], images: ImageSet, resamples: int) -> GroupComparison:
    """Score the answers of every finished run under each of its decodings, and resample the images."""
    kept = [group for group in groups if any(run.group is group for run in runs)]
    scored: dict[tuple[str, Decoding], list[ScoredRun]] = {}
    logs: dict[str, list] = {group.name: [] for group in kept}
    manifests: dict[str, list] = {group.name: [] for group in kept}
    for run in tqdm(runs, desc="scoring", unit="run", mininterval=0.5):
        for decoding, path in prediction_files(run.config.evaluation.decoding, run.folder):
            entry = _score(run, decoding, path, images, resamples)
            scored.setdefault((run.group.name, decoding), []).append(entry)
        logs[run.group.name].append(_log(run))
        manifests[run.group.name].append(read_json(run.folder / "manifest.json"))
    return GroupComparison(kept, runs, scored, logs, manifests, resamples, _notes(groups, kept, manifests))


def _log(run: PlannedRun) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl, and the APs of convergence.json if checkpoints were scored."""
    path = run.folder / CHECKPOINT_SCORES
    scored = read_json(path) if path.exists() else []
    checkpoint_scores = [{"step": row["step"], f"AP/{row['decoding']}": row["AP"]} for row in scored]
    return [*(line for _, line in read_json_lines(run.folder / "metrics.jsonl")), *checkpoint_scores]


def _score(run: PlannedRun, decoding: Decoding, path: Path, images: ImageSet, resamples: int) -> ScoredRun:
    evaluation = score_predictions(run.config, path, images, decoding)
    draws = resample(evaluation, resamples, metrics=paired_figures()).draws if resamples else {}
    records = [record for _, record in read_json_lines(path)]
    mass, spread = (
        np.array([value for record in records for value in record.get(key, ())])
        for key in ("coord_mass", "coord_spread")
    )
    return ScoredRun(evaluation, values_of(evaluation), draws, mass, spread)


def values_of(evaluation: Evaluation) -> dict[str, float]:
    """Return the compared metrics by the title of their column; -1 for a share without a value, else NaN."""
    values = {}
    for name, title in columns().items():
        value = evaluation[name]
        values[title] = -1.0 if math.isnan(value) and figure_of(name).is_share else value
    return values | {PARSED: evaluation.format["parsed"] / max(evaluation.format["answers"], 1)}


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean over seeds and the half width of its 95 % interval (Student's t), None for a single seed."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, None
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return mean, _T95[min(n - 1, len(_T95)) - 1] * deviation / math.sqrt(n)


def best_decodings(comparison: GroupComparison) -> dict[str, Decoding]:
    """Return each group's decoding with the highest mean AP, since free answers can be empty."""
    means = {
        key: np.mean([entry.evaluation.coco["AP"] for entry in entries]) for key, entries in comparison.scored.items()
    }
    return {
        group.name: max((d for g, d in means if g == group.name), key=lambda d, g=group.name: means[g, d])
        for group in comparison.groups
    }


@dataclass(frozen=True)
class PairedDifference:
    """The difference of a metric between a group and the reference, with intervals over seeds and over images.

    Attributes:
        mean: over the seeds that both finished.
        over_seeds: half width of the 95 % interval of the differences per seed; None for one seed.
        low: lower end of the 95 % interval over images, seeds averaged, the same images resampled for both.
        high: upper end of that interval.
    """

    mean: float
    over_seeds: float | None
    low: float
    high: float


def paired_difference(
    comparison: GroupComparison, group: str, decoding: Decoding, metric: str = "AP"
) -> PairedDifference | None:
    """Compare a group with the first one under the same decoding; None if they have no runs to pair."""
    reference = comparison.groups[0].name
    both = [comparison.scored.get((name, decoding)) for name in (group, reference)]
    if group == reference or None in both or not comparison.resamples:
        return None
    seeds = [[run.seed for run in comparison.runs if run.group.name == name] for name in (group, reference)]
    common = [seed for seed in seeds[0] if seed in seeds[1]]
    if not common:
        return None
    chosen = [[entries[finished.index(s)] for s in common] for entries, finished in zip(both, seeds, strict=True)]
    values = [[entry.values[columns()[metric]] for entry in entries] for entries in chosen]
    mean, half = mean_and_interval([a - b for a, b in zip(*values, strict=True)])
    draws = [np.mean([entry.draws[metric] for entry in entries], axis=0) for entries in chosen]
    # Metrics are NaN if the resampled images contain no object.
    low, high = np.nanpercentile(draws[0] - draws[1], [2.5, 97.5])
    return PairedDifference(mean, half, float(low), float(high))


def _notes(planned: Sequence[Group], kept: Sequence[Group], manifests: dict[str, list]) -> tuple[str, ...]:
    all_manifests = [manifest for entries in manifests.values() for manifest in entries]
    notes = []
    if len(kept) < len(planned):
        missing = ", ".join(group.name for group in planned if group not in kept)
        notes.append(f"no run of {missing} finished: not in the tables")
    revisions = {(m.get("git") or {}).get("revision") for m in all_manifests}
    if len(revisions) > 1:
        notes.append(f"the runs were made by {len(revisions)} revisions of the code; see each manifest.json")
    orders = [m.get("first_batches", {}).get("pictures") for m in all_manifests]
    seeds = [m.get("seed") for m in all_manifests]
    by_seed = {seed: {o for o, s in zip(orders, seeds, strict=True) if s == seed} for seed in seeds}
    if any(len(digests) > 1 for digests in by_seed.values()):
        notes.append("groups of one seed did not begin with the same images: the comparison is not fair")
    return tuple(notes)
