"""Ground truth from every source; messages name file, record and field."""

import json
import math

import pytest

from coord_codec import Instance, read_annotations
from coord_eval import InputError, LabelSettings, ReportSettings, load_ground_truth, score


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("images",), None, r"expected COCO JSON .*found images: expected a list, found None"),
        (("annotations",), {}, r"expected COCO JSON .*found annotations: expected a list, found {}"),
        (("annotations", 0, "image_id"), 7, r"annotations\[0\] \(id 1\): image_id: 7 is not the id of an image"),
        (
            ("annotations", 0, "category_id"),
            7,
            r"annotations\[0\] \(id 1\): category_id: 7 is not the id of a category",
        ),
        (("annotations", 0, "bbox"), [1, 2, 3], r"annotations\[0\] \(id 1\): bbox: expected 4 numbers"),
        (("annotations", 0, "bbox"), [1, 2, math.nan, 3], r"annotations\[0\] \(id 1\): bbox: expected finite numbers"),
        (("annotations", 0, "bbox"), [1, 2, -3, 3], r"annotations\[0\] \(id 1\): bbox: .*width and height"),
        (("annotations", 0, "bbox"), "1 2 3 4", r"annotations\[0\] \(id 1\): bbox: expected 4 numbers"),
        (("annotations", 0, "area"), math.inf, r"annotations\[0\] \(id 1\): area"),
        (("annotations", 0), 3, r"annotations\[0\]: expected an object"),
        (("images", 0, "id"), None, r"images\[0\]: id"),
        (("images", 0, "width"), 0, r"images\[0\]: width: expected a whole number of pixels above 0"),
        (("categories", 0, "name"), "", r"categories\[0\]: name"),
        (("categories",), [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}], r"categories\[1\]: id: 1 occurs 2 times"),
    ],
)
def test_load_ground_truth_names_the_faulty_record_and_field(one_cat, path, value, message):
    target = one_cat
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(InputError, match=message):
        load_ground_truth(one_cat)


def test_load_ground_truth_accepts_missing_iscrowd_area_and_annotation_ids(one_cat):
    del one_cat["annotations"][0]["id"]
    truth = load_ground_truth(one_cat)
    assert truth.area_N.tolist() == [1200.0]
    assert not truth.crowd_N.any()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.json", None, "cannot be read"),
        ("t.jsonl", None, "cannot be read"),
        ("t.json", "{", r"t\.json, line 1: not JSON"),
        ("t.json", '[{"image_id": 1, "bbox": [1, 2, 3, 4]}]', r"t\.json: expected COCO JSON .* found a JSON list"),
        ("t.json", b"\xff\xfe{", r"t\.json: not UTF-8"),
        ("t.json", "[" * 100_000, r"t\.json"),
        ("t.jsonl", '{"image": "a.jpg", "objects": []}\n{"image": 3}', r"t\.jsonl:2"),
        ("t.jsonl", '{"image": "a", "objects": [{"desc": "x", "bbox": [0, 0, 2, 1]}]}', r"objects\[0\]\.bbox"),
    ],
)
def test_load_ground_truth_names_the_faulty_file(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=message):
        load_ground_truth(path)


def test_load_ground_truth_leniently_counts_what_it_leaves_out(one_cat):
    one_cat["annotations"].append({"id": 2, "image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4]})
    with pytest.raises(InputError, match="image_id: 7 is not"):
        load_ground_truth(one_cat)
    lenient = load_ground_truth(one_cat, lenient=True)
    assert lenient.boxes_N4.tolist() == [[1, 2, 30, 40]]
    (note,) = lenient.notes
    assert "1 fault in the ground truth" in note and "annotations[1] (id 2): image_id: 7" in note
    assert score(one_cat, [], labels=LabelSettings(lenient=True)).notes[0] == note


def test_load_ground_truth_takes_an_annotation_set_as_it_is(one_cat):
    """What training left out is left out of scoring; crowd regions stay."""
    one_cat["images"].append({"id": 2, "file_name": "2.jpg", "width": 100, "height": 80})
    one_cat["annotations"] += [
        {"id": 2, "image_id": 2, "category_id": 1, "bbox": [1, 2, 3, 4]},
        {"id": 3, "image_id": 2, "category_id": 9, "bbox": [1, 2, 3, 4]},
        {"id": 4, "image_id": 2, "category_id": 1, "bbox": [5, 6, 7, 8], "iscrowd": 1},
        {"id": 5, "image_id": 2, "category_id": 1, "bbox": [5, 6, 0, 8]},
    ]
    annotations = read_annotations(one_cat)
    every = load_ground_truth(annotations)
    assert every.boxes_N4[:, 2].tolist() == [30, 3, 7, 0]
    assert any(note.startswith("1 fault in the ground truth") for note in every.notes)
    chosen = load_ground_truth(annotations.select(annotations.instances[1:]))
    assert (chosen.image_ids, chosen.image_N.tolist()) == ((2,), [0, 0])
    assert chosen.boxes_N4.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert chosen.crowd_N.tolist() == [False, True]


def test_load_ground_truth_keeps_boxes_of_zero_area_and_notes_them(one_cat):
    one_cat["annotations"][0]["bbox"] = [1, 2, 0, 40]
    ground_truth = load_ground_truth(one_cat)
    assert len(ground_truth.boxes_N4) == 1
    assert ground_truth.notes == ("1 object has no area and cannot be matched",)


def test_load_ground_truth_of_instances_reads_crowd_regions_and_areas():
    cat = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.6]}
    objects = [cat, {**cat, "area": 7.5}, {**cat, "iscrowd": True}]
    instances = [Instance(image="a.jpg", width=100, height=80, objects=objects)]
    ground_truth = load_ground_truth(instances)
    assert ground_truth.area_N.tolist() == pytest.approx([40 * 40, 7.5, 40 * 40])
    assert ground_truth.crowd_N.tolist() == [False, False, True]
    assert load_ground_truth(read_annotations(instances)).area_N.tolist() == ground_truth.area_N.tolist()


