"""A comparison: its plan, which runs are kept; and a tiny one end to end."""

import json
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tiny_run import TINY

from coord_codec import InputError, RunError
from coord_detect.model.checkpoints import mark_complete
from coord_detect.settings.decoding import Decoding
from coord_detect.settings.load import flat_settings
from coord_losses import registered_terms
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
from coord_trainer.config.data_sources import SourceConfig
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
    for digests in (DIGESTS | {"train": "3"}, DIGESTS | {"heldout": "3"}, {"train": "1"}, DIGESTS | {"more": "4"}, {}):
        assert "other data" in why_not_kept(run, digests)
    assert why_not_kept(run, None) is None
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
        ([A], None, "run.resume=true", "run.resume.*--out"),
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


@pytest.mark.slow
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


@dataclass(frozen=True)
class Compared:
    """What `coord_eval.compare` returns, without the arithmetic."""

    notes: tuple = ("of compare",)
    training: object = None
    written: list = field(default_factory=list)

    def write_report(self, folder, image_root):
        self.written.append((folder, image_root("a.png"), self))
        return folder / "comparison.html"

    def lines(self):
        return ["a line of the comparison"]


@pytest.fixture
def compared(monkeypatch):
    """Each comparison of the test: the scored runs by group, and the number of resamples; none is computed."""
    calls = []
    monkeypatch.setattr(comparison, "_scored", lambda run, decoding, images: (run.group.name, run.seed, decoding.name))
    monkeypatch.setattr(comparison, "compare", lambda of, resamples: calls.append((of, resamples)) or Compared())
    return calls


def test_groups_are_compared_by_the_seeds_and_decodings_that_all_of_them_have(tmp_path, compared, capsys):
    runs = plan(tmp_path, ["evaluation.decoding=[{},{grammar: markers}]"], seeds=3)
    for run in runs:
        finish(run)
    images, plain, markers = SimpleNamespace(root=Path("photos")), *runs[0].config.evaluation.decoding
    others = plan(tmp_path, ["evaluation.decoding=[{}]"], seeds=3)
    without_one = [run for run in runs if (run.group.name, run.seed) != ("soft", 1)]
    page = comparison._compare_runs(without_one, plain, images, tmp_path / "page", 7)
    assert page == tmp_path / "page" / "comparison.html"
    assert compared == [({name: [(name, 0, plain.name), (name, 2, plain.name)] for name in ("a", "soft")}, 7)]
    told = capsys.readouterr().out
    assert f"decoding {plain.name}, seeds 0, 2: {page}" in told and "a line of the comparison" in told
    # A group that does not name the decoding is not part of its page; one run alone, or none, is no comparison.
    mixed = [run for run in runs if run.group.name == "a"] + [run for run in others if run.group.name == "soft"]
    assert comparison._compare_runs(mixed, markers, images, tmp_path, 0)
    assert compared[1][0].keys() == {"a"} and len(compared[1][0]["a"]) == 3
    for few in ([], mixed[:1], [runs[0], runs[3]]):
        assert comparison._compare_runs(few, markers, images, tmp_path, 0) is None
    assert len(compared) == 2 and capsys.readouterr().out.count("nothing to compare") == 3


