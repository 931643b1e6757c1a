"""Evaluations during training: AP of answers, the best checkpoint, early stopping, and failures that end nothing."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tiny_run import read_lines, tiny_config

from coord_codec import InputError
from coord_detect.model.checkpoints import best_by_ap, find_checkpoint

pytest.importorskip("swift")


def config(ap_steps=1, **training):
    """A run with dropout, whose random numbers an evaluation must not change."""
    scores = {"ap_steps": ap_steps, "ap_images": 3, "ap_patience": training.pop("patience", None)}
    return tiny_config(
        data={"shapes": {"train": 8, "heldout": 5}},
        evaluation={"max_new_tokens": 16, **scores},
        training={
            "tuner_type": "lora",
            "target_modules": ["all-linear"],
            "lora_dropout": 0.3,
            "max_steps": 3,
            "save_steps": 3,
            "eval_strategy": "no",
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 1,
            "learning_rate": 1e-2,
            "report_to": [],
            **training,
        },
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Train in a folder with the scores given one after the other; an exception among them is raised."""
    from coord_trainer.evaluation import during_training
    from coord_trainer.run import train_and_score

    class Scripted(during_training.SubsetScorer):
        def score(self, answers):
            asked.append(answers)
            if (value := given[len(asked) - 1]) is None:
                return super().score(answers)
            if isinstance(value, Exception):
                raise value
            return {"AP": value, "AP50": value}

    asked, given = [], []

    def train(name, settings, scores=(), resume=False):
        asked.clear()
        given[:] = scores
        folder = tmp_path_factory.getbasetemp() / "evaluations" / name
        settings = settings.model_copy(update={"run": settings.run.model_copy(update={"resume": resume})})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("coord_trainer.training_stage.SubsetScorer", Scripted)
            result = train_and_score(settings, folder)
        return result, json.loads((folder / "manifest.json").read_text()), list(asked)

    return train


@pytest.fixture(scope="module")
def plain(runs):
    """The weights of a run without any evaluation, and the answers of its checkpoint."""
    result, *_ = runs("plain", config(ap_steps=None))
    answers = [json.loads(line) for line in (result.folder / "predictions.jsonl").read_text().splitlines()]
    return load_file(result.checkpoint / "adapter_model.safetensors"), answers


def same(checkpoint, weights):
    found = load_file(checkpoint / "adapter_model.safetensors")
    return found.keys() == weights.keys() and all(torch.equal(found[name], weights[name]) for name in weights)


@pytest.mark.slow
def test_evaluations_that_fail_leave_the_weights_as_they_are_without_any(runs, plain, monkeypatch, capsys):
    from coord_trainer.swift.trainer import CoordTrainer

    def break_off(trainer, *words, **more):
        raise MemoryError("no room for a batch")

    monkeypatch.setattr(CoordTrainer, "prediction_step", break_off)
    settings = config(eval_strategy="steps", eval_steps=2)
    result, manifest, asked = runs("broken", settings, [RuntimeError("boom\nmore")] * 3)
    assert same(result.checkpoint, plain[0]) and len(asked) == 3
    failed = manifest["failed_evaluations"]
    assert (manifest["status"], failed["count"], manifest["best_checkpoint"]) == ("finished", 5, None)
    assert failed["which"][0] == "step 1: scoring of answers: RuntimeError: boom"
    assert failed["which"][1] == "step 2: evaluation losses: MemoryError: no room for a batch"
    out = capsys.readouterr().out
    assert out.count("training continues") == 5 and "5 evaluations during training failed" in out
    assert "in score" in (result.folder / "swift.log").read_text()  # the traceback
    assert not any("eval_total_loss" in line or "eval_AP" in line for line in read_lines(result.folder))


@pytest.mark.slow
def test_answers_during_training_are_those_of_the_checkpoint_and_change_no_weight(runs, plain):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    weights, answers = plain
    settings = config(eval_strategy="steps", eval_steps=2, report_to=["tensorboard"])
    result, manifest, asked = runs("scored", settings, [None, None, 0.5])
    assert same(result.checkpoint, weights)
    assert [record["text"] for record in asked[2]] == [answers[i]["text"] for i in (0, 1, 3)]  # spread over five
    assert [record["image_id"] for record in asked[2]] == [answers[i]["image_id"] for i in (0, 1, 3)]
    lines = read_lines(result.folder)
    assert [line["step"] for line in lines if "eval_AP" in line] == [1, 2, 3]
    assert [line["step"] for line in lines if "eval_total_loss" in line] == [2, 3]  # the last step as well
    assert manifest["best_checkpoint"] == {"path": "checkpoints/checkpoint-3", "AP": 0.5}
    assert "AP during training" in (result.folder / "report.html").read_text()
    events = EventAccumulator(str(result.folder / "tensorboard")).Reload()
    assert [event.step for event in events.Images("answers/3")] == [1, 2, 3]
    assert [event.step for event in events.Scalars("train/seconds_per_step")] == [1, 2, 3]
    assert all(event.value > 0 for event in events.Scalars("train/seconds_per_step"))


