"""The time of a step by part, forward and backward, from torch.profiler's events."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn
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
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        one_step(model, optimizer, x)
    events = profiler.events()
    found = seconds_by_part(events)
    assert found["step"] == pytest.approx(sum(value for name, value in found.items() if name != "step"), rel=1e-6)
    assert all(found[name] > 0 for name in ("vision", "body", "head and loss", "optimizer"))
    forward = sum(event.cpu_time_total for event in events if event.name == "coord::body") / 1e6
    backward = [e for e in events if e.name == "autograd::engine::evaluate_function: AddmmBackward0"]
    assert len(backward) == 33  # 2 of vision, 30 of the body, 1 of the head
    fastest_thirty = sum(sorted(event.cpu_time_total for event in backward)[:30]) / 1e6
    assert found["body"] >= forward + 0.999 * fastest_thirty


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
