"""Annotations and pictures: pixel xywh to [0,1] corners, and everything odd counted and named."""

import json

import numpy as np
import pytest
from PIL import Image

from coord_trainer.coco import read_coco
from coord_trainer.config import RunConfig
from coord_trainer.config_sections import ShapesConfig
from coord_trainer.errors import InputError
from coord_trainer.picture_set import load_annotated, load_sets, make_shapes
from coord_trainer.shapes import COLOURS, draw_shapes


def coco(annotations, images=None):
    return {
        "images": images or [{"id": 7, "file_name": "a.png", "width": 200, "height": 100}],
        "annotations": [{"id": n, "image_id": 7, "category_id": 1, **a} for n, a in enumerate(annotations)],
        "categories": [{"id": 1, "name": "cat"}],
    }


@pytest.fixture
def folder(tmp_path):
    Image.new("RGB", (200, 100), (10, 20, 30)).save(tmp_path / "a.png")

    def write(document):
        path = tmp_path / "annotations.json"
        path.write_text(json.dumps(document))
        return path

    return write


def test_pixel_boxes_become_corners_in_the_unit_square(folder):
    (instance,) = read_coco(folder(coco([{"bbox": [20, 10, 100, 50]}]))).instances
    assert instance.objects[0].bbox == pytest.approx((0.1, 0.1, 0.6, 0.6), abs=1e-12)
    assert (instance.image_id, instance.width, instance.height) == (7, 200, 100)


@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        ({"bbox": [0, 0, 0, 10]}, "no area"),
        ({"bbox": [0, 0, 10, -1]}, "no area"),
        ({"bbox": [150, 0, 60, 10]}, "lies outside"),
        ({"bbox": [-5, 0, 60, 10]}, "lies outside"),
        ({"bbox": [0, 0, 10]}, "four finite numbers"),
        ({"bbox": [0, 0, float("nan"), 1]}, "four finite numbers"),
        ({"bbox": ["0", 0, 1, 1]}, "four finite numbers"),
        ({"bbox": None}, "four finite numbers"),
        ({"bbox": [0, 0, 1, 1], "category_id": 9}, "no category has the id 9"),
        ({"bbox": [0, 0, 1, 1], "image_id": 8}, "no image has the id 8"),
    ],
)
def test_bad_records_are_left_out_and_listed(folder, annotation, told):
    path = folder(coco([{"bbox": [20, 10, 100, 50]}, annotation]))
    found = load_annotated(path, path.parent, "train", strict=False)
    assert [len(i.objects) for i in found.instances] == [1]
    assert len(found.problems) == 1
    assert told in found.problems[0].message
    assert "annotations[1]" in found.problems[0].where
    with pytest.raises(InputError, match=r"data\.strict is on"):
        load_annotated(path, path.parent, "train", strict=True)


def test_overshoot_by_rounding_is_clipped_and_counted_and_crowds_are_left_out(folder):
    crowd = {"bbox": [0, 0, 50, 50], "iscrowd": 1}
    found = read_coco(folder(coco([{"bbox": [100.4, 0, 100, 100]}, crowd])))
    assert found.instances[0].objects[0].bbox == pytest.approx((0.502, 0, 1, 1))
    assert not found.problems
    assert sorted(found.notes.values()) == [1, 1]


def test_boxes_that_the_grid_cannot_show_are_counted(folder, tmp_path):
    path = folder(coco([{"bbox": [20, 10, 0.05, 50]}, {"bbox": [20, 10, 10, 50]}]))
    found = load_annotated(path, tmp_path, "train", strict=False)
    assert len(found.instances[0].objects) == 2
    assert found.notes == {"boxes thinner than a bin, which no answer can show": 1}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([{"image_id": 1}], "results list"),
        ({"images": []}, "'categories'"),
        ({"categories": [], "images": [{"id": 1}], "annotations": []}, "file_name"),
        ({"categories": {}, "images": [], "annotations": []}, "'categories'"),
    ],
)
def test_what_is_not_coco_is_told_so(folder, document, told):
    with pytest.raises(InputError, match=told):
        read_coco(folder(document))


