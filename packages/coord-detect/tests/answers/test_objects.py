"""Objects of an answer in pixels."""

import pytest

from coord_detect.answers.objects import read_objects
from coord_eval import AnswerSettings


@pytest.mark.parametrize("side", [100, 375, 500, 640, 1000])
def test_boxes_are_the_pixels_that_thousandths_stand_for(side):
    """Without a step through fractions: .57 * 100 is 56.99999999999999."""
    rows = [(low, low + 1, low + 2, low + 3) for low in range(0, 998)]
    text = "[" + ",".join(f'{{"bbox_2d":{list(row)},"label":"cat"}}' for row in rows) + "]"
    record = {"image": "a.jpg", "text": text, "width": side, "height": side, "finish_reason": "stop"}
    found = read_objects(record, reading=AnswerSettings(scale=1000.0))
    assert [item.box for item in found] == [tuple(round(v * side / 1000, 6) for v in row) for row in rows]
