"""Where a training step goes: torch.profiler's events, added up by part of the model.

A backward operation belongs to the part whose forward operation has the same sequence number; the profiler's own
ranges tell data loading and the optimizer.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback

from .console import say

HEAD = "coord::head and loss"
_PARTS = {"coord::vision": "vision", "coord::body": "body", HEAD: "head and loss"}
_WHOLE = {"Optimizer.": "optimizer", "enumerate(DataLoader)": "data"}
_BACKWARD = "autograd::engine::evaluate_function: "
_WARM_UP, _PROFILED = 3, 5


class StepProfile(TrainerCallback):
    """Profiles a few steps after a few others, from the end of one to the end of another, and adds a line to a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._profiler, self._told = path, None, False

    def on_train_begin(self, args, state, control, model=None, **kwargs) -> None:  # noqa: D102
        core = (model.get_base_model() if hasattr(model, "get_base_model") else model).model
        mark(core.visual, "coord::vision")
        mark(core.language_model, "coord::body")
        self._first = state.global_step + _WARM_UP

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        if state.global_step == self._first and not self._told:
            cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            self._profiler = profile(activities=[ProfilerActivity.CPU, *cuda], acc_events=True)
            self._profiler.start()
        elif self._profiler is not None and state.global_step == self._first + _PROFILED:
            self._finish(state)

    def on_train_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        if self._profiler is not None:
            self._finish(state)
        elif state.global_step < self._first + 1:
            say(
                f"nothing was profiled: that needs {_WARM_UP + 1} steps or more, and there were {state.global_step}"
            )

    def _finish(self, state) -> None:
        self._profiler.stop()
        events, self._profiler = self._profiler.events(), None
        steps = state.global_step - self._first
        self._told = True
        if not state.is_world_process_zero:
            return
        seconds = {name: value / steps for name, value in seconds_by_part(events).items()}
        with self._path.open("a", encoding="utf-8") as file:
            line = {
                "step": state.global_step,
                "epoch": state.epoch,
                "profile": seconds,
                "profiled_steps": steps,
            }
            file.write(json.dumps(line) + "\n")
        for text in table(seconds):
            say(text)


def mark(module: nn.Module, name: str) -> None:
    """Put the module's forward passes into a range of the profiler."""
    ranges = []

    def enter(*_: Any) -> None:
        ranges.append(record_function(name))
        ranges[-1].__enter__()

    def leave(*_: Any) -> None:
        ranges.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave, always_call=True)


def seconds_by_part(events: Sequence[Any]) -> dict[str, float]:
    """Seconds by part, forward and backward together, `other` and `step` for all; of torch.profiler's events."""
    spans = sorted(
        (event.time_range.start, event.time_range.end, _PARTS[event.name], event.thread)
        for event in events
        if event.name in _PARTS
    )
    starts = [span[0] for span in spans]

    def part_at(event: Any) -> str | None:
        index = bisect_right(starts, event.time_range.start) - 1
        # Ranges of the model's parts follow each other; none lies in another.
        inside = index >= 0 and event.time_range.end <= spans[index][1] and event.thread == spans[index][3]
        return spans[index][2] if inside else None

    total = dict.fromkeys([*_PARTS.values(), *_WHOLE.values()], 0.0)
    source: dict[int, str] = {}
    for event in events:
        if event.name in _PARTS:
            total[_PARTS[event.name]] += _seconds(event)
        elif event.sequence_nr >= 0 and not event.name.startswith(_BACKWARD):
            part = part_at(event)
            if part is not None:
                source.setdefault(event.sequence_nr, part)
        for prefix, name in _WHOLE.items():
            if event.name.startswith(prefix):
                total[name] += _seconds(event)
    for event in events:
        if event.name.startswith(_BACKWARD) and event.sequence_nr in source:
            total[source[event.sequence_nr]] += _seconds(event)
    first = min(event.time_range.start for event in events)
    whole = (max(event.time_range.end for event in events) - first) / 1e6
    return {**total, "other": max(whole - sum(total.values()), 0.0), "step": whole}


def _seconds(event: Any) -> float:
    return (event.device_time_total if torch.cuda.is_available() else event.cpu_time_total) / 1e6


def table(seconds: dict[str, float]) -> list[str]:
    """Lines for people."""
    step = seconds["step"]
    lines = ["where a step goes (forward and backward, under the profiler):"]
    lines += [f"  {name:14} {value * 1e3:10.1f} ms {value / step:7.1%}" for name, value in seconds.items()]
    return lines
