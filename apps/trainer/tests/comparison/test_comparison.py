"""A comparison: its plan, which runs are kept; and a tiny one end to end."""

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tiny_run import TINY

from coord_codec import InputError
from coord_detect.model.checkpoints import mark_complete
from coord_detect.settings.decoding import Decoding
from coord_detect.settings.load import flat_settings
from coord_trainer.comparison import run as comparison
from coord_trainer.comparison.plan import (
    default_base,
    differing_settings,
    plan_groups,
    plan_runs,
    read_seeds,
    result_settings,
)
from coord_trainer.comparison.run import why_not_kept
from coord_trainer.config.sections import DataSection

ROOT = Path(__file__).parents[4]
PHASE1 = ROOT / "configs" / "phase1"
A, SOFT = PHASE1 / "a.yaml", PHASE1 / "soft.yaml"
DIGESTS = {"train": "1", "heldout": "2"}


def plan(tmp_path, words=(), seeds=1, files=(A, SOFT)):
    return plan_runs(plan_groups(files, default_base(files), words, None), range(seeds), tmp_path, 1)


def finish(run, status="finished", digests=DIGESTS):
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / "config.yaml").write_text(yaml.safe_dump(run.config.model_dump(mode="json")))
    manifest = {"status": status, "data": {name: {"digest": digest} for name, digest in digests.items()}}
    (run.folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("text", ["0", "a", "3-1", "1,1", "-2", "1-", "2.5", ""])
def test_seeds_that_are_none_are_refused(text):
    with pytest.raises(InputError, match="--seeds: expected how many"):
        read_seeds(text)


def test_plan_goes_seed_by_seed_under_one_setting(tmp_path):
    runs = plan(tmp_path, ["training.max_steps=7"], seeds=2)
    assert [(run.group.name, run.seed) for run in runs] == [("a", 0), ("soft", 0), ("a", 1), ("soft", 1)]
    assert {run.config.training["max_steps"] for run in runs} == {7}
    assert runs[2].folder == tmp_path / "a" / "seed-1" == runs[2].config.run.dir
    groups = [run.group for run in runs[:2]]
    assert set(differing_settings(groups)) == {"custom.coord_objective.use_coord_ce", "custom.coord_soft_ce_w1.enabled"}


def test_finished_run_is_kept_only_when_settings_and_data_are_the_same(tmp_path):
    (run, _) = plan(tmp_path)
    assert why_not_kept(run, DIGESTS) == "not there yet"
    finish(run, status="running")
    assert "not finished" in why_not_kept(run, DIGESTS)
    finish(run)
    assert why_not_kept(run, DIGESTS) is None
    assert "other data" in why_not_kept(run, DIGESTS | {"train": "3"})
    (other, _) = plan(tmp_path, ["training.max_steps=8", "custom.coord_objective.lambda_coord_ce=0.5"])
    told = why_not_kept(other, DIGESTS)
    assert "1.0 there and 0.5 now" in told and "1 further" in told
    # Where a run lies, how many threads carry it out and what else its checkpoint is asked change no training.
    (same, _) = plan(tmp_path, ["run.threads=2", "evaluation.overlays=3", "evaluation.decoding={}"])
    assert why_not_kept(same, DIGESTS) is None
    (run.folder / "config.yaml").write_text("nonsense: 1")
    assert "cannot be read" in why_not_kept(run, DIGESTS)


def test_every_setting_is_one_of_the_results_or_stated_not_to_be(tmp_path):
    (run, _) = plan(tmp_path)
    known = result_settings(run.config)
    others = {name for name in flat_settings(run.config.model_dump(mode="json")) if name not in known}
    assert others == {
        "run.dir",
        "run.threads",
        "run.resume",
        "run.profile",
        "evaluation.overlays",
        "evaluation.decoding",
    }
    assert {name.split(".")[1] for name in known if name.startswith("data.")} == {*DataSection.model_fields}


@pytest.mark.parametrize(
    ("files", "sweep", "word", "told"),
    [
        ([A, ROOT / "configs" / "memorise.yaml"], None, "run.threads=1", "evaluation.images"),
        ([A, A], None, "run.threads=1", "two configs are called a"),
        ([], None, "run.threads=1", "at least one config"),
        ([A], "d: {x: [a.b=1]}", "run.threads=1", "none of them is among the configs"),
        ([A], "a: [1, 2]", "run.threads=1", "variant name"),
        ([A], "a: {x: {y: 1}}", "run.threads=1", "variant name"),
        ([A, SOFT], "a: {}", "run.threads=1", "a: expected config name -> variant name"),  # A would have no run
        ([A], "1: {x: [a.b=1]}", "run.threads=1", "it varies 1; none of them"),
        ([A], None, "run.seed=3", "--seeds"),
        ([A], None, "run.dir=x", "--out"),
    ],
)
def test_comparison_refuses_what_cannot_be_compared(tmp_path, files, sweep, word, told):
    from coord_trainer.comparison.run import compare_configs

    path = None
    if sweep is not None:
        path = tmp_path / "sweep.yaml"
        path.write_text(sweep)
    options = {"seeds": [0], "jobs": 1, "resamples": 0, "dry_run": True, "out": tmp_path / "out"}
    base = ROOT / "configs" / "base" / "shapes.yaml"
    words = ["data.annotations=a.jsonl", "data.heldout_annotations=b.jsonl", word]
    with pytest.raises(InputError, match=told):
        compare_configs(files, words, base=base, sweep=path, **options)
    assert not (tmp_path / "out").exists()


def test_dry_run_names_data_and_checkpoints_that_do_not_exist(run, tmp_path):
    words = ["data.annotations=gone.json", "data.heldout_annotations=lost.json", "model.path=nowhere"]
    code, told, _ = run("compare", A, SOFT, "--dry-run", "--out", tmp_path / "out", *words)
    assert code == 2 and "Traceback" not in told
    named = {line.partition(":")[0] for line in told.splitlines()[1:]}
    assert named == {"data.annotations", "data.heldout_annotations", "model.path"}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["afile", "afile/out"])
