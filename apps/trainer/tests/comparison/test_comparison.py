"""A comparison: its plan, which runs are kept, its tables; and a tiny one end to end."""

import json
import re
import statistics
import subprocess
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
import yaml
from tiny_run import TINY

from coord_codec import InputError, Instance, encode_target
from coord_eval import Figure, Metric, ratio_over_images, register_metric, resample, score, unregister_metric
from coord_trainer.checkpoints import mark_complete
from coord_trainer.comparison import run as comparison
from coord_trainer.comparison.plan import default_base, differing_settings, plan_groups, plan_runs, read_seeds
from coord_trainer.comparison.report import difference_table, metric_table, summary_lines, tabulated
from coord_trainer.comparison.results import (
    GroupComparison,
    ScoredRun,
    mean_and_interval,
    paired_difference,
    paired_figures,
    values_of,
)
from coord_trainer.comparison.run import why_not_kept
from coord_trainer.config.decoding import COMPARED, Decoding, supported

ROOT = Path(__file__).parents[4]
PHASE1 = ROOT / "configs" / "phase1"
A, SOFT = PHASE1 / "a.yaml", PHASE1 / "soft.yaml"
DIGESTS = {"train": "1", "heldout": "2"}
DECODINGS = supported(COMPARED, "box", tokens=True, noise=False)


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
    assert runs[0].group.question.startswith("A: is plain cross-entropy")
    groups = [run.group for run in runs[:2]]
    assert set(differing_settings(groups)) == {"custom.coord_objective.use_coord_ce", "custom.coord_soft_ce_w1.enabled"}
    assert groups[0].config.evaluation.decoding == tuple(DECODINGS)


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


class Figures(dict):
    """The figures of an evaluation, 0 where none is given."""

    format = MappingProxyType({"parsed": 3, "answers": 4})

    def __missing__(self, name):
        return 0.0


def scored_run(figures, draws=None):
    evaluation = Figures(figures)
    return ScoredRun(evaluation, values_of(evaluation), draws or {}, np.array([]), np.array([]))


def test_printed_table_has_the_mean_of_every_group_and_decoding():
    groups, scored = [SimpleNamespace(name="a"), SimpleNamespace(name="b")], {}
    for group, ap in (("a", 0.25), ("b", 0.5)):
        scored[group, Decoding()] = [scored_run({"AP": ap, "AP50": 2 * ap, "mean_iou": ap})]
    rows = [line.split() for line in summary_lines(GroupComparison(groups, [], scored, {}, {}, 0))]
    assert rows[1:] == [["a", "none", "0.250", "0.500", "0.250"], ["b", "none", "0.500", "1.000", "0.500"]]


def test_question_is_the_first_line_also_after_a_byte_order_mark(tmp_path):
    (tmp_path / "a.yaml").write_text(A.read_text(), "utf-8-sig")
    (group,) = plan_groups([tmp_path / "a.yaml"], default_base([A]), [], None)
    assert group.question.startswith("A: is plain cross-entropy")


@pytest.mark.parametrize("place", ["afile", "afile/out"])
def test_comparison_into_a_file_is_refused_in_one_line(run, tmp_path, place):
    (tmp_path / "afile").touch()
    code, told, _ = run("compare", A, "--seeds", "1", "--out", place)
    assert code == 2 and "it is a file, or is below one; name another folder" in told and "Traceback" not in told


def test_missing_answers_come_from_the_checkpoint_that_gave_the_others(tmp_path, monkeypatch):
    """That with the highest AP during training, not the last one."""
    (planned, _) = plan(tmp_path, ["evaluation.decoding={}"])
    checkpoints = planned.folder / "checkpoints"
    for step in (1, 2):
        (checkpoints / f"checkpoint-{step}").mkdir(parents=True)
        history = [{"step": 1, "eval_AP": 0.5}, {"step": 2, "eval_AP": 0.25}]
        state = json.dumps({"log_history": history})
        (checkpoints / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
        mark_complete(checkpoints / f"checkpoint-{step}")
    (planned.folder / "manifest.json").write_text(json.dumps({"checkpoint": "checkpoints/checkpoint-2"}))
    asked = []
    monkeypatch.setattr(comparison, "predict_images", lambda config, checkpoint, *_: asked.append(checkpoint))
    comparison._answer_missing(planned, None)
    assert asked == [checkpoints / "checkpoint-1"]


def test_interval_over_seeds_is_students():
    from scipy import stats

    values = [0.5, 0.61, 0.58, 0.44, 0.52]
    low, high = stats.t.interval(0.95, 4, loc=statistics.mean(values), scale=stats.sem(values))
    mean, half = mean_and_interval(values)
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=1e-4)
    assert mean_and_interval([0.3]) == (0.3, None)


def test_differences_are_paired_by_seed_and_by_image():
    generator = np.random.default_rng(0)
    pictures = generator.normal(0, 0.2, 400)  # easy and hard draws, common to all
    groups = [SimpleNamespace(name="a"), SimpleNamespace(name="b")]
    scored, runs = {}, []
    for group, gain, seeds in (("a", 0.0, (0, 1, 2)), ("b", 0.05, (1, 2, 3))):
        entries = []
        for seed in seeds:
            ap = 0.4 + 0.1 * seed + gain
            any_label = ap + gain  # twice the gain
            draws = {"AP": ap + pictures, "AP_any_label": any_label + pictures}
            entries.append(scored_run({"AP": ap, "AP_any_label": any_label}, draws))
            runs.append(SimpleNamespace(group=SimpleNamespace(name=group), seed=seed))
        scored[group, Decoding()] = entries
    found = paired_difference(GroupComparison(groups, runs, scored, {}, {}, 400), "b", Decoding())
    assert found.mean == pytest.approx(0.05)
    assert found.over_seeds == pytest.approx(0, abs=1e-12)  # seeds 1 and 2, that both have
    assert (found.low, found.high) == pytest.approx((0.05, 0.05))
    assert paired_difference(GroupComparison(groups, runs, scored, {}, {}, 400), "a", Decoding()) is None
    table = difference_table(GroupComparison(groups, runs, scored, {}, {}, 400))
    assert re.findall(r">([+-][.\d]+) ± ", table) == ["+0.050", "+0.100"]
    assert re.findall(r">\[(.*?)\]", table) == ["+0.050, +0.050", "+0.100, +0.100"]
    assert difference_table(GroupComparison(groups[:1], runs, scored, {}, {}, 400)) == ""


