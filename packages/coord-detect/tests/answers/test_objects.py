"""Objects of an answer in pixels."""

import pytest
from PIL import Image

from coord_detect.answers.objects import ImageDetections, read_objects
from coord_eval import AnswerSettings
from coord_eval.labelling import DetectedObject


@pytest.mark.parametrize("side", [100, 375, 500, 640, 1000])
def test_boxes_are_the_pixels_that_thousandths_stand_for(side):
    """Without a step through fractions: .57 * 100 is 56.99999999999999."""
    rows = [(low, low + 1, low + 2, low + 3) for low in range(0, 998)]
    text = "[" + ",".join(f'{{"bbox_2d":{list(row)},"label":"cat"}}' for row in rows) + "]"
    record = {"image": "a.jpg", "text": text, "width": side, "height": side, "finish_reason": "stop"}
    found = read_objects(record, reading=AnswerSettings(scale=1000.0))
    assert [item.box for item in found] == [tuple(round(v * side / 1000, 6) for v in row) for row in rows]


def test_result_of_no_answer_and_of_no_detector_has_every_field():
    record = {"image": "a.jpg", "text": None, "width": 40, "height": 20, "finish_reason": "error"}
    found = read_objects(record)
    assert (found.text, len(found), found.size, found.finish_reason) == ("", 0, (40, 20), "error")
    found = read_objects(record | {"text": '[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}]', "finish_reason": "stop"})
    assert [row["class_id"] for row in found.to_dict()["objects"]] == [None]
    with pytest.raises(ValueError, match="class ids"):
        _ = found.class_ids


@pytest.mark.parametrize(("top", "rows"), [(100, range(92, 100)), (0, range(4, 12))], ids=["above", "at the edge"])
def test_caption_stands_above_its_box_or_inside_the_image(top, rows):
    item = DetectedObject("cat", (60.0, float(top), 200.0, 180.0), 0.5)
    image = Image.new("RGB", (400, 200), "grey")
    drawn = ImageDetections((item,), image.size, "", "stop", image=image).drawn()
    filled = {y for y in range(175) if drawn.getpixel((80, y)) == drawn.getpixel((60, 150))}
    assert set(rows) <= filled <= {*range(rows[0] - 4, rows[-1] + 6)}
