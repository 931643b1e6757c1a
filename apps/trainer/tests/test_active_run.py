"""A run from data to report with stand-ins for its stages: what is handed from one to the next, and when it ends."""

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_run import tiny_config

from coord_codec import InputError
from coord_trainer import run as module
from coord_trainer.active_run import Run
from coord_trainer.console import refuse_loose_tasks, set_single_rank_environment, swift_log
from coord_trainer.training.interrupt import Interrupted
from coord_trainer.training_stage import TrainingResult


class Set(SimpleNamespace):
    """An image set of so many images."""

    def __init__(self, name, count=3, **more):
        facts = {"classes": (), "words": {"b", "a"}, "digest": name, "problems": (), "held_in_memory": {}}
        super().__init__(name=name, count=count, **facts | more)

    def __len__(self):
        return self.count


class Data(SimpleNamespace):
    """What `load_data` returns: sources, what is scored, and which calls were made."""

    def __init__(self, *sets, scored=None, heldout=None, count=3):
        train = type("Train", (), {"image_sets": sets, "__len__": lambda _: count})()
        super().__init__(train=train, scored=scored, heldout=heldout, written=[])

    def facts(self):
        return {"train": {"digest": "d", "images": len(self.train), "problems": 0}}

    def without_evidence(self):
        return self

    def write(self, folder):
        self.written.append(folder)


@pytest.fixture
def stages(monkeypatch, tmp_path):
    """Carry out a run with stand-ins; returns what each stage was given."""

    def call(config, data, signal=0):
        seen = SimpleNamespace(views=[], found=[], trained=[], predicted=[], reported=[], threads=[], findings=[])
        place = tmp_path / "run" / "checkpoints" / "checkpoint-3"
        for name in ("refuse_other_versions", "refuse_loose_tasks", "check_model_path"):
            monkeypatch.setattr(module, name, lambda *_: None)

        def train(config, folder, base, train, scored, interruption):
            seen.trained.append((base, train, scored))
            interruption.signum = signal
            return TrainingResult(place, {"steps": 3})

        monkeypatch.setattr(module, "load_data", lambda *_: data)
        monkeypatch.setattr(module, "check_views", lambda views, asked: seen.views.append((views, asked.labels)))
        monkeypatch.setattr(module, "check_before_training", lambda *words: seen.found.append(words) or [1])
        monkeypatch.setattr(module, "write_findings", lambda _, found: seen.findings.append(list(found)))
        monkeypatch.setattr(module, "base_checkpoint", lambda *words: "base of " + str(words[1].name))
        monkeypatch.setattr(module, "train_model", train)
        monkeypatch.setattr(module, "predict_images", lambda *words: seen.predicted.append(words) or 3)
        monkeypatch.setattr(module, "report_on", lambda *words: seen.reported.append(words) or "evaluation")
        monkeypatch.setattr(torch, "set_num_threads", seen.threads.append)
        seen.result = module.train_and_score(config, tmp_path / "run")
        return seen

    return call


SOURCES = [{"annotations": f"{name}.json"} for name in "ab"]


def test_generated_set_is_trained_and_scored_with_its_labels(stages, tmp_path, capsys):
    data = Data(Set("train"), scored=Set("held", words={"b": 2, "a": 1}))
    seen = stages(tiny_config(run={"threads": 2}), data)
    ((base, train, scored),) = seen.trained
    assert (base, train, scored, seen.threads) == ("base of run", data.train, data.scored, [2])
    assert seen.views == [((), ("b", "a"))] and seen.found == seen.findings == []  # what is generated has no faults
    assert seen.predicted[0][2:] == (data.scored, tmp_path / "run" / "predictions.jsonl")
    assert (seen.result.evaluation, seen.result.checkpoint.name) == ("evaluation", "checkpoint-3")
    assert "3 answers from checkpoint-3, loaded from disk" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["status"], manifest["steps"], manifest["data"]) == ("finished", 3, data.facts())
    assert data.written == [tmp_path / "run"]


@pytest.mark.slow
def test_findings_of_all_sources_are_written_and_nothing_is_answered_where_nothing_is_scored(stages):
    config = tiny_config(data={"sources": SOURCES}, evaluation={"images": "none"})
    data = Data(Set("a"), Set("b"), heldout="held")
    seen = stages(config, data)
    assert [(str(c.data.annotations), images.name, held) for c, images, held in seen.found] == [
        ("a.json", "a", "held"),
        ("b.json", "b", "held"),
    ]
    assert seen.findings == [[1, 1]] and seen.result.evaluation is None and seen.predicted == seen.views == []
    classes = Data(Set("a"), scored=Set("a", classes=("z", "y")))
    assert stages(tiny_config(), classes).views == [((), ("z", "y"))]  # in the order of their ids


def test_signal_during_training_ends_the_run_before_it_answers(stages, tmp_path):
    data = Data(Set("train"), scored=Set("held"))
    with pytest.raises(Interrupted, match=r"run\.resume=true"):
        stages(tiny_config(), data, signal=15)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["status"], manifest["steps"]) == ("interrupted", 3)


@pytest.mark.parametrize(("count", "ranks", "told"), [(3, 4, True), (4, 4, False), (1, 1, False), (0, 1, True)])
def test_each_rank_needs_an_image(monkeypatch, tmp_path, count, ranks, told):
    monkeypatch.setattr(module, "load_data", lambda *_: Data(Set("train"), count=count))
    monkeypatch.setattr(module, "world_size", lambda: ranks)
    if told:
        with pytest.raises(InputError, match=rf"data\.annotations: {count} usable .* for {ranks} ranks"):
            module._load(tiny_config(), tmp_path)
    else:
        assert len(module._load(tiny_config(), tmp_path).train) == count


