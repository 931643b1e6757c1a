"""Conversations of a file: which are left out, and which are too long."""

import json

import numpy as np
import pytest
from mixed_sources import write_sources

from coord_codec import InputError
from coord_trainer.data.conversations import load_conversations


def talk(**change):
    return {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]} | change


USER, ANSWER = talk()["messages"]


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"query": "Hi", "response": "Hello"}, "messages: expected a list of messages"),
        (talk(messages=[USER]), "expected user and assistant messages in alternation, found user"),
        (talk(messages=[USER, ANSWER, ANSWER]), "in alternation"),
        (
            talk(messages=[USER, {"role": "bot", "content": "x"}]),
            "expected the roles system, user, assistant, found 'bot'",
        ),
        (talk(messages=[USER, {"role": "assistant", "content": [{"type": "text"}]}]), "content: expected text"),
        (talk(messages=[USER, {"role": "assistant", "content": " "}]), "expected an answer at the end"),
        (talk(messages=[USER, {"role": "assistant", "content": "at <|coord_5|>"}]), "the control token <|coord_5|>"),
        (talk(messages=[USER, {"role": "assistant", "content": "x<|im_end|>"}]), "the control token <|im_end|>"),
        (talk(messages=[USER, {"role": "assistant", "content": "x<IMG_CONTEXT>"}]), "control token <IMG_CONTEXT>"),
        (
            talk(messages=[{"role": "user", "content": "<image>"}, ANSWER]),
            "expected one for each of 1 <image>, found 0",
        ),
        (talk(images=["gone.png"]), "gone.png"),
        (talk(images=["../secret.png"]), "lies outside"),
        (talk(videos=["a.mp4"]), "videos: expected text and images alone"),
        (talk(objects={"ref": ["a"], "bbox": [[1, 2, 3, 4]]}), "objects: expected no boxes"),
        (["Hi"], "expected a JSON object"),
    ],
)
def test_conversation_that_cannot_be_trained_on_is_left_out_and_told(tmp_path, record, told):
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "talk.jsonl"
    path.write_text(json.dumps(talk()) + "\n\n" + json.dumps(record) + "\n" + json.dumps(talk()))
    found = load_conversations(path, None, "talk", strict=False, allow_outside=False)
    assert len(found) == 2 and [found.record(i)["messages"] for i in range(2)] == [talk()["messages"]] * 2
    (problem,) = found.problems
    assert told in str(problem) and problem.where == f"{path}:3"
    with pytest.raises(InputError, match=r"data\.strict is on"):
        load_conversations(path, None, "talk", strict=True, allow_outside=False)


def test_long_conversations_are_found_with_their_images(tmp_path):
    write_sources(tmp_path)
    found = load_conversations(tmp_path / "talk.jsonl", None, "talk", strict=True, allow_outside=False)
    assert np.array_equal([len(sizes) for sizes in found.image_sizes], [0, 2])
    asked = []

    def length(record):
        asked.append(len(record["images"]))
        return 10_000

    for limit, long in ((400, [("conversation 2", 10_000)]), (9_999, [("conversation 2", 10_000)]), (10_000, [])):
        assert found.longer_than(limit, lambda w, h: 100 * w * h, length) == long
    assert asked == [2] * 3


def test_digest_is_that_of_the_file_and_of_the_sizes_of_its_images(tmp_path):
    from PIL import Image

    write_sources(tmp_path)
    digests = set()
    for size in ((64, 48), (48, 64), (64, 49)):
        Image.new("RGB", size).save(tmp_path / "big" / "1.png")
        digests.add(load_conversations(tmp_path / "talk.jsonl", None, "talk", strict=True, allow_outside=False).digest)
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (talk(messages=[{"role": "system", "content": "Be brief."}, USER, ANSWER]), None),
        (talk(messages=[{"role": "system", "content": "Be brief."}]), "in alternation"),
        (talk(messages=[USER, {"role": "system", "content": "Be brief."}, ANSWER]), "in alternation"),
        (talk(images=["big/0.png"]), None),  # without a tag swift puts it in front
        (talk(messages=[USER, {"role": "assistant", "content": "<image>"}], images=["big/0.png"]), "in user messages"),
        (talk(objects={"ref": [], "bbox": []}), None),
        (talk(videos=[]), None),
    ],
)
def test_conversation_of_each_form_is_taken_or_told(tmp_path, record, told):
    write_sources(tmp_path)
    (tmp_path / "talk.jsonl").write_text(json.dumps(record) + "\n" + json.dumps(talk()))
    found = load_conversations(tmp_path / "talk.jsonl", None, "talk", strict=False, allow_outside=False)
    assert len(found) == (2 if told is None else 1) and all(told in str(problem) for problem in found.problems)
