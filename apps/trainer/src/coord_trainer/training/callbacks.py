"""Callbacks of a run: progress bar, metrics.jsonl, number of the epoch, seconds of a step."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerState

from coord_codec import RunError
from coord_detect.console import say
from coord_trainer.training.metrics import STEP_TIME


@dataclass(eq=False)
class TrainingProgress(TrainerCallback):
    """Shows a progress bar over optimizer steps with the last logged total loss, and prints evaluation losses."""

    _bar: tqdm | None = None
    _trained: str = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        if state.is_world_process_zero:
            self._bar = tqdm(
                total=state.max_steps, initial=state.global_step, desc="training", unit="step", mininterval=0.5
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: D102
        if self._bar is None or not logs:
            return
        if "train_total_loss" in logs:
            self._bar.set_postfix(loss=f"{logs['train_total_loss']:.3f}", refresh=False)
            self._trained = f", training loss {logs['train_total_loss']:.3f}"
        if "eval_total_loss" in logs:
            say(f"  step {state.global_step}: evaluation loss {logs['eval_total_loss']:.3f}{self._trained}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        if self._bar is not None:
            self._bar.close()


class IntervalsOfNow(TrainerCallback):
    """Logs, evaluates and saves as often as this call says, which a resume would read from the checkpoint's state."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        state.compute_steps(args, state.max_steps)


@dataclass(eq=False)
class EachEpoch(TrainerCallback):
    """Calls a function at the beginning of each epoch with its number, from 0; also after a resume."""

    begin: Callable[[int], None]

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        self.begin(int(state.epoch or 0))


@dataclass(eq=False)
class StepTime(TrainerCallback):
    """Measures the time of a step, without that of evaluations and checkpoints."""

    _step: int = 0
    _since: float = field(default_factory=time.monotonic)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
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


@dataclass(eq=False)
class MetricsFile(TrainerCallback):
    """Appends every log line to a file as JSON; ends the run if the loss is not finite."""

    path: Path

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: D102
        if not logs or ("train_runtime" in logs and state.global_step < state.max_steps):
            return  # a summary written at an interruption does not describe the run
        if state.is_world_process_zero:
            append_line(self.path, state, logs)
        loss = logs.get("train_total_loss", logs.get("loss"))
        if loss is not None and not math.isfinite(loss):
            raise RunError(
                f"training diverged: the loss was {loss} at step {state.global_step}; lower "
                "training.learning_rate, or find the term that grew first in metrics.jsonl"
            )
