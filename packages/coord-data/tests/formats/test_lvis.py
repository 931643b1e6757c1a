"""LVIS: what its images say about classes that they do not show."""

import json

from coco_twins import write_lvis

from coord_data import open_source
from coord_data.reading.read import read_source


def test_lvis_says_what_is_known_to_be_absent(tmp_path):
    (tmp_path / "images").mkdir()
    path = write_lvis(tmp_path)
    document = json.loads(path.read_text())
    document["categories"] += [{"id": 3, "name": "cow"}, {"id": 4, "name": "hen"}]
    document["images"][0] |= {"neg_category_ids": [3, 4, 99, None], "not_exhaustive_category_ids": [1, 4]}
    document["images"][1] |= {"not_exhaustive_category_ids": [3]}
    path.write_text(json.dumps(document))
    first, second, third = read_source(path).annotations.instances
    assert (first.absent, first.uncertain) == (["cow"], ["hen", "red cat"])
    assert second.uncertain == ["cow"] and not hasattr(second, "absent") and not third.model_extra


def test_coco_whose_images_have_file_names_is_coco_whatever_else_they_state(tmp_path):
    (tmp_path / "images").mkdir()
    path = write_lvis(tmp_path)
    assert open_source(path).format == "lvis"
    document = json.loads(path.read_text())
    for n, image in enumerate(document["images"]):
        image |= {"file_name": f"images/{n}.jpg", "neg_category_ids": [], "coco_url": "http://x/train2017/1.jpg"}
    path.write_text(json.dumps(document))
    assert open_source(path).format == "coco"
