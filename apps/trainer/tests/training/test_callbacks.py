"""The interval of log lines, and the time of a step by part, forward and backward, from torch.profiler's events."""

import json
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tiny_run import read_lines, tiny_config
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from coord_trainer.data.shapes import draw_sets
from coord_trainer.training.callbacks import HEAD, SparserLogs, StepProfile, log_interval, mark, seconds_by_part


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


@pytest.mark.parametrize(("first", "lines"), [(1, 8), (10, 8), (3, 16)])
def test_log_lines_become_sparser_so_that_their_number_grows_with_the_logarithm(first, lines):
    naive, interval, last = [], first, 0
    while len(naive) < 4 * lines:
        if naive and len(naive) % lines == 0:
            interval *= 2
        last += interval
        naive.append(last)
    found = [step for step in range(1, last + 1) if step % log_interval(first, step - 1, lines) == 0]
    assert found == naive


def test_run_logs_sparser_lines_of_all_steps_and_says_so(tmp_path, monkeypatch, capsys):
    pytest.importorskip("swift")
    from coord_trainer import run

    monkeypatch.setattr("coord_trainer.train.SparserLogs", partial(SparserLogs, 2))
    training = {"max_steps": 8, "save_steps": 8, "gradient_accumulation_steps": 1, "report_to": []}
    config = tiny_config(evaluation={"images": "none"}, training=training)
    run.train_and_score(config, tmp_path / "run")
    lines = [line for line in read_lines(tmp_path / "run") if "train_total_loss" in line]
    assert "now one follows every 2 steps" in capsys.readouterr().out
    # A line is of all tokens since the last one, not of its own step.
    sides = [4 * len(instance.objects) for instance in draw_sets(config, tmp_path / "data")[0].instances]
    expected = {1: sides[:1], 2: sides[1:2], 4: sides[2:4], 6: sides[4:6], 8: sides[6:]}
    assert {line["step"]: line["coord_diag/coord_tokens"] for line in lines} == {n: sum(s) for n, s in expected.items()}
    state = json.loads((tmp_path / "run" / "checkpoints" / "checkpoint-8" / "trainer_state.json").read_text())
    assert len([line for line in state["log_history"] if "train_total_loss" in line]) == 5
