"""RefCOCO: lists of phrases and annotations that are not as they should be."""

import json

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data.reading.read import read_source

INSTANCES = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 200, "height": 100}],
    "annotations": [{"id": 5, "image_id": 1, "category_id": 1, "bbox": [20, 10, 80, 40]}],
    "categories": [{"id": 1, "name": "cat"}],
}
REF = {"ann_id": 5, "sentences": [{"sent": "left cat"}]}


def read(place, instances=INSTANCES, source="", **refs):
    Image.new("RGB", (200, 100)).save(place / "a.jpg")
    (place / "instances.json").write_text(json.dumps(instances))
    for name, rows in refs.items():
        (place / f"{name}.json").write_text(json.dumps(rows))
    return read_source(place / source).annotations


def test_refcoco_folder_with_two_lists_asks_for_one(tmp_path):
    with pytest.raises(InputError, match=r"holds refs_google\.json and refs_unc\.json; name one of the files"):
        read(tmp_path, refs_google=[REF], refs_unc=[REF])
    assert len(read_source(tmp_path / "refs_unc.json").annotations.instances) == 1


@pytest.mark.parametrize("instances", [[], "x", {"annotations": 3}])
def test_refcoco_annotations_that_are_no_coco_are_an_input_error(tmp_path, instances):
    with pytest.raises(InputError):
        read(tmp_path, instances, "refs.json", refs=[REF])


@pytest.mark.parametrize(
    ("ref", "image", "annotation"),
    [
        (REF | {"ann_id": [5]}, {}, {}),
        (REF | {"sentences": "abc"}, {}, {}),
        (REF | {"ann_id": 6}, {}, {"id": 6, "image_id": [1]}),
        (REF | {"ann_id": 6}, {"file_name": 3}, {"id": 6}),
        (REF | {"ann_id": 6}, {"width": 1e400}, {"id": 6}),
        (REF | {"ann_id": 6}, {}, {"id": [6]}),
    ],
)
def test_refcoco_phrase_about_no_annotation_is_a_problem(tmp_path, ref, image, annotation):
    rows = [*INSTANCES["annotations"], INSTANCES["annotations"][0] | {"image_id": 2} | annotation]
    images = [*INSTANCES["images"], INSTANCES["images"][0] | {"id": 2} | image]
    found = read(tmp_path, INSTANCES | {"images": images, "annotations": rows}, refs=[ref, REF])
    assert [o.desc for i in found.instances for o in i.objects] == ["left cat"]
    assert ["expected ann_id of an annotation" in p.message for p in found.problems] == [True]


def test_refcoco_splits_that_are_read_together_are_said(tmp_path):
    read(tmp_path, refs=[REF])
    assert read_source(tmp_path).notes == ()
    refs = [REF | {"split": name} for name in ("train", "train", "testA")]
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    (note,) = read_source(tmp_path).notes
    assert "splits are read together, in objects: train 2, testA 1;" in note
