"""Conversations of Qwen-VL: parts without text, and answers that are not as they should be."""

import json

import pytest
from PIL import Image

from coord_data.reading.read import read_source

CAT = '[{"bbox_2d": [100, 100, 500, 500], "label": "cat"}]'


def read(place, *answers):
    Image.new("RGB", (200, 100)).save(place / "a.jpg")
    lines = []
    for answer in answers:
        turns = [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": answer}]
        lines.append(json.dumps({"images": ["a.jpg"], "messages": turns}))
    (place / "a.jsonl").write_text("\n".join(lines))
    return read_source(place / "a.jsonl")


@pytest.mark.parametrize("part", [{"type": "text", "text": None}, {"type": "text"}, {"type": "text", "text": ["x"]}])
def test_qwen_part_without_text_is_passed_over(tmp_path, part):
    found = read(tmp_path, CAT, [part, {"type": "text", "text": CAT}]).annotations
    assert [i.objects[0].bbox for i in found.instances] == [(0.1, 0.1, 0.5, 0.5)] * 2 and not found.problems


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (CAT.replace('"cat"', '["cat"]'), 'label: expected text, found ["cat"]'),
        (CAT.replace("[100", "[NaN"), "expected four finite numbers"),
        (CAT.replace("[100", "[1" + 400 * "0"), "expected a number"),
        ("bbox_2d" + 10_000 * "[" + 10_000 * "]", "the answer is not JSON"),
    ],
    ids=["label", "nan", "huge", "deep"],
)
def test_qwen_answer_that_cannot_be_read_is_a_problem(tmp_path, answer, told):
    found = read(tmp_path, answer, CAT)
    (problem,) = found.annotations.problems
    assert told in problem.message and "the largest number is 500" in found.notes[0]
