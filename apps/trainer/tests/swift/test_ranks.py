"""Two ranks against one: the same numbers and weights, also accumulated, under DeepSpeed, packed and resumed."""

import json
from pathlib import Path

import pytest
import torch
from mixed_sources import write_sources
from resumed_run import assert_same_run, write_settings
from safetensors.torch import load_file
from tiny_run import HELPERS, TINY, read_lines

from coord_detect.model.checkpoints import newest_complete

pytest.importorskip("swift")
pytestmark = pytest.mark.slow
LAUNCH = pytest.mark.drawn(2, among="launches")
"""One run on each launch: two of these tests run each time, those of `two_ranks` always."""
ON_THE_CPU = {"DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def jobs():
    import two_ranks

    return two_ranks


@pytest.fixture(scope="module")
def bases(jobs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    configs = {"cut": jobs.cut_config(), "lora": jobs.lora_config(4)}
    return {name: jobs.build_base(config, folder / name) for name, config in configs.items()}


@pytest.fixture(scope="module")
def two_ranks(jobs, bases, tmp_path_factory, forked):
    """The folder in which two ranks have left all their runs, and what they printed."""
    folder = tmp_path_factory.mktemp("ranks")
    data = {"markers": "obj", "sources": write_sources(folder)}
    write_settings(folder / "sources.json", data, **jobs.MIXED)
    config, killed = write_settings(folder / "resumed.json", data, **jobs.RESUMED), folder / "killed"
    done = forked(HELPERS / "forked_ranks.py", 2, HELPERS / "killed.py", config, killed, **ON_THE_CPU)
    assert "Signal 9 (SIGKILL)" in done.stderr, done.stderr
    assert newest_complete(killed / "checkpoints")[0].name == "checkpoint-2"
    assert (killed / "checkpoints" / "checkpoint-4").is_dir()  # half-written
    words = HELPERS / "two_ranks.py", bases["cut"], bases["lora"], folder
    done = forked(HELPERS / "forked_ranks.py", 2, *words, **ON_THE_CPU)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_ranks_and_accumulation_change_nothing(jobs, bases, two_ranks, monkeypatch, tmp_path):
    folder, _ = two_ranks
    monkeypatch.setattr(jobs.stage, "sample_set", jobs.with_an_unlearnt_sample(jobs.stage.sample_set))
    checkpoint, expected = jobs.run_cut(jobs.cut_config(), bases["cut"], tmp_path)
    weights = load_file(checkpoint / "model.safetensors")
    start = load_file(Path(bases["cut"]) / "model.safetensors")
    moved = max((weights[name] - start[name]).abs().max() for name in weights)
    assert moved > 1e-2  # so that the tolerance below means something
    assert {(1, "train_total_loss"), (2, "train_total_loss"), (2, "eval_total_loss")} <= set(expected)
    run = folder / "cut"
    found = {(line["step"], key): value for line in read_lines(run) for key, value in line.items()}
    timed = ("runtime", "per_second", "memory", "speed", "elapsed", "remaining", "total_flos")
    for key, value in expected.items():
        if isinstance(value, float) and not any(word in key[1] for word in timed):
            assert found[key] == pytest.approx(value, rel=2e-5, abs=1e-6), key
    for name, value in load_file(run / "checkpoints" / "checkpoint-2" / "model.safetensors").items():
        torch.testing.assert_close(value, weights[name], rtol=0, atol=1e-5, msg=name)


@pytest.fixture(scope="module")
def on_one_rank(jobs, bases, tmp_path_factory):
    """The run that those on two ranks are compared with."""
    config = jobs.lora_config(4)
    return config, *jobs.run_lora(config, bases["lora"], tmp_path_factory.mktemp("whole"))


def test_evaluation_that_fails_on_one_rank_is_left_out_on_all(two_ranks):
    folder, printed = two_ranks[0] / "scored", two_ranks[1]
    told = {line["step"]: line["eval_failed"] for line in read_lines(folder) if "eval_failed" in line}
    assert told == {
        1: "evaluation losses: RuntimeError: it failed on another rank, whose log says why",
        2: "scoring of answers: RuntimeError: it failed on another rank, whose log says why",
        3: "scoring of answers: RuntimeError: no score on the first rank",
    }
    assert "no memory on the second rank" in (folder / "swift.1.log").read_text()
    assert [line["step"] for line in read_lines(folder) if "eval_AP" in line] == [1]
    assert [line["step"] for line in read_lines(folder) if "eval_total_loss" in line] == [2, 3]
    images = [json.loads((folder / f"answers-{turn}.json").read_text()) for turn in (1, 3)]
    assert images[0] == images[1] and len(set(images[0])) == 5  # each once, from both ranks
    assert printed.count("step 1: AP") == 1
    assert (folder / "checkpoints" / "checkpoint-3" / "complete.json").is_file()


def test_ranks_share_the_images_and_their_answers_are_those_of_one(two_ranks, jobs, bases, tmp_path):
    from coord_trainer.data.load import load_scored
    from coord_trainer.evaluation.decodings import predict_images

    folder = two_ranks[0] / "scored"
    # Of five images the first rank answers three: at steps 1, 2 and 3 and in the end; the second fails at step 2.
    assert [(folder / f"calls.{rank}").read_text() for rank in (0, 1)] == ["12", "6"]
    manifest, config = json.loads((folder / "manifest.json").read_text()), jobs.scored_config(bases["cut"])
    checkpoint = folder / manifest["best_checkpoint"]["path"]
    predict_images(config, checkpoint, load_scored(config, tmp_path), tmp_path / "one.jsonl")
    assert (tmp_path / "one.jsonl").read_text() == (folder / "predictions.jsonl").read_text()
    assert not list(folder.glob("*.part*")) and manifest["status"] == "finished"


@pytest.mark.parametrize("way", ["packed", "packed-zero3"])
def test_two_ranks_take_the_steps_of_one(two_ranks, on_one_rank, way):
    folder, (config, checkpoint, expected) = two_ranks[0], on_one_rank
    found = [line for line in read_lines(folder / way) if "train_total_loss" in line]
    assert [line["step"] for line in found] == [line["step"] for line in expected] == [1, 2]
    compared = [name for name in expected[0] if name.startswith(("loss", "grad_norm", "train_", "coord_diag"))]
    assert {"loss", "grad_norm", "train_total_loss", "train_text_loss", "coord_diag/w1"} <= set(compared)
    for one, other in zip(found, expected, strict=True):
        assert other["grad_norm"] > config.training["max_grad_norm"]  # so that clipping is part of it
        for name in compared:
            assert one[name] == pytest.approx(other[name], rel=1e-5, abs=1e-6), (other["step"], name)
    saved = load_file(folder / way / "checkpoints" / "checkpoint-2" / "adapter_model.safetensors")
    plain = load_file(checkpoint / "adapter_model.safetensors")
    assert saved.keys() == plain.keys()
    for name, value in plain.items():
        torch.testing.assert_close(saved[name], value, rtol=0, atol=1e-4, msg=f"{way} {name}")


def test_zero_shards_the_optimizer_and_saves_the_offsets_whole(two_ranks, on_one_rank):
    from coord_detect.model.checkpoint import open_checkpoint

    folder, config, stage = two_ranks[0], on_one_rank[0], "packed-zero3"
    checkpoint = folder / stage / "checkpoints" / "checkpoint-2"
    saved = load_file(checkpoint / "adapter_model.safetensors")
    tables = [name for name in saved if name.endswith("_offset")]
    assert len(tables) == 2 and all(saved[name].shape == (1002, 32) for name in tables)
    assert all(saved[name].abs().max() > 1e-2 for name in tables)
    held = {way: [int((folder / way / f"state.{rank}").read_text()) for rank in (0, 1)] for way in (stage, "packed")}
    trained = sum(value.numel() for value in saved.values() if value.is_floating_point())
    assert held["packed"] == [2 * trained] * 2  # without DeepSpeed, each rank has both moments of all
    assert max(held[stage]) < 0.6 * 2 * trained and sum(held[stage]) >= 2 * trained
    names = dict(open_checkpoint(checkpoint, config).model.named_parameters())
    for name in tables:
        key = next(k for k in names if k.endswith(name.rsplit(".", 1)[-1]) and "modules_to_save" in k)
        assert torch.equal(names[key], saved[name])


def test_two_ranks_under_deepspeed_killed_while_saving_go_on_bit_for_bit(two_ranks):
    folder, printed = two_ranks
    assert printed.count("continuing after checkpoint-2") == 1  # once for both ranks
    assert f"run folder {folder / 'killed'}, continuing after checkpoint-2" in printed
    assert_same_run(folder / "killed", folder / "whole")
    seen = [json.loads((folder / name / "manifest.json").read_text())["samples_seen"] for name in ("killed", "whole")]
    assert seen[0] == seen[1] == {"a": 8, "dogs": 4, "talk": 8}  # two epochs


def test_two_ranks_see_the_mixture_that_one_sees(two_ranks, tmp_path):
    from coord_trainer.config.run_config import check_run_config
    from coord_trainer.run import train_and_score

    values = json.loads((two_ranks[0] / "sources.json").read_text())
    training = values["training"] | {"per_device_train_batch_size": 4, "deepspeed": None}
    train_and_score(check_run_config(values | {"training": training}, "test"), tmp_path)
    two, one = (read_lines(folder) for folder in (two_ranks[0] / "sources", tmp_path))
    assert any("train_total_loss" in line for line in one)
    for line, expected in zip(two, one, strict=True):
        for name in {"train_total_loss", "train_text_loss", "grad_norm"} & expected.keys():
            assert line.get(name) == pytest.approx(expected.get(name), rel=1e-3), (name, line["step"])
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (two_ranks[0] / "sources", tmp_path)]
    assert manifests[0]["samples_seen"] == manifests[1]["samples_seen"]
    assert [source["share"] for source in manifests[0]["data"]["train"]["sources"]] == [0.4, 0.2, 0.4]


@LAUNCH
def test_signal_on_one_rank_stops_all_behind_the_same_step(tmp_path, forked):
    config, folder = write_settings(tmp_path / "config.json"), tmp_path / "run"
    words = HELPERS / "interrupted.py", config, folder, "SIGTERM", 1
    done = forked(HELPERS / "forked_ranks.py", 2, *words, **ON_THE_CPU)
    assert done.returncode != 0 and "exitcode  : 143" in done.stderr, done.stderr
    assert done.stderr.count("continue with:") == 1 and "(on 2 ranks, as before)" in done.stderr
    assert newest_complete(folder / "checkpoints")[0].name == "checkpoint-5"
    assert len(list((folder / "checkpoints" / "checkpoint-5").glob("rng_state_*.pth"))) == 2
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["status"], manifest["steps"]) == ("interrupted", 5)


