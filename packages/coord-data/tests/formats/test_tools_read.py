"""Files of tools that are read as rows of the table, as their writers write them: b.jpg has no objects."""

import json
from pathlib import Path

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data import ReadingRules, load_annotated, open_source
from coord_data.formats.tools import TOOLS, tool_table

CAR, SECOND = ("car", 20, 10, 60, 50), ("dog", 100, 30, 180, 90)
FAR = Path(__file__).parents[5] / "shared/data/edges/borders/far"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for name in "ab":
        Image.new("RGB", (200, 100), (90, 10, 10)).save(tmp_path / "images" / f"{name}.jpg")
    return tmp_path


def objects(source, images, **rules):
    """Return description and pixels of the objects of each image, and the images that are read."""
    found = load_annotated(source, ReadingRules(images=images, **rules))
    return {
        i.image.rpartition("/")[2]: [
            (o.desc, *(round(v * s) for v, s in zip(o.bbox, (200, 100) * 2, strict=True)), *("ignored",) * o.iscrowd)
            for o in i.objects
        ]
        for i in found.instances
    }, found


def lines(*records):
    return "\n".join(map(json.dumps, records))


def scalabel(name, *labels):
    return {"name": name, "labels": [{"id": str(n), **label} for n, label in enumerate(labels)] or None}


def box2d(x1, y1, x2, y2):
    return {"box2d": {"x1": x1, "y1": y1, "x2": x2, "y2": y2}}


def labelbox(kind, *found):
    objects = [{"name": name, "value": name, kind: value} for name, value in found]
    of_label = {"annotations": {"objects": objects, "classifications": []}}
    return {"data_row": {"id": "r", "external_id": "a.jpg"}, "projects": {"p": {"labels": [of_label]}}}


