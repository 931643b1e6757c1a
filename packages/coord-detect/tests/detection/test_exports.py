"""Forms of labelling tools, read back by hand or by a library; drawn images and the page."""

import json
import os
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
from fakes import answered, detector, make_images
from PIL import Image
from pycocotools.coco import COCO

from coord_codec import read_annotations
from coord_detect.answers.objects import ImageDetections
from coord_detect.detection.gallery import draw_answers
from coord_detect.detection.image_sources import find_sources
from coord_detect.detection.written import write_export
from coord_eval.labelling.formats import EXPORTS, coco_results
from coord_eval.labelling.objects import DetectedObject

OBJECTS = [
    {"desc": "dog", "bbox_xyxy": [10.0, 20.0, 30.0, 60.0], "score": 0.5},
    {"desc": "cat", "bbox_xyxy": [0.0, 0.0, 100.0, 80.0], "score": 0.9},
]
RECORDS = [
    {"image_id": "a/x.png", "image": "a/x.png", "width": 100, "height": 80, "objects": OBJECTS},
    {"image_id": "y.png", "image": "y.png", "finish_reason": "error", "error": "gone"},
]


def test_image_without_objects_is_exported_and_one_without_an_answer_is_not(tmp_path):
    """Else nobody would see that the model found nothing there."""
    empty = {"image_id": "z.png", "image": "z.png", "width": 9, "height": 9, "objects": []}
    document = json.loads(write_export("coco", [*RECORDS, empty], tmp_path).read_text())
    assert [image["file_name"] for image in document["images"]] == ["a/x.png", "z.png"]


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
    if name == "cvat":
        boxes = ElementTree.parse(place).getroot().iter("box")
        return {b.get("label"): [float(b.get(c)) for c in ("xtl", "ytl", "xbr", "ybr")] for b in boxes}
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


POLYGON = {
    "desc": "cat",
    "bbox_xyxy": [10.0, 8.0, 60.0, 48.0],
    "score": 0.5,
    "geometry": "polygon",
    "points_xy": [[30.0, 8.0], [60.0, 40.0], [40.0, 48.0], [10.0, 20.0]],
}
POINT = {
    "desc": "dog",
    "bbox_xyxy": [20.0, 40.0, 20.1, 40.1],
    "score": 0.25,
    "geometry": "point",
    "points_xy": [[20.0, 40.0]],
}
POSE = {
    "desc": "man",
    "bbox_xyxy": [20.0, 16.0, 50.0, 40.0],
    "score": 0.75,
    "geometry": "keypoints",
    "points_xy": [[20.0, 16.0], [0, 0], [50.0, 40.0]],
}


def of_shape(item):
    return [{"image_id": 1, "image": "a.png", "width": 100, "height": 80, "objects": [item]}]


def test_outline_in_coco_is_what_pycocotools_and_our_reader_take_for_one(tmp_path):
    place = write_export("coco", of_shape(POLYGON), tmp_path)
    coco = COCO(str(place))
    (row,) = coco.loadAnns(coco.getAnnIds())
    assert coco.annToMask(row).sum() == pytest.approx(row["area"], rel=0.02)
    (found,) = read_annotations(place, geometry="polygon").instances[0].objects
    points = np.array(found.geometry.coordinates).reshape(-1, 2) * (100, 80)
    np.testing.assert_allclose(points, POLYGON["points_xy"])
    (result,) = coco_results(of_shape(POLYGON), {"cat": 1})
    assert result["segmentation"] == [[30, 8, 60, 40, 40, 48, 10, 20]]


def test_keypoints_in_coco_are_what_our_reader_takes_for_them(tmp_path):
    place = write_export("coco", of_shape(POSE), tmp_path)
    (found,) = read_annotations(place, geometry="keypoints").instances[0].objects
    points = np.array(found.geometry.coordinates).reshape(-1, 2) * (100, 80)
    np.testing.assert_allclose(points, POSE["points_xy"])
    assert found.geometry.visibility == (2, 0, 2)


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (POLYGON, "0 0.300000 0.100000 0.600000 0.500000 0.400000 0.600000 0.100000 0.250000"),
        (POINT, "0 0.200500 0.500625 0.001000 0.001250 0.200000 0.500000 2"),
        (POSE, "0 0.350000 0.350000 0.300000 0.300000 0.200000 0.200000 2 0.000000 0.000000 0 0.500000 0.500000 2"),
    ],
)
def test_shapes_in_yolo(tmp_path, item, line):
    """As Ultralytics documents segments, oriented boxes and poses."""
    place = write_export("yolo", of_shape(item), tmp_path)
    assert (place / "labels" / "a.txt").read_text() == f"{line}\n"