def test_text_that_is_not_json_and_files_that_are_not_there(tmp_path):
    (tmp_path / "x.json").write_text("hello")
    with pytest.raises(InputError, match="not JSON"):
        read_coco(tmp_path / "x.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_coco(tmp_path / "y.json")


def test_missing_corrupt_and_mismeasured_pictures_are_left_out_and_listed(folder, tmp_path):
    names = ["a.png", "gone.png", "torn.png", "text.png", "small.png"]
    images = [{"id": n, "file_name": name, "width": 200, "height": 100} for n, name in enumerate(names)]
    (tmp_path / "torn.png").write_bytes((tmp_path / "a.png").read_bytes()[:120])
    (tmp_path / "text.png").write_text("no picture")
    Image.new("RGB", (100, 200)).save(tmp_path / "small.png")
    path = folder(coco([], images))
    found = load_annotated(path, tmp_path, "train", strict=False)
    assert [i.image for i in found.instances] == ["a.png"]
    told = [problem.message for problem in found.problems]
    assert ["does not exist" in told[0], "cannot be decoded" in told[1], "cannot be decoded" in told[2]] == [
        True
    ] * 3
    assert "200 x 100" in told[3] and "100 x 200" in told[3]


def test_no_usable_picture_is_an_error(folder, tmp_path):
    (tmp_path / "a.png").unlink()
    with pytest.raises(InputError, match="no usable picture"):
        load_annotated(folder(coco([])), tmp_path, "train", strict=False)
    with pytest.raises(InputError, match=r"data\.images"):
        load_annotated(folder(coco([])), tmp_path / "nowhere", "train", strict=False)


def test_instance_jsonl_is_read_with_paths_relative_to_the_file(folder, tmp_path):
    record = {
        "image": "a.png",
        "width": 200,
        "height": 100,
        "objects": [{"desc": "cat", "bbox": [0, 0, 0.5, 1]}],
    }
    bad = {**record, "objects": [{"desc": "cat", "bbox": [0.5, 0, 0.5, 1]}]}
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(record) + "\n" + json.dumps(bad) + "\n")
    found = load_annotated(path, None, "train", strict=False)
    assert len(found) == 1
    assert found.picture(0).size == (200, 100)
    assert "x.jsonl:2" in found.problems[0].where


def test_the_digest_follows_content_and_the_same_data_cannot_be_held_out(folder, tmp_path):
    path = folder(coco([{"bbox": [20, 10, 100, 50]}]))
    first = load_annotated(path, tmp_path, "train", strict=False).digest
    places = {
        "annotations": path,
        "images": tmp_path,
        "heldout_annotations": path,
        "heldout_images": tmp_path,
    }
    custom = {"coord_soft_ce_w1": {"enabled": True}}
    with pytest.raises(InputError, match="same data"):
        load_sets(RunConfig.model_validate({"data": places, "custom": custom}))
    Image.new("RGB", (200, 100), (10, 20, 31)).save(tmp_path / "a.png")
    assert load_annotated(path, tmp_path, "train", strict=False).digest != first


def test_shapes_are_seeded_and_their_boxes_are_where_the_paint_is(tmp_path):
    config = ShapesConfig(noise=0)
    for instance, picture in draw_shapes(config, "train", 20):
        pixels = np.asarray(picture).astype(float)
        for found in instance.objects:
            colour = np.array(COLOURS[found.desc.split()[0]])
            x1, y1, x2, y2 = (v * config.size for v in found.bbox)
            rows, columns = np.nonzero(np.abs(pixels - colour).max(axis=2) < 80)
            inside = (columns > x1 - 2) & (columns < x2 + 1) & (rows > y1 - 2) & (rows < y2 + 1)
            painted = (
                columns[inside].min(),
                rows[inside].min(),
                columns[inside].max() + 1,
                rows[inside].max() + 1,
            )
            assert painted == pytest.approx((x1, y1, x2, y2), abs=3)
    again = [make_shapes(ShapesConfig(), "train", 4, tmp_path, keep_files=False).digest for _ in range(2)]
    other = make_shapes(ShapesConfig(), "heldout", 4, tmp_path, keep_files=False).digest
    assert again[0] == again[1] != other


def test_shape_boxes_use_the_whole_grid_of_bins():
    boxes = [
        found.bbox for instance, _ in draw_shapes(ShapesConfig(), "train", 1500) for found in instance.objects
    ]
    assert len({round(1000 * side) for box in boxes for side in box}) > 950
