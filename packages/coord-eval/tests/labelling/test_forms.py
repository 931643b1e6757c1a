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


POLYGON = {"desc": "dog", "bbox_xyxy": [0, 0, 50, 40], "score": 0.5, "geometry": "polygon"}
POLYGON["points_xy"] = [[0, 0], [50, 0], [50, 40]]
POINTS = {"desc": "cat", "bbox_xyxy": [10, 20, 30, 40], "score": 0.25, "geometry": "keypoints"}
POINTS["points_xy"] = [[10, 20], [0, 0], [30, 40]]
BOX = {"desc": "cat\n", "bbox_xyxy": [10, 20, 40, 60], "score": 0.75}
SHAPES = [{"image_id": 5, "image": "s/a.jpg", "width": 100, "height": 80, "objects": [BOX, POLYGON, POINTS]}]
"""A box, an outline of half its box and keypoints of which the second is not placed."""


def test_every_form_has_the_places_of_each_shape(tmp_path):
    coco = json.loads(EXPORTS["coco"](SHAPES, tmp_path).read_text())
    keypoints = [10, 20, 2, 0, 0, 0, 30, 40, 2]
    shapes = [{}, {"segmentation": [[0, 0, 50, 0, 50, 40]]}, {"keypoints": keypoints, "num_keypoints": 2}]
    rows = zip((1, 2, 1), ([10, 20, 30, 40], [0, 0, 50, 40], [10, 20, 20, 20]), (1200, 1000, 400), shapes, strict=True)
    given = {"image_id": 5, "iscrowd": 0}
    assert coco["annotations"] == [
        {**given, "id": n, "category_id": k, "bbox": box, "area": area, "score": 1 - 0.25 * n, **shape}
        for n, (k, box, area, shape) in enumerate(rows, 1)
    ]
    assert coco["images"] == [{"id": 5, "file_name": "s/a.jpg", "width": 100, "height": 80}]
    assert [row["keypoints"] for row in coco["categories"]] == [["point 1", "point 2", "point 3"]] * 2
    results = coco_results(SHAPES, {"cat": 9})
    assert [(row["category_id"], row["category_name"], row["file_name"]) for row in results] == [
        (9, "cat", "s/a.jpg")
    ] * 2

    yolo = EXPORTS["yolo"](SHAPES, tmp_path)
    lines = [line.split() for line in (yolo / "labels" / "s" / "a.txt").read_text().splitlines()]
    assert [line[0] for line in lines] == ["0", "1", "0"]
    assert [list(map(float, line[1:])) for line in lines] == [
        [0.25, 0.5, 0.3, 0.5],
        [0, 0, 0.5, 0, 0.5, 0.5],
        [0.2, 0.375, 0.2, 0.25, 0.1, 0.25, 2, 0, 0, 0, 0.3, 0.5, 2],
    ]
    assert "kpt_shape: [3, 3]" in (yolo / "data.yaml").read_text()

    (task,) = json.loads(EXPORTS["labelstudio"](SHAPES, tmp_path).read_text())
    (told,) = task["predictions"]
    values = [(row["id"], row["type"], row["score"], row["value"]) for row in told["result"]]
    corner = {"x": 10, "y": 25, "width": 30, "height": 50, "rotation": 0}
    assert told["score"] == 0.25 and values == [
        ("0", "rectanglelabels", 0.75, {**corner, "rectanglelabels": ["cat"]}),
        ("1", "polygonlabels", 0.5, {"points": [[0, 0], [50, 0], [50, 50]], "polygonlabels": ["dog"]}),
        ("2", "keypointlabels", 0.25, {"x": 10, "y": 25, "width": 0.5, "keypointlabels": ["cat"]}),
        ("3", "keypointlabels", 0.25, {"x": 30, "y": 50, "width": 0.5, "keypointlabels": ["cat"]}),
    ]
    assert {(row["original_width"], row["original_height"]) for row in told["result"]} == {(100, 80)}

    (sample,) = json.loads(EXPORTS["fiftyone"](SHAPES, tmp_path).read_text())
    assert sample["detections"] == [{"label": "cat", "bounding_box": [0.1, 0.25, 0.3, 0.5], "confidence": 0.75}]
    outline = {"points": [[[0, 0], [0.5, 0], [0.5, 0.5]]], "closed": True, "filled": True}
    assert sample["polylines"] == [{"label": "dog", **outline, "confidence": 0.5}]
    (points,) = sample["keypoints"]
    assert str(points["points"]) == "[[0.1, 0.25], [nan, nan], [0.3, 0.5]]" and points["confidence"] == [0.25] * 3

    image = ElementTree.fromstring(EXPORTS["cvat"](SHAPES, tmp_path).read_text()).find("image")
    assert {"name": "s/a.jpg", "width": "100", "height": "80"}.items() <= image.attrib.items()
    assert [(item.tag, item.get("label"), item.get("points") or item.get("xbr")) for item in image] == [
        ("box", "cat", "40.00"),
        ("polygon", "dog", "0.00,0.00;50.00,0.00;50.00,40.00"),
        ("points", "cat", "10.00,20.00;30.00,40.00"),
    ]
    voc = ElementTree.parse(EXPORTS["voc"](SHAPES, tmp_path) / "s" / "a.xml")
    sides = [[int(box.find(side).text) for side in ("xmin", "ymin", "xmax", "ymax")] for box in voc.iter("bndbox")]
    assert sides == [[11, 21, 40, 60], [1, 1, 50, 40], [11, 21, 30, 40]]


def test_voc_keeps_thin_and_outer_boxes_inside_the_image(tmp_path):
    boxes = [[99.8, 79.9, 100, 80], [10, 20, 10.2, 20.3], [0, 0, 100, 80]]
    record = SHAPES[0] | {"objects": [{"desc": "", "bbox_xyxy": box, "score": 1.0} for box in boxes]}
    voc = ElementTree.parse(EXPORTS["voc"]([record], tmp_path) / "s" / "a.xml")
    sides = [[int(box.find(side).text) for side in ("xmin", "ymin", "xmax", "ymax")] for box in voc.iter("bndbox")]
    assert sides == [[100, 80, 100, 80], [11, 21, 11, 21], [1, 1, 100, 80]]
    assert {name.text for name in voc.iterfind("object/name")} == {"unnamed"}
