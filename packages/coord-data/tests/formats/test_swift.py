"""ms-swift's records: what is no list or number is a problem of the record."""

import json

import pytest
from PIL import Image

from coord_data.reading.read import read_source

TURNS = [{"role": "user", "content": "<image>Where?"}, {"role": "assistant", "content": "<ref-object><bbox>"}]


@pytest.mark.parametrize("image_id", [None, [], [1]])
def test_swift_boxes_that_do_not_say_of_which_of_two_images_they_are_are_a_problem(tmp_path, image_id):
    objects = {"ref": ["cat"], "bbox": [[20, 10, 100, 50]] * 2, "image_id": image_id}
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": TURNS, "images": ["a.jpg", "b.jpg"], "objects": objects}))
    found = read_source(tmp_path / "a.jsonl").annotations
    assert not found.instances
    assert "the index of each box's image among 2, counted from 0, found" in found.problems[0].message


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        ({"image_id": [0, "x"]}, 'objects.image_id: expected whole numbers from 0 to 0, found "x"'),
        ({"image_id": [[0]]}, "found [0]"),
        ({"image_id": [0, 7]}, "from 0 to 0, found 7"),
        ({"bbox": 5}, "objects.bbox: expected a list of boxes, found 5"),
        ({"bbox": {"a": 1}}, 'objects.bbox: expected a list of boxes, found {"a": 1}'),
        ({"bbox": [5]}, "expected four finite numbers, found [5.0]"),
    ],
)
def test_swift_objects_that_are_none_are_problems(tmp_path, objects, told):
    Image.new("RGB", (200, 100)).save(tmp_path / "a.jpg")
    record = {
        "messages": TURNS,
        "images": ["a.jpg"],
        "objects": {"ref": ["cat"], "bbox": [[20, 10, 100, 50]]} | objects,
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    (problem,) = read_source(tmp_path / "a.jsonl").annotations.problems
    assert told in problem.message


def read(tmp_path, **record):
    Image.new("RGB", (200, 100)).save(tmp_path / "a.jpg")
    Image.new("RGB", (100, 100)).save(tmp_path / "b.jpg")
    (tmp_path / "a.jsonl").write_text(json.dumps({"images": ["a.jpg"], **record}) + "\n")
    found = read_source(tmp_path / "a.jsonl")
    assert found.format == "swift" and not found.annotations.problems
    return {i.image: [(o.desc, o.bbox) for o in i.objects] for i in found.annotations.instances}


def test_swift_box_in_json_is_named_by_the_label_after_it(tmp_path):
    answer = '[{"bbox_2d": <bbox>, "label": "<ref-object>"}, {"bbox_2d": <bbox>, "label": "<ref-object>"}]'
    objects = {"ref": ["cat", "dog"], "bbox": [[20, 10, 100, 50], [40, 10, 100, 50]]}
    turns = [{"role": "user", "content": "<image>Find all."}, {"role": "assistant", "content": answer}]
    boxes = [("cat", (0.1, 0.1, 0.5, 0.5)), ("dog", (0.2, 0.1, 0.5, 0.5))]
    assert read(tmp_path, messages=turns, objects=objects) == {"a.jpg": boxes}
    turns[0]["content"] = "<image>Find the <ref-object>."
    objects["ref"] = ["all", "cat", "dog"]
    assert read(tmp_path, messages=turns, objects=objects) == {"a.jpg": boxes}


@pytest.mark.parametrize(("kind", "scale"), [("real", None), ("norm_1000", 1000), ("norm_1", 1)])
def test_swift_2_captions_are_read(tmp_path, kind, scale):
    def box(image, x1, y1, x2, y2):
        width, height = {0: (200, 100), 1: (100, 100)}[image] if scale is None else (scale, scale)
        return [x1 * width, y1 * height, x2 * width, y2 * height]

    objects = [
        {"caption": "cat", "bbox": box(0, 0.1, 0.1, 0.5, 0.5), "bbox_type": kind, "image": 0},
        {"caption": "dogs", "bbox": [box(1, 0, 0, 0.5, 0.5), box(1, 0.5, 0, 1, 0.5)], "bbox_type": kind, "image": 1},
    ]
    found = read(tmp_path, query="find", response="it", images=["a.jpg", "b.jpg"], objects=objects)
    dogs = [("dogs", (0, 0, 0.5, 0.5)), ("dogs", (0.5, 0, 1, 0.5))]
    assert found == {"a.jpg": [("cat", pytest.approx((0.1, 0.1, 0.5, 0.5)))], "b.jpg": dogs}
