"""What the trainer tells while it runs: a progress bar with time left, and metrics.jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm
from transformers import TrainerCallback

from .errors import RunError


class TrainingProgress(TrainerCallback):
    """One bar over optimizer steps; shows the last logged total loss."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # noqa: D102
        if state.is_world_process_zero:
            self._bar = tqdm(
                total=state.max_steps,
                initial=state.global_step,
                desc="training",
                unit="step",
                mininterval=0.5,
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


class EachEpoch(TrainerCallback):
    """Tells somebody the epoch that begins, from 0; also after a resume."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:  # noqa: D102
        self._tell(int(state.epoch or 0))


class MetricsFile(TrainerCallback):
    """Every log line as JSON; stops the run when the loss is no number any more."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # noqa: D102
        if not logs:
            return
        if state.is_world_process_zero:
            line = {"step": state.global_step, "epoch": state.epoch, **logs}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        loss = logs.get("train_total_loss", logs.get("loss"))
        if loss is not None and not math.isfinite(loss):
            raise RunError(
                f"training diverged: the loss was {loss} at step {state.global_step}; lower "
                "training.learning_rate, or look at metrics.jsonl for the term that grew first"
            )