@pytest.mark.slow
def test_run_that_is_resumed_needs_the_same_data_of_each_set(tmp_path):
    facts = {name: {"digest": name} for name in ("train", "heldout")}
    config = tiny_config()
    folder = tmp_path / "run"
    with Run(config, folder) as first:
        first.open_folder(facts)
        first.begin(facts)
        with pytest.raises(InputError, match="another run is using"):
            Run(config, folder).open_folder(facts)
    resumed = config.model_copy(update={"run": config.run.model_copy(update={"resume": True})})
    before = (folder / "config.yaml").read_text()
    for changed in ("train", "heldout"):
        with pytest.raises(InputError, match=f"the {changed} data has changed"), Run(resumed, folder) as again:
            again.open_folder(facts | {changed: {"digest": "other"}})
    with Run(resumed, folder) as again:
        again.open_folder({"train": facts["train"], "new": {"digest": "n"}})
    assert (folder / "config.yaml").read_text() == before  # whether it was resumed is no part of it
    with Run(config, folder) as other:
        other.open_folder(facts)
    assert (tmp_path / "run.1" / "manifest.json").is_file() and not (folder / "manifest.json").exists()


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(122, "quota", "x"), "no space left"), (KeyError("k"), "KeyError")]
)
def test_what_fails_while_scoring_names_the_checkpoint(tmp_path, error, told):
    from coord_codec import RunError

    run = Run(tiny_config(), tmp_path)
    with pytest.raises(RunError, match=rf"(?s){told}.*evaluate {tmp_path}/c --out"), run.scoring(tmp_path / "c"):
        raise error
    assert (tmp_path / "error.txt").is_file() is (told == "KeyError")


@pytest.mark.parametrize(("rank", "name"), [(None, "swift.log"), ("0", "swift.log"), ("2", "swift.2.log")])
def test_logs_go_to_a_file_of_each_rank_and_back_at_the_end(tmp_path, monkeypatch, capsys, rank, name):
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "4")
    swift, out = logging.getLogger("swift"), sys.stdout
    before, shows = swift.handlers[:], warnings.showwarning
    with pytest.raises(ZeroDivisionError), swift_log(tmp_path / "new" / "swift.log") as take_over:
        swift.handlers[:] = [logging.NullHandler()]  # as its import does
        take_over()
        swift.info("of swift")
        logging.getLogger("elsewhere").warning("of another")
        print("printed")
        warnings.warn("a warning", stacklevel=1)
        1 / 0  # noqa: B018
    assert swift.handlers == before and sys.stdout is out and warnings.showwarning is shows
    assert not logging._warnings_showwarning
    text = (tmp_path / "new" / name).read_text()
    assert all(word in text for word in ("of swift", "of another", "printed", "a warning"))
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name] and "printed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tasks", "rank", "refused"),
    [("2", None, True), ("1", None, False), (None, None, False), ("many", None, False), ("2", "0", False)],
)
def test_tasks_without_a_launcher_are_refused_from_two_on(monkeypatch, tasks, rank, refused):
    for name, value in (("SLURM_STEP_NUM_TASKS", tasks), ("RANK", rank)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    if refused:
        with pytest.raises(InputError, match="srun started 2 tasks"):
            refuse_loose_tasks()
    else:
        refuse_loose_tasks()


def test_single_process_is_made_a_rank_unless_it_is_one(monkeypatch):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    for name in names:
        monkeypatch.setenv(name, "7")
    set_single_rank_environment()
    assert [os.environ[name] for name in names] == ["7"] * 5
    monkeypatch.delenv("RANK")
    set_single_rank_environment()
    assert [os.environ[name] for name in names[:4]] == ["0", "0", "1", "localhost"]
    assert 0 < int(os.environ["MASTER_PORT"]) != 7


def test_settings_in_python_may_be_paths_also_in_lists(monkeypatch, tmp_path):
    import coord_trainer

    calls = []
    monkeypatch.setattr(module, "train_and_score", lambda config, folder: calls.append((config, folder)))
    (tmp_path / "a.json").touch()
    sources = [
        {"annotations": tmp_path / "a.json", "images": tmp_path},
        {"annotations": Path("b.json"), "weight": None},
    ]
    custom = {"coord_soft_ce_w1": {"enabled": True}}
    coord_trainer.train(data={"sources": tuple(sources)}, custom=custom, evaluation={"images": "none"}, plugins=[])
    config, folder = calls[0]
    assert [str(source.annotations) for source in config.data.sources] == [str(tmp_path / "a.json"), "b.json"]
    assert config.data.sources[0].images == tmp_path and folder == Path("runs/train")
    coord_trainer.train(custom=custom, run={"dir": tmp_path / "x"})
    assert calls[1][1] == tmp_path / "x"
    with pytest.raises(InputError, match="a RunConfig is complete"):
        coord_trainer.train(config, run={"seed": 1})
    (tmp_path / "open.yaml").write_text("data:\n  annotations: ???\ncustom: {coord_soft_ce_w1: {enabled: true}}\n")
    with pytest.raises(InputError, match=r"data\.annotations has to be given"):
        coord_trainer.train(tmp_path / "open.yaml", evaluation={"images": "none"})
    coord_trainer.train(tmp_path / "open.yaml", data={"sources": sources}, evaluation={"images": "none"})
    with pytest.raises(InputError, match="plugins"):
        coord_trainer.train(plugins=3)
    with pytest.raises((InputError, TypeError), match="data"):
        coord_trainer.train(data=3)
