"""The training stage without a training: what is told, asked of the opened model, and kept in the manifest."""

import json
from types import SimpleNamespace

import pytest
from tiny_run import tiny_config

from coord_codec import RunError
from coord_detect.model.checkpoints import mark_complete
from coord_trainer import training_stage as stage
from coord_trainer.data.shapes import draw_sets
from coord_trainer.swift.open_run import Trained
from coord_trainer.training.callbacks import EachEpoch, IntervalsOfNow, MetricsFile, TrainingProgress
from coord_trainer.training.interrupt import StopAtBoundary, TrainingClock
from coord_trainer.training.profile import StepProfile


class Opened(SimpleNamespace):
    """What `open_run` gives, for a training that only notes what it was asked."""

    vocab = SimpleNamespace(fingerprint=lambda markers: f"of {markers}")
    family = SimpleNamespace(vision_tower="eyes", language_model="mouth")
    markers, processor, model = (1, 2), None, None

    def __init__(self, checkpoint=None, **more):
        super().__init__(checkpoint=checkpoint, asked=[], **more)

    def train(self, samples, scored, **options):
        self.asked.append((samples, scored, options))
        return Trained(self.checkpoint, 3, (5,))


class Set(list):
    """Samples: eight of them, three objects beyond the cap."""

    kept, dropped_objects, set_epoch = True, 0, print

    def of_first_epoch(self):
        return "the first epoch of these"


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Train with stand-ins: returns the result, what was asked of the model, and the sets that were made of images."""
    sets, _ = draw_sets(tiny_config(), tmp_path / "data")

    def call(config=None, opened=None, scored=None, **of_samples):
        config, opened, made = config or tiny_config(), opened or Opened(tmp_path / "run" / "checkpoint-3"), []
        evaluates = []

        def sample_set(config, opened, images, augments=False):
            made.append((images, augments))
            found = Set(range(8))
            for name, value in of_samples.items():
                setattr(found, name, value)
            return found

        monkeypatch.setattr(stage, "open_run", lambda *_, **more: evaluates.append(more["evaluates"]) or opened)
        monkeypatch.setattr(stage, "sample_set", sample_set)
        monkeypatch.setattr(stage, "report_length", lambda *_: None)
        monkeypatch.setattr(stage, "refuse_placeholders", lambda *_: None)
        monkeypatch.setattr(stage, "count_parameters", lambda _: {"trained": 2, "all": 7})
        (tmp_path / "run").mkdir(exist_ok=True)
        result = stage.train_model(config, tmp_path / "run", "base", sets, sets if scored == "train" else scored)
        assert evaluates == [scored is not None]
        return result, opened.asked, made

    return call


def saved(folder, step, history=(), **state):
    """A complete checkpoint after so many steps."""
    place = folder / "checkpoints" / f"checkpoint-{step}"
    place.mkdir(parents=True)
    content = {"global_step": step, "max_steps": 3, "epoch": 1.0, "log_history": list(history), **state}
    (place / "trainer_state.json").write_text(json.dumps(content))
    mark_complete(place)
    return place


def test_manifest_has_every_fact_of_the_training(trained, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    lines = [{"step": n, "eval_failed": f"reason {n}"} for n in range(12)] + [{"step": 12}]
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    last = saved(tmp_path / "run", 2)
    result, _, _ = trained(opened=Opened(last), dropped_objects=3)
    assert result.checkpoint == last and result.facts.pop("training_seconds") >= 0
    assert result.facts == {
        "steps": 3,
        "resumed_from": None,
        "fingerprint": "of (1, 2)",
        "checkpoint": "checkpoints/checkpoint-2",
        "objects_left_out_by_the_cap": 3,
        "samples_seen": {"train": 5},
        "parameters": {"trained": 2, "all": 7},
        "best_checkpoint": None,
        "failed_evaluations": {"count": 12, "which": [f"step {n}: reason {n}" for n in range(2, 12)]},
    }
    told = capsys.readouterr().out
    for fact in ("trained 3 steps in 0 s\n", "2 of 7 parameters", "12 evaluations", "step 11: reason 11", "3 objects"):
        assert fact in told
    assert "best checkpoint" not in told and "seen:" not in told


def test_best_checkpoint_by_ap_answers_and_the_last_one_is_kept_in_the_manifest(trained, tmp_path, capsys):
    history = [{"step": 1, "eval_AP": 0.5}, {"step": 2, "eval_AP": 0.25}]
    best, last = saved(tmp_path / "run", 1, history), saved(tmp_path / "run", 2, history)
    result, _, _ = trained(opened=Opened(last, vocab=None))
    assert result.checkpoint == best and result.facts["checkpoint"] == "checkpoints/checkpoint-2"
    assert result.facts["best_checkpoint"] == {"path": "checkpoints/checkpoint-1", "AP": 0.5}
    assert result.facts["fingerprint"] is None
    assert "best checkpoint by AP during training: checkpoint-1, 0.500" in capsys.readouterr().out
    with pytest.raises(RunError, match="without a checkpoint"):
        trained(opened=Opened(None))


def test_resume_goes_on_from_the_newest_checkpoint_or_states_what_had_ended(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stage, "seconds_of", lambda checkpoint: 40.0)
    newest = saved(tmp_path / "run", 2)
    config = tiny_config(run={"resume": True}, training={"max_steps": 3})
    result, ((_, _, options),), _ = trained(config, Opened(newest))
    assert options["resume_from"] == newest
    assert result.facts["resumed_from"] == {"steps": 2, "training_seconds": 40.0}
    assert result.facts["training_seconds"] == pytest.approx(40, abs=5)
    assert "2 of them in 40 s before it was resumed" in capsys.readouterr().out
    _, ((_, _, options),), _ = trained(tiny_config(training={"max_steps": 3}), Opened(newest))
    assert options["resume_from"] is None
    ended = saved(tmp_path / "run", 3)
    result, asked, _ = trained(config, Opened("not this"))
    assert asked == [] and result.checkpoint == ended and "had ended with checkpoint-3" in capsys.readouterr().out
    assert result.facts["steps"] == 3 and "samples_seen" not in result.facts and "parameters" not in result.facts
    _, asked, _ = trained(tiny_config(run={"resume": True}, training={"max_steps": 4}), Opened(ended))
    assert len(asked) == 1


def test_samples_of_training_are_augmented_and_shared_with_scoring_where_they_are_the_same(trained, tmp_path):
    other, _ = draw_sets(tiny_config(), tmp_path / "other")
    moved = tiny_config(data={"augment": {"flip": 0.5}})
    expected = {("none", 1): None, ("train", 1): "the first epoch of these", ("other", 2): Set(range(8))}
    for (name, count), scored in expected.items():
        _, ((samples, found, _),), made = trained(scored={"none": None, "train": "train", "other": other}[name])
        assert samples == Set(range(8)) and found == scored and len(made) == count
        assert [augments for _, augments in made] == [True, False][:count]
    _, ((_, found, _),), made = trained(moved, scored="train")  # a moved image is not the one that is scored
    assert found == Set(range(8)) and [augments for _, augments in made] == [True, False]


def test_callbacks_profile_and_answers_are_those_of_the_settings(trained, monkeypatch, capsys, tmp_path):
    always = [IntervalsOfNow, TrainingProgress, MetricsFile, EachEpoch, StopAtBoundary, TrainingClock]
    _, ((_, _, options),), _ = trained()
    assert [type(each) for each in options["callbacks"]] == always and options["answers"] is None
    assert options["callbacks"][2].path == tmp_path / "run" / "metrics.jsonl"
    profiled = tiny_config(run={"profile": True}, evaluation={"ap_steps": 7, "ap_patience": 4})
    monkeypatch.setattr(stage, "SubsetScorer", lambda *_: SimpleNamespace(images=[1, 2]))
    _, ((_, _, options),), _ = trained(profiled, scored="train")
    assert [type(each) for each in options["callbacks"]] == [*always[:4], StepProfile, *always[4:]]
    assert (options["answers"]._every, options["answers"]._patience) == (7, 4)
    assert "the answers to 2 images is measured every 7 steps" in capsys.readouterr().out
    assert trained(profiled)[1][0][2]["answers"] is None
    assert trained(tiny_config(), scored="train")[1][0][2]["answers"] is None


@pytest.mark.parametrize(
    ("kept", "stated", "cores", "ranks", "workers"),
    [
        (True, {}, 8, 1, None),
        (False, {"dataloader_num_workers": 2}, 8, 1, None),
        (False, {}, 8, 1, 4),
        (False, {}, 3, 1, 3),
        (False, {}, 8, 4, 2),
        (False, {}, 1, 2, 1),
        (False, {}, None, 1, 1),
    ],
)
def test_images_are_encoded_by_as_many_processes_as_there_are_cores_for(
    monkeypatch, capsys, kept, stated, cores, ranks, workers
):
    monkeypatch.setattr(stage.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(stage, "world_size", lambda: ranks)
    samples = Set(range(9))
    samples.kept = kept
    assert stage._report_samples(tiny_config(training=stated), samples) == workers
    told = capsys.readouterr().out
    assert ("images are encoded" in told) is (workers is not None) and "data.max_objects" not in told
    assert ("the last 1 training image is left out" in told) is (ranks > 1)


def test_share_of_each_source_is_told_where_there_are_several(capsys, monkeypatch):
    monkeypatch.setattr(stage, "count_parameters", lambda _: {"trained": 1, "all": 1})
    mixture = SimpleNamespace(sources=[SimpleNamespace(name="a"), SimpleNamespace(name="b")])
    found = stage._report_trained(Opened(), mixture, Trained(None, 1, (3, 1)))
    assert found["samples_seen"] == {"a": 3, "b": 1}
    assert "seen: a 3 samples (75.0%), b 1 sample (25.0%)" in capsys.readouterr().out
    stage._report_trained(Opened(), mixture, Trained(None, 0, (0, 0)))
    assert "a 0 samples (0.0%)" in capsys.readouterr().out
