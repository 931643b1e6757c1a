"""Answers that hold points, polygons, oriented boxes and keypoints between markers or in JSON."""

import pytest

from coord_codec import ints_to_tokens
from coord_eval import parse_answer


def marked(*bins, end="<obj_end>"):
    return "<obj_start>cat" + "".join(ints_to_tokens(bins)) + end


@pytest.mark.parametrize(
    ("geometry", "text", "reason"),
    [
        ("polygon", marked(1, 2, 3, 4), "wrong_arity"),
        ("polygon", marked(1, 2, 3, 4, 5, 6, 7), "wrong_arity"),
        ("oriented", marked(1, 2, 3, 4, 5, 6), "wrong_arity"),
        ("keypoints", marked(0, 0, 0, 0), "no_coordinates"),
        ("polygon", marked(*range(10), end=""), "truncated"),
        ("polygon", marked(*range(10), end="") + marked(*range(6)), "nested_start"),
        ("polygon", marked(1, 1, 1, 1, 1, 1), "no_area"),
        ("box", marked(1, 2, 3, 4, 5, 6), "wrong_arity"),
    ],
)
def test_other_arity_is_dropped(geometry, text, reason):
    assert reason in [drop.reason for drop in parse_answer(text, "obj", geometry=geometry).dropped]


def test_keypoint_that_is_not_labelled_is_no_part_of_the_box():
    (item,) = parse_answer(marked(300, 100, 600, 300, 0, 0), "obj", geometry="keypoints").objects
    assert (item.box, item.points) == ((0.3, 0.1, 0.6, 0.3), ((0.3, 0.1), (0.6, 0.3), (0.0, 0.0)))


def test_shape_of_known_length_needs_no_end_marker():
    answer = parse_answer(marked(1, 2, 3, 4, 5, 6, 7, 8, end=""), "obj", geometry="oriented")
    assert answer.objects[0].completeness == "partial"


def test_unknown_geometry_is_refused():
    with pytest.raises(ValueError, match="geometry: expected one of"):
        parse_answer("", geometry="blob")


def test_keys_of_keypoints_mean_nothing_where_boxes_are_read():
    text = '{"bbox_2d": [100, 200, 300, 400], "keypoints": [1, 2, 3], "label": "cat"}'
    (found,) = parse_answer(text, "json", scale=1000).objects
    assert found.geometry == "box" and found.repairs == ()


@pytest.mark.parametrize(
    ("text", "format"),
    [("<obj_start>cat(0,0),(0,0)<obj_end>", "obj"), ('[{"keypoints": [0, 0, 0, 0], "label": "cat"}]', "json")],
)
def test_keypoints_in_plain_numbers_of_which_none_is_labelled_are_dropped(text, format):
    answer = parse_answer(text, format, scale=1000, geometry="keypoints")
    assert not answer.objects and [drop.reason for drop in answer.dropped] == ["no_coordinates"]


@pytest.mark.parametrize("write", ['{{"coordinates": [{}], "label": "cat"}}', '{{"cat": [{}]}}', "cat: {}"])
def test_pairs_are_points_or_boxes_by_what_their_numbers_can_mean(write):
    """Never by whether their count is even: pairs that may be corners of several boxes are a drop."""
    rising = ["[1, 2]", "[30, 40]", "[5, 6]", "[70, 80]"]
    answer = parse_answer(write.format(", ".join(rising)))
    assert (len(answer), [drop.reason for drop in answer.dropped]) == (0, ["ambiguous"])
    assert len(parse_answer(write.format(", ".join(rising)), geometry="point")) == 4
    falling = parse_answer(write.format(", ".join(reversed(rising))))
    assert {item.geometry for item in falling} <= {"point"} and (len(falling) == 4 or falling.dropped)
    assert [item.geometry for item in parse_answer(write.format(", ".join(rising[:2])))] == ["box"]