def test_load_ground_truth_refuses_a_stated_id_that_equals_a_counted_one():
    instances = [Instance(image="a.jpg", objects=[]), Instance(image="b.jpg", image_id=0, objects=[])]
    with pytest.raises(InputError, match="image_id 0 occurs twice"):
        load_ground_truth(instances)


def test_facts_that_are_stated_twice_are_compared(one_cat, tmp_path):
    """The box against its outline, the area against the box, and the size against the image file."""
    (row,) = one_cat["annotations"]
    x, y, w, h = row["bbox"]
    row["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]

    def notes(**changes):
        record = {**one_cat, "annotations": [{**row, **changes}]}
        return [
            note for note in score(record, [], report=ReportSettings(image_root=tmp_path)).notes if "empty" not in note
        ]

    assert notes() == []
    assert "boxes that are not around their segmentation" in notes(bbox=[x, y, w / 2, h / 2])[0]
    assert "states an area" in notes(area=w * h * 3)[0] and "states an area" in notes(area=0.1)[0]
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (50, 80)).save(tmp_path / one_cat["images"][0]["file_name"])
    assert "1.jpg is 50 x 80, stated are 100 x 80" in notes()[0]


@pytest.mark.parametrize(
    ("tool", "content"),
    [
        ("SA-1B of SAM", '{"image": {"image_id": 1}, "annotations": [{"bbox": [1, 2, 3, 4], "predicted_iou": 0.9}]}'),
        ("LabelMe XML", "<annotation><filename>a.jpg</filename><object><polygon/></object><polygon></annotation>"),
        ("CVAT video XML", '<?xml version="1.0"?>\n<annotations><track id="0" label="car"></track></annotations>'),
        ("DOTA", "imagesource:GoogleEarth\ngsd:0.1\n1 2 3 4 5 6 7 8 plane 0\n"),
        ("DOTA", "1.0 2.0 3.0 4.0 5.0 6.0 7.0 8.0 plane 0\n"),
        ("ICDAR", "377,117,463,117,465,130,378,130,Genaxis\n"),
        ("KITTI", "Car 0.00 0 -1.57 614.2 181.7 727.3 284.7 1.57 1.73 4.15 1.00 1.75 13.22 1.62\n"),
        ("WIDER FACE", "0--Parade/a.jpg\n1\n449 330 122 149 0 0 0 0 0 0\n"),
    ],
)
def test_file_of_another_tool_is_named(tmp_path, tool, content):
    (tmp_path / "file.txt").write_text(content)
    with pytest.raises(InputError, match=f"file.txt: a file of {tool}, which is not read here"):
        load_ground_truth(tmp_path / "file.txt")


RESULT = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}
ANSWER = {"image_id": 1, "text": "[]"}


@pytest.mark.parametrize("row", [RESULT, ANSWER, {"predict": "[]", "label": "[]"}])
@pytest.mark.parametrize("form", ["list", ".json", ".jsonl"])
def test_predictions_in_place_of_the_ground_truth_are_told_in_one_sentence(tmp_path, row, form):
    source = [row] * 3
    if form != "list":
        source = tmp_path / f"p{form}"
        source.write_text(json.dumps([row] * 3) if form == ".json" else f"{json.dumps(row)}\n" * 3)
    with pytest.raises(InputError, match=r"these are predictions: the ground truth comes first") as told:
        score(source, {"images": [], "categories": [], "annotations": []})
    assert "\n" not in str(told.value)


def test_prepared_folders_are_read_and_others_lead_to_prepare(tmp_path):
    record = {"image": "../photos/sub/a.jpg", "width": 40, "height": 30, "image_id": 1}
    record["objects"] = [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}]
    prepared, photos = tmp_path / "prepared", tmp_path / "photos" / "sub"
    for folder in (prepared, photos, tmp_path / "voc"):
        folder.mkdir(parents=True)
    (prepared / "train.jsonl").write_text(json.dumps(record) + "\n")
    (prepared / "train.summary.json").write_text(json.dumps({"records": 1, "images": "../photos"}))
    (prepared / "problems.jsonl").write_text("")
    assert load_ground_truth(prepared).categories == ("cat",)
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (40, 30), "red").save(photos / "a.jpg")
    evaluation = score(prepared, [{**RESULT, "bbox": [4, 3, 16, 12]}])
    assert "data:image/" in evaluation.write_report(tmp_path / "o1").read_text()  # as the record says
    (prepared / "train.summary.json").write_text(json.dumps({"records": 1}))
    assert "data:image/" not in evaluation.write_report(tmp_path / "o2").read_text()
    named = evaluation.write_report(tmp_path / "o3", image_root=tmp_path / "photos").read_text()
    assert "data:image/" in named
    (prepared / "val.jsonl").write_text(json.dumps(record) + "\n")
    (prepared / "val.summary.json").write_text("{}")
    with pytest.raises(InputError, match=r"expected one set, found train\.jsonl, val\.jsonl; name one of them"):
        load_ground_truth(prepared)
    (tmp_path / "voc" / "a.xml").write_text("<annotation><object><bndbox>")
    (tmp_path / "a.csv").write_text("image,label,xmin,ymin,xmax,ymax\na.jpg,cat,1,2,3,4\n")
    for path in (tmp_path / "voc", tmp_path / "voc" / "a.xml", tmp_path / "a.csv"):
        with pytest.raises(InputError, match=f"`coord-data prepare {path} --out FOLDER`"):
            load_ground_truth(path)
