"""The scale of plain numbers is named, inferred with evidence, or assumed aloud; never guessed in silence."""

import json
import random

import pytest

from coord_eval import InputError, score


@pytest.fixture
def answers(coco_set):
    """A function that writes the truth in any scale, in pictures that the model saw at other sizes."""
    names = {c["id"]: c["name"] for c in coco_set["categories"]}
    draw = random.Random(0)

    def write(divide_by):
        records = []
        for image in coco_set["images"]:
            width, height = image["width"], image["height"]
            seen = (28 * draw.randint(8, 60), 28 * draw.randint(8, 60))
            sides = {"pixels": (width, height), "input_pixels": seen}.get(divide_by, (divide_by, divide_by))
            objects = []
            for a in coco_set["annotations"]:
                if a["image_id"] == image["id"] and not a["iscrowd"]:
                    x, y, w, h = a["bbox"]
                    unit = (x / width, y / height, (x + w) / width, (y + h) / height)
                    box = [round(u * sides[i % 2]) for i, u in enumerate(unit)]
                    objects.append({"bbox_2d": box, "label": names[a["category_id"]]})
            records.append(
                {
                    "image_id": image["id"],
                    "text": json.dumps(objects),
                    "input_width": seen[0],
                    "input_height": seen[1],
                }
            )
        return records

    return write


@pytest.mark.parametrize("scale", [1000, "pixels", "input_pixels"])
def test_a_named_scale_places_the_boxes_and_is_inferred_with_certainty(coco_set, answers, scale):
    records = answers(scale)
    named = score(coco_set, records, scale=scale)
    assert named.mean_iou > 0.95
    assert not any("assumed" in note or "inferred" in note for note in named.notes)
    inferred = score(coco_set, records, scale="infer")
    assert inferred.mean_iou == named.mean_iou
    assert any(f"scale {scale}" in note and "inferred from" in note for note in inferred.notes)
    assert sum("mean best IoU" in note for note in inferred.notes) == 4


@pytest.mark.parametrize("scale", ["pixels", "input_pixels"])
def test_unnamed_it_is_assumed_aloud_and_the_numbers_show_it(coco_set, answers, scale):
    evaluation = score(coco_set, answers(scale))
    assert any("/1000 was assumed" in note for note in evaluation.notes)
    assert evaluation.mean_iou < 0.6


def test_a_thousandth_of_difference_is_found_on_a_whole_set(coco_set, answers):
    assert any("scale 999.0 inferred" in note for note in score(coco_set, answers(999), scale="infer").notes)


def test_scales_that_do_as_well_are_called_uncertain(coco_set, answers):
    """In pictures of 1000 x 1000 bins and pixels are the same."""
    for image in coco_set["images"]:
        image.update(width=1000, height=1000)
    for a in coco_set["annotations"]:
        a["bbox"] = [min(v, 450) for v in a["bbox"]]
    notes = score(coco_set, answers(1000), scale="infer").notes
    assert any("scale 1000.0 inferred" in note and "another one does as well" in note for note in notes)


def test_numbers_that_fit_no_picture_are_an_error(coco_set, answers):
    with pytest.raises(InputError, match="no scale keeps the boxes inside"):
        score(coco_set, answers(100_000), scale="infer")


def test_coordinate_tokens_have_nothing_to_infer(coco_set):
    evaluation = score(coco_set, [{"image_id": 0, "text": ""}], scale="infer")
    assert "no plain numbers in the answers: nothing to scale" in evaluation.notes


def test_a_scale_that_does_not_exist(coco_set):
    with pytest.raises(InputError, match="scale: expected a number"):
        score(coco_set, [{"image_id": 0, "text": ""}], scale="inches")


def test_the_size_that_the_model_saw_must_be_stated(coco_set):
    with pytest.raises(InputError, match="input_width"):
        score(coco_set, [{"image_id": 0, "text": "x"}], scale="input_pixels")
