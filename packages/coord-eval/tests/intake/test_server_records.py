"""Answers in the records of servers and trainers."""

import json

import pytest

from coord_codec import InputError
from coord_eval import AnswerSettings, score
from coord_eval.intake.predictions import load_predictions
from coord_eval.intake.server_records import with_text

THOUSANDTHS = AnswerSettings(scale=1000)

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
    "responses": {
        "image": "a.jpg",
        "output": [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": ANSWER}]}],
    },
    "parts": {"image": "a.jpg", "choices": [{"message": {"content": [{"type": "text", "text": ANSWER}]}}]},
    "vLLM": {"image": "a.jpg", "outputs": [{"index": 0, "text": ANSWER, "finish_reason": "stop"}]},
    "SGLang": {"image": "a.jpg", "text": ANSWER, "meta_info": {"finish_reason": {"type": "stop"}}},
    "SGLang, one of a list": {"image": "a.jpg", "text": [ANSWER]},
    "TGI": {"image": "a.jpg", "generated_text": ANSWER, "details": {"finish_reason": "eos_token"}},
    "Ollama": {"image": "a.jpg", "message": {"role": "assistant", "content": ANSWER}, "done_reason": "stop"},
    "Ollama, completion": {"image": "a.jpg", "response": ANSWER, "done": True},
    "candidates": {
        "image": "a.jpg",
        "candidates": [{"content": {"parts": [{"text": ANSWER}]}, "finishReason": "STOP"}],
    },
    "turns": {
        "image": "a.jpg",
        "generated_text": [{"role": "user", "content": "Find."}, {"role": "assistant", "content": ANSWER}],
    },
}


@pytest.mark.parametrize("name", RECORDS)
def test_record_of_a_server_is_read(name):
    evaluation = score(TRUTH, [RECORDS[name]], answers=THOUSANDTHS)
    assert (evaluation.coco["AP"], evaluation.format["parsed"]) == (pytest.approx(1.0), 1)


def test_finish_reason_of_a_choice_is_that_of_the_answer():
    (prediction,) = load_predictions([RECORDS["completion"]])
    assert prediction.finish_reason == "length"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"image": "a.jpg", "reply": ANSWER}, r"text: missing; found the keys image, reply: write the answer as text"),
        ({"image": "a.jpg", "messages": [{"role": "assistant", "content": ANSWER}]}, "found the keys image, messages"),
        ({"image": "a.jpg", "choices": CHOICES * 2}, "choices: expected one answer, found 2"),
        ({"images": ["a.jpg", "b.jpg"], "response": ANSWER}, "images: expected one image, found 2"),
    ],
)
def test_record_without_an_answer_or_with_several_is_refused_with_its_keys(record, message):
    with pytest.raises(InputError, match=message):
        load_predictions([record])


@pytest.mark.parametrize(
    "response", [None, {"status_code": 400, "body": {"error": {"message": "too long"}}}], ids=["none", "refused"]
)
def test_request_that_failed_is_no_answer(response):
    (prediction,) = load_predictions([{"custom_id": "a.jpg", "response": response, "error": {"code": "x"}}])
    assert (prediction.text, prediction.finish_reason) == ("", "error")


THOUGHT = {"content": None, "reasoning_content": ANSWER}


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ({"text": "", "reasoning_content": ANSWER, "finish_reason": "stop"}, "reasoning_content"),
        ({"choices": [{"message": THOUGHT, "finish_reason": "length"}]}, "reasoning_content"),
        ({"choices": [{"message": {"content": None, "tool_calls": [{"id": 1}]}}]}, "tool_calls"),
        ({"message": {"content": "", "thinking": ANSWER}}, "thinking"),
        ({"text": "\n"}, "wrote nothing"),
    ],
)
def test_empty_answers_are_told_with_the_fields_that_the_model_filled(record, key):
    record = {"image": "a.jpg", **record}
    assert any("empty text" in note and key in note for note in score(TRUTH, [record], answers=THOUSANDTHS).notes)
    both = {**TRUTH, "images": [*TRUTH["images"], {"id": 2, "file_name": "b.jpg", "width": 640, "height": 480}]}
    notes = score(both, [record, {"image": "b.jpg", "text": "[]"}], answers=THOUSANDTHS).notes
    assert any("empty text" in note for note in notes) == (key != "wrote nothing")