@pytest.mark.parametrize(
    ("item", "kinds", "values"),
    [
        (POLYGON, ["polygonlabels"], [{"points": [[30, 10], [60, 50], [40, 60], [10, 25]]}]),
        (POINT, ["keypointlabels"], [{"x": 20, "y": 50, "width": 0.5}]),
        (POSE, ["keypointlabels"] * 2, [{"x": 20, "y": 20, "width": 0.5}, {"x": 50, "y": 50, "width": 0.5}]),
    ],
)
def test_shapes_in_label_studio(tmp_path, item, kinds, values):
    (task,) = json.loads(write_export("labelstudio", of_shape(item), tmp_path).read_text())
    regions = task["predictions"][0]["result"]
    assert [region["type"] for region in regions] == kinds and len({region["id"] for region in regions}) == len(kinds)
    assert [region["value"] for region in regions] == [v | {kinds[0]: [item["desc"]]} for v in values]


def test_shapes_in_fiftyone(tmp_path):
    for item, kind in ((POLYGON, "polylines"), (POSE, "keypoints")):
        (sample,) = json.loads(write_export("fiftyone", of_shape(item), tmp_path).read_text())
        (found,) = sample[kind]
        points = np.array(found["points"]).reshape(-1, 2)
        wanted = np.array([p if p != [0, 0] else [np.nan, np.nan] for p in item["points_xy"]]) / (100, 80)
        np.testing.assert_allclose(points, wanted)
        assert sample["detections"] == [] and found["label"] == item["desc"]


def test_shapes_survive_the_record_and_are_drawn_where_they_are():
    for item in (POLYGON, POINT, POSE, OBJECTS[0]):
        assert DetectedObject.from_record(item).to_record() == item
    image = Image.new("RGB", (100, 80))
    drawn = {}
    for item in (POLYGON, POSE, OBJECTS[0]):
        found = ImageDetections(
            (DetectedObject.from_record({**item, "desc": ""}),), image.size, "", "stop", image=image
        )
        drawn[item["desc"]] = np.asarray(found.drawn())[::3, ::3].sum(axis=2) > 0  # enlarged three times
    assert drawn["cat"][24, 45] and not drawn["cat"][45, 12]  # on an edge, and in a corner of the box around it
    assert drawn["man"][40, 50] and not drawn["man"][28, 20]
    assert drawn["dog"][40, 10]


def test_command_line_knows_every_form():
    from coord_detect.served.request import Form

    assert {form.value for form in Form} == set(EXPORTS)


def test_what_a_user_corrected_is_moved_aside_and_the_rest_is_replaced(tmp_path, capsys):
    place = write_export("voc", RECORDS, tmp_path)
    first = (place / "a" / "x.xml").read_text()
    write_export("voc", RECORDS[1:], tmp_path)  # untouched, and its image is no longer there
    assert not list(place.rglob("*.xml")) and "changed" not in capsys.readouterr().out
    place = write_export("voc", RECORDS, tmp_path)
    (place / "a" / "x.xml").write_text(first.replace("dog", "wolf"))
    write_export("voc", RECORDS, tmp_path)
    assert (place / "a" / "x.xml").read_text() == first
    assert "wolf" in (tmp_path / "voc.changed-1" / "a" / "x.xml").read_text()
    assert "it was changed since it was written, and is now voc.changed-1" in capsys.readouterr().out
    (tmp_path / "coco.json").write_text("mine")
    write_export("coco", RECORDS, tmp_path)
    assert (tmp_path / "coco.changed-1.json").read_text() == "mine"
    for number in (2, 3):
        (tmp_path / "coco.json").write_text(f"mine, {number}")
        write_export("coco", RECORDS, tmp_path)
    kept = {path.name: path.read_text() for path in tmp_path.glob("coco.changed-*")}
    assert kept == {"coco.changed-1.json": "mine", "coco.changed-2.json": "mine, 2", "coco.changed-3.json": "mine, 3"}


def test_label_over_two_lines_is_one_in_every_form(tmp_path):
    objects = [{**OBJECTS[0], "desc": "a\ndog"}, {**OBJECTS[1], "desc": "\x07"}]
    records = [{**RECORDS[0], "objects": objects}]
    for name in EXPORTS:
        write_export(name, records, tmp_path)
    assert (tmp_path / "yolo" / "classes.txt").read_text() == "a dog\nunnamed\n"
    assert len(coco_results(records)) == 2


