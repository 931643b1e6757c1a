"""Callbacks of a run: progress bar, metrics.jsonl and its interval, number of the epoch, seconds of a step."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerState

from coord_codec import RunError
from coord_trainer.console import say
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
    """Prints the evaluation loss and the training loss, and one warning about overfitting."""

    def __init__(self) -> None:
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
        if not self._warned and (warning := find_overfitting(self._lines)):
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


def append_line(path: Path, state: TrainerState, values: dict[str, Any]) -> None:
    """Append a line of values, with step and epoch, to metrics.jsonl."""
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
            append_line(self._path, state, logs)
        loss = logs.get("train_total_loss", logs.get("loss"))
        if loss is not None and not math.isfinite(loss):
            raise RunError(
                f"training diverged: the loss was {loss} at step {state.global_step}; lower "
                "training.learning_rate, or find the term that grew first in metrics.jsonl"
            )
