"""The order that the prose before a list of boxes states, and sentences that name another one or speak against it."""

import pytest

from coord_eval import parse_answer


@pytest.mark.parametrize(
    ("prose", "order"),
    [
        ("Here are the boxes as [ymin, xmin, ymax, xmax]:", "yxyx"),
        ("Here are the boxes in the order y1, x1, y2, x2:", "yxyx"),
        ("Here are the boxes, x, y, width, height each:", "xywh"),
        ("Here are the boxes with x_center, y_center, w, h:", "cxcywh"),
        ("Here are the boxes in the format xywh:", "xywh"),
        ("Here are the boxes, not as ymin, xmin, ymax, xmax:", "xyxy"),
        ("Here are the boxes, NOT x, y, width, height:", "xyxy"),
        ("Here are the boxes, notably x, y, width, height:", "xywh"),
        ("Converted from x, y, width, height, here they are:", "xyxy"),
        ("From x, y, width, height to corners, here they are:", "xyxy"),
        ("From x, y, width, height to xyxy, here they are:", "xyxy"),
        ("From x, y, width, height to x2 and y2, here they are:", "xyxy"),
        ("From x, y, width, height to x_max and so on, these are:", "xyxy"),
        ("In order: as", "xyxy"),
    ],
)
def test_order_that_prose_states_is_read_unless_it_speaks_of_another(prose, order):
    (item,) = parse_answer(f'{prose}\n[{{"box": [40, 50, 60, 90], "label": "cat"}}]', "json")
    assert item.order == order