def test_results_list_has_the_categories_of_the_annotations():
    assert coco_results(RECORDS, {"cat": 5}) == [
        {
            **{"image_id": "a/x.png", "file_name": "a/x.png", "category_id": 5, "category_name": "cat"},
            **{"bbox": [0.0, 0.0, 100.0, 80.0], "score": 0.9},
        }
    ]


def test_drawn_images_show_boxes_and_the_page_lists_failures(tmp_path):
    make_images(tmp_path / "photos", a=(80, 40))
    (tmp_path / "photos" / "<b>.png").write_text("no image")
    sources = find_sources([str(tmp_path / "photos")])
    page = draw_answers(answered(detector(), sources, tmp_path / "out", {}), sources).read_text()
    assert "&lt;b&gt;.png" in page and "cannot be decoded" in page and "<b>.png" not in page
    drawn = np.asarray(Image.open(tmp_path / "out" / "drawn" / "a.jpg")).astype(int)
    grey = np.full(3, 128)
    assert drawn.shape == (160, 320, 3)  # four times as large, so that something is seen beside the label
    assert np.abs(drawn[120, 80] - grey).max() > 40  # the left side of the box, x = 20 of 80
    assert np.abs(drawn[120, 160] - grey).max() < 40  # its inside


def test_page_links_to_files_of_any_name(tmp_path):
    from html import unescape
    from re import findall
    from urllib.parse import unquote_to_bytes

    names = [b"a b#%?&.png", b"caf\xe9.png", "日本 <b>.png".encode()]
    make_images(tmp_path / "photos", x=(4, 4))
    try:
        for name in names:
            shutil.copyfile(tmp_path / "photos" / "x.png", os.fsencode(tmp_path / "photos") + b"/" + name)
    except OSError:
        pytest.skip("this file system takes names in Unicode alone")
    sources = find_sources([str(tmp_path / "photos")])
    page = draw_answers(answered(detector(), sources, tmp_path / "out", {}), sources).read_text()
    links = {unescape(link) for link in findall('href="([^"]*)"', page)}
    linked = {unquote_to_bytes(link) for link in links if not link.startswith(("#", "data:"))}
    assert linked == {b"drawn/" + name.replace(b".png", b".jpg") for name in [*names, b"x.png"]}
    assert all((tmp_path / "out" / os.fsdecode(link)).is_file() for link in linked)


def test_voc_boxes_lie_inside_the_image_and_its_names_are_xml(tmp_path):
    objects = [{"desc": "cat", "bbox_xyxy": [95.6, 10.0, 95.9, 40.0], "score": 1.0}]
    record = {"image_id": 1, "image": "new\nline\x07.png", "width": 96, "height": 50, "objects": objects}
    (file,) = write_export("voc", [record], tmp_path).rglob("*.xml")
    root = ElementTree.parse(file).getroot()
    corners = [int(root.find(f"object/bndbox/{name}").text) for name in ("xmin", "ymin", "xmax", "ymax")]
    assert corners == [96, 11, 96, 40] and root.find("filename").text == "new line .png"


@pytest.mark.parametrize("note", ["[1]", "{", '{"voc": 3}'])
def test_note_that_a_user_has_changed_is_no_note(tmp_path, note):
    place = write_export("voc", RECORDS, tmp_path)
    (tmp_path / ".written.json").write_text(note)
    write_export("voc", RECORDS, tmp_path)
    assert place.is_dir() and (tmp_path / "voc.changed-1").is_dir()


def test_export_of_a_call_that_was_killed_before_its_note_is_no_users(tmp_path, monkeypatch, capsys):
    from coord_detect.detection import written

    write_export("voc", RECORDS, tmp_path)
    notes = []

    def note(folder, found, real=written._write_digests):
        notes.append(found)
        if len(notes) == 2:
            raise KeyboardInterrupt
        real(folder, found)

    other = [{**RECORDS[0], "objects": OBJECTS[:1]}]
    monkeypatch.setattr(written, "_write_digests", note)
    with pytest.raises(KeyboardInterrupt):
        write_export("voc", other, tmp_path)
    monkeypatch.undo()
    write_export("voc", RECORDS, tmp_path)
    assert "changed" not in capsys.readouterr().out and not list(tmp_path.glob("voc.*"))
