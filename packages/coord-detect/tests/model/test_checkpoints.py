"""Checkpoints of a run: which is the newest, the best, and whether a training had ended with it."""

import json
import os

import pytest

from coord_codec import InputError
from coord_detect.model import checkpoints
from coord_detect.model.checkpoints import (
    answer_scores,
    best_by_ap,
    find_checkpoint,
    is_finished,
    locate_model,
    newest_complete,
    scores_since_best,
    weight_files,
)

AP = checkpoints.AP


@pytest.mark.parametrize(
    ("values", "waited"),
    [([], 0), ([0.5], 0), ([0.5, 0.4], 1), ([0.5, 0.5], 1), ([0.1, 0.5, 0.4, 0.3], 2), ([0, 1], 0)],
)
def test_measurements_since_the_first_of_the_highest(values, waited):
    history = [{"step": step, AP: value} for step, value in enumerate(values)] + [{"step": 9, "loss": 1.0}]
    assert scores_since_best(answer_scores(history)) == waited


@pytest.mark.parametrize(
    ("asked", "ended"),
    [
        ((10, None), True),
        ((11, None), False),
        ((9, None), True),
        ((None, None), True),
        ((-1, None), True),
        ((None, 2.0), True),
        ((None, 2.5), False),  # it has been configured to be longer since
        ((None, 1.0), True),
        ((99, None, 2), True),  # its patience had ended
        ((99, None, 3), False),
    ],
)
def test_training_had_ended_at_the_last_step_or_with_its_patience(tmp_path, asked, ended):
    history = [{"step": step, AP: value} for step, value in enumerate((0.5, 0.4, 0.4))]
    state = {"global_step": 10, "max_steps": 10, "num_train_epochs": 2, "log_history": history}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert is_finished(tmp_path, *asked) is ended
    if len(asked) == 2 and asked[0] in (None, -1):
        (tmp_path / "trainer_state.json").write_text(json.dumps(state | {"global_step": 9}))
        assert is_finished(tmp_path, *asked) is False


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints 5, 10 and 20 (incomplete), of which 5 has the highest AP."""
    for step in (5, 10, 20):
        folder = tmp_path / "run" / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        history = [{"step": s, AP: value} for s, value in ((5, 0.5), (10, 0.4)) if s <= step]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        (folder / "adapter_config.json").write_text("{}")
        checkpoints.mark_complete(folder)
    (tmp_path / "run" / "checkpoints" / "checkpoint-20" / "adapter_config.json").unlink()
    (tmp_path / "run" / "checkpoints" / "checkpoint-7.1").mkdir()
    return tmp_path / "run"


def test_run_stands_for_its_best_checkpoint_and_without_scores_for_the_newest(run):
    newest, incomplete = newest_complete(run / "checkpoints")
    assert newest.name == "checkpoint-10" and [path.name for path in incomplete] == ["checkpoint-20"]
    best, value = best_by_ap(newest)
    assert (best.name, value) == ("checkpoint-5", 0.5)
    assert find_checkpoint(run) == locate_model(run) == best and find_checkpoint(best) == best
    (best / "adapter_config.json").write_text("{ }")  # of another size
    assert best_by_ap(newest) is None and find_checkpoint(run) == newest
    (newest / "trainer_state.json").write_text("[]")
    assert best_by_ap(newest) is None
    (newest / "adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"without a complete checkpoint; checkpoint-20: "):
        find_checkpoint(run)


def test_what_is_no_model_is_told(run, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, told in (("gone", "no such folder"), ("file", "is a file"), ("empty", "no model found")):
        with pytest.raises(InputError, match=told):
            locate_model(tmp_path / name)


def test_weights_are_told_apart_by_name_size_and_time(tmp_path):
    file = tmp_path / "b.safetensors"
    seen = []
    for content, time in (("1", 1), ("12", 1), ("12", 2)):
        file.write_text(content)
        os.utime(file, ns=(time, time))
        seen.append(weight_files(tmp_path))
    (tmp_path / "a.safetensors").write_text("1")
    (tmp_path / "c.bin").write_text("1")
    seen.append(weight_files(tmp_path))
    assert [name for name, *_ in seen[-1]] == ["a.safetensors", "b.safetensors"]
    assert len({json.dumps(facts) for facts in seen}) == 4
