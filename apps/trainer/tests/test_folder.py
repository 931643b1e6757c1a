"""kill -9 in the middle of a save, then `run.resume`: as if nothing had happened, bit for bit."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from resumed_run import SETTINGS, assert_same_run, write_settings
from safetensors.numpy import save_file
from tiny_run import HELPERS

from coord_codec import InputError, RunError
from coord_detect.model.checkpoints import (
    COMPLETE,
    fault_of,
    find_checkpoint,
    is_complete,
    is_finished,
    mark_complete,
    newest_complete,
)
from coord_trainer.config.run_config import check_run_config
from coord_trainer.folder import (
    Manifest,
    check_same_data,
    cut_metrics,
    explain_full_disk,
    explain_lost_evaluation,
    holds_nothing,
    lock_run_folder,
    open_run_folder,
    prepare_resume,
    refuse_second_run,
    write_config,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing cuts off."""
    pytest.importorskip("swift")
    from coord_trainer.run import train_and_score

    folder = tmp_path_factory.mktemp("uncut") / "whole"
    train_and_score(check_run_config(SETTINGS, "test"), folder)
    return folder


def resumed_config():
    return check_run_config({**SETTINGS, "run": {"threads": 1, "resume": True}}, "test")


@pytest.mark.slow
def test_resume_after_a_signal_is_bit_for_bit(whole, tmp_path, capsys, forked):
    """It comes in the fifth step, which is neither logged nor saved otherwise."""
    from coord_trainer.run import train_and_score

    config, folder = write_settings(tmp_path / "config.json"), tmp_path / "interrupted"
    done = forked(HELPERS / "interrupted.py", config, folder, "SIGTERM")
    assert done.returncode == 143, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith(
        f"interrupted by SIGTERM; continue with:\ncoord-trainer train -c {folder}/config.yaml run.dir={folder} "
        "run.resume=true\n"
    )
    first = json.loads((folder / "manifest.json").read_text())
    assert (first["status"], first["steps"], first["checkpoint"]) == ("interrupted", 5, "checkpoints/checkpoint-5")
    train_and_score(resumed_config(), folder)
    told = capsys.readouterr().out
    assert "continuing after checkpoint-5" in told and "trained 6 steps in" in told and "5 of them in" in told
    second = json.loads((folder / "manifest.json").read_text())
    assert (second["status"], second["steps"], second["resumed_from"]["steps"]) == ("finished", 6, 5)
    assert second["training_seconds"] > second["resumed_from"]["training_seconds"] > 0
    assert_same_run(folder, whole)


@pytest.mark.slow
def test_resume_after_a_kill_while_saving_is_bit_for_bit(whole, tmp_path, capsys, forked):
    from coord_trainer.run import train_and_score

    config, killed = write_settings(tmp_path / "config.json"), tmp_path / "killed"
    done = forked(HELPERS / "killed.py", config, killed)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert newest_complete(killed / "checkpoints")[0].name == "checkpoint-2"
    assert (killed / "checkpoints" / "checkpoint-4").is_dir()  # half-written

    resumed = resumed_config()
    capsys.readouterr()
    train_and_score(resumed, killed)
    told = capsys.readouterr().out
    assert "continuing after checkpoint-2" in told and "checkpoint-4 is incomplete" in told
    assert "1 line of metrics.jsonl" in told  # step 3 comes again
    assert_same_run(killed, whole)

    before = json.loads((killed / "manifest.json").read_text())
    again = train_and_score(resumed, killed)  # finished: nothing is trained any more
    assert again.checkpoint.name == "checkpoint-6"
    told = capsys.readouterr().out
    assert "training had ended with" in told and "parameters were trained" not in told
    after = json.loads((killed / "manifest.json").read_text())
    for fact in ("parameters", "samples_seen"):
        assert after[fact] == before[fact] and before[fact]