SIZED = {"left": 20, "top": 10, "width": 40, "height": 40}
GROUND = {"caption": "a car", "regions": [{"phrase": "car", "bbox": [[20, 10, 60, 50]], "tokens_positive": [[2, 5]]}]}
ROWS = [
    {"img_filename": "a.jpg", "bbox": [20, 10, 40, 40], "instruction": "car", "data_type": "icon"},
    {"img_filename": "a.jpg", "bbox": [100, 30, 80, 60], "instruction": "dog", "data_type": "text"},
]
NAMED_CAR = {"category": "car"}
DOTA = "imagesource:GoogleEarth\ngsd:0.1\n20 10 60 10 60 50 20 50 car 0\n100 30 180 30 180 90 100 90 dog 1\n"
KITTI = "car 0.00 0 -1.57 20.00 10.00 60.00 50.00 1.57 1.73 4.15 1.00 1.75 13.22 1.62\n"
KITTI += "DontCare -1 -1 -10 100.00 30.00 180.00 90.00 -1 -1 -1 -1000 -1000 -1000 -10\n"
MEGADETECTOR = {
    "images": [
        {"file": "a.jpg", "detections": [{"category": "2", "conf": 0.9, "bbox": [0.1, 0.1, 0.2, 0.4]}]},
        {"file": "b.jpg", "detections": []},
        {"file": "c.jpg", "failure": "Failure image access", "detections": None},
    ],
    "detection_categories": {"1": "animal", "2": "car"},
    "info": {"format_version": "1.4"},
}
LANE = {"category": "lane", "poly2d": None}
OPEN = {"category": "lane", "poly2d": [{"vertices": [[0, 0], [9, 9], [20, 30]], "types": "LLL", "closed": False}]}
AREA = {"category": "car", "poly2d": [{"vertices": [[20, 10], [60, 10], [60, 50]], "closed": True}]}
CROWD = {"category": "dog", "attributes": {"crowd": True}, **box2d(100, 30, 180, 90)}
NUMBERED = {"filename": "a.jpg", "detection": {"instances": [{"bbox": [20, 10, 60, 50], "label": 3}]}}
SCALABEL = [
    scalabel(
        "a.jpg", {"category": "car", **box2d(20, 10, 60, 50)}, {"category": "dog", **box2d(100, 30, 180, 90)}, LANE
    ),
    scalabel("b.jpg"),
]
READ = {
    "scalabel": ("a.json", json.dumps(SCALABEL), {"a.jpg": [CAR, SECOND], "b.jpg": []}),
    "scalabel of frames": (
        "a.json",
        json.dumps({"frames": SCALABEL, "config": {}}),
        {"a.jpg": [CAR, SECOND], "b.jpg": []},
    ),
    "scalabel of outlines and a crowd": (
        "a.json",
        json.dumps([scalabel("a.jpg", OPEN, AREA, CROWD)]),
        {"a.jpg": [CAR, (*SECOND, "ignored")]},
    ),
    "megadetector": ("a.json", json.dumps(MEGADETECTOR), {"a.jpg": [CAR], "b.jpg": []}),
    "odvg": (
        "a.jsonl",
        lines(
            {
                "filename": "a.jpg",
                "detection": {"instances": [{"bbox": [20, 10, 60, 50], "label": 3, "category": "car"}]},
            },
            {"filename": "b.jpg", "detection": {"instances": []}},
        ),
        {"a.jpg": [CAR], "b.jpg": []},
    ),
    "odvg of phrases": (
        "a.jsonl",
        lines({"filename": "a.jpg", "height": 100, "width": 200, "grounding": GROUND}),
        {"a.jpg": [CAR]},
    ),
    "odvg of a phrase in parts": (
        "a.jsonl",
        lines({"filename": "a.jpg", "grounding": {"regions": [{"phrase": ["red", "car"], "bbox": [20, 10, 60, 50]}]}}),
        {"a.jpg": [("red car", *CAR[1:])]},
    ),
    "labelbox": ("a.ndjson", lines(labelbox("bounding_box", ("car", SIZED))), {"a.jpg": [CAR]}),
    "labelbox polygon": (
        "a.ndjson",
        lines(labelbox("polygon", ("car", [{"x": x, "y": y} for x, y in ((20, 10), (60, 10), (60, 50))]))),
        {"a.jpg": [CAR]},
    ),
    "labelbox of before": (
        "a.json",
        json.dumps([{"ID": "x", "External ID": "a.jpg", "Label": {"objects": [{"title": "car", "bbox": SIZED}]}}]),
        {"a.jpg": [CAR]},
    ),
    "screenspot": ("a.json", json.dumps(ROWS), {"a.jpg": [CAR, SECOND]}),
    "screenspot in fractions": (
        "a.json",
        json.dumps([{"image": "a.jpg", "bbox": [0.1, 0.1, 0.3, 0.5], "instruction": "car"}]),
        {"a.jpg": [CAR]},
    ),
    "screenspot of corners": (
        "a.json",
        json.dumps(
            [
                {**row, "bbox": [*row["bbox"][:2], *map(sum, zip(row["bbox"][:2], row["bbox"][2:], strict=True))]}
                for row in ROWS
            ]
        ),
        {"a.jpg": [CAR, SECOND]},
    ),
    "screenspot of x, y, w, h": (
        "a.jsonl",
        lines({"image": "a.jpg", "instruction": "car", "x": 20, "y": 10, "w": 40, "h": 40}),
        {"a.jpg": [CAR]},
    ),
    "screenspot of named corners": (
        "a.jsonl",
        lines({"image": "a.jpg", "instruction": "car", "bbox": {"x1": 0.1, "y1": 0.1, "x2": 0.3, "y2": 0.5}}),
        {"a.jpg": [CAR]},
    ),
    "screenspot-pro": (
        "a.json",
        json.dumps([{"img_filename": "a.jpg", "bbox": [20, 10, 60, 50], "instruction": "car", "ui_type": "icon"}]),
        {"a.jpg": [CAR]},
    ),
    "dota": ("labelTxt/a.txt", DOTA, {"a.jpg": [CAR, (*SECOND, "ignored")], "b.jpg": []}),
    "kitti": ("label_2/a.txt", KITTI, {"a.jpg": [CAR, ("DontCare", *SECOND[1:], "ignored")], "b.jpg": []}),
    "dota without a difficulty": ("labelTxt/a.txt", DOTA.splitlines()[2][:-2], {"a.jpg": [CAR], "b.jpg": []}),
    "kitti of two words": (
        "label_2/a.txt",
        f"traffic light {KITTI.splitlines()[0][4:]} 0.9",
        {"a.jpg": [("traffic light", *CAR[1:])], "b.jpg": []},
    ),
    "csv of SKU110K": (
        "a.csv",
        "a.jpg,20,10,60,50,car,200,100\na.jpg,100,30,180,90,dog,200,100\n",
        {"a.jpg": [CAR, SECOND]},
    ),
    "csv of make-sense": (
        "a.csv",
        "car,20,10,40,40,a.jpg,200,100\ndog,100,30,80,60,a.jpg,200,100\n",
        {"a.jpg": [CAR, SECOND]},
    ),
}


