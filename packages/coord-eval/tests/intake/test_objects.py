"""Objects of one record, against what `score` makes of the same record."""

import math

import pytest
from coco_builder import coco

from coord_codec import CoordGrid, InputError
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


TOKENS = "<obj_start>cat<|coord_{}|><|coord_200|><|coord_500|><|coord_600|><obj_end>"
LOGS = {"coord_logprobs": [-0.1, -0.2, -0.3, -0.4], "desc_logprobs": [[-1.0]], "image_id": 1}
TWO = '[{"bbox": [1, 2, 30, 40], "label": "a", "frame": 1}, {"bbox": [1, 2, 30, 50], "label": "b", "frame": 2}]'


@pytest.mark.parametrize(
    ("text", "more", "settings", "expected", "dropped"),
    [
        (TOKENS.format(100), {}, {"grid": CoordGrid(scale=2000)}, [("cat", (0.05, 0.1, 0.25, 0.3))], {}),
        (TOKENS.format(500), {}, {}, [], {"no_area": 1}),
        (
            TOKENS.format(500),
            {"coord_expected": [0.1, 0.2, 0.5, 0.6]},
            {"boxes": "expected"},
            [("cat", (0.1, 0.2, 0.5, 0.6))],
            {},
        ),
        (TWO, {}, {"scale": 100}, [], {"other_image": 2}),
        ('{"bbox": [1, 2, 30, 40], "label": "a"}', {}, {"scale": 100}, [("a", (0.01, 0.02, 0.3, 0.4))], {}),
        ('{"bbox": [1, 2, 30, 40], "label": "a"}', {}, {"format": "obj"}, [], {"unrecognised": 1}),
        ('{"point_2d": [1, 2], "label": "a"}', {}, {}, [], {"point": 1}),
        (
            '{"point_2d": [500, 500], "label": "a"}',
            {},
            {"geometry": "point"},
            [("a", (0.4995, 0.4995, 0.5005, 0.5005))],
            {},
        ),
        ('{"bbox": [1, 2, 30, 40], "label": "a"}', {}, {"ignored_labels": ["a"]}, [], {"ignored_label": 1}),
    ],
)
def test_every_setting_acts_on_the_objects_of_one_record(text, more, settings, expected, dropped):
    objects, found = scored_objects({"image_id": 1, "text": text, **more}, answers=AnswerSettings(**settings))
    assert ([(item.desc, pytest.approx(item.box)) for item in objects], found) == (expected, dropped)


@pytest.mark.parametrize(
    ("source", "value"),
    [("constant", 1), ("coord_min", math.exp(-0.4)), ("coord_logprobs", math.exp(-0.25)), ("auto", math.exp(-0.4))],
)
def test_source_of_scores_is_that_which_is_asked_for(source, value):
    (item,), _ = scored_objects({"text": TOKENS.format(100), **LOGS}, score_source=source)
    assert item.score == pytest.approx(value)
    above = {"text": TOKENS.format(100), "image_id": 1, "coord_logprobs": [5e-4] * 4}
    assert scored_objects(above)[0][0].score == 1  # the noise of a sum
