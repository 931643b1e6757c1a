"""Training curves of several runs, each of one or several seeds, and how many steps and seconds each run needs.

The input are log lines, such as those of a run's metrics.jsonl: mappings with `step`, the values logged at it and,
where the time of a step is known, `seconds_per_step`, the mean since the line before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from coord_codec.counts import counted
from coord_codec.pages import PALETTE, figure, notes, table
from coord_eval.report.plot import chart

Lines = Sequence[Mapping[str, Any]]

SHARES = (0.5, 0.8, 0.9, 0.95)
"""Shares of the best AP for which `TrainingCurves.reached` states the first step."""
_SECONDS = "seconds_per_step"


@dataclass(frozen=True)
class Curve:
    """One logged value of one run at the steps that all of its seeds have logged.

    Attributes:
        steps: optimizer steps, ascending
        seconds: time until each step, mean over seeds, without evaluations and checkpoints; None where it is unknown
        mean: mean of the value over seeds
        low: lowest value of a seed
        high: highest value of a seed
        seeds: number of seeds
    """

    steps: list[int]
    seconds: list[float | None]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: int


@dataclass(frozen=True)
class Reached:
    """The first step at which each seed of a run has a share of the best AP; None for a seed that never has it.

    Attributes:
        share: the share
        target: the AP that is to be reached
        steps: the step of each seed
        seconds: the time until it of each seed
    """

    share: float
    target: float
    steps: list[int | None]
    seconds: list[float | None]

    def __str__(self) -> str:
        """The mean step and time over the seeds, with the range of the steps."""
        steps = [step for step in self.steps if step is not None]
        if not steps:
            return "not reached"
        text = f"step {np.mean(steps):.0f}"
        if min(steps) < max(steps):
            text += f" ({min(steps)} to {max(steps)})"
        seconds = [second for second in self.seconds if second is not None]
        text += f", {np.mean(seconds):.0f} s" if len(seconds) == len(steps) else ""
        missed = len(self.steps) - len(steps)
        return text + (f", not reached by {counted(missed, 'seed')}" if missed else "")


@dataclass(frozen=True)
class TrainingCurves:
    """How the runs of a comparison were trained.

    Attributes:
        curves: curves by title, then by run
        best_ap: highest mean AP over seeds that a run had while training; None if AP was not measured
        reached: for each run, the steps to reach shares of `best_ap`
        notes: what the curves leave out
    """

    curves: dict[str, dict[str, Curve]]
    best_ap: float | None
    reached: dict[str, list[Reached]]
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the steps to reach shares of the best AP, and the notes."""
        if self.best_ap is not None:
            yield f"while training, shares of the best AP of {self.best_ap:.3f} were reached at these steps"
            for run, rows in self.reached.items():
                yield f"  {run}: " + "; ".join(f"{100 * row.share:.0f} %: {row}" for row in rows)
        yield from self.notes

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, values unrounded."""
        return asdict(self)

    def html(self) -> str:
        """Return the curves over steps and over time, one chart a value, and the table of convergence."""
        parts = [notes(self.notes)]
        if self.best_ap is not None:
            head = ("", *(f"{100 * share:.0f} % (AP {share * self.best_ap:.3f})" for share in SHARES))
            rows = [(run, *map(str, found)) for run, found in self.reached.items()]
            parts.append(f"<h4>Steps to a share of the best AP while training, {self.best_ap:.3f}</h4>")
            parts.append(table(head, rows))
        drawn = (figure(_drawn(title, by_run), title) for title, by_run in self.curves.items())
        return "".join(parts) + f'<div class="charts">{"".join(drawn)}</div>'


def training_curves(
    logs: Mapping[str, Sequence[Lines]], titles: Mapping[str, str], ap_key: str = "eval_AP"
) -> TrainingCurves:
    """Compare the training of runs by their log lines.

    Seeds are compared at the steps that all of them have logged; a step that is logged twice, as after a resume from
    an earlier checkpoint, counts with its last line, and its time once.

    Args:
        logs: for each run the log lines of each of its seeds
        titles: titles of the logged values to draw, by their key; values that are 0 throughout are left out
        ap_key: key of the AP that was measured while training

    Example:
        >>> lines = [{"step": s, "loss": 8 / s, "eval_AP": s / 10, "seconds_per_step": 2.0} for s in (1, 2, 4)]
        >>> found = training_curves({"a": [lines]}, {"loss": "total loss"})
        >>> found.curves["total loss"]["a"].mean, found.curves["total loss"]["a"].seconds
        ([8.0, 4.0, 2.0], [2.0, 4.0, 8.0])
        >>> print(found.reached["a"][0])
        step 2, 4 s
    """
    runs = {name: [_Seed.of(lines) for lines in seeds] for name, seeds in logs.items()}
    found: dict[str, dict[str, Curve]] = {}
    told: list[str] = []
    for key, title in titles.items():
        by_run = {name: curve for name, seeds in runs.items() if (curve := _curve(seeds, key)) is not None}
        if not any(value for curve in by_run.values() for value in (*curve.low, *curve.high)) and key != ap_key:
            continue
        by_run = {name: curve for name, curve in by_run.items() if any((*curve.low, *curve.high)) or key == ap_key}
        found[title] = by_run
        if missing := [name for name in runs if name not in by_run]:
            told.append(f"{title}: not logged by {', '.join(missing)}, or 0 throughout")
    scored = {name: curve for name, seeds in runs.items() if (curve := _curve(seeds, ap_key)) is not None}
    best = max((max(curve.mean) for curve in scored.values()), default=None)
    return TrainingCurves(
        found,
        best,
        {name: _reached(runs[name], ap_key, best) for name in scored} if best is not None else {},
        (*told, *_notes(runs)),
    )


@dataclass(frozen=True)
class _Seed:
    """The log of one training: values by key and step, the time until steps, and how many steps it repeated."""

    values: dict[str, dict[int, float]]
    times: tuple[np.ndarray, np.ndarray] | None
    last: int
    repeated: int

    @classmethod
    def of(cls, lines: Lines) -> _Seed:
        values: dict[str, dict[int, float]] = {}
        step, repeated = 0, 0
        for line in lines:
            if int(line["step"]) < step:  # resumed from an earlier checkpoint
                step_again = int(line["step"])
                for of_key in values.values():
                    for later in [s for s in of_key if s >= step_again]:
                        del of_key[later]
                repeated += step - step_again + 1
            step = int(line["step"])
            for key, value in line.items():
                if isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value):
                    values.setdefault(key, {})[step] = float(value)
        timed = values.get(_SECONDS)
        times = None
        if timed:
            steps = np.array(sorted(timed))
            spent = np.diff(steps, prepend=0) * np.array([timed[s] for s in steps.tolist()])
            times = np.concatenate([[0], steps]), np.concatenate([[0.0], np.cumsum(spent)])
        return cls(values, times, step, repeated)

    def seconds(self, step: int) -> float | None:
        """Return the time until a step, after the last timed line at its rate; None without times."""
        if self.times is None:
            return None
        steps_P, seconds_P = self.times
        rate = (seconds_P[-1] - seconds_P[-2]) / (steps_P[-1] - steps_P[-2])
        return float(np.interp(step, steps_P, seconds_P) + max(step - steps_P[-1], 0) * rate)


def _curve(seeds: Sequence[_Seed], key: str) -> Curve | None:
    """Return the curve of a value; None if a seed has not logged it, or not at the steps of the others."""
    steps = sorted(set.intersection(*(set(seed.values.get(key, ())) for seed in seeds))) if seeds else []
    if not steps:
        return None
    values_SP = np.array([[seed.values[key][step] for step in steps] for seed in seeds])
    times = [[seed.seconds(step) for seed in seeds] for step in steps]
    return Curve(
        steps,
        [None if None in of_step else float(np.mean(of_step)) for of_step in times],  # type: ignore[arg-type]
        values_SP.mean(axis=0).tolist(),
        values_SP.min(axis=0).tolist(),
        values_SP.max(axis=0).tolist(),
        len(seeds),
    )


def _reached(seeds: Sequence[_Seed], key: str, best: float) -> list[Reached]:
    rows = []
    for share in SHARES:
        steps = [
            next((step for step, value in sorted(seed.values[key].items()) if value >= share * best), None)
            for seed in seeds
        ]
        seconds = [None if step is None else seed.seconds(step) for seed, step in zip(seeds, steps, strict=True)]
        rows.append(Reached(share, share * best, steps, seconds))
    return rows


def _notes(runs: Mapping[str, Sequence[_Seed]]) -> Iterator[str]:
    lengths = {name: sorted({seed.last for seed in seeds}) for name, seeds in runs.items()}
    if len({tuple(steps) for steps in lengths.values()} | {(s,) for steps in lengths.values() for s in steps}) > 1:
        shown = ", ".join(f"{name} {' and '.join(f'{step:,}' for step in steps)}" for name, steps in lengths.items())
        yield f"the runs have other numbers of steps ({shown}): each curve ends where the first of its seeds ends"
    for name, seeds in runs.items():
        if again := sum(seed.repeated for seed in seeds):
            yield f"{name}: {counted(again, 'step')} repeated after a resume; the last line counts, and its time once"
        if any(seed.times is None for seed in seeds):
            yield f"{name}: no {_SECONDS} in its log, so it has no curve over time"


def _drawn(title: str, by_run: Mapping[str, Curve]) -> str:
    timed = {name: curve for name, curve in by_run.items() if None not in curve.seconds}
    with chart(title, panels=2 if timed else 1, width=280, height=210) as drawn:
        for place, (name, curve) in enumerate(by_run.items()):
            colour = PALETTE[place % len(PALETTE)]
            sides = [(drawn.panels[0], curve.steps)]
            if name in timed:
                sides.append((drawn.panels[1], curve.seconds))  # type: ignore[arg-type]
            for panel, xs in sides:
                if curve.seeds > 1:
                    panel.fill_between(xs, curve.low, curve.high, color=colour, alpha=0.18)
                marker = "o" if len(xs) == 1 else None
                panel.plot(xs, curve.mean, "-", color=colour, label=name, marker=marker)
        for panel, label in zip(drawn.panels, ("step", "seconds"), strict=False):
            panel.set(xlabel=label)
    return drawn.svg
