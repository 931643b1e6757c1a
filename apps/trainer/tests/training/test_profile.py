"""The time of a step by part, forward and backward, from torch.profiler's events."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from coord_trainer.training.head import HEAD
from coord_trainer.training.profile import StepProfile, mark, seconds_by_part


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        self.language_model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(30)])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        hidden = self.language_model(self.visual(x))
        with record_function(HEAD):
            return self.head(hidden).logsumexp(1).sum()


def one_step(model, optimizer, x):
    model(x).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.slow
def test_seconds_by_part_give_backward_time_to_the_part_of_its_forward():
    model, x = Model(), torch.randn(32, 64)
    mark(model.visual, "coord::vision")
    mark(model.language_model, "coord::body")
    optimizer = torch.optim.AdamW(model.parameters())
    one_step(model, optimizer, x)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        one_step(model, optimizer, x)
    found, events = seconds_by_part(profiler.profiler.kineto_results.events()), profiler.events()
    assert found["step"] == pytest.approx(sum(value for name, value in found.items() if name != "step"), rel=1e-6)
    assert all(found[name] > 0 for name in ("vision", "body", "head and loss", "optimizer"))
    forward = sum(event.cpu_time_total for event in events if event.name == "coord::body") / 1e6
    backward = [e for e in events if e.name == "autograd::engine::evaluate_function: AddmmBackward0"]
    assert len(backward) == 33  # 2 of vision, 30 of the body, 1 of the head
    fastest_thirty = sum(sorted(event.cpu_time_total for event in backward)[:30]) / 1e6
    assert found["body"] >= forward + 0.999 * fastest_thirty


class Event:
    """A raw event in microseconds; kernels are those with a `launched_by`."""

    def __init__(self, name, start, end, thread=0, sequence=-1, number=0, launched_by=0):
        self.facts = {"name": name, "start_ns": 1000 * start, "end_ns": 1000 * end, "duration_ns": 1000 * (end - start)}
        self.facts |= {"start_thread_id": thread, "sequence_nr": sequence, "correlation_id": number}
        self.facts |= {"linked_correlation_id": launched_by, "is_user_annotation": name.startswith("coord::")}
        self.facts["device_type"] = DeviceType.CUDA if launched_by else DeviceType.CPU

    def __getattr__(self, name):
        return lambda: self.facts[name]


def test_kernels_belong_to_the_part_that_launched_them_and_idle_time_is_explained():
    """A forward and a backward operation of the body, its gradient on another thread, data and a wait."""
    evaluated = "autograd::engine::evaluate_function: "
    events = [
        Event("enumerate(DataLoader)#_SingleProcess.__next__", 0, 300),
        Event("coord::body", 300, 400),
        Event("aten::mm", 310, 320, sequence=7, number=1),
        Event("cudaLaunchKernel", 311, 316),
        Event("gemm", 350, 450, launched_by=1),
        Event(evaluated + "MmBackward0", 500, 560, thread=1, sequence=7),
        Event("aten::mm", 510, 520, thread=1, number=2),
        Event("gemm", 520, 720, launched_by=2),
        Event(evaluated + "torch::autograd::AccumulateGrad", 560, 570, thread=1, sequence=0),
        Event("aten::add_", 561, 569, thread=1, number=3),
        Event("add", 720, 730, launched_by=3),
        Event("cudaStreamSynchronize", 730, 930),
        Event("Optimizer.step#AdamW.step", 930, 1000),
        Event("aten::_fused_adamw_", 940, 950, number=4),
        Event("adam", 950, 1000, launched_by=4),
    ]
    found = {name: round(1e6 * seconds) for name, seconds in seconds_by_part(events).items() if seconds}
    assert found == {
        **{"body": 300, "optimizer": 50, "other operations": 10, "idle": 640, "step": 1000},
        **{"host data": 300, "host launches": 5, "host waits": 200},
    }


def seconds_in(*events):
    found = {name: round(1e6 * seconds) for name, seconds in seconds_by_part(events).items()}
    return {name: value for name, value in found.items() if value}


BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
CPU_CASES = {
    "the outermost of ranges that begin together": (
        [Event("coord::body", 0, 60), Event("coord::vision", 0, 100), Event("aten::mm", 0, 50)],
        {"vision": 100, "step": 100},
    ),
    "ranges side by side": (
        [Event("coord::vision", 0, 30), Event("coord::body", 30, 100), Event(HEAD, 100, 120)],
        {"vision": 30, "body": 70, "head and loss": 20, "step": 120},
    ),
    "operations outside, and time in which none runs": (
        [Event("coord::body", 0, 30), Event("aten::add", 40, 70), Event("aten::copy", 45, 60),
         Event("aten::add", 90, 95)],
        {"body": 30, "other operations": 35, "idle": 30, "step": 95},
    ),
    "backward, also of the first number and on another thread": (
        [Event("coord::vision", 0, 10), Event("aten::mm", 1, 5, sequence=0), Event("coord::body", 10, 20),
         Event("aten::mm", 11, 15, sequence=1), Event(BACKWARD, 20, 50, thread=1, sequence=1),
         Event(BACKWARD, 50, 90, thread=1, sequence=0), Event(BACKWARD, 90, 100, thread=1, sequence=9)],
        {"vision": 50, "body": 40, "other operations": 10, "step": 100},
    ),
    "a number that occurs again is of its first part": (
        [Event("coord::vision", 0, 10), Event("aten::mm", 1, 5, sequence=3), Event("coord::body", 10, 20),
         Event("aten::mm", 11, 15, sequence=3), Event(BACKWARD, 20, 50, sequence=3)],
        {"vision": 40, "body": 10, "step": 50},
    ),
    "the number -1 is none": (
        [Event("coord::vision", 0, 10), Event("aten::mm", 1, 5), Event(BACKWARD, 10, 30)],
        {"vision": 10, "other operations": 20, "step": 30},
    ),
    "data and optimizer by the beginning of their names": (
        [Event("enumerate(DataLoader)#x.__next__", 0, 5), Event("Optimizer.step#Adam", 5, 8),
         Event("Optimizer.zero_grad#Adam", 8, 10), Event("My Optimizer.step", 10, 12)],
        {"data": 5, "optimizer": 5, "other operations": 2, "step": 12},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CPU_CASES)
def test_time_without_a_gpu_is_that_of_intervals_on_the_threads(case):
    events, expected = CPU_CASES[case]
    assert seconds_in(*events) == seconds_in(*reversed(events)) or case.startswith("a number")
    assert seconds_in(*events) == expected


@pytest.mark.parametrize("begun", [0, 7])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("steps", "profiled"), [(3, None), (4, 1), (8, 5), (20, 5), (0, None)], ids=str)
def test_few_steps_are_profiled_once_from_where_a_run_goes_on(
    tmp_path, capsys, monkeypatch, begun, first, steps, profiled
):
    calls = []

    class Profiler:
        def __init__(self, activities):
            self.profiler = SimpleNamespace(
                kineto_results=SimpleNamespace(events=lambda: [Event("coord::body", 0, 100)])
            )

        def start(self):
            calls.append(("start", state.global_step - begun))

        def stop(self):
            calls.append(("stop", state.global_step - begun))

    monkeypatch.setattr("coord_trainer.training.profile.profile", Profiler)
    state = SimpleNamespace(global_step=begun, epoch=0.5, is_world_process_zero=first)
    callback, model = StepProfile(tmp_path / "m.jsonl", "visual", "language_model"), Model()
    callback.on_train_begin(None, state, None, model=model)
    for _ in range(steps):
        state.global_step += 1
        callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    told = capsys.readouterr().out
    assert ("nothing was profiled" in told) is (steps <= 3) and ("of a step by part" in told) is (first and steps > 3)
    if profiled is None:
        assert not (tmp_path / "m.jsonl").exists() and calls == ([("start", 3), ("stop", 3)] if steps == 3 else [])
        return
    assert calls == [("start", 3), ("stop", 3 + profiled)]
    assert (tmp_path / "m.jsonl").exists() is first
    if first:
        (line,) = map(json.loads, (tmp_path / "m.jsonl").read_text().splitlines())
        assert (line["step"], line["profiled_steps"]) == (begun + 3 + profiled, profiled)
        assert line["profile"]["body"] == line["profile"]["step"] == pytest.approx(1e-4 / profiled)


def test_parts_are_marked_below_an_adapter_and_where_a_pass_fails():
    model = Model()
    adapted = SimpleNamespace(get_base_model=lambda: model)
    callback = StepProfile("m.jsonl", "visual", "language_model")
    callback.on_train_begin(None, SimpleNamespace(global_step=0), None, model=adapted)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 3))
        model(torch.ones(2, 64))
    names = [event.name() for event in profiler.profiler.kineto_results.events()]
    assert (names.count("coord::vision"), names.count("coord::body")) == (2, 1)


@pytest.mark.slow
def test_step_profile_takes_a_few_steps_once_and_writes_them_down(tmp_path, capsys):
    model = Model()
    optimizer, x = torch.optim.AdamW(model.parameters()), torch.randn(32, 64)
    path = tmp_path / "metrics.jsonl"
    parts = ("model.visual", "model.language_model")
    callback, state = StepProfile(path, *parts), SimpleNamespace(global_step=0, epoch=0.5, is_world_process_zero=True)
    callback.on_train_begin(None, state, None, model=nn.ModuleDict({"model": model}))
    for _ in range(20):
        one_step(model, optimizer, x)
        state.global_step += 1
        callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["profiled_steps"] == 5 and json.loads(line)["profile"]["vision"] > 0
    assert "time of a step by part" in capsys.readouterr().out
    short = StepProfile(path, *parts)
    state.global_step = 0
    short.on_train_begin(None, state, None, model=nn.ModuleDict({"model": Model()}))
    short.on_train_end(None, state, None)
    assert "nothing was profiled" in capsys.readouterr().out
