"""Answers in the records of servers and trainers."""

import json

import pytest

from coord_codec import InputError
from coord_eval import score
from coord_eval.intake.answers import load_predictions

TRUTH = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 640, "height": 480}],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [64, 48, 256, 192]}],
}
ANSWER = '[{"bbox_2d": [100, 100, 500, 500], "label": "cat"}]'
CHOICES = [{"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}]
RECORDS = {
    "chat": {"image": "a.jpg", "choices": CHOICES},
    "completion": {"image_id": 1, "choices": [{"text": ANSWER, "finish_reason": "length"}]},
    "batch": {"custom_id": "a.jpg", "response": {"status_code": 200, "body": {"choices": CHOICES}}},
    "ms-swift": {"response": ANSWER, "labels": None, "logprobs": None, "images": [{"bytes": None, "path": "a.jpg"}]},
    "ms-swift, names": {"response": ANSWER, "images": ["a.jpg"]},
    "llama-factory": {"image": "a.jpg", "prompt": "Find cats.", "predict": ANSWER, "label": "[]"},
}


@pytest.mark.parametrize("name", RECORDS)
def test_record_of_a_server_is_read(name):
    evaluation = score(TRUTH, [RECORDS[name]], scale=1000)
    assert (evaluation.coco["AP"], evaluation.format["parsed"]) == (pytest.approx(1.0), 1)


def test_finish_reason_of_a_choice_is_that_of_the_answer():
    (prediction,) = load_predictions([RECORDS["completion"]])
    assert prediction.finish_reason == "length"


def test_record_without_an_answer_is_refused_with_its_keys():
    with pytest.raises(InputError, match=r"text: missing; found the keys image, reply: write the answer as text"):
        load_predictions([{"image": "a.jpg", "reply": ANSWER}])


def test_answers_that_are_all_empty_are_said():
    record = {"image": "a.jpg", "text": "", "reasoning_content": ANSWER, "finish_reason": "stop"}
    assert any("empty texts" in note for note in score(TRUTH, [record], scale=1000).notes)
    one_more = {"image": "a.jpg", "text": "[]", "finish_reason": "stop"}
    assert not any("empty texts" in note for note in score(TRUTH, [one_more], scale=1000).notes)


def test_objects_of_other_images_are_counted():
    objects = [{"image": n, "bbox_2d": [100 * n, 100 * n, 500, 500], "label": "cat"} for n in (1, 2)]
    evaluation = score(TRUTH, [{"image_id": 1, "text": json.dumps(objects)}], scale=1000)
    assert evaluation.format["dropped"] == {"other_image": 1}
    assert any("another image" in note for note in evaluation.notes)
    alone = score(TRUTH, [{"image_id": 1, "text": json.dumps([{**objects[0], "image": "front"}])}], scale=1000)
    assert any("is not used" in note for note in alone.notes) and alone.counts["detections"] == 1


def test_boxes_of_four_zeros_are_counted():
    evaluation = score(TRUTH, [{"image_id": 1, "text": '[{"bbox_2d": [0, 0, 0, 0], "label": "cat"}]'}], scale=1000)
    assert evaluation.format["empty"] == 1 and any("four zeros" in note for note in evaluation.notes)
