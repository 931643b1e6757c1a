"""ms-swift's records: what is no list or number is a problem of the record."""

import json

import pytest
from PIL import Image

from coord_data.formats.registry import read_source

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
        ({"image_id": ["x"]}, 'objects.image_id: expected whole numbers from 0 to 0, found "x"'),
        ({"image_id": [[0]]}, "found [0]"),
        ({"image_id": [7]}, "from 0 to 0, found 7"),
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
