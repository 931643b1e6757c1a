"""Forms of labelling tools, read back by hand or by a library; drawn images and the page."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from fakes import detector, make_images
from PIL import Image
from pycocotools.coco import COCO

from coord_codec import InputError
from coord_trainer.detect.exports import EXPORTS, coco_results, write_export
from coord_trainer.detect.gallery import draw_answers
from coord_trainer.detect.session import answer_sources
from coord_trainer.detect.sources import find_sources

OBJECTS = [
    {"desc": "dog", "bbox_xyxy": [10.0, 20.0, 30.0, 60.0], "score": 0.5},
    {"desc": "cat", "bbox_xyxy": [0.0, 0.0, 100.0, 80.0], "score": 0.9},
]
RECORDS = [
    {"image_id": "a/x.png", "image": "a/x.png", "width": 100, "height": 80, "objects": OBJECTS},
    {"image_id": "y.png", "image": "y.png", "finish_reason": "error", "error": "gone"},
]


@pytest.fixture(params=sorted(EXPORTS))
def written(request, tmp_path):
    return request.param, write_export(request.param, RECORDS, tmp_path)


def read_boxes(name, place):
    """Return {label: xyxy in pixels} of the one image, read as each tool does."""
    if name == "coco":
        coco = COCO(str(place))
        rows = coco.loadAnns(coco.getAnnIds())
        names = {c["id"]: c["name"] for c in coco.loadCats(coco.getCatIds())}
        return {
            names[r["category_id"]]: [*r["bbox"][:2], r["bbox"][0] + r["bbox"][2], r["bbox"][1] + r["bbox"][3]]
            for r in rows
        }
    if name == "yolo":
        classes = (place / "classes.txt").read_text().split()
        found = {}
        for line in (place / "labels" / "a" / "x.txt").read_text().splitlines():
            index, x, y, w, h = map(float, line.split())
            found[classes[int(index)]] = [(x - w / 2) * 100, (y - h / 2) * 80, (x + w / 2) * 100, (y + h / 2) * 80]
        return found
    if name == "voc":
        root = ElementTree.parse(place / "a" / "x.xml").getroot()
        corners = ("xmin", "ymin", "xmax", "ymax")
        return {
            o.findtext("name"): [int(o.find("bndbox").findtext(c)) - (c[1:] == "min") for c in corners]
            for o in root.iter("object")
        }
    content = json.loads(place.read_text())
    if name == "labelstudio":
        values = [r["value"] for r in content[0]["predictions"][0]["result"]]
        return {
            v["rectanglelabels"][0]: [v["x"], v["y"] * 0.8, v["x"] + v["width"], (v["y"] + v["height"]) * 0.8]
            for v in values
        }
    boxes = {d["label"]: d["bounding_box"] for d in content[0]["detections"]}
    return {n: [b[0] * 100, b[1] * 80, (b[0] + b[2]) * 100, (b[1] + b[3]) * 80] for n, b in boxes.items()}


def test_boxes_are_where_the_tool_looks_for_them(written):
    found = read_boxes(*written)
    assert found.keys() == {"cat", "dog"}
    for item in OBJECTS:
        np.testing.assert_allclose(found[item["desc"]], item["bbox_xyxy"], atol=1e-3)


def test_unknown_form_is_refused(tmp_path):
    with pytest.raises(InputError, match="--export: expected one of coco, yolo"):
        write_export("csv", RECORDS, tmp_path)


def test_results_list_has_the_categories_of_the_annotations():
    assert coco_results(RECORDS, {"cat": 5}) == [
        {"image_id": "a/x.png", "category_id": 5, "bbox": [0.0, 0.0, 100.0, 80.0], "score": 0.9}
    ]


def test_drawn_images_show_boxes_and_the_page_lists_failures(tmp_path):
    make_images(tmp_path / "photos", a=(80, 40))
    (tmp_path / "photos" / "<b>.png").write_text("no image")
    sources = find_sources([str(tmp_path / "photos")])
    answered = answer_sources(detector(), sources, tmp_path / "out", {}, batch=2)
    page = draw_answers(answered, sources).read_text()
    assert "&lt;b&gt;.png" in page and "cannot be decoded" in page and "<b>.png" not in page
    drawn = np.asarray(Image.open(tmp_path / "out" / "drawn" / "a.jpg")).astype(int)
    grey = np.full(3, 128)
    assert np.abs(drawn[30, 20] - grey).max() > 40  # the left side of the box, x = 20 of 80
    assert np.abs(drawn[30, 40] - grey).max() < 40  # its inside
