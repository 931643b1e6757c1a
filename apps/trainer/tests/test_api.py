"""`coord_trainer.train`: the settings of the command line as keywords."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import coord_trainer
from coord_codec import InputError


@pytest.fixture
def called(monkeypatch):
    """The configuration and folder of each training, none of which takes place."""
    from coord_trainer import run

    calls = []
    monkeypatch.setattr(run, "train_and_score", lambda config, folder: calls.append((config, folder)))
    return calls


def test_sections_override_the_file_as_words_do(called, tmp_path):
    base = tmp_path / "own.yaml"
    base.write_text("data: {max_objects: 7}\ncustom: {coord_soft_ce_w1: {enabled: true}}\ntraining: {max_steps: 9}\n")
    data = {"annotations": Path("a #1.json"), "prompt": "Find: \u201call\u201d, [now]"}
    coord_trainer.train(base, data=data, training={"max_steps": 3}, evaluation={"views": ["mirror"], "images": "train"})
    ((config, folder),) = called
    assert (str(config.data.annotations), config.data.prompt) == ("a #1.json", data["prompt"])
    assert (config.data.max_objects, config.training["max_steps"]) == (7, 3)
    assert config.evaluation.views == ("mirror",) and folder == Path("runs/own")
    coord_trainer.train(config)
    assert called[1][0] is config


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"epochs": 3}, "num_train_epochs"),
        ({"data": "coco.yaml"}, 'data={"annotations"'),
        ({"traning": {}}, "its sections are model, data"),
    ],
)
def test_keywords_of_others_name_the_section(called, named, told):
    with pytest.raises(TypeError, match=told):
        coord_trainer.train(**named)
    assert not called


def test_settings_that_do_not_exist_are_told_as_on_the_command_line(called):
    with pytest.raises(InputError, match=r"training\.learning_rat"):
        coord_trainer.train(training={"learning_rat": 1}, custom={"coord_soft_ce_w1": {"enabled": True}})


def test_result_of_a_run_shows_folder_checkpoint_and_scores(tmp_path):
    from coord_trainer.run import Result

    @dataclass
    class Scores:
        def _repr_html_(self):
            return "<b>AP</b>"

    html = Result(tmp_path, tmp_path / "checkpoint-3", Scores())._repr_html_()
    assert "checkpoint-3" in html and "<b>AP</b>" in html
    assert "checkpoint-3" in Result(tmp_path, tmp_path / "checkpoint-3", None)._repr_html_()
