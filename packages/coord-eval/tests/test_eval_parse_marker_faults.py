"""Marker tokens that are missing, out of place or filled with something else: what is repaired and what is dropped."""

import pytest

from coord_eval import parse_answer


@pytest.mark.parametrize(
    ("inside", "boxes", "dropped"),
    [
        ("(1,2),(3,4)", [(1, 2, 3, 4)], []),
        ("(1,2), \n\t(3,4)", [(1, 2, 3, 4)], []),
        ("(1,2)(3,4)", [(1, 2, 3, 4)], []),
        ("(1,2) and (3,4)", [], ["stray_text"]),
        ("(1,2);(3,4)", [], ["stray_text"]),
        ("see (1,2),(3,4)", [], ["stray_text"]),
        ("(1,2),(3,4) there", [], ["stray_text"]),
        ("(1,2),(3,4)<|box_start|>(5,6),(7,8)", [(1, 2, 3, 4), (5, 6, 7, 8)], []),
    ],
)
def test_plain_pairs_between_qwens_markers(inside, boxes, dropped):
    answer = parse_answer(f"<|object_ref_start|>cat<|object_ref_end|><|box_start|>{inside}<|box_end|>")
    assert [(item.desc, item.bins) for item in answer] == [("cat", box) for box in boxes]
    assert [drop.reason for drop in answer.dropped] == dropped


SIDES = "".join(f"<|coord_{bin_}|>" for bin_ in (100, 200, 300, 400))


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        ("R cat/R S{}E", [()]),
        ("R cat/R {}E", [("missing_marker",)]),
        ("R cat S{}E", [("missing_marker",)]),
        ("R cat {}E", [("missing_marker",)]),
        ("R cat {}E S{}E", [("missing_marker",), ()]),
        ("R cat/R S{}S{}E", [(), ()]),
        ("<obj_start>cat{}<obj_end>", [()]),
    ],
)
def test_a_missing_marker_is_a_repair_of_that_object_alone(text, repairs):
    for short, marker in (("/R ", "<|object_ref_end|>"), ("R ", "<|object_ref_start|>")):
        text = text.replace(short, marker)
    text = text.replace("S{}", "<|box_start|>{}").replace("{}E", "{}<|box_end|>").replace("{}", SIDES)
    answer = parse_answer(text)
    assert [item.repairs for item in answer] == repairs
    assert [(item.desc.strip(), item.bins) for item in answer] == [("cat", (100, 200, 300, 400))] * len(
        repairs
    )
    assert [item.first_coord_index for item in answer] == [4 * n for n in range(len(repairs))]


def test_stray_coordinates_are_told_with_their_whole_span_and_move_the_ordinals():
    stray = "<|coord_7|><|coord_8|>"
    answer = parse_answer(f"{stray}<obj_start>cat{SIDES}<obj_end>{stray}<obj_start>dog{SIDES}<obj_end>")
    assert [item.first_coord_index for item in answer] == [2, 8]
    assert [drop.reason for drop in answer.dropped] == ["stray_coordinates"] * 2
    ends = [drop.span for drop in answer.dropped]
    assert ends[0] == (0, len(stray)) and ends[1][1] - ends[1][0] == len(stray)


def test_an_object_whose_end_is_missing_is_read_up_to_the_next():
    answer = parse_answer(f"<obj_start>cat(1,2),(3,4)<obj_start>dog{SIDES}<obj_end>")
    assert [(item.desc, item.completeness) for item in answer] == [("cat", "partial"), ("dog", "complete")]
    broken = parse_answer(
        f"<|object_ref_start|>cat<|object_ref_end|>(1,2),(3,4)<|object_ref_start|>dog{SIDES}<|box_end|>"
    )
    assert [item.desc for item in broken] == ["dog"] and [d.reason for d in broken.dropped] == [
        "no_coordinates"
    ]
