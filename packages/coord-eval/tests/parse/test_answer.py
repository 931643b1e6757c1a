"""Objects that are taken out of an answer: as drops, in the order of the text, with the state that is left."""

import json
import re

import pytest

from coord_eval import parse_answer
from coord_eval.intake.joining import with_prompt_label, without_labels
from coord_eval.parse.answer import without_other_images, without_points
from coord_eval.report.answers import coloured_answer

POINT, BOX = '{"point_2d": [1, 2], "label": "p"}', '{"bbox": [1, 2, 30, 40], "label": "b"}'
FAULT, OUTLINE = '{"bbox": [1, 2, 3], "label": "f"}', '{"polygon": [[1, 2], [30, 2], [30, 40]], "label": "o"}'


@pytest.mark.parametrize(
    ("rows", "geometry", "labels", "reasons", "status"),
    [
        ([POINT, FAULT, BOX, POINT, OUTLINE], "box", "bo", ["point", "wrong_arity", "point"], "partial"),
        ([POINT, FAULT, BOX, POINT], "polygon", "b", ["point", "wrong_arity", "point"], "partial"),
        ([POINT, BOX], "point", "pb", [], "ok"),
        ([BOX, OUTLINE], "box", "bo", [], "ok"),
        ([POINT], "box", "", ["point"], "failed"),
    ],
)
def test_points_are_drops_in_the_order_of_the_text(rows, geometry, labels, reasons, status):
    kept = without_points(parse_answer(f"[{', '.join(rows)}]"), geometry)
    assert "".join(item.desc for item in kept) == labels
    assert ([drop.reason for drop in kept.dropped], kept.status) == (reasons, status)
    assert [drop.span for drop in kept.dropped] == sorted(drop.span for drop in kept.dropped)


@pytest.mark.parametrize(
    ("places", "names", "kept"),
    [
        (["1", "2"], {"2"}, "b"),
        (["1", "1"], {"2"}, "ab"),
        (["", "1"], {"2"}, ""),
        (["", "1"], {"1"}, "b"),
        (["", "1"], {"1", ""}, "ab"),
        (["", ""], {"2"}, "ab"),
    ],
)
def test_objects_of_other_images_are_drops_where_several_are_named(places, names, kept):
    rows = (
        json.dumps({"label": label, "bbox": [1, 2, 30, 40], **({"frame": int(place)} if place else {})})
        for label, place in zip("ab", places, strict=True)
    )
    answer = without_other_images(parse_answer(f"[{', '.join(rows)}]"), names)
    assert "".join(item.desc for item in answer) == kept
    assert [drop.reason for drop in answer.dropped] == ["other_image"] * (2 - len(kept))
    assert answer.status == ("ok" if len(kept) == 2 else "partial" if kept else "failed")


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([BOX], "empty"),
        ([BOX, OUTLINE], "ok"),
        ([BOX, OUTLINE, FAULT], "partial"),
        ([BOX, FAULT], "failed"),
        ([OUTLINE], "ok"),
    ],
)
def test_answer_of_ignored_labels_alone_is_empty(rows, status):
    assert without_labels(parse_answer(f"[{', '.join(rows)}]"), "b").status == status


def test_label_of_the_prompt_stands_where_the_answer_has_none_or_an_uncertain_one():
    text = '[{"bbox": [1, 2, 30, 40]}, {"bbox": [30, 2, 1, 40]}, {"bbox": [1, 2, 30, 40], "label": "x"}]'
    found = with_prompt_label(parse_answer(text), "cat")
    assert [(item.desc, item.completeness, item.repairs) for item in found] == [
        ("cat", "complete", ()),
        ("cat", "repaired", ("swapped_corners",)),
        ("x", "complete", ()),
    ]
    (cut,) = with_prompt_label(parse_answer('{"bbox": [1, 2, 30, 40]', "json"), "cat")
    assert (cut.desc, cut.completeness, cut.repairs) == ("cat", "partial", ())
    assert [item.desc for item in with_prompt_label(parse_answer("x: [1, 2, 30, 40]"), "cat")] == ["cat"]


def test_colours_of_an_answer_name_every_repair_and_the_label_of_each_object():
    text = "cat\n- the cat: [30, 2, -1, 40]\n- dog: [5, 6, 70, 80]"
    html = coloured_answer(text, parse_answer(text))
    told = html.partition("repaired: ")[2].partition('"')[0]
    assert "sorted" in told and "border" in told and "taken off" in told
    assert html.count('class="desc') == 2 and html.startswith('<pre class="answer">cat\n<i class="repaired"')
    text = '{"label": "cat", "bbox": [1, 2, 30, 40], "n": 1} {"label": "a cat", "bbox": [5, 2, 30, 40], "n": 1} 1'
    pieces = re.findall(r'class="desc[^>]*>([^<]*)<', coloured_answer(text, parse_answer(text)))
    assert pieces == ["cat", "a cat"]  # each within its own object
    twice = '{"label": "a", "bbox": [1, 2, 30, 40]} {"label": "a", "bbox": [5, 2, 30, 40]}'
    assert len(re.findall('class="desc', coloured_answer(twice, parse_answer(twice)))) == 2
    dropped = '[{"bbox": [1, 2], "label": "f"}]'
    assert "another number of coordinates" in coloured_answer(dropped, parse_answer(dropped))
