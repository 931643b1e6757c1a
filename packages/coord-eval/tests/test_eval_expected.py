"""Boxes read from the expectation that a producer states beside its text."""

import pytest

from coord_codec import Instance, Object
from coord_eval import InputError, score

TRUTH = [
    Instance(
        image="a.png",
        width=100,
        height=100,
        image_id=1,
        objects=[Object(desc="cat", bbox=(0.1004, 0.2, 0.5, 0.6))],
    )
]
TEXT = "<obj_start>cat<|coord_100|><|coord_200|><|coord_900|><|coord_600|><obj_end>"


def record(**more):
    return {"image_id": 1, "text": TEXT, **more}


def test_the_expectation_and_not_the_token_is_the_box():
    given = record(coord_expected=[0.1004, 0.2, 0.5, 0.6])
    said, read = (score(TRUTH, [given], boxes=boxes) for boxes in ("tokens", "expected"))
    assert said.mean_iou == pytest.approx(0.3996 / 0.8, rel=1e-6)
    assert read.mean_iou == pytest.approx(1.0, rel=1e-9)
    assert read.format == said.format


def test_swapped_expectations_are_put_right_and_no_area_is_dropped():
    swapped = score(TRUTH, [record(coord_expected=[0.5, 0.6, 0.1004, 0.2])], boxes="expected")
    assert swapped.mean_iou == pytest.approx(1.0, rel=1e-9)
    flat = score(TRUTH, [record(coord_expected=[0.5, 0.2, 0.5, 0.6])], boxes="expected")
    assert flat.format["objects"] == 0
    assert flat.format["dropped"] == {"no_area": 1}


def test_sides_that_were_said_alike_may_be_expected_apart():
    flat = TEXT.replace("900", "100")
    given = {"image_id": 1, "text": flat, "coord_expected": [0.1004, 0.2, 0.5, 0.6]}
    assert score(TRUTH, [given]).format["dropped"] == {"no_area": 1}
    read = score(TRUTH, [given], boxes="expected")
    assert read.mean_iou == pytest.approx(1.0, rel=1e-9)
    assert read.format["dropped"] == {} and read.format["parsed"] == 1


@pytest.mark.parametrize(
    ("more", "boxes", "told"),
    [
        ({}, "expected", "found nothing"),
        ({"coord_expected": [0.1, 0.2]}, "expected", "found 2 values"),
        ({"coord_expected": [0.1, 0.2, 3.0, 0.4]}, "tokens", r"in \[0, 1\]"),
        ({}, "wishes", "expected one of tokens, expected"),
    ],
)
def test_what_is_missing_is_named(more, boxes, told):
    with pytest.raises(InputError, match=told):
        score(TRUTH, [record(**more)], boxes=boxes)
