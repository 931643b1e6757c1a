"""A checkpoint scored on its own: no other images are read, and what stopped before its end goes on in its folder."""

import json

import pytest
from coco_document import IMAGE, coco_document
from PIL import Image

from coord_detect.answers import local
from coord_detect.answers.resumable_file import unfinished
from coord_trainer.evaluation import score

WORDS = ("data.markers=obj", "data.shapes.train=2", "data.shapes.heldout=3", "evaluation.max_new_tokens=8")


@pytest.fixture
def evaluate(run, tiny_model):
    soft = "custom.coord_soft_ce_w1.enabled=true"
    return lambda *words: run("evaluate", tiny_model, "--out", "scored", soft, *WORDS, *words)


def test_settings_without_images_to_answer_leave_no_folder(evaluate, tmp_path):
    for _ in range(2):
        code, told, _ = evaluate("evaluation.images=none")
        assert code == 2 and "evaluation.images is none" in told
        assert not (tmp_path / "scored").exists()


def test_annotations_that_are_refused_leave_no_folder(evaluate, tmp_path):
    (tmp_path / "bad.json").write_text("{")
    code, told, _ = evaluate("data.annotations=bad.json", "data.images=.", "evaluation.images=train")
    assert code == 2 and "bad.json" in told
    assert not (tmp_path / "scored").exists()


@pytest.mark.slow
def test_held_out_images_are_scored_without_the_ones_that_were_trained_on(evaluate, tmp_path):
    for n in range(2):
        Image.new("RGB", (64, 64), (40 * n, 9, 9)).save(tmp_path / f"{n}.png")
    boxes = [{"image_id": n, "bbox": [2, 2, 20, 30]} for n in range(2)]
    images = [IMAGE | {"id": n, "file_name": f"{n}.png"} for n in range(2)]
    (tmp_path / "a.json").write_text(json.dumps(coco_document(boxes, images)))
    given = ("data.annotations=elsewhere.json", "data.heldout_annotations=a.json", "data.heldout_images=.")
    code, told, out = evaluate(*given)
    assert code in (0, None), told
    assert "heldout: 2 images" in out and "elsewhere" not in out
    assert len((tmp_path / "scored" / "predictions.jsonl").read_text().splitlines()) == 2


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("stage", ["load_scored", "predict_images", "report_on"])
def test_evaluation_that_stopped_at_any_stage_goes_on(evaluate, monkeypatch, tmp_path, stage):
    def stops(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(score, stage, stops)
        code, _, _ = evaluate()
        assert code == 130
    assert unfinished(tmp_path / "scored").is_file()
    code, told, _ = evaluate("data.annotations=train.json", "data.heldout_annotations=typo.json")
    assert code == 2 and "typo.json" in told
    code, told, out = evaluate()
    assert code in (0, None), told
    assert "AP " in out and (tmp_path / "scored" / "report.html").is_file()
    assert len((tmp_path / "scored" / "predictions.jsonl").read_text().splitlines()) == 3
    code, told, _ = evaluate()
    assert code == 2 and "scored exists already" in told


@pytest.mark.slow
@pytest.mark.parametrize(("change", "left"), [("data.max_objects=30", 2), ("data.max_objects=2", 3)])
def test_unfinished_answers_are_kept_only_if_the_settings_are_the_same(evaluate, monkeypatch, change, left):
    """The grammar ends an answer after `max_objects`, so that an earlier answer may be another one."""
    batches, real = [], local.answer_images

    def stops(*words, **options):
        batches.append(words)
        if len(batches) == 2:
            raise KeyboardInterrupt
        return real(*words)

    monkeypatch.setattr(local, "answer_images", stops)
    words = ("evaluation.batch_size=1", "evaluation.decoding.grammar=markers")
    assert evaluate(*words)[0] == 130
    batches.extend([None])  # so that it does not stop again
    code, told, _ = evaluate(*words, change)
    assert code in (0, None), told
    assert len(batches) == 3 + left


@pytest.mark.slow
def test_scores_of_every_decoding_are_printed(evaluate):
    code, told, out = evaluate("evaluation.decoding=[{},{grammar: markers}]")
    assert code in (0, None), told
    assert "markers: AP 0.000" in out and "scored/decodings/markers/evaluation.json" in out


@pytest.mark.slow
def test_threshold_keeps_boxes_of_its_score_alone(evaluate, tmp_path):
    code, told, _ = evaluate("--precision", "0.9")
    assert code == 2 and "calibrate it first" in told
    words = ("evaluation.decoding={grammar: markers}", "evaluation.max_new_tokens=24")
    code, told, _ = evaluate(*words, "--min-score", "1")
    assert code in (0, None), told
    evaluation = json.loads((tmp_path / "scored" / "evaluation.json").read_text())
    kept = json.loads((tmp_path / "scored" / "boxes.json").read_text())
    assert evaluation["counts"]["detections"] == 0
    assert kept["threshold"] == {"min_score": 1.0} and kept["fusion"]["below_threshold"] > 0


def test_place_below_a_file_is_refused_in_one_line(evaluate, tmp_path):
    (tmp_path / "scored").touch()
    code, told, _ = evaluate("--out", "scored/out")
    assert code == 2 and "is below one; name another folder" in told and "Traceback" not in told