@pytest.mark.slow
def test_best_checkpoint_is_kept_and_answers_and_training_stops_when_patience_ends(runs, capsys):
    settings = config(patience=2, max_steps=9, save_steps=9, save_total_limit=1)
    result, manifest, asked = runs("best", settings, [0.2, 0.6, 0.6, ValueError("once"), 0.1, 0.9])
    assert len(asked) == 5 and manifest["steps"] == 5  # the failure at step 4 neither counts nor resets
    kept = sorted(path.name for path in (result.folder / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-2", "checkpoint-5"]
    assert result.checkpoint.name == "checkpoint-2" and manifest["checkpoint"] == "checkpoints/checkpoint-5"
    assert find_checkpoint(result.folder) == result.checkpoint
    assert best_by_ap(result.folder / "checkpoints" / "checkpoint-5") == (result.checkpoint, 0.6)
    assert "AP has not risen in 2 measurements" in capsys.readouterr().out
    again, manifest, asked = runs("best", settings, resume=True)  # stopped for good: nothing is trained any more
    assert (asked, manifest["steps"], again.checkpoint.name) == ([], 5, "checkpoint-2")
    assert manifest["failed_evaluations"]["count"] == 1
    longer = config(patience=3, max_steps=9, save_steps=9, save_total_limit=1)
    again, manifest, asked = runs("best", longer, [0.3], resume=True)  # one more, as if never stopped
    assert (len(asked), manifest["steps"], again.checkpoint.name) == (1, 6, "checkpoint-2")


@pytest.mark.slow
def test_metric_that_no_evaluation_measures_is_refused_before_the_first_step(runs):
    settings = config(ap_steps=None, eval_strategy="steps", metric_for_best_model="accuracy")
    with pytest.raises(InputError, match=r"metric_for_best_model: expected one of .*total_loss.*found 'accuracy'"):
        runs("metric", settings)


@pytest.mark.parametrize(
    ("evaluation", "training", "told"),
    [
        ({"ap_patience": 2}, {}, "evaluation.ap_steps is not"),
        ({"ap_steps": 2, "images": "none"}, {}, "evaluation.images is none"),
        ({"ap_steps": 2}, {"metric_for_best_model": "loss"}, "training.metric_for_best_model"),
        ({"ap_steps": 2}, {"early_stop_interval": 2}, "evaluation.ap_patience"),
        ({"ap_steps": 2}, {"deepspeed": "zero3"}, "training.deepspeed"),
        ({"ap_steps": 2}, {"deepspeed": {"zero_optimization": {"stage": 3}}}, "training.deepspeed"),
    ],
)
def test_settings_against_scoring_during_training_name_both_sides(evaluation, training, told):
    with pytest.raises(InputError) as caught:
        tiny_config(evaluation=evaluation, training=training)
    assert told in str(caught.value) and "evaluation." in str(caught.value)


def test_schedule_is_due_every_few_steps_and_at_the_end():
    from coord_trainer.evaluation.during_training import AnswerSchedule

    schedule, control = AnswerSchedule(None, every=4), SimpleNamespace(should_evaluate=False)
    due = []
    for step in range(1, 11):
        control.should_evaluate = step == 8  # the losses' turn as well
        schedule.on_step_end(None, SimpleNamespace(global_step=step, max_steps=10), control)
        if schedule.due:
            due.append((step, schedule.alone))
        assert control.should_evaluate == schedule.due
    assert due == [(4, True), (8, False), (10, True)]


@pytest.mark.parametrize(("patience", "stops"), [(1, True), (2, True), (3, False), (None, False)])
def test_training_stops_after_as_many_measurements_as_its_patience(patience, stops):
    from coord_trainer.evaluation.during_training import AP, AnswerSchedule

    control = SimpleNamespace(should_save=False, should_training_stop=False)
    history = [{"step": step, AP: value} for step, value in ((1, 0.3), (2, 0.5), (3, 0.4), (4, 0.5))]
    state = SimpleNamespace(global_step=4, log_history=history)
    AnswerSchedule(None, every=1, patience=patience).on_evaluate(None, state, control, metrics={AP: 0.5})
    assert (control.should_training_stop, control.should_save) == (stops, stops)
