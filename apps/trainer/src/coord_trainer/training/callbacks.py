"""Callbacks of a run: progress bar, metrics.jsonl and its interval, number of the epoch, time of a step by part.

Times are taken from torch.profiler's events. A backward operation belongs to the part whose forward operation has the
same sequence number; torch records data loading and the optimizer as ranges.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from tqdm import tqdm
from transformers import TrainerCallback, TrainerState

from coord_codec import RunError
from coord_trainer.console import say
from coord_trainer.training.head import HEAD
from coord_trainer.training.metrics import STEP_TIME, find_overfitting


class TrainingProgress(TrainerCallback):
    """Shows a progress bar over optimizer steps, with the last logged total loss."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # noqa: D102
        if state.is_world_process_zero:
            self._bar = tqdm(
                total=state.max_steps, initial=state.global_step, desc="training", unit="step", mininterval=0.5
            )

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # noqa: D102
        if self._bar is not None and logs and "train_total_loss" in logs:
            self._bar.set_postfix(loss=f"{logs['train_total_loss']:.3f}", refresh=False)

    def on_train_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        if self._bar is not None:
            self._bar.close()


class OverfittingWatch(TrainerCallback):
    """Prints the evaluation loss and the training loss, and one warning about overfitting.

    Args:
        evaluations: number of consecutive rises of the evaluation loss until the warning
    """

    def __init__(self, evaluations: int) -> None:
        self._evaluations = evaluations
        self._warned = False
        self._lines: list[dict[str, float]] = []

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # noqa: D102
        losses = {name: (logs or {})[name] for name in ("train_total_loss", "eval_total_loss") if name in (logs or {})}
        if not losses:
            return
        self._lines.append({"step": state.global_step, **losses})
        if "eval_total_loss" not in losses:
            return
        trained = [line["train_total_loss"] for line in self._lines if "train_total_loss" in line]
        training_loss = f", training loss {trained[-1]:.3f}" if trained else ""
        say(f"  step {state.global_step}: evaluation loss {losses['eval_total_loss']:.3f}{training_loss}")
        if not self._warned and (warning := find_overfitting(self._lines, self._evaluations)):
            self._warned = True
            say(f"  {warning}")


LINES_AT_AN_INTERVAL = 10_000
"""Number of log lines at each logging interval: at first `training.logging_steps`, then twice, 4, 8, ... times that."""


class SparserLogs(TrainerCallback):
    """Doubles the logging interval repeatedly, so that logs grow with the logarithm of a run's length.

    A line holds the means since the last one, so that no step is left out. The interval depends only on the step:
    a resumed run logs the same lines.
    """

    def __init__(self, lines: int = LINES_AT_AN_INTERVAL) -> None:
        self._lines = lines

    def on_step_begin(self, args, state, control, **kwargs) -> None:  # noqa: D102
        interval = log_interval(args.logging_steps, state.global_step, self._lines)
        if interval != state.logging_steps:
            state.logging_steps = interval
            say(f"  step {state.global_step}: {self._lines:,} lines are logged; now one follows every {interval} steps")