@pytest.mark.parametrize("case", READ)
def test_file_of_a_tool_is_read(folder, case):
    name, text, expected = READ[case]
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    named = path.parent if path.suffix == ".txt" else path
    assert open_source(named).format == case.partition(" ")[0]
    assert objects(named, folder / "images")[0] == expected


def test_what_a_tool_states_besides_boxes_is_told(folder):
    (folder / "md.json").write_text(json.dumps(MEGADETECTOR))
    (problem,) = objects(folder / "md.json", folder / "images")[1].problems
    assert problem.where.endswith("images[2]") and "Failure image access" in problem.message
    (folder / "s.json").write_text(json.dumps(SCALABEL))
    notes = objects(folder / "s.json", folder / "images")[1].annotations.notes
    assert any("without a box or a closed outline" in note for note in notes)


def test_class_numbers_of_odvg_are_named_by_the_label_map_beside_or_told(folder):
    (folder / "o.jsonl").write_text(lines(NUMBERED))
    found, images = objects(folder / "o.jsonl", folder / "images")
    assert found["a.jpg"] == [("3", *CAR[1:])]
    assert sum(n for note, n in images.annotations.notes.items() if "class numbers without a name" in note) == 1
    (folder / "coco_label_map.json").write_text(json.dumps({"3": "car"}))
    assert objects(folder / "o.jsonl", folder / "images")[0]["a.jpg"] == [CAR]


def test_labels_of_several_annotators_are_told(folder):
    record = labelbox("bounding_box", ("car", SIZED))
    record["projects"]["p"]["labels"] += labelbox("bounding_box", ("dog", SIZED))["projects"]["p"]["labels"]
    (folder / "e.ndjson").write_text(lines(record))
    found, images = objects(folder / "e.ndjson", folder / "images")
    assert len(found["a.jpg"]) == 2 and any("labelled several times" in note for note in images.annotations.notes)


def test_order_of_screen_elements_is_the_users_where_he_names_one(folder):
    (folder / "a.json").write_text(json.dumps([{**ROWS[0], "bbox": [20, 10, 60, 50]}]))
    found, images = objects(folder / "a.json", folder / "images")
    assert found["a.jpg"] == [("car", 20, 10, 80, 60)] and "--read-as xyxy,pixels" in images.notes[0]
    assert objects(folder / "a.json", folder / "images", read_as="xyxy,pixels")[0] == {"a.jpg": [CAR]}


def test_corners_of_dota_are_oriented(folder):
    (folder / "labelTxt").mkdir()
    (folder / "labelTxt" / "a.txt").write_text("gsd:1\n40 10 60 30 40 50 20 30 car 0\n")
    found = load_annotated(folder / "labelTxt", ReadingRules(images=folder / "images", geometry="oriented"))
    (car,) = found.instances[0].objects
    pixels = [v * (200, 100)[n % 2] for n, v in enumerate(car.geometry.coordinates)]
    assert sorted(zip(pixels[::2], pixels[1::2], strict=True)) == [
        pytest.approx(p) for p in sorted([(40, 10), (60, 30), (40, 50), (20, 30)])
    ]


