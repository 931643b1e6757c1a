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