def test_checkpoint_is_complete_with_all_its_files_only(tmp_path):
    for step in (2, 10):
        checkpoint = tmp_path / f"checkpoint-{step}"
        (checkpoint / "deep").mkdir(parents=True)
        save_file({"weight": np.zeros(step)}, checkpoint / "model.safetensors")
        (checkpoint / "deep" / "optimizer.pt").write_bytes(b"1234")
        (checkpoint / "trainer_state.json").write_text(
            json.dumps({"global_step": step, "max_steps": 10, "num_train_epochs": 1})
        )
    second, tenth = tmp_path / "checkpoint-2", tmp_path / "checkpoint-10"
    assert newest_complete(tmp_path) == (None, [second, tenth])
    mark_complete(second)
    mark_complete(tenth)
    assert newest_complete(tmp_path) == (tenth, [])
    assert is_finished(tenth, None, 1.0) and not is_finished(second, None, None)
    assert not is_finished(tenth, 20, None) and not is_finished(tenth, None, 2.0)
    (tenth / "deep" / "optimizer.pt").write_bytes(b"12")
    assert not is_complete(tenth)
    assert newest_complete(tmp_path) == (second, [tenth])
    assert fault_of(tenth) == "deep/optimizer.pt has 2 of 4 bytes"
    (second / "complete.json").write_text("{")
    assert newest_complete(tmp_path)[0] is None


def test_run_folder_stands_for_its_best_or_newest_checkpoint(tmp_path):
    def save(step, *scores):
        folder = tmp_path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        history = [{"step": at, "eval_AP": value} for at, value in scores]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": [{"loss": 1.0, "step": 1}, *history]}))
        mark_complete(folder)
        return folder

    assert find_checkpoint(tmp_path) == tmp_path  # a checkpoint, or what it says itself
    second = save(2)
    assert find_checkpoint(tmp_path) == second and find_checkpoint(second) == second
    save(10, (2, 0.5), (10, 0.4))
    assert find_checkpoint(tmp_path) == second
    (second / COMPLETE).unlink()
    assert find_checkpoint(tmp_path).name == "checkpoint-10"
    (tmp_path / "checkpoints" / "checkpoint-10" / COMPLETE).unlink()
    with pytest.raises(InputError, match="run folder without a complete checkpoint; checkpoint-10: it was not written"):
        find_checkpoint(tmp_path)


def test_checkpoint_with_a_file_that_is_missing_or_damaged_is_passed_over_with_the_reason(tmp_path, capsys):
    checkpoints = [tmp_path / "checkpoints" / f"checkpoint-{step}" for step in (2, 4, 6, 8)]
    for checkpoint in checkpoints:
        checkpoint.mkdir(parents=True)
        save_file({"weight": np.zeros(8)}, checkpoint / "adapter_model.safetensors")
        (checkpoint / "rng_state.pth").touch()
        mark_complete(checkpoint)
    first, truncated, damaged, missing = (checkpoint / "adapter_model.safetensors" for checkpoint in checkpoints)
    truncated.write_bytes(truncated.read_bytes()[:40])
    damaged.write_bytes(b"\xff" * damaged.stat().st_size)
    missing.unlink()
    config = check_run_config(SETTINGS, "test")
    write_config(tmp_path, config)
    assert prepare_resume(config, tmp_path) == first.parent
    told = capsys.readouterr().out
    assert "checkpoint-4 is incomplete and is ignored: adapter_model.safetensors has 40 of " in told
    assert "checkpoint-6 is incomplete and is ignored: adapter_model.safetensors cannot be read (" in told
    assert "checkpoint-8 is incomplete and is ignored: adapter_model.safetensors is missing" in told
    assert "continuing after checkpoint-2" in told


def test_cut_metrics_keeps_what_lies_before_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert cut_metrics(path, 3) == 0
    path.write_text('{"step": 1}\n{"step": 3}\n{"step": 4}\n{"step"')
    assert cut_metrics(path, 3) == 2
    assert path.read_text() == '{"step": 1}\n{"step": 3}\n'


