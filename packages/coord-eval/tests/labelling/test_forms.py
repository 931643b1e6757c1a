"""What readers of other tools need in our exports; `tests/foreign` runs these tools."""

import json
from xml.etree import ElementTree

import pytest

from coord_eval.labelling import EXPORTS, coco_annotations, coco_results, labelstudio_tasks

RECORDS = [
    {
        "image_id": 1,
        "image": "a.jpg",
        "width": 100,
        "height": 80,
        "objects": [{"desc": name, "bbox_xyxy": [10, 20, 40, 60], "score": 0.9} for name in ("yes", "12:30", 'a "b"')],
    },
    {"image_id": 2, "image": "b.jpg", "width": 64, "height": 48, "objects": []},
]


def test_cvat_lists_its_labels_and_declares_no_encoding(tmp_path):
    text = EXPORTS["cvat"](RECORDS, tmp_path).read_text()
    assert not text.startswith("<?xml")
    labels = [label.text for label in ElementTree.fromstring(text).iterfind("meta/task/labels/label/name")]
    assert sorted(labels) == sorted(["yes", "12:30", 'a "b"'])


@pytest.mark.parametrize(
    ("ids", "new"),
    [
        ({}, [1, 2, 3]),
        ({"yes": "n01"}, [1, 2]),
        ({"yes": 7}, [8, 9]),
        ({"yes": "007"}, [8, 9]),
        ({"no": "x"}, [1, 2, 3]),
    ],
)
def test_labels_without_a_category_get_ids_that_no_other_has(tmp_path, ids, new):
    """Ids of a ground truth may be text; a reader takes "7" for 7."""
    document = json.loads(coco_annotations(RECORDS, tmp_path, ids).read_text())
    found = {category["name"]: category["id"] for category in document["categories"]}
    assert found.items() >= ids.items() and [found[name] for name in found if name not in ids] == new
    assert [row["category_id"] for row in document["annotations"]] == [found[o["desc"]] for o in RECORDS[0]["objects"]]


def test_yolo_data_yaml_names_the_classes_of_its_labels(tmp_path):
    yaml = pytest.importorskip("yaml", reason="reads the file back")
    folder = EXPORTS["yolo"](RECORDS, tmp_path)
    data = yaml.safe_load((folder / "data.yaml").read_text())
    assert data["names"] == dict(enumerate((folder / "classes.txt").read_text().splitlines()))
    assert data["nc"] == len(data["names"]) and data["train"] == "images"
    empty = EXPORTS["yolo"](RECORDS[1:], tmp_path / "empty")
    assert yaml.safe_load((empty / "data.yaml").read_text())["names"] == {}


def test_prefix_stands_before_each_image_of_label_studio(tmp_path):
    tasks = json.loads(labelstudio_tasks(RECORDS, tmp_path, "/data/local-files/?d=photos/").read_text())
    assert [task["data"]["image"] for task in tasks] == [f"/data/local-files/?d=photos/{n}.jpg" for n in "ab"]


def test_coco_results_have_the_sides_without_the_noise_of_a_subtraction():
    """521.95 - 79.95 is 442.00000000000006 in floating point, and comparisons of an IoU are exact."""
    named = {"desc": "cat", "bbox_xyxy": [79.95, 87.153, 521.95, 407.826], "score": 0.9}
    (row,) = coco_results([RECORDS[0] | {"objects": [named]}])
    assert row["bbox"] == [79.95, 87.153, 442, 320.673]
