"""What the runs of a comparison left behind, as numbers: per run and reading, and over seeds and pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm import tqdm

from coord_eval import Evaluation, resample

from .compare_plan import Group, Run
from .convergence import FILE as CONVERGENCE_FILE
from .picture_set import PictureSet
from .readings import READINGS, Reading
from .scoring import score_reading

# Two-sided 95 % quantiles of Student's t by degrees of freedom; beyond, the last serves.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)

#: Columns of the metric table: name -> how it is read from an evaluation.
METRICS = {
    "AP": lambda e: e.coco["AP"],
    "AP50": lambda e: e.coco["AP50"],
    "AP75": lambda e: e.coco["AP75"],
    "AP, constant score": lambda e: e.coco_constant_score["AP"],
    "mean IoU": lambda e: e.mean_iou,
    "AP any label": lambda e: e.coco_class_agnostic["AP"],
    "F1 any label": lambda e: e.detection_class_agnostic["0.5:0.95"]["f1"],
    "mean IoU any label": lambda e: e.mean_iou_class_agnostic,
    "parsed": lambda e: e.format["parsed"] / max(e.format["answers"], 1),
}
#: Of these the bootstrap draws the pictures anew.
BOOTSTRAPPED = ("AP", "AP50", "AP_any_label", "mean_iou")


@dataclass(frozen=True, eq=False)
class Scored:
    """One run in one reading.

    Attributes:
        evaluation: its scores.
        draws: metrics on resampled pictures [B]; the same pictures for every run.
        mass: probability of all coordinate tokens together, at each coordinate of the answers.
        spread: standard deviation at each, in [0, 1].
    """

    evaluation: Evaluation
    draws: dict[str, np.ndarray]
    mass: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, eq=False)
class Comparison:
    """Everything that the report shows.

    Attributes:
        groups: rows; the first is what the others are measured against.
        runs: the finished ones.
        scored: (group name, reading name) -> one entry per finished seed.
        logs: group name -> per finished seed the lines of metrics.jsonl.
        manifests: group name -> per finished seed.
        resamples: draws of the pictures.
    """

    groups: Sequence[Group]
    runs: Sequence[Run]
    scored: dict[tuple[str, str], list[Scored]]
    logs: dict[str, list[list[dict[str, Any]]]]
    manifests: dict[str, list[dict[str, Any]]]
    resamples: int
    notes: tuple[str, ...] = field(default=())


def collect(groups: Sequence[Group], runs: Sequence[Run], pictures: PictureSet, resamples: int) -> Comparison:
    """Score every reading of every finished run, and draw the pictures anew."""
    kept = [group for group in groups if any(run.group is group for run in runs)]
    scored: dict[tuple[str, str], list[Scored]] = {}
    logs: dict[str, list] = {group.name: [] for group in kept}
    manifests: dict[str, list] = {group.name: [] for group in kept}
    for run in tqdm(runs, desc="scoring", unit="run", mininterval=0.5):
        for place, name in enumerate(run.config.evaluation.readings):
            entry = _score(run, READINGS[name], place == 0, pictures, resamples)
            scored.setdefault((run.group.name, name), []).append(entry)
        logs[run.group.name].append(_log(run))
        manifests[run.group.name].append(
            json.loads((run.folder / "manifest.json").read_text(encoding="utf-8"))
        )
    return Comparison(kept, runs, scored, logs, manifests, resamples, _notes(groups, kept, manifests))


def _log(run: Run) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl, and of convergence.json where checkpoints were scored."""
    lines = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    path = run.folder / CONVERGENCE_FILE
    scored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    along = [{"step": row["step"], f"AP/{row['reading']}": row["AP"]} for row in scored]
    return [*(json.loads(line) for line in lines), *along]


def _score(run: Run, reading: Reading, first: bool, pictures: PictureSet, resamples: int) -> Scored:
    path = reading.folder(run.folder, first) / "predictions.jsonl"
    evaluation = score_reading(run.config, path, pictures, reading)
    drawn = resample(evaluation, resamples, metrics=BOOTSTRAPPED) if resamples else None
    draws = {name: drawn.draws[name] for name in BOOTSTRAPPED} if drawn is not None else {}
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    mass, spread = (
        np.array([value for record in records for value in record.get(key, ())])
        for key in ("coord_mass", "coord_spread")
    )
    return Scored(evaluation, draws, mass, spread)


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean over seeds and half the width of its 95 % interval (Student's t); None for a single seed."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, None
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return mean, _T95[min(n - 1, len(_T95)) - 1] * deviation / math.sqrt(n)


@dataclass(frozen=True)
class PairedDifference:
    """A group minus the reference: over seeds, and over pictures.

    Attributes:
        mean: of the seeds that both finished.
        over_seeds: half width of the 95 % interval of the differences seed by seed; None for one seed.
        low: lower end of the 95 % interval over pictures, seeds averaged, the same pictures drawn for both.
        high: upper end.
    """

    mean: float
    over_seeds: float | None
    low: float
    high: float


def paired_difference(
    comparison: Comparison, group: str, reading: str, metric: str = "AP"
) -> PairedDifference | None:
    """The group against the first one in the same reading; None where there is nothing to pair."""
    reference = comparison.groups[0].name
    both = [comparison.scored.get((name, reading)) for name in (group, reference)]
    if group == reference or None in both or not comparison.resamples:
        return None
    seeds = [[run.seed for run in comparison.runs if run.group.name == name] for name in (group, reference)]
    common = [seed for seed in seeds[0] if seed in seeds[1]]
    if not common:
        return None
    chosen = [[entries[have.index(s)] for s in common] for entries, have in zip(both, seeds, strict=True)]
    values = [[_point(entry, metric) for entry in entries] for entries in chosen]
    mean, half = mean_and_interval([a - b for a, b in zip(*values, strict=True)])
    draws = [np.mean([entry.draws[metric] for entry in entries], axis=0) for entries in chosen]
    # Where the drawn pictures happen to hold no object there is nothing to compare.
    low, high = np.nanpercentile(draws[0] - draws[1], [2.5, 97.5])
    return PairedDifference(mean, half, float(low), float(high))


def _point(entry: Scored, metric: str) -> float:
    if metric == "mean_iou":
        return entry.evaluation.mean_iou
    if metric == "AP_any_label":
        return entry.evaluation.coco_class_agnostic["AP"]
    return entry.evaluation.coco[metric]


def _notes(planned: Sequence[Group], kept: Sequence[Group], manifests: dict[str, list]) -> tuple[str, ...]:
    every = [manifest for entries in manifests.values() for manifest in entries]
    notes = []
    if len(kept) < len(planned):
        missing = ", ".join(group.name for group in planned if group not in kept)
        notes.append(f"no run of {missing} finished: not in the tables")
    revisions = {(m.get("git") or {}).get("revision") for m in every}
    if len(revisions) > 1:
        notes.append(f"the runs were made by {len(revisions)} revisions of the code; see each manifest.json")
    orders = [m.get("first_batches", {}).get("pictures") for m in every]
    seeds = [m.get("seed") for m in every]
    by_seed = {seed: {o for o, s in zip(orders, seeds, strict=True) if s == seed} for seed in seeds}
    if any(len(found) > 1 for found in by_seed.values()):
        notes.append("groups of one seed did not begin with the same pictures: the comparison is not fair")
    return tuple(notes)
