"""Visual Genome: a list of images that is not as it should be."""

import json

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data.reading.read import read_source

CAT = {"x": 20, "y": 10, "w": 80, "h": 40, "names": ["cat"]}


def read(place, images, *objects):
    Image.new("RGB", (200, 100)).save(place / "1.jpg")
    (place / "image_data.json").write_text(json.dumps(images))
    (place / "objects.json").write_text(json.dumps([{"image_id": 1, "objects": [CAT, *objects]}]))
    return read_source(place, on_bad_box="drop_box").annotations


@pytest.mark.parametrize("images", [{"a": 1}, [3], [{"url": "1.jpg"}], [{"image_id": [1]}]])
def test_vg_list_of_images_without_ids_is_an_input_error(tmp_path, images):
    with pytest.raises(InputError, match=r"image_data\.json: .*expected (a list of images|an object with image_id)"):
        read(tmp_path, images)


@pytest.mark.parametrize(
    ("stated", "counted"), [({"width": "200", "height": "100"}, 0), ({"width": "wide", "height": 1e400}, 1), ({}, 0)]
)
def test_vg_size_as_text_is_read_and_one_that_is_none_is_counted(tmp_path, stated, counted):
    found = read(tmp_path, [{"id": 1, **stated}])
    assert [(i.width, i.height, i.objects[0].bbox) for i in found.instances] == [(200, 100, (0.1, 0.1, 0.5, 0.5))]
    assert sum(note.startswith("stated image sizes") for note in found.notes) == counted


@pytest.mark.parametrize(
    "bad", [3, CAT | {"names": 3}, CAT | {"names": [["cat"]]}, CAT | {"w": [80]}, CAT | {"w": 10**400}]
)
def test_vg_object_that_is_none_is_a_problem(tmp_path, bad):
    (problem,) = read(tmp_path, [{"image_id": 1}], bad).problems
    assert "box 1" in problem.where and "expected names or phrase" in problem.message


def test_vg_name_as_text_is_the_description(tmp_path):
    found = read(tmp_path, [{"image_id": 1}], CAT | {"names": "dog"})
    assert [o.desc for o in found.instances[0].objects] == ["cat", "dog"]


@pytest.mark.parametrize("objects", [[[], [CAT]], [None, [CAT]]])
def test_vg_is_recognised_where_the_first_images_have_nothing(tmp_path, objects):
    for n in range(2):
        Image.new("RGB", (200, 100)).save(tmp_path / f"{n}.jpg")
    records = [{"image_id": n, "objects": of_image or []} for n, of_image in enumerate(objects)]
    (tmp_path / "regions.json").write_text(json.dumps(records))
    found = read_source(tmp_path / "regions.json")
    assert found.format == "vg" and [len(i.objects) for i in found.annotations.instances] == [0, 1]