def log_interval(first: int, step: int, lines: int = LINES_AT_AN_INTERVAL) -> int:
    """Return the number of steps between log lines after `step` steps.

    Args:
        first: the interval of the first `lines` lines; later intervals are twice, 4, 8, ... times as long
        step: finished optimizer steps
        lines: number of log lines at each interval

    Example:
        >>> [log_interval(10, step) for step in (0, 99_999, 100_000, 299_999, 300_000)]
        [10, 10, 20, 20, 40]
    """
    return first << (step // (first * lines) + 1).bit_length() - 1


class EachEpoch(TrainerCallback):
    """Calls a function at the beginning of each epoch with its number, from 0; also after a resume."""

    def __init__(self, begin: Callable[[int], None]) -> None:
        self._begin = begin

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:  # noqa: D102
        self._begin(int(state.epoch or 0))


class StepTime(TrainerCallback):
    """Measures the time of a step, without that of evaluations and checkpoints."""

    def __init__(self) -> None:
        self._step, self._since = 0, time.monotonic()

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # noqa: D102
        self._step, self._since = state.global_step, time.monotonic()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of this block."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._since += time.monotonic() - begun

    def since_last(self, step: int) -> dict[str, float]:
        """Return the mean seconds of the steps since the last call, as part of a log line; empty without a step."""
        steps, now = step - self._step, time.monotonic()
        if steps < 1:
            return {}
        seconds = (now - self._since) / steps
        self._step, self._since = step, now
        return {STEP_TIME: round(seconds, 4)}


def _append(path: Path, state: TrainerState, values: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": state.global_step, "epoch": state.epoch, **values}) + "\n")


class MetricsFile(TrainerCallback):
    """Appends every log line to a file as JSON; ends the run if the loss is not finite."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # noqa: D102
        if not logs or ("train_runtime" in logs and state.global_step < state.max_steps):
            return  # a summary written at an interruption does not describe the run
        if state.is_world_process_zero:
            _append(self._path, state, logs)
        loss = logs.get("train_total_loss", logs.get("loss"))
        if loss is not None and not math.isfinite(loss):
            raise RunError(
                f"training diverged: the loss was {loss} at step {state.global_step}; lower "
                "training.learning_rate, or find the term that grew first in metrics.jsonl"
            )


_PARTS = {"coord::vision": "vision", "coord::body": "body", HEAD: "head and loss"}
_RANGES = {"Optimizer.": "optimizer", "enumerate(DataLoader)": "data"}
_BACKWARD = "autograd::engine::evaluate_function: "
_WARM_UP, _PROFILED = 3, 5


class StepProfile(TrainerCallback):
    """Profiles a few steps after warming up, and appends their times to the metrics file.

    Args:
        path: the metrics file
        vision_tower: name of the vision tower's module
        language_model: name of the language model's module
    """

    def __init__(self, path: Path, vision_tower: str, language_model: str) -> None:
        self._path = path
        self._parts = {vision_tower: "coord::vision", language_model: "coord::body"}
        self._profiler = None
        self._finished = False

    def on_train_begin(self, args, state, control, model=None, **kwargs) -> None:  # noqa: D102
        core = model.get_base_model() if hasattr(model, "get_base_model") else model
        for name, part in self._parts.items():
            mark(core.get_submodule(name), part)
        self._first = state.global_step + _WARM_UP

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        if state.global_step == self._first and not self._finished:
            cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            self._profiler = profile(activities=[ProfilerActivity.CPU, *cuda], acc_events=True)
            self._profiler.start()
        elif self._profiler is not None and state.global_step == self._first + _PROFILED:
            self._finish(state)

    def on_train_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        if self._profiler is not None:
            self._finish(state)
        elif state.global_step < self._first + 1:
            say(f"nothing was profiled: profiling needs at least {_WARM_UP + 1} steps, found {state.global_step}")

    def _finish(self, state) -> None:
        self._profiler.stop()
        events, self._profiler = self._profiler.events(), None
        steps = state.global_step - self._first
        self._finished = True
        if not state.is_world_process_zero:
            return
        seconds = {name: value / steps for name, value in seconds_by_part(events).items()}
        _append(self._path, state, {"profile": seconds, "profiled_steps": steps})
        say("time of a step by part (forward and backward, under the profiler):")
        for name, value in seconds.items():
            say(f"  {name:14} {value * 1e3:10.1f} ms {value / seconds['step']:7.1%}")


def mark(module: nn.Module, name: str) -> None:
    """Record each forward pass of a module as a profiler range."""
    ranges = []

    def enter(*_: Any) -> None:
        ranges.append(record_function(name))
        ranges[-1].__enter__()

    def leave(*_: Any) -> None:
        ranges.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave, always_call=True)


def seconds_by_part(events: Sequence[Any]) -> dict[str, float]:
    """Return the seconds of each part, forward and backward together, of `other` and of the `step`."""
    spans = sorted(
        (event.time_range.start, event.time_range.end, _PARTS[event.name], event.thread)
        for event in events
        if event.name in _PARTS
    )
    starts = [span[0] for span in spans]

    def part_at(event: Any) -> str | None:
        index = bisect_right(starts, event.time_range.start) - 1
        # Ranges of the model's parts are consecutive, never nested.
        inside = index >= 0 and event.time_range.end <= spans[index][1] and event.thread == spans[index][3]
        return spans[index][2] if inside else None

    total = dict.fromkeys([*_PARTS.values(), *_RANGES.values()], 0.0)
    source: dict[int, str] = {}
    for event in events:
        if event.name in _PARTS:
            total[_PARTS[event.name]] += _seconds(event)
        elif event.sequence_nr >= 0 and not event.name.startswith(_BACKWARD):
            part = part_at(event)
            if part is not None:
                source.setdefault(event.sequence_nr, part)
        for prefix, name in _RANGES.items():
            if event.name.startswith(prefix):
                total[name] += _seconds(event)
    for event in events:
        if event.name.startswith(_BACKWARD) and event.sequence_nr in source:
            total[source[event.sequence_nr]] += _seconds(event)
    first = min(event.time_range.start for event in events)
    step = (max(event.time_range.end for event in events) - first) / 1e6
    return {**total, "other": max(step - sum(total.values()), 0.0), "step": step}


def _seconds(event: Any) -> float:
    return (event.device_time_total if torch.cuda.is_available() else event.cpu_time_total) / 1e6
