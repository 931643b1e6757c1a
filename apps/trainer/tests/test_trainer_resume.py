"""kill -9 in the middle of a save, then `run.resume`: as if nothing had happened, bit for bit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coord_trainer.checkpoints import is_complete, mark_complete, needs_no_more, newest_complete
from coord_trainer.config_files import check_run_config
from coord_trainer.errors import InputError
from coord_trainer.resuming import check_same_data, cut_metrics, prepare_resume
from coord_trainer.run_folder import write_config

HERE = Path(__file__).parent
SETTINGS = {
    "data": {"markers": "obj", "shapes": {"train": 10, "heldout": 2}},
    "custom": {"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True}},
    "run": {"threads": 1},
    "model": {"tiny": {"hidden": 32, "ffn": 48, "vision_hidden": 32, "layers": 2, "vision_layers": 2}},
    "evaluation": {"pictures": "none"},
    "training": {
        "tuner_type": "lora",
        "target_modules": ["all-linear"],
        "lora_dropout": 0.2,
        "max_steps": 6,
        "logging_steps": 3,
        "save_steps": 2,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-2,
        "report_to": [],
    },
}


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(resumed, whole):
    """Every logged number and every weight, to the last bit."""
    from safetensors.torch import load_file

    expected, found = lines_of(whole), lines_of(resumed)
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    timed = ("runtime", "per_second", "speed", "elapsed", "remaining", "memory")
    for one, other in zip(found, expected, strict=True):
        for name, value in other.items():
            # swift's own `loss` and `train_loss` forget what came before the checkpoint.
            if not any(word in name for word in timed) and name not in {"loss", "train_loss", "total_flos"}:
                assert one[name] == value, (other["step"], name)
    weights = [
        load_file(f / "checkpoints" / "checkpoint-6" / "adapter_model.safetensors") for f in (resumed, whole)
    ]
    assert weights[0].keys() == weights[1].keys() and any("offset" in name for name in weights[0])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_run_killed_while_saving_goes_on_bit_for_bit(tmp_path, capsys):
    pytest.importorskip("swift")
    from coord_trainer.training import train_and_score

    (tmp_path / "config.json").write_text(json.dumps(SETTINGS))
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [
        sys.executable,
        str(HERE / "trainer_killed.py"),
        tmp_path / "config.json",
        killed,
    ]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert newest_complete(killed / "checkpoints")[0].name == "checkpoint-2"
    assert (killed / "checkpoints" / "checkpoint-4").is_dir()  # half-written

    train_and_score(check_run_config(SETTINGS, "test"), whole)
    resumed = check_run_config({**SETTINGS, "run": {"threads": 1, "resume": True}}, "test")
    capsys.readouterr()
    train_and_score(resumed, killed)
    told = capsys.readouterr().out
    assert "going on after checkpoint-2" in told and "checkpoint-4 is incomplete" in told
    assert "1 lines of metrics.jsonl" in told  # step 3 comes again
    assert_same_run(killed, whole)

    again = train_and_score(resumed, killed)  # finished: nothing is trained any more
    assert again.checkpoint.name == "checkpoint-6"
    assert "training had reached its end" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("deepspeed", [None, "zero2"])
def test_two_ranks_killed_while_saving_go_on_bit_for_bit(tmp_path, monkeypatch, deepspeed):
    pytest.importorskip("swift")
    monkeypatch.syspath_prepend(HERE)
    from test_trainer_ranks import torchrun

    changed = {"deepspeed": deepspeed, "per_device_train_batch_size": 1} if deepspeed else {}
    config, killed, whole = tmp_path / "config.json", tmp_path / "killed", tmp_path / "whole"
    config.write_text(json.dumps({**SETTINGS, "training": {**SETTINGS["training"], **changed}}))
    environment = {"HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}
    done = torchrun(HERE / "trainer_killed.py", config, killed, **environment)
    assert "Signal 9 (SIGKILL)" in done.stderr, done.stderr
    assert newest_complete(killed / "checkpoints")[0].name == "checkpoint-2"
    assert (killed / "checkpoints" / "checkpoint-4").is_dir()  # half-written

    done = torchrun(HERE / "trainer_resumed.py", config, whole, killed, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("going on after checkpoint-2") == 1
    assert_same_run(killed, whole)


def test_only_a_checkpoint_with_all_its_files_is_complete(tmp_path):
    for step in (2, 10):
        checkpoint = tmp_path / f"checkpoint-{step}"
        (checkpoint / "deep").mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes(b"12345678")
        (checkpoint / "deep" / "optimizer.pt").write_bytes(b"1234")
        (checkpoint / "trainer_state.json").write_text(
            json.dumps({"global_step": step, "max_steps": 10, "num_train_epochs": 1})
        )
    second, tenth = tmp_path / "checkpoint-2", tmp_path / "checkpoint-10"
    assert newest_complete(tmp_path) == (None, [second, tenth])
    mark_complete(second)
    mark_complete(tenth)
    assert newest_complete(tmp_path) == (tenth, [])
    assert needs_no_more(tenth, None, 1.0) and not needs_no_more(second, None, None)
    assert not needs_no_more(tenth, 20, None) and not needs_no_more(tenth, None, 2.0)
    (tenth / "deep" / "optimizer.pt").write_bytes(b"12")
    assert not is_complete(tenth)
    assert newest_complete(tmp_path) == (second, [tenth])
    (second / "complete.json").write_text("{")
    assert newest_complete(tmp_path)[0] is None


def test_metrics_are_cut_where_the_run_goes_on(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert cut_metrics(path, 3) == 0
    path.write_text('{"step": 1}\n{"step": 3}\n{"step": 4}\n{"step"')
    assert cut_metrics(path, 3) == 2
    assert path.read_text() == '{"step": 1}\n{"step": 3}\n'


def test_what_cannot_be_continued_is_refused(tmp_path):
    config = check_run_config(SETTINGS, "test")
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not a run folder"):
        prepare_resume(config, tmp_path)
    (tmp_path / "manifest.json").write_text('{"data": {"train": {"digest": "a"}}}')
    check_same_data(tmp_path, {"train": {"digest": "a"}, "heldout": {"digest": "b"}})
    with pytest.raises(InputError, match="digest a, now b"):
        check_same_data(tmp_path, {"train": {"digest": "b"}})


@pytest.mark.parametrize("deepspeed", [None, "zero2"])
def test_other_ranks_are_told_and_refused_where_the_optimizer_is_in_parts(
    tmp_path, monkeypatch, capsys, deepspeed
):
    checkpoint = tmp_path / "checkpoints" / "checkpoint-2"
    checkpoint.mkdir(parents=True)
    for rank in range(2):
        (checkpoint / f"rng_state_{rank}.pth").touch()
    mark_complete(checkpoint)
    config = check_run_config(
        {**SETTINGS, "training": {**SETTINGS["training"], "deepspeed": deepspeed}}, "test"
    )
    write_config(tmp_path, config)
    if deepspeed:
        with pytest.raises(InputError, match=r"saved by 2 ranks.*there are 1 now"):
            prepare_resume(config, tmp_path)
    else:
        assert prepare_resume(config, tmp_path) == checkpoint
        assert "2 ranks trained before and 1 do now" in capsys.readouterr().out
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert prepare_resume(config, tmp_path) == checkpoint
    assert "ranks trained before" not in capsys.readouterr().out
    other = config.model_copy(update={"training": config.training | {"deepspeed": "zero3"}})
    with pytest.raises(InputError, match=f"training.deepspeed={deepspeed} and this run has zero3"):
        prepare_resume(other, tmp_path)