ALONE = """
import sys
from two_ranks import without_compiling
from coord_trainer import cli
without_compiling()
sys.argv = ["coord-trainer", "train", *sys.argv[1:]]
cli.main()
"""


@LAUNCH
def test_deepspeed_trains_in_a_process_that_no_launcher_started(tmp_path, forked):
    (tmp_path / "alone.py").write_text(ALONE)
    config = write_settings(tmp_path / "config.json", max_steps=1, save_steps=1, deepspeed="zero2")
    done = forked(tmp_path / "alone.py", "-c", config, f"run.dir={tmp_path / 'run'}", **ON_THE_CPU)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "run" / "checkpoints" / "checkpoint-1").glob("global_step*/*optim_states.pt"))


FAILING_EVALUATION = """
import os, sys
from two_ranks import without_compiling
from coord_trainer import cli
from coord_trainer.swift.trainer import CoordTrainer
without_compiling()
take, calls = CoordTrainer.prediction_step, []
def fail(*_, **__):
    raise RuntimeError("no memory in the model")
def fail_on_the_second(trainer, model, *words, **more):
    calls.append(trainer.state.global_step)
    if os.environ["RANK"] == "1" and len(calls) == 1:
        model.get_output_embeddings().register_forward_pre_hook(fail)
    return take(trainer, model, *words, **more)
CoordTrainer.prediction_step = fail_on_the_second
sys.argv = ["coord-trainer", "train", *sys.argv[1:]]
cli.main()
"""


