"""The interval of log lines."""

import json
from functools import partial

import pytest
from tiny_run import read_lines, tiny_config

from coord_trainer.data.shapes import draw_sets
from coord_trainer.training.callbacks import SparserLogs, log_interval


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


@pytest.mark.slow
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