@pytest.fixture
def missed():
    """A metric of a user's own, of which less is better."""
    name = "missed"

    def measure(scored):
        return ratio_over_images(scored.sum_objects(scored.matches.iou_N < 0.5), scored.objects_per_image)

    register_metric(
        Metric(name=name, documentation="Objects without a box.", measure=measure, figures=(Figure(name, "low"),))
    )
    yield name
    unregister_metric(name)


def test_registered_metric_reaches_report_json_and_console(missed, tmp_path):
    """Group b finds both objects of the second image, a one of them; the values are those of evaluation.json."""
    cats = [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}, {"desc": "cat", "bbox": [0.6, 0.6, 0.9, 0.9]}]
    images = [Instance(image=f"{n}.png", image_id=n, width=64, height=64, objects=cats[:n]) for n in (1, 2)]
    groups, scored, runs = [SimpleNamespace(name=n, question=n) for n in "ab"], {}, []
    for group, found in zip(groups, (1, 2), strict=True):
        answers = [
            {"image_id": n, "text": encode_target(image.model_copy(update={"objects": image.objects[:found]}))}
            for n, image in enumerate(images, start=1)
        ]
        evaluation = score(images, answers)
        draws = resample(evaluation, 20, metrics=paired_figures()).draws
        scored[group.name, Decoding()] = [
            ScoredRun(evaluation, values_of(evaluation), draws, np.array([]), np.array([]))
        ]
        runs.append(SimpleNamespace(group=group, seed=0))
        assert values_of(evaluation)[missed] == evaluation.metrics[missed] == pytest.approx((2 - found) / 3)
        assert values_of(evaluation)["AP"] == evaluation.coco["AP"]
        assert values_of(evaluation)["F1 any label"] == evaluation.detection_class_agnostic["0.5:0.95"]["f1"]
    comparison = GroupComparison(groups, runs, scored, {}, {}, 20)
    assert [line.split()[-1] for line in summary_lines(comparison)] == [missed, "0.333", "0.000"]
    assert f"{missed}, by seed" in difference_table(comparison) and ">-0.333<" in difference_table(comparison)
    (first, second) = tabulated(comparison)["rows"]
    assert (first["metrics"][missed], second["metrics"][missed]) == ([pytest.approx(1 / 3)], [0.0])
    assert second["against_first"][missed]["mean"] == pytest.approx(-1 / 3)
    assert f"{missed}</td><td class=n>0.333</td><td class=n><b>0.000</b>" in metric_table(comparison)  # less is better


@pytest.mark.slow
def test_comparison_of_two_groups_leaves_one_report_and_keeps_everything_the_second_time(
    tmp_path, capsys, forked_popen, monkeypatch
):
    from coord_trainer.comparison.run import compare_configs

    forks = SimpleNamespace(**(vars(subprocess) | {"Popen": forked_popen}))
    monkeypatch.setattr("coord_trainer.comparison.run.subprocess", forks)
    words = [
        "training.max_steps=4",
        "training.save_steps=2",
        "training.eval_steps=2",
        "training.logging_steps=1",
        "training.per_device_train_batch_size=4",
        "data.shapes.train=16",
        "data.shapes.heldout=6",
        *(f"model.tiny.{name}={size}" for name, size in TINY.items()),
    ]
    files, out = [A, PHASE1 / "b.yaml"], tmp_path / "out"

    def run():
        options = {"seeds": [0], "jobs": 2, "resamples": 20, "dry_run": False, "sweep": None}
        assert compare_configs(files, words, base=default_base(files), out=out, **options) == (out / "report.html")
        return capsys.readouterr().out

    assert run().count("started") == 2
    rows = json.loads((out / "comparison.json").read_text())["rows"]
    assert {(row["group"], row["decoding"]) for row in rows} == {
        (group, decoding.name) for group in "ab" for decoding in DECODINGS
    }
    for group in "ab":  # under the grammar even a model that has learnt nothing answers in whole objects
        health = json.loads((out / group / "seed-0/decodings/markers/evaluation.json").read_text())["format"]
        assert health["truncated"] == 0 and set(health["dropped"]) <= {"no_area"}
    first = [json.loads((out / g / "seed-0" / "manifest.json").read_text()) for g in "ab"]
    assert first[0]["first_batches"] == first[1]["first_batches"] != {}
    steps = json.loads((out / "a" / "seed-0" / "convergence.json").read_text())
    assert [(row["step"], row["decoding"]) for row in steps] == [
        (step, decoding) for step in (2, 4) for decoding in ("none", "markers")
    ]
    page = re.sub(r' xmlns(:\w+)?="[^"]*"', "", (out / "report.html").read_text())  # names, fetched by nobody
    assert page.count("<svg") > 20 and "http://" not in page and "https://" not in page
    lost = out / "b" / "seed-0" / "decodings" / "names" / "predictions.jsonl"
    answers = lost.read_text()
    lost.unlink()
    text = run()
    assert text.count("finished before, kept") == 2 and "started" not in text
    assert text.count("answers are missing: names\n") == 1 and lost.read_text() == answers
