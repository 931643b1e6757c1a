"""Time of a step by part (`run.profile`), from torch.profiler's events.

A backward operation belongs to the part whose forward operation has the same sequence number; torch records data
loading and the optimizer as ranges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback

from coord_trainer.console import say
from coord_trainer.training.callbacks import append_line
from coord_trainer.training.head import HEAD

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
        append_line(self._path, state, {"profile": seconds, "profiled_steps": steps})
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
