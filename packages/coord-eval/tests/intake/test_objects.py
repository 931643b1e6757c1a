"""Objects of one record, against what `score` makes of the same record."""

import pytest
from coco_builder import coco

from coord_codec import InputError
from coord_eval import AnswerSettings, score, scored_objects

TEXT = (
    "<|object_ref_start|>{}<|object_ref_end|><|box_start|><|coord_{}|><|coord_0|><|coord_500|><|coord_250|><|box_end|>"
)
RECORD = {
    "image": "1.jpg",
    "image_id": 1,
    "text": TEXT.format("cat", 100) + TEXT.format("dog", 200) + "<|object_ref_start|>half",
    "coord_logprobs": [-0.1, -0.2, -0.3, -0.4, -1.0, -1.0, -1.0, -1.0],
    "desc_logprobs": [[-0.5], [-0.25], [-0.1]],
    "coord_expected": [0.11, 0.01, 0.51, 0.26, 0.21, 0.0, 0.5, 0.25],
}


@pytest.mark.parametrize("boxes", ["tokens", "expected"])
def test_objects_are_those_that_an_evaluation_collects(boxes):
    objects, dropped = scored_objects(RECORD, answers=AnswerSettings(boxes=boxes))
    detections = score(
        coco((1, 1, [10, 0, 40, 50]), names=("cat", "dog"), size=(100, 200)),
        [RECORD],
        answers=AnswerSettings(boxes=boxes),
    ).detections
    assert [o.desc for o in objects] == ["cat", "dog"]
    for item, box, value in zip(objects, detections.boxes_D4, detections.scores_D, strict=True):
        x1, y1, x2, y2 = item.box
        assert [100 * x1, 200 * y1, 100 * (x2 - x1), 200 * (y2 - y1)] == pytest.approx(box.tolist())
        assert item.score == pytest.approx(value)
    assert dropped == {"truncated": 1}


def test_box_of_a_results_list_is_no_answer():
    with pytest.raises(InputError, match="no text"):
        scored_objects({"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 0.5})
