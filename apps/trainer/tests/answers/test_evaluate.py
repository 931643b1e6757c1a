"""A checkpoint scored on its own: what stops before its end goes on in the same folder."""

import pytest
from tiny_run import tiny_config

from coord_trainer.answers import score
from coord_trainer.answers.appended import unfinished
from coord_trainer.data.image_set import draw_sets
from coord_trainer.model.tiny import base_checkpoint

WORDS = ("data.markers=obj", "data.shapes.train=2", "data.shapes.heldout=3", "evaluation.max_new_tokens=8")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = tiny_config()
    train, _ = draw_sets(config, folder / "data")
    return base_checkpoint(config, folder, train)


@pytest.fixture
def evaluate(run, model):
    soft = "custom.coord_soft_ce_w1.enabled=true"
    return lambda *words: run("evaluate", model, "--out", "scored", soft, *WORDS, *words)


def test_settings_without_images_to_answer_leave_no_folder(evaluate, tmp_path):
    for _ in range(2):
        code, told, _ = evaluate("evaluation.pictures=none")
        assert code == 2 and "evaluation.pictures is none" in told
        assert not (tmp_path / "scored").exists()


@pytest.mark.parametrize("stage", ["scored_set", "predict_images", "report_on"])
def test_evaluation_that_stopped_at_any_stage_goes_on(evaluate, monkeypatch, tmp_path, stage):
    def stops(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(score, stage, stops)
        code, _, _ = evaluate()
        assert code == 130
    assert unfinished(tmp_path / "scored").is_file()
    code, told, out = evaluate()
    assert code in (0, None), told
    assert "AP " in out and (tmp_path / "scored" / "report.html").is_file()
    assert len((tmp_path / "scored" / "predictions.jsonl").read_text().splitlines()) == 3
    code, told, _ = evaluate()
    assert code == 2 and "scored exists already" in told
