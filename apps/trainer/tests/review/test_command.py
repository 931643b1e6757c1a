"""`review` from the command line to its files: likelihoods of every label, continued after an interruption."""

import json
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import yaml
from tiny_run import BASE, TINY, tiny_config

from coord_eval.intake.digests import digest_of_truth
from coord_eval.intake.ground_truth import load_ground_truth
from coord_trainer.data.shapes import draw_sets
from coord_trainer.review import judging
from coord_trainer.review.folds import split_folds
from coord_trainer.review.judging import JudgedRecord

SETTINGS = ("data.markers=obj", "evaluation.max_new_tokens=16", "evaluation.batch_size=2")


@pytest.fixture
def drawn(tmp_path):
    train, _ = draw_sets(tiny_config(), tmp_path / "data")
    (tmp_path / "data" / "train").mkdir()
    for place, instance in enumerate(train.instances):
        train.image(place).save(tmp_path / "data" / instance.image)
    return tmp_path / "data" / "train.jsonl", train


def likelihoods(folder):
    return [json.loads(line) for line in (folder / "likelihoods.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_review_judges_every_label_and_continues(run, tiny_model, drawn, tmp_path, monkeypatch):
    file, train = drawn
    judge_batch, calls = judging._judge_batch, []

    def stopping(forcing, records):
        calls.append([record.image_id for record in records])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return judge_batch(forcing, records)

    monkeypatch.setattr(judging, "_judge_batch", stopping)
    code, *_ = run("review", tiny_model, file, "--out", "out", *SETTINGS)
    assert code not in (0, 2) and not (tmp_path / "out" / "likelihoods.jsonl").exists()
    code, err, out = run("review", tiny_model, file, "--out", "out", "--export", "cvat", *SETTINGS)
    assert code == 0, err
    ids = [instance.image_id for instance in train.instances]
    assert calls == [ids[:2], ids[2:4], ids[4:6], ids[4:6], ids[6:]]
    found = likelihoods(tmp_path / "out")
    labels = [(i.image_id, n, o.desc) for i in train.instances for n, o in enumerate(i.objects)]
    assert [(one["image_id"], one["object"], one["desc"]) for one in found] == labels
    assert "which images the model was trained on is not known" in out
    assert {"review.jsonl", "review.html"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert list((tmp_path / "out").glob("cvat*"))
    made = json.loads((tmp_path / "out" / "review.json").read_text())
    assert made["rests_on"]["ground_truth"] == digest_of_truth(load_ground_truth(file))  # as `apply` reads it

    # A label that was changed since is judged again, with all others.
    lines = file.read_text().splitlines()
    first = json.loads(lines[0])
    first["objects"][0]["desc"] = "thing"
    file.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    assert run("review", tiny_model, file, "--out", "out", *SETTINGS)[0] == 0
    assert likelihoods(tmp_path / "out")[0]["desc"] == "thing"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["M"], "expected MODEL and ANNOTATIONS"),
        (["M", "A", "-c", "c.yaml"], "--config: it says how the models of --folds are trained"),
        (["M", "A", "--folds", 2], "no configuration of a run there"),
        (["M", "A", "--export", "voc"], "--export voc: a review has proposals"),
        (["apply", "A"], "expected DECISIONS ANNOTATIONS"),
        (["apply", "A", "A"], "a.jsonl"),
        (["nowhere", "A"], "no such folder"),
        (["M", "nowhere.json"], "nowhere.json"),
        (["M", "A", "training.max_steps=3"], "training.max_steps: it has no effect"),
    ],
)
def test_review_refuses_what_it_cannot_use(run, tiny_model, words, told):
    words = [tiny_model if word == "M" else "a.jsonl" if word == "A" else word for word in words]
    code, err, out = run("review", *words, "--out", "out")
    assert code == 2 and told in err and len(err.strip().splitlines()) == 1
    assert "loading PyTorch" not in out  # arguments are checked before the slow libraries are loaded


def test_folds_hold_every_record_once_and_equal_images_together(drawn, tmp_path):
    from coord_codec import InputError
    from coord_detect.detection.image_sources import find_sources

    file, train = drawn
    shutil.copyfile(file.parent / train.instances[0].image, file.parent / train.instances[5].image)
    sources = find_sources([str(file)])
    records = [JudgedRecord(s, i, i.image_id) for s, i in zip(sources.images, sources.truth.instances, strict=True)]
    folds = split_folds(records, 3, tmp_path / "folds")
    ids = [{record.image_id for record in fold.records} for fold in folds]
    assert sorted(one for fold in ids for one in fold) == sorted(record.image_id for record in records)
    assert any({records[0].image_id, records[5].image_id} <= fold for fold in ids)
    assert max(map(len, ids)) - min(map(len, ids)) <= 2
    assert sorted(len(fold.records) for fold in split_folds(records, 7, tmp_path / "folds")) == [1] * 6 + [2]
    with pytest.raises(InputError, match="--folds 8"):
        split_folds(records, 8, tmp_path / "folds")


@pytest.mark.slow
def test_every_record_is_judged_by_a_model_of_the_other_folds(run, drawn, tmp_path, forked_popen, monkeypatch):
    forks = SimpleNamespace(**(vars(subprocess) | {"Popen": forked_popen}))
    monkeypatch.setattr("coord_trainer.comparison.run.subprocess", forks)
    file, train = drawn
    values = BASE | {"model": {"tiny": TINY}, "evaluation": {"images": "none", "max_new_tokens": 16}}
    values["data"] = {"markers": "obj", "annotations": "replaced.jsonl"}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values))
    words = ("review", file, "--folds", 2, "-c", "tiny.yaml", "--out", "out", "evaluation.max_new_tokens=16")
    code, err, out = run(*words)
    assert code == 0, err
    judged = {one["image_id"]: one["fold"] for one in likelihoods(tmp_path / "out")}
    assert set(judged) == {instance.image_id for instance in train.instances if instance.objects}
    for fold in (0, 1):
        folder = tmp_path / "out" / "folds" / str(fold)
        taught = {json.loads(line)["image_id"] for line in (folder / "annotations.jsonl").read_text().splitlines()}
        assert taught == {instance.image_id for instance in train.instances} - {
            i for i, f in judged.items() if f == fold
        }
        assert json.loads((folder / "run" / "manifest.json").read_text())["status"] == "finished"
    before = (tmp_path / "out" / "folds" / "0" / "run" / "manifest.json").stat().st_mtime_ns
    code, err, out = run(*words)
    assert code == 0 and out.count("trained before, kept") == 2, err
    assert (tmp_path / "out" / "folds" / "0" / "run" / "manifest.json").stat().st_mtime_ns == before