@LAUNCH
def test_evaluation_that_fails_inside_a_sharded_model_ends_all_ranks_with_the_reason(tmp_path, forked):
    (tmp_path / "failing.py").write_text(FAILING_EVALUATION)
    config = write_settings(tmp_path / "config.json", max_steps=2, eval_steps=1, deepspeed="zero3")
    words = tmp_path / "failing.py", "-c", config, "evaluation.images=heldout", f"run.dir={tmp_path / 'run'}"
    done = forked(HELPERS / "forked_ranks.py", 2, *words, **ON_THE_CPU)
    assert done.returncode != 0
    assert "step 1: the evaluation losses failed inside the model on rank 1" in done.stderr, done.stderr
    assert "no memory in the model" in done.stderr and "run.resume=true" in done.stderr
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"].startswith("failed")


ANSWERING = """
import os, sys
from pathlib import Path
from coord_trainer import cli
from coord_detect.answers import local
answer, folder, rank = local.answer_images, Path(sys.argv.pop(1)), os.environ["RANK"]
def answer_or_fail(*words, **more):
    found = answer(*words, **more)
    with (folder / f"calls.{rank}").open("a") as calls:
        calls.write("call\\n")
    if "FAIL" in os.environ and rank == "1":
        raise RuntimeError("the second rank breaks")
    return found
local.answer_images = answer_or_fail
sys.argv = ["coord-trainer", "train", *sys.argv[1:]]
cli.main()
"""


