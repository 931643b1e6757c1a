"""Nothing is lost outside the count: the groups of numbers in a text are its objects and its drops."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coord_codec import int_to_token
from coord_eval import parse_answer

TOKEN = r"(?:coord_|loc_?|LOC_|patch_index_|[xy]_)?[0-9]+(?:\.[0-9]+)?"
COORDINATE = re.compile(rf"<\|?{TOKEN}\|?>|(?<![A-Za-z0-9_.]){TOKEN}")


@pytest.mark.slow
def test_answer_without_one_of_its_numbers_has_as_many_objects_and_drops(all_published):
    for _, whole, objects in all_published:
        for number in COORDINATE.finditer(whole):
            text = whole[: number.start()] + whole[number.end() :]
            answer = parse_answer(text)
            assert len(answer.objects) + len(answer.dropped) >= len(objects), text
            if len(answer.objects) == len(objects):  # a list number, or the label is gone
                assert any(item.completeness == "repaired" for item in answer), text


def test_answer_three_times_has_three_times_the_objects(all_published):
    for row, text, objects in all_published:
        if row.name != "table":
            answer = parse_answer(f"{text}\n" * 3)
            assert (len(answer.objects), answer.dropped) == (3 * len(objects), ()), text


def tokens(box):
    return "".join(map(int_to_token, box))


def pairs(box):
    return f"({box[0]},{box[1]}),({box[2]},{box[3]})"


def bracket(box):
    return f"[{', '.join(map(str, box))}]"


def bins(box):
    return "".join(f"<{k}>" for k in box)


REF, REF_END, BOX, BOX_END = "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"
SEVERAL = {
    "obj, tokens": lambda boxes: f"<obj_start>cat{', '.join(map(tokens, boxes))}<obj_end>",
    "obj, numbers": lambda boxes: f"<obj_start>cat{','.join(map(pairs, boxes))}<obj_end>",
    "qwen, tokens": lambda boxes: f"{REF}cat{REF_END}{BOX}{','.join(map(tokens, boxes))}{BOX_END}",
    "qwen, pairs": lambda boxes: f"{REF}cat{REF_END}{BOX}{','.join(map(pairs, boxes))}{BOX_END}",
    "qwen, lists": lambda boxes: f"{REF}cat{REF_END}{BOX}[{', '.join(map(bracket, boxes))}]{BOX_END}",
    "rexomni": lambda boxes: f"{REF}cat{REF_END}{BOX}{','.join(map(bins, boxes))}{BOX_END}",
    "locateanything": lambda boxes: f"<ref>cat</ref><box>{','.join(map(bins, boxes))}</box>",
    "internvl": lambda boxes: f"<ref>cat</ref><box>[{', '.join(map(bracket, boxes))}]</box>",
    "qwenvl": lambda boxes: f"<ref>cat</ref><box>{','.join(map(pairs, boxes))}</box>",
    "deepseekvl2": lambda boxes: f"<|ref|>cat<|/ref|><|det|>[{', '.join(map(bracket, boxes))}]<|/det|>",
    "json list": lambda boxes: f'{{"label": "cat", "bbox_2d": [{", ".join(map(bracket, boxes))}]}}',
    "json repeated keys": lambda boxes: (
        '{"label": "cat", ' + ", ".join(f'"bbox_2d": {bracket(box)}' for box in boxes) + "}"
    ),
    "json numbered keys": lambda boxes: (
        "{" + ", ".join(f'"label_{i}": "cat", "bbox_{i}": {bracket(box)}' for i, box in enumerate(boxes)) + "}"
    ),
    "json by label": lambda boxes: f'{{"cat": [{", ".join(map(bracket, boxes))}]}}',
    "json by repeated label": lambda boxes: "{" + ", ".join(f'"cat": {bracket(box)}' for box in boxes) + "}",
    "line": lambda boxes: f"cat: {', '.join(map(bracket, boxes))}",
    "lines": lambda boxes: "\n".join(f"{i + 1}. cat: {bracket(box)}" for i, box in enumerate(boxes)),
    "yaml": lambda boxes: "\n".join(f"- label: cat\n  bbox: {bracket(box)}" for box in boxes),
    "table": lambda boxes: "| Object | Box |\n|---|---|\n" + "\n".join(f"| cat | {bracket(box)} |" for box in boxes),
    "csv": lambda boxes: "label,x1,y1,x2,y2\n" + "\n".join(f"cat,{','.join(map(str, box))}" for box in boxes),
    "florence2": lambda boxes: "cat" + "".join(f"<loc_{k}>" for box in boxes for k in box),
}
UNSAID = ("florence2", "obj, numbers", "qwen, pairs", "qwenvl")
"""Writers that do not say to which box a number belongs."""
CORNERS = st.tuples(st.integers(11, 90), st.integers(11, 90), st.integers(91, 100), st.integers(91, 100))


@pytest.mark.parametrize("write", SEVERAL.values(), ids=SEVERAL)
@given(boxes=st.lists(CORNERS, min_size=1, max_size=6))
def test_every_box_of_one_label_is_an_object(write, boxes):
    answer = parse_answer(write(boxes))
    assert [tuple(item.bins) for item in answer] == boxes
    assert {item.desc for item in answer} == {"cat"} and answer.dropped == ()


@pytest.mark.parametrize("name", [name for name in SEVERAL if name not in UNSAID])
@given(boxes=st.lists(CORNERS, min_size=2, max_size=6), data=st.data())
def test_a_broken_box_among_others_is_one_drop(name, boxes, data):
    """A box of three numbers takes none of the others with it."""
    broken = data.draw(st.integers(0, len(boxes) - 1))
    parts = [box[:3] if i == broken else box for i, box in enumerate(boxes)]
    answer = parse_answer(SEVERAL[name](parts))
    assert [tuple(item.bins) for item in answer] == [box for i, box in enumerate(boxes) if i != broken]
    assert len(answer.dropped) == 1


def test_pairs_of_which_one_is_missing_are_not_paired_otherwise():
    for text in ("<ref>a</ref><box>(1,2),(3,4),(5,6)</box>", f"{REF}a{REF_END}{BOX}(1,2),(3,4),(5,6){BOX_END}"):
        answer = parse_answer(text)
        assert (len(answer.objects), [drop.reason for drop in answer.dropped]) == (0, ["wrong_arity"])


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7])
def test_list_of_points_keeps_every_point(count):
    draw = random.Random(count)
    points = [(round(draw.random(), 3), round(draw.random(), 3)) for _ in range(count)]
    answer = parse_answer(str(points))
    assert [item.points[0] for item in answer] == points


def test_second_shape_of_a_record_is_counted():
    answer = parse_answer(
        '{"bbox_2d": [1, 2, 30, 40], "label": "cat", "bbox_percent": [1, 2, 3, 4], "point_2d": [5, 6]}'
    )
    assert [item.bins for item in answer] == [(1, 2, 30, 40)]
    assert [drop.reason for drop in answer.dropped] == ["second_geometry", "second_geometry"]