def test_page_of_a_comparison_has_its_notes_curves_and_the_images_of_the_set(tmp_path, monkeypatch):
    written = Compared()
    monkeypatch.setattr(comparison, "_scored", lambda *_: None)
    monkeypatch.setattr(comparison, "compare", lambda *_: written)
    runs, images = plan(tmp_path, seeds=2), SimpleNamespace(root=Path("photos"))
    decoding = runs[0].config.evaluation.decoding[0]

    def noted(chosen):
        comparison._compare_runs(chosen, decoding, images, tmp_path / "page", 0)
        folder, image, page = written.written.pop()
        assert (folder, image, page.notes[-1]) == (tmp_path / "page", Path("photos/a.png"), "of compare")
        return page.notes[:-1], page.training

    for run in runs:
        finish(run)
    assert noted(runs) == ((f"decoding {decoding.name}: {decoding.meaning}",), None)
    (_, left), _ = noted(runs[:3])
    assert left.startswith("1 run left out")
    for number, run in enumerate(runs):
        manifest = {"status": "finished", "git": {"revision": "xyx"[number % 3]} if number else None}
        (run.folder / "manifest.json").write_text(json.dumps(manifest))
    (_, revisions), _ = noted(runs)
    assert "3 revisions" in revisions
    # Each value of the log has a curve of its own, those of terms by their own titles.
    terms = [term for term in registered_terms().values() if term.trainable]
    weighted = {f"train_{term.loss_key}": f"loss of {term.title}, weighted" for term in terms if term.loss_key}
    bare = {f"coord_diag/{term.log_key}": f"{term.title}, without its weight" for term in terms}
    keys = {"eval_AP", "train_total_loss", "coord_diag/loss", *weighted, *bare}
    for run in runs:
        lines = [{"step": step, "seconds_per_step": 1.0} | dict.fromkeys(keys, 1.0 / step) for step in (1, 2)]
        (run.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, training = noted(runs)
    assert {*weighted.values(), *bare.values()} <= training.curves.keys() and len(training.curves) == len(keys)
    (runs[1].folder / "metrics.jsonl").unlink()
    assert noted(runs)[1] is None


def test_data_and_scored_images_that_differ_between_groups_are_refused(tmp_path):
    def groups(data, evaluation):
        (run, other) = plan(tmp_path)
        changed = {"data": other.config.data.model_copy(update=data)}
        changed["evaluation"] = other.config.evaluation.model_copy(update=evaluation)
        return [run.group, replace(other.group, config=other.config.model_copy(update=changed))]

    comparison._check_comparable(groups({"prompt": "other", "max_objects": 1}, {}))
    one, other = Path("one"), Path("other")
    differing = {"annotations": one, "images": other, "heldout_annotations": one, "heldout_images": other}
    differing |= {"strict": True, "shapes": DataSection().shapes.model_copy(update={"train": 3})}
    for name, value in differing.items():
        with pytest.raises(InputError, match=rf"data\.{name} is .* in a and .* in soft"):
            comparison._check_comparable(groups({name: value}, {}))
    with pytest.raises(InputError, match=r"evaluation\.images is .* in a and train in soft"):
        comparison._check_comparable(groups({}, {"images": "train"}))
    with pytest.raises(InputError, match="nothing to compare"):
        comparison._check_comparable([replace(groups({}, {"images": "none"})[1])])
    same, last = groups({"annotations": one}, {})
    with pytest.raises(InputError, match=r"data\.annotations is .* in a and one in soft"):
        comparison._check_comparable([same, replace(same, name="b"), last])


def test_every_file_that_a_group_names_and_that_is_missing_is_named_once(tmp_path):
    (run, other) = plan(tmp_path)
    (tmp_path / "there").touch()
    names = ("annotations", "images", "heldout_annotations", "heldout_images")
    sources = [SourceConfig(annotations=tmp_path / "there", images="g0"), SourceConfig(conversations="g1", images="g2")]
    settings = {name: Path(f"gone-{name}") for name in names} | {"sources": tuple(sources)}
    data = run.group.config.data.model_copy(update=settings)
    groups = [run.group, replace(other.group, config=other.group.config.model_copy(update={"data": data}))]
    comparison._refuse_missing(groups[:1])
    with pytest.raises(InputError) as caught:
        comparison._refuse_missing([*groups, groups[1]])
    first, *lines = str(caught.value).splitlines()
    assert first == "the comparison could not start:"
    assert lines == [
        *(f"data.{name}: nothing at gone-{name}" for name in names), "data.sources.0.images: nothing at g0",
        "data.sources.1: nothing at g1", "data.sources.1.images: nothing at g2",
    ]  # fmt: skip


@pytest.mark.parametrize(("jobs", "fails"), [(1, ()), (3, (1,)), (1, (1, 2))])
def test_comparison_trains_what_is_missing_and_compares_what_is_finished_by_each_decoding(
    tmp_path, monkeypatch, fails, jobs
):
    out, seen, scored = tmp_path / "out", {"compared": []}, object()
    facts = {name: {"digest": digest, "images": 1} for name, digest in DIGESTS.items()}
    data = SimpleNamespace(facts=lambda: facts, scored=scored, keep_generated=lambda: seen.setdefault("kept", True))

    def train_all(waiting, jobs):
        seen["trained"] = [(run.group.name, run.seed, run.config.run.threads) for run in waiting], jobs
        return [(waiting[n], f"line {n}") for n in fails]

    def compare_runs(finished, decoding, images, folder, resamples):
        seen["compared"].append(([(run.group.name, run.seed) for run in finished], decoding.name, folder))
        assert images is scored and resamples == 9
        return folder / "page.html"

    for name, stub in (("check_model_path", lambda _: None), ("train_all", train_all), ("_compare_runs", compare_runs)):
        monkeypatch.setattr(comparison, name, stub)
    monkeypatch.setattr(comparison, "load_data", lambda config, folder: seen.update(folder=folder) or data)
    words, seeds = ["evaluation.decoding=[{},{grammar: markers}]"], [0, 2]
    (done, *_) = plan_runs(plan_groups([A, SOFT], default_base([A, SOFT]), words, None), seeds, out, None)
    finish(done)
    options = {"seeds": seeds, "base": default_base([A, SOFT]), "sweep": None, "out": out, "jobs": jobs}
    options |= {"resamples": 9, "dry_run": False}
    if fails:
        with pytest.raises(RunError, match=rf"{len(fails)} of 3 runs failed; the first, a seed 2: line 1"):
            comparison.compare_configs([A, SOFT], words, **options)
    else:
        assert comparison.compare_configs([A, SOFT], words, **options) == out / "page.html"
    trained, at_once = seen["trained"]
    threads = {run[2] for run in trained}
    assert [run[:2] for run in trained] == [("soft", 0), ("a", 2), ("soft", 2)] and at_once == jobs
    assert threads == ({1} if jobs > 1 else {None}) and seen["folder"] == out / "data" and seen["kept"]
    finished = [("a", 0), *(run[:2] for n, run in enumerate(trained) if n not in fails)]
    assert seen["compared"] == [(finished, "none", out), (finished, "markers", out / "decodings" / "markers")]


def test_runs_end_where_the_comparison_is_interrupted(tmp_path, monkeypatch):
    ended = []

    class Process:
        def __init__(self, words, env, **_):
            assert env.get("OMP_NUM_THREADS") == "77"  # no threads are stated: as the comparison itself
            self.number = len(ended)

        def poll(self):
            raise KeyboardInterrupt

        def terminate(self):
            ended.append("terminate")

        def wait(self):
            ended.append("wait")

    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    monkeypatch.setattr(comparison, "subprocess", SimpleNamespace(**(vars(subprocess) | {"Popen": Process})))
    monkeypatch.setattr(comparison, "_POLL_SECONDS", 0)
    runs = plan_runs(plan_groups((A, SOFT), default_base((A, SOFT)), (), None), range(2), tmp_path, None)
    with pytest.raises(KeyboardInterrupt):
        comparison.train_all(runs, 3)
    assert ended == ["terminate"] * 3 + ["wait"] * 3


def test_runs_are_trained_so_many_at_a_time_and_failures_are_told(tmp_path, monkeypatch, capsys):
    active, most, started = [], [], []

    class Process:
        def __init__(self, words, stdout, env, **_):
            config = yaml.safe_load(Path(words[-1]).read_text())
            folder = Path(config["run"]["dir"])
            started.append((folder, env.get("OMP_NUM_THREADS")))
            self.returncode, self.polls = int(folder == runs[1].folder), 0
            stdout.write("first\n\n" + "\n".join(f"step 1\rline {n}" for n in range(6)))
            active.append(self)
            most.append(len(active))

        def poll(self):
            self.polls += 1
            if self.polls < 2:
                return None
            active.remove(self)
            return self.returncode

    monkeypatch.setattr(comparison, "subprocess", SimpleNamespace(**(vars(subprocess) | {"Popen": Process})))
    monkeypatch.setattr(comparison, "_POLL_SECONDS", 0)
    runs = plan(tmp_path / "new" / "out", ["run.threads=3"], seeds=2)
    failed = comparison.train_all(runs, 3)
    assert [(run.folder, "3") for run in runs] == started and max(most) == 3
    assert failed == [(runs[1], " | ".join(f"line {n}" for n in range(1, 6)))]
    told = capsys.readouterr().out
    assert told.count("started") == 4 and "soft seed 0: FAILED" in told
    assert told.count(" done in ") == 3 and "4 of 4, about 0 min left" in told


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