@LAUNCH
def test_final_answers_of_two_ranks_are_continued(tmp_path, forked):
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.data.load import load_scored
    from coord_trainer.evaluation.decodings import predict_images

    (tmp_path / "answering.py").write_text(ANSWERING)
    run = tmp_path / "run"
    sizes = [f"model.tiny.{name}={size}" for name, size in TINY.items()]
    settings = ["data.shapes.train=4", "data.shapes.heldout=5", "training.max_steps=1", "run.threads=1", *sizes]
    settings += ["custom.coord_soft_ce_w1.enabled=true", "evaluation.batch_size=1", "evaluation.max_new_tokens=24"]
    words = (HELPERS / "forked_ranks.py", 2, tmp_path / "answering.py", tmp_path, *settings, f"run.dir={run}")
    done = forked(*words, **ON_THE_CPU, FAIL="1")
    assert done.returncode != 0 and "error on rank 1: RuntimeError: the second rank breaks" in done.stderr, done.stderr
    before = sum(len(part.read_text().splitlines()) for part in run.glob("predictions.jsonl.part.[01]"))
    for rank in (0, 1):  # the first one may have answered all of its share
        (tmp_path / f"calls.{rank}").write_text("")
    done = forked(*words, "run.resume=true", **ON_THE_CPU)
    assert done.returncode == 0, done.stderr
    calls = [len((tmp_path / f"calls.{rank}").read_text().splitlines()) for rank in (0, 1)]
    assert calls[1] == 2 and sum(calls) == 5 - before  # of five images the second rank answers two

    config = load_run_config(None, settings)
    images = load_scored(config, tmp_path / "data")
    checkpoint = newest_complete(run / "checkpoints")[0]
    assert predict_images(config, checkpoint, images, tmp_path / "one.jsonl") == 5
    assert (tmp_path / "one.jsonl").read_text() == (run / "predictions.jsonl").read_text()
    assert done.stdout.count("report:") == 1 and done.stdout.count("run folder") == 1
