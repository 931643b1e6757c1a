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
    truth = coco(*objects, (1, 5, [0.0, 50, 30, 30]), names=("cat", "dog", "cow", "pig", "no object"))
    truth["annotations"][-1]["iscrowd"] = 1
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


KEYS, WORDS = (10, 20, 30, 40, 50), ("pig", "emu", "dog", "cow", "ape")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "meaning"),
    [
        (lambda k: k + 1, "as the position in the ground truth's ids in ascending order, from 1 to 5,"),
        (lambda k: k, "as the position in the ground truth's ids in ascending order, from 0 to 4,"),
        (lambda k: 5 - k, "as the position in its names by alphabet, from 1 to 5,"),
        (lambda k: 4 - k, "as the position in its names by alphabet, from 0 to 4,"),
        (lambda k: KEYS[k] + 1, "less 1"),
        (lambda k: KEYS[k] - 1, "plus 1"),
        (lambda k: KEYS[k], None),
        (lambda k: 1000 + k, None),
    ],
)
def test_ids_that_mean_another_list_are_told_unless_the_results_name_their_categories(write, meaning):
    """Two objects of each category; boxes of the ids as they should be, in which another meaning has no category."""
    objects = [(1, KEYS[k % 5], [12.0 * k, 5.0, 10.0, 10.0]) for k in range(10)]
    truth = coco(*objects, names=dict(zip(KEYS, WORDS, strict=True)), size=(1000, 100))
    rows = [
        {"image_id": 1, "category_id": write(k % 5), "bbox": box, "score": 0.5} for k, (_, _, box) in enumerate(objects)
    ]
    strays = [{**rows[0], "category_id": key, "bbox": [800, 50, 9, 9], "score": 0.9} for key in KEYS]
    told = lines_of(truth, rows + strays)
    if meaning is None:
        assert not any("category_id" in line for line in told)
        return
    (line,) = told
    wanted = (
        f"category_id {meaning} would give AP 1.000: of 10 boxes that match objects 10 then have its label, 0 as read"
    )
    assert wanted in line
    assert not any("would give" in line for line in lines_of(truth, [{**row, "category_name": "x"} for row in rows]))
    # Two more boxes right than as read are no proof.
    right = [{**row, "category_id": key} for row, (_, key, _) in zip(rows, objects, strict=True)]
    assert not any("would give" in line for line in lines_of(truth, rows[:6] + right[6:]))