def test_checkpoint_that_the_run_ended_with_and_is_gone_is_told(tmp_path, capsys):
    for step in (2, 4, 6):
        checkpoint = tmp_path / "checkpoints" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        mark_complete(checkpoint)
    (tmp_path / "manifest.json").write_text(json.dumps({"checkpoint": "checkpoints/checkpoint-6"}))
    assert find_checkpoint(tmp_path).name == "checkpoint-6" and capsys.readouterr().out == ""
    shutil.rmtree(tmp_path / "checkpoints" / "checkpoint-6")
    assert find_checkpoint(tmp_path).name == "checkpoint-4"
    told = capsys.readouterr().out
    assert "ended with checkpoint-6 (it is not there any more); checkpoint-4, an older one, is used" in told
    facts = {"checkpoint": "checkpoints/checkpoint-4", "best_checkpoint": {"path": "checkpoints/checkpoint-3", "AP": 1}}
    (tmp_path / "manifest.json").write_text(json.dumps(facts))
    assert find_checkpoint(tmp_path).name == "checkpoint-4" and "checkpoint-3" in capsys.readouterr().out


@pytest.fixture
def checkpoint(tmp_path):
    """The only checkpoint of a run of `SETTINGS` in the folder."""
    checkpoint = tmp_path / "checkpoints" / "checkpoint-2"
    checkpoint.mkdir(parents=True)
    mark_complete(checkpoint)
    write_config(tmp_path, check_run_config(SETTINGS, "test"))
    return checkpoint


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"training": {"learning_rate": 0.5}}, "training.learning_rate was 0.01 and is now 0.5"),
        ({"training": {"adam_beta2": 0.9}}, "training.adam_beta2 was None and is now 0.9"),
        ({"training": {"lora_dropout": 0.0}}, "training.lora_dropout was 0.2 and is now 0.0"),
        ({"run": {"seed": 3}}, "run.seed was 0 and is now 3"),
        ({"custom": {"coord_offset": {"enabled": True, "head_lr": 0.1}}}, "custom.coord_offset.head_lr was "),
        ({"model": {"tiny": {"layers": 3}}}, "model.tiny.layers was 2 and is now 3"),
    ],
)
def test_setting_that_a_resume_takes_from_the_checkpoint_is_refused_with_both_values(
    tmp_path, checkpoint, changed, told
):
    before = (tmp_path / "config.yaml").read_bytes()
    values = SETTINGS | {name: SETTINGS[name] | given for name, given in changed.items()}
    values["model"] = {"tiny": SETTINGS["model"]["tiny"] | changed.get("model", {}).get("tiny", {})}
    with pytest.raises(InputError, match=re.escape(told)):
        prepare_resume(check_run_config(values, "test"), tmp_path)
    assert (tmp_path / "config.yaml").read_bytes() == before
    shutil.rmtree(checkpoint)  # nothing is trained yet: any setting acts
    assert prepare_resume(check_run_config(values, "test"), tmp_path) is None


@pytest.mark.parametrize(
    "name", ["max_steps", "logging_steps", "save_steps", "warmup_steps", "gradient_accumulation_steps"]
)
def test_setting_that_acts_after_a_resume_is_told(tmp_path, checkpoint, capsys, name):
    values = SETTINGS | {"training": SETTINGS["training"] | {name: 7}}
    assert prepare_resume(check_run_config(values, "test"), tmp_path) == checkpoint
    assert f"training.{name} was {SETTINGS['training'].get(name)} and is now 7" in capsys.readouterr().out


