"""What is told of labels, at the borders."""

import pytest
from coco_builder import coco

from coord_eval import score
from coord_eval.diagnosis.labels import label_lines
from coord_eval.intake.predictions import load_predictions

BLOCKS = [(1, 11), (13, 25), (27, 28), (31, 44), (46, 65), (67, 67), (70, 70), (72, 82), (84, 90)]
COCO_IDS = [key for first, last in BLOCKS for key in range(first, last + 1)]
"""The ids of COCO's 80 categories, as coco80_to_coco91 of the detectors that count to 80 lists them."""


def lines_of(truth, rows, wrong=False):
    return label_lines(score(truth, rows), load_predictions(rows), wrong=wrong)


def test_ids_of_80_categories_mean_those_of_coco_in_their_order():
    names = {key: f"name {key}" for key in COCO_IDS}
    objects = [(1, key, [12.0 * place, 5.0, 10.0, 10.0]) for place, key in enumerate(COCO_IDS)]
    truth = coco(*objects, names=names, size=(1000, 100))
    for first in (0, 1):
        rows = [
            {"image_id": 1, "category_id": place, "bbox": box, "score": 0.5}
            for place, (_, _, box) in enumerate(objects, first)
        ]
        (line,) = lines_of(truth, rows)
        assert f"as the position in COCO's 80 categories, from {first} to {79 + first}, would give AP 1.000" in line
        assert "80 boxes that match objects 80 then" in line
    rows = [{"image_id": 1, "category_id": key, "bbox": box, "score": 0.5} for _, key, box in objects]
    assert lines_of(truth, rows) == []


@pytest.mark.parametrize(("answered", "is_told"), [(1, True), (2, True), (3, False), (4, False)])
def test_answers_with_at_most_half_of_the_names_are_told(answered, is_told):
    objects = [(1, 1 + k, [20.0 * k, 5.0, 10.0, 10.0]) for k in range(4)]
    truth = coco(*objects, names=("cat", "dog", "cow", "pig", "no object"))
    rows = [{"image_id": 1, "category_id": k, "bbox": box, "score": 0.5} for _, k, box in objects[:answered]]
    told = lines_of(truth, rows)
    assert bool(told) == is_told
    if told:
        assert f"of 4 categories with objects {answered} {'is' if answered == 1 else 'are'} answered" in told[0]
        assert "mean AP of those answered 1.000: 'cat' 1.000" in told[0]


def test_wrong_labels_are_listed_by_how_often_where_they_are_the_fault():
    names = ("cat", "dog", "cow")
    objects = [(1, 1 + k % 2, [20.0 * k, 5.0, 10.0, 10.0]) for k in range(5)]
    text = [
        {
            "image_id": 1,
            "text": "["
            + ", ".join(
                f'{{"bbox_2d": [{x}, 5, {x + 10}, 15], "label": "{name}"}}'
                for x, name in [(20 * k, ("cow", "cow", "cow", "cat", "cow")[k]) for k in range(5)]
            )
            + "]",
        }
    ]
    truth = coco(*objects, names=names, size=(1000, 1000))
    (line,) = lines_of(truth, text, wrong=True)
    assert "answered -> true: 'cow' -> 'cat' (3), 'cow' -> 'dog' (1), 'cat' -> 'dog' (1)" in line
    assert lines_of(truth, text) == []
