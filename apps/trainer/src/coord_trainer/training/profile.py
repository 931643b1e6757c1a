"""Time of a step by part (`run.profile`), from the raw events of torch.profiler.

A backward operation belongs to the part whose forward operation has the same sequence number, a kernel of a GPU to the
part of the operation that launched it; torch records data loading and the optimizer as ranges. Raw events are read
once: torch's own summary builds a tree of them, which takes a minute at a billion parameters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback

from coord_detect.console import say
from coord_trainer.training.callbacks import append_line
from coord_trainer.training.head import HEAD

DeviceType = torch.autograd.DeviceType  # type: ignore[attr-defined]  # torch.autograd does not list it
_PARTS = {"coord::vision": "vision", "coord::body": "body", HEAD: "head and loss"}
_RANGES = {"Optimizer.": "optimizer", "enumerate(DataLoader)": "data"}
_HOST = {"launches": "LaunchKernel", "waits": "Synchronize"}
"""Calls of the driver on the host, by a part of their names; a copy to the host ends with one that waits."""
_BACKWARD = "autograd::engine::evaluate_function: "
_OTHER = "other operations"
_WARM_UP, _PROFILED = 3, 5


class StepProfile(TrainerCallback):
    """Profiles a few steps after warming up, and appends their times to the metrics file."""

    def __init__(self, path: Path, vision_tower: str, language_model: str) -> None:
        self._path = path
        self._parts = {vision_tower: "coord::vision", language_model: "coord::body"}
        self._profiler: profile | None = None
        self._finished = False

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: D102
        core = model.get_base_model() if hasattr(model, "get_base_model") else model
        for name, part in self._parts.items():
            mark(core.get_submodule(name), part)
        self._first = state.global_step + _WARM_UP

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        if state.global_step == self._first and not self._finished:
            cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            self._profiler = profile(activities=[ProfilerActivity.CPU, *cuda])
            self._profiler.start()
        elif self._profiler is not None and state.global_step == self._first + _PROFILED:
            self._finish(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        if self._profiler is not None and state.global_step > self._first:
            self._finish(state)
        elif state.global_step < self._first + 1:
            if self._profiler is not None:  # begun behind the last step
                self._profiler.stop()
            say(f"nothing was profiled: profiling needs at least {_WARM_UP + 1} steps, found {state.global_step}")

    def _finish(self, state: Any) -> None:
        assert self._profiler is not None
        self._profiler.stop()
        results: Any = self._profiler.profiler
        events, self._profiler = results.kineto_results.events(), None
        steps = state.global_step - self._first
        self._finished = True
        if not state.is_world_process_zero:
            return
        seconds = {name: value / steps for name, value in seconds_by_part(events).items()}
        append_line(self._path, state, {"profile": seconds, "profiled_steps": steps})
        say("time of a step by part (forward and backward, under the profiler; idle: no operation runs):")
        for name, value in seconds.items():
            say(f"  {name:16} {value * 1e3:10.1f} ms {value / seconds['step']:7.1%}")


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
    """Return the seconds of each part, forward and backward together, from events of torch.profiler.

    They are seconds of the parts, of `other operations` (such as adding gradients and clipping them), of
    `idle` and of their sum, the `step`. With a GPU these are times of its kernels, and seconds of the host
    follow, which overlap with them: `host data`, `host launches` and `host waits` say what it does while the
    GPU is idle.
    """
    kernels = [e for e in events if e.device_type() != DeviceType.CPU and not e.is_user_annotation()]
    host = [e for e in events if e.device_type() == DeviceType.CPU]
    ranges = [(e, part) for e in host if (part := _range(e.name()))]

    # Intervals on the threads of the host: ranges, and backward functions, of the part of their forward operation
    forward = _Intervals([pair for pair in ranges if pair[0].name() in _PARTS])
    source: dict[int, str] = {}
    for event in host:
        if event.sequence_nr() >= 0 and (part := forward.part_at(event)):
            source.setdefault(event.sequence_nr(), part)
    backward = [(e, source.get(e.sequence_nr(), _OTHER)) for e in host if e.name().startswith(_BACKWARD)]
    intervals = _Intervals([*ranges, *backward])

    total = dict.fromkeys([*_PARTS.values(), *_RANGES.values(), _OTHER], 0.0)
    if kernels:
        launched = {e.correlation_id(): e for e in host if not e.linked_correlation_id()}
        for kernel in kernels:
            operation = launched.get(kernel.linked_correlation_id())
            part = intervals.part_at(operation) if operation is not None else None
            total[part or _OTHER] += kernel.duration_ns() / 1e9
    else:
        outside = [(e, _OTHER) for e in host if not e.is_user_annotation() and intervals.part_at(e) is None]
        for interval in (*intervals, *_Intervals(outside)):
            total[interval.part] += (interval.end - interval.start) / 1e9
    step = (max(e.end_ns() for e in events) - min(e.start_ns() for e in events)) / 1e9
    total |= {"idle": max(step - sum(total.values()), 0.0), "step": step}
    if kernels:
        total["host data"] = sum(e.duration_ns() for e, part in ranges if part == "data") / 1e9
        for name, called in _HOST.items():
            total[f"host {name}"] = sum(e.duration_ns() for e in host if called in e.name()) / 1e9
    return total


def _range(name: str) -> str | None:
    """Return the part of a profiler range of this name; None for other events."""
    return _PARTS.get(name) or next((part for prefix, part in _RANGES.items() if name.startswith(prefix)), None)


class _Interval(NamedTuple):
    start: int
    end: int
    part: str


class _Intervals:
    """The outermost intervals of each thread, in nanoseconds, with their parts."""

    def __init__(self, events: Iterable[tuple[Any, str]]) -> None:
        self._threads: dict[int, list[_Interval]] = {}
        for event, part in sorted(events, key=lambda pair: (pair[0].start_ns(), -pair[0].end_ns())):
            known = self._threads.setdefault(event.start_thread_id(), [])
            if not known or event.start_ns() >= known[-1].end:
                known.append(_Interval(event.start_ns(), event.end_ns(), part))

    def __iter__(self) -> Iterator[_Interval]:
        return chain.from_iterable(self._threads.values())

    def part_at(self, event: Any) -> str | None:
        """Return the part of the interval in which an event begins; None outside."""
        known, start = self._threads.get(event.start_thread_id(), []), event.start_ns()
        index = bisect_right(known, start, key=lambda interval: interval.start) - 1
        return known[index].part if index >= 0 and start < known[index].end else None