def test_objects_of_other_images_are_counted():
    objects = [{"image": n, "bbox_2d": [100 * n, 100 * n, 500, 500], "label": "cat"} for n in (1, 2)]
    evaluation = score(TRUTH, [{"image_id": 1, "text": json.dumps(objects)}], answers=THOUSANDTHS)
    assert evaluation.format["dropped"] == {"other_image": 1}
    assert any("another image" in note for note in evaluation.notes)
    alone = score(TRUTH, [{"image_id": 1, "text": json.dumps([{**objects[0], "image": "front"}])}], answers=THOUSANDTHS)
    assert any("is not used" in note for note in alone.notes) and alone.counts["detections"] == 1


def test_boxes_of_four_zeros_are_counted():
    evaluation = score(
        TRUTH, [{"image_id": 1, "text": '[{"bbox_2d": [0, 0, 0, 0], "label": "cat"}]'}], answers=THOUSANDTHS
    )
    assert evaluation.format["empty"] == 1 and any("four zeros" in note for note in evaluation.notes)


PART, THOUGHTS = {"type": "text", "text": "a"}, {"type": "reasoning", "text": "hm"}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            {"text": "a", "reasoning": "hm", "finish_reason": "x"},
            {"text": "a", "reasoning": "hm", "finish_reason": "x"},
        ),
        (
            {"text": " ", "reasoning": "hm", "thinking": ""},
            {"text": " ", "reasoning": "hm", "thoughts": ("reasoning",)},
        ),
        ({"response": "a", "seed": 3}, {"text": "a", "image": None, "seed": 3}),
        ({"predict": "a", "label": "[]"}, {"text": "a", "image": None}),
        ({"response": "a", "label": "cat"}, {"text": "a", "image": None, "label": "cat"}),
        ({"content": [PART, THOUGHTS, PART]}, {"text": "aa", "image": None}),
        ({"content": [THOUGHTS]}, {"text": "", "image": None}),
        (
            {"output": [{"reasoning": "b", "content": ""}, {"thinking": "c"}]},
            {"text": "", "thoughts": ("reasoning", "thinking")},
        ),
        (
            {"messages": 1, "outputs": [{"text": "a", "stop_reason": "max_tokens"}]},
            {"text": "a", "finish_reason": "length"},
        ),
        ({"response": "a", "status": "completed", "done_reason": "length"}, {"text": "a", "finish_reason": "length"}),
        ({"response": "a", "status": "incomplete"}, {"text": "a", "finish_reason": "length"}),
        ({"response": "a", "status": "queued"}, {"text": "a"}),
        ({"response": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, {"text": "b"}),
        ({"response": "a", "images": []}, {"text": "a", "image": None}),
        ({"response": "a", "images": [], "custom_id": "7"}, {"text": "a", "image": "7"}),
        ({"response": "a", "images": ["b"], "custom_id": "7"}, {"text": "a", "image": "b"}),
        ({"response": "a", "images": ["b"], "image_id": 0}, {"text": "a", "image_id": 0}),
        ({"answer": "a", "output_text": "b"}, {"text": "b"}),
        ({"error": "x", "response": None}, {"text": "", "finish_reason": "error"}),
        *(
            ({"response": "a", "finish_reason": said}, {"text": "a", "finish_reason": meant})
            for meant, words in {
                "stop": "stop eos eos_token stop_sequence end_turn completed STOP",
                "length": "length max_tokens incomplete MAX_TOKENS",
                "error": "error",
            }.items()
            for said in words.split()
        ),
    ],
)
def test_every_field_of_a_record_becomes_that_of_an_answer(record, expected):
    found = with_text(record, "here")
    assert {name: found.get(name) for name in {*expected, "thoughts"}} == {"thoughts": None, **expected}
