"""Answers to images without ids are joined with the ground truth of the same images."""

import json
from types import SimpleNamespace

import pytest
from PIL import Image
from tiny_run import tiny_config

from coord_codec import encode_target
from coord_data.reading.image_set import load_annotated
from coord_data.reading.rules import ReadingRules
from coord_detect.answers.records import prediction_records, sources_of
from coord_detect.settings.decoding import Decoding
from coord_trainer.evaluation.score import score_decoding, score_predictions


@pytest.mark.parametrize("limit", [None, 3])
def test_perfect_answers_to_images_without_ids_score_1(tmp_path, limit):
    """As VOC, YOLO and tables have them; the ids that are given are those that scoring gives."""
    boxes = [[0.1 * n, 0.2, 0.1 * n + 0.3, 0.9] for n in range(5)]
    for n in range(5):
        Image.new("RGB", (64, 48)).save(tmp_path / f"{n}.png")
    lines = [
        {"image": f"{n}.png", "width": 64, "height": 48, "objects": [{"desc": "cat", "bbox": boxes[n]}]}
        for n in range(5)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    images = load_annotated(tmp_path / "a.jsonl", ReadingRules(strict=True), name="heldout")
    config = tiny_config(evaluation={"limit": limit, "batch_size": 2})
    written = iter(images.instances)

    def answers(batch, at_once):
        return [{"text": encode_target(next(written), markers="obj"), "finish_reason": "stop"} for _ in batch]

    detector = SimpleNamespace(engine=SimpleNamespace(concurrency=0), answers=answers)
    lists = prediction_records(detector, sources_of(images, limit), batch=2, raw=True)
    found = [record for records in lists for record in records]
    assert len(found) == (limit or 5)
    path = tmp_path / "predictions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in found))
    evaluation = score_predictions(config, path, images, Decoding())
    assert evaluation.coco["AP"] == pytest.approx(1)


def test_diagnosis_on_the_console_names_the_decoding_that_it_is_of(tmp_path, capsys):
    """A run has several decodings, and the way mended for one need not be that of another."""
    boxes = [[0.05, 0.1 * n, 0.3, 0.1 * n + 0.4] for n in range(5)]
    lines, answers = [], []
    for n, box in enumerate(boxes):
        Image.new("RGB", (64, 48)).save(tmp_path / f"{n}.png")
        record = {"image": f"{n}.png", "width": 64, "height": 48, "image_id": n}
        lines.append(record | {"objects": [{"desc": "cat", "bbox": box}]})
        swapped = "".join(f"<|coord_{round(1000 * box[i])}|>" for i in (1, 0, 3, 2))
        answers.append(record | {"text": f"<obj_start>cat{swapped}<obj_end>", "finish_reason": "stop"})
    for name, rows in (("a.jsonl", lines), ("predictions.jsonl", answers)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    images = load_annotated(tmp_path / "a.jsonl", ReadingRules(strict=True), name="heldout")
    score_decoding(tiny_config(), tmp_path / "predictions.jsonl", images, Decoding())
    told = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("diagnosis:")]
    assert len(told) > 1 and all(line.endswith(f" ({Decoding().name})") for line in told)