def test_comparison_into_a_file_is_refused_in_one_line(run, tmp_path, place):
    (tmp_path / "afile").touch()
    code, told, _ = run("compare", A, "--seeds", "1", "--out", place)
    assert code == 2 and "it is a file, or is below one; name another folder" in told and "Traceback" not in told


def test_missing_answers_come_from_the_checkpoint_that_gave_the_others(tmp_path, monkeypatch):
    """That with the highest AP during training, not the last one; answers of another decoding are not taken."""
    (planned, _) = plan(tmp_path, ["evaluation.decoding={grammar: markers}"])
    (made, _) = plan(tmp_path, ["evaluation.decoding={}"])
    finish(made)
    checkpoints = planned.folder / "checkpoints"
    for step in (1, 2):
        (checkpoints / f"checkpoint-{step}").mkdir(parents=True)
        history = [{"step": 1, "eval_AP": 0.5}, {"step": 2, "eval_AP": 0.25}]
        state = json.dumps({"log_history": history})
        (checkpoints / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
        mark_complete(checkpoints / f"checkpoint-{step}")
    (planned.folder / "manifest.json").write_text(json.dumps({"checkpoint": "checkpoints/checkpoint-2"}))
    (planned.folder / "predictions.jsonl").touch()
    asked = []
    monkeypatch.setattr(comparison, "predict_images", lambda config, *where: asked.append(where))
    monkeypatch.setattr(comparison, "score_predictions", lambda config, path, *_: path)
    wanted = planned.folder / "decodings" / "markers" / "predictions.jsonl"
    assert comparison._scored(planned, Decoding(grammar="markers"), None) == wanted
    assert asked == [(checkpoints / "checkpoint-1", None, wanted)]
    assert comparison._scored(planned, Decoding(), None) == planned.folder / "predictions.jsonl" and len(asked) == 1


@pytest.mark.slow
def test_comparison_of_two_groups_leaves_one_report_and_keeps_everything_the_second_time(
    tmp_path, capsys, forked_popen, monkeypatch
):
    from coord_trainer.comparison.run import compare_configs

    forks = SimpleNamespace(**(vars(subprocess) | {"Popen": forked_popen}))
    monkeypatch.setattr("coord_trainer.comparison.run.subprocess", forks)
    words = [
        "training.max_steps=1",
        "training.logging_steps=1",
        "training.per_device_train_batch_size=2",
        "data.shapes.train=4",
        "data.shapes.heldout=2",
        "evaluation.max_new_tokens=24",
        "evaluation.decoding=[{grammar: none},{grammar: markers}]",
        *(f"model.tiny.{name}={size}" for name, size in TINY.items()),
    ]
    files, out = [A, PHASE1 / "b.yaml"], tmp_path / "out"

    def run(*seeds):
        options = {"seeds": seeds, "jobs": 2, "resamples": 20, "dry_run": False, "sweep": None}
        assert compare_configs(files, words, base=default_base(files), out=out, **options) == (out / "comparison.html")
        return capsys.readouterr().out

    assert run(0).count("started") == 2
    for group in "ab":  # under the grammar even a model that has learnt nothing answers in whole objects
        health = json.loads((out / group / "seed-0/decodings/markers/evaluation.json").read_text())["format"]
        assert health["truncated"] == 0 and set(health["dropped"]) <= {"no_area"}
    lost = out / "b" / "seed-0" / "decodings" / "markers" / "predictions.jsonl"
    answers = lost.read_text()
    lost.unlink()
    for group in "ab":  # as if it had been trained with another seed, with other answers
        copied = out / group / "seed-1"
        shutil.copytree(out / group / "seed-0", copied)
        (copied / "config.yaml").write_text((copied / "config.yaml").read_text().replace("seed: 0", "seed: 1"))
        (copied / "predictions.jsonl").write_text(answers)
    text = run(0, 1)
    assert text.count("finished before, kept") == 4 and "started" not in text
    assert text.count("answers are missing: markers\n") == 2 and lost.read_text() == answers
    for folder in (out, out / "decodings" / "markers"):
        found = json.loads((folder / "comparison.json").read_text())
        assert found["metrics"].keys() == {"a", "b"} and found["differences"].keys() == {"b"}
        values = [
            json.loads((out / "b" / f"seed-{seed}" / folder.relative_to(out) / "evaluation.json").read_text())
            for seed in (0, 1)
        ]
        assert found["metrics"]["b"]["mean_iou"]["seeds"] == [value["mean_iou"] for value in values]
