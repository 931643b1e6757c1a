"""Digests by which a calibration or a review names what it rests on."""

import copy
import math

import pytest
from coco_builder import coco

from coord_eval import score
from coord_eval.intake.digests import digest_of_detections, digest_of_truth

TRUTH = coco((1, 1, [1, 1, 9, 9]), (2, 2, [2, 2, 9, 9]), names=("cat", "dog"), images=(1, 2, 3))
BOXES = [{"image_id": n, "category_id": n, "bbox": [n, n, 9, 9], "score": n / 8} for n in (1, 2)]
CHANGES = {"image_id": 3, "category_id": 1, "bbox": [2, 2, 9, math.nextafter(9, 10)], "score": math.nextafter(0.25, 1)}


@pytest.mark.parametrize("field", CHANGES)
def test_the_last_row_is_in_the_digest_to_the_last_bit(field):
    truth, boxes = copy.deepcopy(TRUTH), copy.deepcopy(BOXES)
    truth["annotations"][-1][field] = boxes[-1][field] = CHANGES[field]
    before, after = score(TRUTH, BOXES), score(truth, boxes)
    assert digest_of_detections(after.detections) != digest_of_detections(before.detections)
    assert (digest_of_truth(after.truth) != digest_of_truth(before.truth)) == (field != "score")


def test_names_are_in_the_digest():
    truth, boxes = copy.deepcopy(TRUTH), copy.deepcopy(BOXES)
    truth["categories"][-1]["name"], boxes[-1]["category_id"] = "cow", 77
    stranger = score(TRUTH, boxes), score(TRUTH, [boxes[0], {**boxes[1], "category_id": 78}])
    assert digest_of_truth(score(truth, BOXES).truth) != digest_of_truth(score(TRUTH, BOXES).truth)
    assert len({digest_of_detections(evaluation.detections) for evaluation in stranger}) == 2
