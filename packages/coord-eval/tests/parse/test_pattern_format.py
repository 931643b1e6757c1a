"""Objects in formats that a pattern describes: location tokens of PaliGemma and Florence-2."""

import pytest

from coord_codec import CoordGrid
from coord_eval import parse_answer


def reasons(answer):
    return [drop.reason for drop in answer.dropped]


def test_paligemma():
    text = "<loc0256><loc0128><loc0768><loc0512> cat ; <loc0000><loc0000><loc1023><loc1023> red car"
    answer = parse_answer(text)
    assert (answer.format, answer.status) == ("paligemma", "ok")
    assert [(o.desc, o.box) for o in answer] == [
        ("cat", (0.125, 0.25, 0.5, 0.75)),
        ("red car", (0.0, 0.0, 1023 / 1024, 1023 / 1024)),
    ]
    assert answer.objects[1].coord_indices == range(4, 8)
    (item,) = parse_answer("<loc0256><loc0128><loc0768><loc0512><seg001><seg127> cat<eos>").objects
    assert item.desc == "cat"


def test_paligemma_drops_faulty_objects():
    answer = parse_answer("<loc0001><loc0002> a ; <loc0001><loc0002><loc1024><loc0004> b ; <loc0001><loc0002><loc0003>")
    assert reasons(answer) == ["wrong_arity", "invalid_coordinate", "truncated"]
    cut = parse_answer("<loc0001><loc0002><loc0003><loc0004>")
    assert (cut.objects[0].completeness, cut.truncated) == ("partial", True)


def test_florence():
    text = "</s><s>red car<loc_52><loc_333><loc_932><loc_774>door<loc_0><loc_1><loc_2><loc_3></s>"
    answer = parse_answer(text)
    assert (answer.format, answer.status) == ("florence2", "ok")
    assert [o.desc for o in answer] == ["red car", "door"]
    assert answer.objects[0].box == pytest.approx((0.0525, 0.3335, 0.9325, 0.7745))


def test_florence_boxes_share_a_phrase():
    answer = parse_answer("cat<loc_1><loc_2><loc_3><loc_4><loc_5><loc_6><loc_7><loc_8>dog<loc_1><loc_2><loc_3>")
    assert [(o.desc, o.first_coord_index, o.start_index) for o in answer] == [("cat", 0, 0), ("cat", 4, 0)]
    assert reasons(answer) == ["truncated"]


def test_florence_polygon():
    (item,) = parse_answer("x<poly><loc_0><loc_0><loc_99><loc_0><loc_50><loc_199></poly>").objects
    assert (item.geometry, len(item.points)) == ("polygon", 3)
    assert item.box == pytest.approx((0.0005, 0.0005, 0.0995, 0.1995))


def test_location_tokens_ignore_the_grid():
    text = "cat<loc_0><loc_0><loc_999><loc_999>"
    assert parse_answer(text, grid=CoordGrid(scale=999)).objects[0].box == parse_answer(text).objects[0].box


@pytest.mark.parametrize(
    ("text", "found", "truncated"),
    [
        (
            "cat<loc_100><loc_200><loc_300><loc_400>dog<loc_1><loc_2><loc_3><loc_4>",
            [("cat", "box", "complete"), ("dog", "box", "complete")],
            False,
        ),
        ("cat<loc_100><loc_200><loc_300><loc_400>dog<loc_1><loc_2>", [("cat", "box", "complete")], True),
        (
            "cat<poly><loc_1><loc_2><loc_3><loc_2><loc_3><loc_4></poly>dog<loc_1><loc_2><loc_3><loc_4>",
            [("cat", "polygon", "complete"), ("dog", "box", "complete")],
            False,
        ),
        (
            "<loc0100><loc0200><loc0300><loc0400> cat ; <loc0001><loc0002><loc0003><loc0004>",
            [("cat", "box", "complete"), ("", "box", "partial")],
            True,
        ),
    ],
)
def test_location_tokens_mark_partial_objects(text, found, truncated):
    answer = parse_answer(text)
    assert [(item.desc, item.geometry, item.completeness) for item in answer] == found
    assert answer.truncated is truncated and answer.start_count == 2
    assert [item.start_index for item in answer] == list(range(len(found)))