def test_every_forwarded_setting_either_acts_after_a_resume_or_is_refused(tmp_path):
    """The list names settings of the table alone, so that a new one is refused until somebody has seen it act."""
    from coord_trainer import folder
    from coord_trainer.config.swift_arguments import argument_table

    forwarded = set(argument_table())
    acts = {name for name in forwarded if re.fullmatch(folder._ACTS, name)}
    of_optimizer = {"learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "vit_lr", "aligner_lr"}
    of_adapter = {name for name in forwarded if name.startswith(("lora_", "freeze_", "target_", "bnb_", "quant_"))}
    assert not acts & (of_optimizer | of_adapter | {"optim", "optimizer", "tuner_type", "early_stop_interval"})
    assert {"max_steps", "logging_steps", "eval_steps", "save_steps", "report_to"} <= acts


def test_intervals_of_the_resuming_call_replace_those_of_the_checkpoint():
    from transformers import TrainerState, TrainingArguments

    from coord_trainer.training.callbacks import IntervalsOfNow

    state = TrainerState(logging_steps=50, eval_steps=50, save_steps=50, max_steps=100)
    arguments = TrainingArguments("x", logging_steps=3, eval_steps=0.25, save_steps=7, report_to=[])
    IntervalsOfNow().on_train_begin(arguments, state, None)
    assert (state.logging_steps, state.eval_steps, state.save_steps) == (3, 25, 7)


def test_prepare_resume_refuses_what_is_no_run_folder(tmp_path):
    config = check_run_config(SETTINGS, "test")
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not a run folder"):
        prepare_resume(config, tmp_path)
    check_same_data(tmp_path, {"train": {"digest": "a"}}, {"train": {"digest": "a"}, "heldout": {"digest": "b"}})
    before = {"train": {"digest": "a"}, "heldout": {"digest": "b"}}
    for name in before:
        with pytest.raises(
            InputError, match=f"the {name} data has changed since .*digest {before[name]['digest']}, now c"
        ):
            check_same_data(tmp_path, before, before | {name: {"digest": "c"}})
    check_same_data(tmp_path, before, {"train": {"digest": "a"}})


@pytest.mark.parametrize(
    ("error", "free", "is_full"),
    [
        *((OSError(number, "x", "weights"), 1 << 40, True) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
        (OSError(errno.EACCES, "x"), 1 << 40, False), (OSError(errno.EACCES, "x"), 0, True),
        (RuntimeError("No space left on device"), 1 << 40, True), (RuntimeError("write failed"), 0, True),
        (RuntimeError("write failed"), 1 << 40, False), (ValueError("x"), 0, True), (InputError("x"), 0, False),
        (KeyError("x"), 0, False),
    ],
    ids=str,
)  # fmt: skip
def test_disk_that_is_full_is_told_whatever_the_error_says(tmp_path, monkeypatch, error, free, is_full):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    with pytest.raises(RunError if is_full else type(error)) as caught, explain_full_disk(tmp_path):
        raise error
    place = getattr(error, "filename", None) or tmp_path
    assert str(caught.value).startswith(f"{place}: no space left on the disk") is is_full


@pytest.mark.parametrize("deepspeed", [None, "zero2"])
def test_prepare_resume_with_other_ranks_is_told_and_refused_under_deepspeed(
    tmp_path, checkpoint, monkeypatch, capsys, deepspeed
):
    for rank in range(2):
        (checkpoint / f"rng_state_{rank}.pth").touch()
    mark_complete(checkpoint)
    config = check_run_config({**SETTINGS, "training": {**SETTINGS["training"], "deepspeed": deepspeed}}, "test")
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


def test_open_run_folder_moves_an_older_run_aside(tmp_path):
    (tmp_path / "run").mkdir()
    assert open_run_folder(tmp_path / "run") is None  # an empty folder is nothing to keep
    (tmp_path / "run" / "report.html").write_text("old")
    assert open_run_folder(tmp_path / "run") == tmp_path / "run.1"
    (tmp_path / "run" / "report.html").write_text("newer")
    assert open_run_folder(tmp_path / "run") == tmp_path / "run.2"
    assert (tmp_path / "run.1" / "report.html").read_text() == "old"


@pytest.mark.slow
def test_manifest_states_how_the_run_ended(tmp_path):
    config = check_run_config({"custom": {"coord_soft_ce_w1": {"enabled": True}}}, "test")

    def read():
        return json.loads((tmp_path / "manifest.json").read_text())

    with Manifest(tmp_path, config) as manifest:
        manifest.update(steps=3)
        assert read()["status"] == "running"
    assert (read()["status"], read()["steps"], read()["seed"]) == ("finished", 3, 0)
    with pytest.raises(RunError), Manifest(tmp_path, config):
        raise RunError("diverged")
    assert read()["status"] == "failed: RunError: diverged"
    with pytest.raises(KeyboardInterrupt), Manifest(tmp_path, config):
        raise KeyboardInterrupt
    assert read()["status"] == "interrupted"
    (tmp_path / "other").mkdir()
    with Manifest(tmp_path / "other", config, writes=False):
        pass
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.slow
def test_rank_that_fails_ends_after_the_first_one_has_recorded_why(tmp_path):
    """Torchrun ends all other ranks as soon as one has ended."""
    config = check_run_config(SETTINGS, "test")
    manifest = tmp_path / "manifest.json"
    first = Manifest(tmp_path, config)
    first.update()
    recorded = threading.Timer(0.3, lambda: first.update(status="failed: RunError: no memory"))
    recorded.start()
    with pytest.raises(RunError), Manifest(tmp_path, config, writes=False):
        raise RunError("no memory")
    assert json.loads(manifest.read_text())["status"].startswith("failed")
    recorded.join()


def test_explain_full_disk_leaves_other_errors_alone(tmp_path):
    with pytest.raises(InputError, match="data"), explain_full_disk(tmp_path):
        raise InputError("data: bad")
    with pytest.raises(KeyError), explain_full_disk(tmp_path):
        raise KeyError
    with pytest.raises(RunError, match="no space left"), explain_full_disk(tmp_path):
        raise RuntimeError("write: No space left on device")


@pytest.mark.slow
def test_second_run_on_a_folder_is_refused_while_the_first_is_at_work(tmp_path):
    folder = tmp_path / "run"
    refuse_second_run(folder)
    folder.mkdir()
    lock = lock_run_folder(folder)
    refuse = [sys.executable, "-c", _SECOND, str(folder)]
    done = subprocess.run(refuse, capture_output=True, text=True, check=False)
    assert done.stdout == f"run.dir: another run is using {folder}; wait for its end, or choose another folder\n"
    assert holds_nothing(folder)
    lock.release()
    assert not subprocess.run(refuse, capture_output=True, text=True, check=True).stdout


_SECOND = """
import sys, pathlib
from coord_codec import InputError
from coord_trainer.folder import refuse_second_run
try:
    refuse_second_run(pathlib.Path(sys.argv[1]))
except InputError as error:
    print(error)
"""


def test_child_process_does_not_hold_the_lock_of_its_parent(tmp_path):
    """Processes that encode images outlive a killed run by seconds, in which it may be started again."""
    lock = lock_run_folder(tmp_path)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)
        os._exit(0)
    lock.release()
    refuse_second_run(tmp_path)
    lock_run_folder(tmp_path).release()
    os.write(write, b"x")
    os.waitpid(child, 0)


def test_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    def refuse(*words):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("coord_trainer.folder.FileLock.acquire", refuse)
    with pytest.raises(RunError, match=r"cannot be written to \(Read-only file system\); choose another with run\.dir"):
        lock_run_folder(tmp_path)


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (InputError("no names"), InputError, "no names"),
        (ValueError("broken"), RunError, "ValueError: broken .see .*error.txt"),
        (OSError(errno.ENOSPC, "No space left on device"), RunError, "no space left on the disk"),
    ],
)
def test_failed_evaluation_says_that_the_checkpoint_is_there_and_how_to_score_it(
    error, kind, told, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("RANK", "1")  # the error of another rank than the first would not be printed
    checkpoint = tmp_path / "checkpoints" / "checkpoint-9"
    with (
        pytest.raises(
            kind, match=rf"(?s){told}.*training had finished and {checkpoint} is complete.*evaluate"
        ) as raised,
        explain_lost_evaluation(tmp_path, checkpoint),
        explain_full_disk(tmp_path),
    ):
        raise error
    assert str(raised.value).endswith(f"evaluate {checkpoint} --out {tmp_path}/scored -c {tmp_path}/config.yaml")
    assert (tmp_path / "error.txt").exists() == ("error.txt" in told)
    assert capsys.readouterr().err.startswith("error on rank 1: ")


def test_folder_that_cannot_be_created_is_one_line(tmp_path):
    (tmp_path / "afile").touch()
    with pytest.raises(RunError, match=r"run folder cannot be created \(Not a directory\)"):
        open_run_folder(tmp_path / "afile" / "run")