REFUSED = [(tool.title, keys) for tool in TOOLS for keys in tool.keys if tool.format is None]


@pytest.mark.slow
@pytest.mark.parametrize(("title", "keys"), REFUSED, ids=[title for title, _ in REFUSED])
def test_record_of_a_tool_is_refused_by_its_own_name_with_the_way_out(tmp_path, title, keys):
    (tmp_path / "a.jsonl").write_text(json.dumps(dict.fromkeys(sorted(keys), "x")) + "\n")
    tool = next(tool for tool in TOOLS if tool.title == title)
    with pytest.raises(InputError) as refused:
        open_source(tmp_path / "a.jsonl")
    assert title in str(refused.value) and tool.advice in str(refused.value)


def test_table_has_every_tool_once():
    shown = [line.split("|")[1].strip() for line in tool_table().splitlines()[2:]]
    assert shown == list(dict.fromkeys(tool.title for tool in TOOLS))


SAMPLES = {
    "dota-head/labelTxt": [("small-vehicle", *CAR[1:]), ("ship", *SECOND[1:], "ignored")],
    "kitti": [("Car", *CAR[1:]), ("DontCare", *SECOND[1:], "ignored")],
    "odvg-groundingdino/odvg.jsonl": [CAR],
    "screenspot/screenspot_web.json": [("click", *CAR[1:])],
    "megadetector/md.json": [("animal", *CAR[1:])],
    "scalabel-frames/s.json": [CAR, ("drivable area", *SECOND[1:])],
    "labelbox-export-v2/export.ndjson": [CAR],
    "sku110k/annotations/annotations_train.csv": [("object", *CAR[1:]), ("object", *SECOND[1:])],
    "makesense-csv/labels.csv": [CAR, SECOND],
}
NAMED = {
    "citypersons": "Cityscapes",
    "cord": "CORD",
    "encord/e.json": "Encord",
    "funsd": "FUNSD",
    "hasty/h.json": "Hasty",
    "kili/k.json": "Kili",
    "mapillary-ts": "Mapillary",
    "nuimages-object_ann": "nuImages",
    "seeclick/seeclick_web.json": "SeeClick",
    "segments-ai/s.json": "Segments.ai",
    "showui/o.json": "ShowUI",
}


@pytest.mark.shared
@pytest.mark.skipif(not FAR.is_dir(), reason="needs the samples in ../shared")
@pytest.mark.parametrize("name", [*SAMPLES, *NAMED])
def test_sample_is_read_or_refused_by_its_name(name):
    images = FAR / name.partition("/")[0] / "images"
    if name in SAMPLES:
        assert objects(FAR / name, images)[0]["a.jpg"] == SAMPLES[name]
        return
    with pytest.raises(InputError, match=f"{NAMED[name]}.*which is not read; "):
        open_source(FAR / name)


def test_rows_of_one_image_are_joined_and_those_that_are_equal_count_once():
    from coord_data.formats.tool_records import _joined
    from coord_data.sources.raw import RawImage, RawObject

    box, other = (1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 5.0)
    rows = [("a", "cat", box), ("a", "dog", box), ("b", "cat", box), ("a", "cat", box), ("a", "cat", other)]
    images = [RawImage(name, str(n), [RawObject(label, own, str(n))]) for n, (name, label, own) in enumerate(rows)]
    images += [RawImage("a", "5", fault="broken"), RawImage("a", "6", notes=("a note",))]
    found = _joined(images)
    assert [image.name for image in found] == ["a", "b", "a"] and found[2].fault == "broken"
    assert [(item.desc, item.corners_xyxy) for item in found[0].objects] == [("cat", box), ("dog", box), ("cat", other)]
    assert found[0].notes == ("a note",)
