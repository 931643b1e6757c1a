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


TWO = ["big/0.png", "big/1.png"]


@pytest.mark.parametrize(
    ("content", "images", "told"),
    [
        ("<image>a<image>", TWO, None),
        ("a", TWO, None),  # swift puts them in front
        ("<image>a", TWO, "expected one for each of 1 <image>, found 2"),
        ("<image><image><image>", TWO, "expected one for each of 3 <image>, found 2"),
        ("<image>", [{"path": "big/0.png"}], None),
        ("<image>", "big/0.png", None),
        ("<image>", [7], "expected paths, found 7"),
        ("<image>", ["a\0b"], "expected paths"),
        ("\ud800", [], "half a surrogate pair"),
    ],
)
def test_each_tag_has_its_image(tmp_path, content, images, told):
    write_sources(tmp_path)
    record = talk(messages=[{"role": "user", "content": content}, ANSWER], images=images)
    (tmp_path / "talk.jsonl").write_text(json.dumps(record) + "\n" + json.dumps(talk()))
    found = load_conversations(tmp_path / "talk.jsonl", None, "talk", strict=False, allow_outside=False)
    assert len(found) == (2 if told is None else 1) and all(told in str(problem) for problem in found.problems)


@pytest.mark.parametrize("kind", ["videos", "audios", "tools"])
def test_what_only_other_models_take_is_left_out(tmp_path, kind):
    (tmp_path / "a.jsonl").write_text(json.dumps(talk(**{kind: ["x"]})) + "\n" + json.dumps(talk(**{kind: []})))
    found = load_conversations(tmp_path / "a.jsonl", None, "talk", strict=False, allow_outside=False)
    assert len(found) == 1 and kind in str(found.problems[0])


def test_records_are_found_again_behind_any_line_and_text_is_measured_in_bytes(tmp_path):
    """Lines may end in CRLF, be empty or hold letters of several bytes; no bound is below the number of tokens."""
    texts = ["grün", "語語語", "plain"]
    lines = [json.dumps(talk(messages=[USER, {"role": "assistant", "content": t}]), ensure_ascii=False) for t in texts]
    (tmp_path / "a.jsonl").write_bytes("\r\n \r\n\n".join(lines).encode())
    found = load_conversations(tmp_path / "a.jsonl", None, "talk", strict=True, allow_outside=False)
    assert [found.record(i)["messages"][1]["content"] for i in range(3)] == texts
    assert list(found.texts) == [text for pair in zip(["Hi"] * 3, texts, strict=True) for text in pair]
    least = found.text_bounds_N - [len(f"Hi{text}".encode()) for text in texts]
    assert len(set(least)) == 1 and least[0] > 0
    by_bytes = {text: len(text.encode()) for text in texts}
    asked = found.longer_than(9, lambda *_: 0, lambda raw: 5 + by_bytes[raw["messages"][1]["content"]])
    assert asked == [("conversation 2", 14), ("conversation 1", 10), ("conversation 3", 10)]


@pytest.mark.parametrize("allow", [False, True])
def test_images_lie_below_their_folder_unless_that_is_allowed(tmp_path, allow):
    write_sources(tmp_path)
    record = talk(messages=[{"role": "user", "content": "<image>"}, ANSWER], images=["../big/0.png"])
    (tmp_path / "talk.jsonl").write_text(json.dumps(record) + "\n" + json.dumps(talk()))
    found = load_conversations(tmp_path / "talk.jsonl", tmp_path / "small", "talk", strict=False, allow_outside=allow)
    assert len(found) == 1 + allow and len(found.problems) == 1 - allow
    if allow:
        assert found.image_sizes == (((64, 48),), ()) and found.raw(0)["images"][0].size == (64, 48)
