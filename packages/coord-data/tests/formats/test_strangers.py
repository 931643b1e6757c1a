"""Files as other people's tools write them: read as they meant it, or refused with the reason."""

import json

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data import ReadingRules, examine, gather_evidence, load_annotated
from coord_data.formats.registry import FORMATS
from coord_data.reading.read import read_source

SIZE = (100, 80)


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate("abd"):
        Image.new("RGB", SIZE, (number * 80, 10, 10)).save(tmp_path / f"{name}.jpg")
    return tmp_path


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))


def objects(source, images=None, **rules):
    """Return the descriptions and rounded pixels of each image that is read."""
    found = read_source(source, images, **rules).annotations
    assert not found.problems, found.problems[0]
    pixels = [*SIZE, *SIZE]
    return {
        instance.image.rpartition("/")[2]: [
            (item.desc, *(round(value * side) for value, side in zip(item.bbox, pixels, strict=True)))
            for item in instance.objects
        ]
        for instance in found.instances
    }


@pytest.mark.parametrize("name", ["None", "NA", "null", "nan", "N/A"])
def test_class_of_a_csv_may_be_called_as_an_empty_cell(folder, name):
    write(folder, {"a.csv": f"filename,class,xmin,ymin,xmax,ymax\na.jpg,{name},10,20,40,60\nd.jpg,,,,,\n"})
    assert objects(folder / "a.csv") == {"a.jpg": [(name, 10, 20, 40, 60)], "d.jpg": []}


def test_word_of_empty_cells_is_no_class(folder):
    write(folder, {"a.csv": "filename,class,xmin,ymin,xmax,ymax\na.jpg,nan,10,20,40,60\nd.jpg,nan,nan,nan,nan,nan\n"})
    (problem,) = read_source(folder / "a.csv").annotations.problems
    assert "expected a description" in problem.message


BOX = "<ref>person</ref><box><100><200><400><600></box>"
NEGATIVES = ["none", "None", "null", "[]", ""]


def objects_of_answers(folder, *answers):
    """Return the objects of two images, of which conversations have these answers."""
    turns = ([{"from": "human", "value": "?"}, {"from": "gpt", "value": text}] for text in answers)
    pairs = zip(("a.jpg", "b.jpg"), turns, strict=True)
    write(folder, {"a.jsonl": "\n".join(json.dumps({"image": name, "conversations": of}) for name, of in pairs)})
    return objects(folder / "a.jsonl")


@pytest.mark.parametrize("none", NEGATIVES)
def test_class_without_a_box_between_markers_is_absent(folder, none):
    answers = f"{BOX}\n<ref>car</ref><box>{none}</box>", f"<ref>person</ref><box>{none}</box>"
    assert objects_of_answers(folder, *answers) == {"a.jpg": [("person", 10, 16, 40, 48)], "b.jpg": []}


NO_OBJECT = [
    '{"bbox_2d": null, "label": "cat"}',
    '[{"bbox_2d": [], "label": "cat"}]',
    '[{"bbox_2d": [0, 0, 0, 0], "label": "cat"}]',
    "[]",
    "```json\n[]\n```",
    "None",
    "There is no cat.",
    "There are no cats in the image.",
]


@pytest.mark.parametrize("answer", NO_OBJECT)
def test_answer_that_there_is_no_object_is_a_record_without_objects(folder, answer):
    found = '[{"bbox_2d": [100, 200, 400, 600], "label": "cat"}]'
    assert objects_of_answers(folder, found, answer) == {"a.jpg": [("cat", 10, 16, 40, 48)], "b.jpg": []}


@pytest.mark.parametrize("bbox", [[], None, [[]], [[0, 0, 0, 0]]])
def test_empty_boxes_of_swift_are_a_record_without_objects(folder, bbox):
    def record(image, boxes):
        turns = [{"role": "user", "content": "Find <ref-object>"}, {"role": "assistant", "content": "<bbox>"}]
        return json.dumps({"messages": turns, "images": [image], "objects": {"ref": ["cat"], "bbox": boxes}})

    write(folder, {"a.jsonl": f"{record('a.jpg', [[10, 20, 40, 60]])}\n{record('b.jpg', bbox)}\n"})
    assert objects(folder / "a.jsonl") == {"a.jpg": [("cat", 10, 20, 40, 60)], "b.jpg": []}


def test_conversation_about_a_video_is_refused_by_name(folder):
    record = {"videos": ["a.mp4"], "messages": [{"role": "assistant", "content": '[{"bbox_2d": [1, 2, 3, 4]}]'}]}
    write(folder, {"a.jsonl": json.dumps(record) + "\n"})
    (problem,) = read_source(folder / "a.jsonl").annotations.problems
    assert "video" in problem.message


def coco(names, *rows):
    images = [{"id": i, "file_name": name, "width": SIZE[0], "height": SIZE[1]} for i, name in enumerate(names, 1)]
    annotations = [{"id": i, "category_id": 1, "iscrowd": 0, **row} for i, row in enumerate(rows, 1)]
    return {"images": images, "categories": [{"id": 1, "name": "cat"}], "annotations": annotations}


ROW = {"image_id": 1, "bbox": [10, 20, 30, 40]}


def test_crowds_alone_are_named(folder, tmp_path):
    crowd = ROW | {"iscrowd": 1}
    for rows, severity in (([crowd], "error"), ([ROW, crowd], "warning")):
        write(folder, {"a.json": coco(["a.jpg"], *rows)})
        findings = examine(gather_evidence(folder / "a.json", ReadingRules()))
        assert [(f.severity, f.count) for f in findings if f.code == "crowds"] == [(severity, 1)]


NAMED = [name for name, row in FORMATS.items() if any("a.jpg" in text for text in row.examples["box"].files.values())]
ELSEWHERE = [
    "/data/upload/1/",
    "C:\\me\\set\\",
    "/home/me/set/images/",
    "https://host/set/",
    "s3://bucket/",
    "file:///me/",
]


@pytest.mark.parametrize("format", [*NAMED, "openimages"])
@pytest.mark.parametrize(
    "name", [f"{prefix}a.jpg" for prefix in ELSEWHERE] + ["%61.jpg", "https://host/a.jpg?key=1", "a.JPG"]
)
def test_name_of_another_machine_is_that_image_here(folder, format, name):
    example = FORMATS[format].examples["box"]
    Image.new("RGB", (100, 50)).save(folder / "a.jpg")
    for file, text in example.files.items():
        stated = json.dumps(name)[1:-1] if "json" in file else name
        write(folder, {file: text.replace("a.jpg", stated).replace("\na,", f"\n{stated},")})
    found = read_source(folder / example.named, folder, format).annotations
    assert [instance.image for instance in found.instances] == ["a.jpg"] and not found.problems
    assert found.instances[0].objects[0].bbox == pytest.approx((0.2, 0.2, 0.6, 0.8))
    (folder / "elsewhere").mkdir()
    with pytest.raises(InputError, match=r"the first problem: .*the file does not exist"):
        load_annotated(folder / example.named, ReadingRules(images=folder / "elsewhere", format=format))


def test_box_of_an_image_that_is_elsewhere_is_not_the_first_problem(folder):
    (folder / "elsewhere").mkdir()
    write(folder, {"b.json": coco(["/me/a.jpg", "/me/d.jpg"], ROW, {"image_id": 2, "bbox": [-5, 10, 20, 20]})})
    with pytest.raises(InputError, match=r"the first problem: .*a\.jpg: image: the file does not exist"):
        load_annotated(folder / "b.json", ReadingRules(images=folder / "elsewhere"))


@pytest.mark.parametrize("key", ["images", "annotations", "categories"])
@pytest.mark.parametrize("value", ["x", {"1": {}}, 5])
def test_list_of_coco_that_is_none_is_named(folder, key, value):
    for document in (coco(["a.jpg"], ROW) | {key: value}, {key: value}):
        write(folder, {"a.json": document})
        with pytest.raises(InputError, match=f"{key}: expected a list"):
            read_source(folder / "a.json")


@pytest.mark.parametrize("named", ["", "obj.data"])
@pytest.mark.parametrize("val", ["val", "valid"])
def test_obj_data_names_the_split(folder, named, val):
    write(
        folder,
        {
            "set/obj.data": f"classes = 2\ntrain = data/train.txt\n{val} = data/val.txt\nnames = data/obj.names\n",
            "set/obj.names": "dog\ncat\n",
            "set/train.txt": "data/obj_train_data/a.jpg\n",
            "set/val.txt": "data/obj_val_data/d.jpg\n",
            "set/obj_train_data/a.txt": "1 0.25 0.5 0.3 0.5\n",
            "set/obj_val_data/d.txt": "0 0.85 0.875 0.3 0.25\n",
        },
    )
    (folder / "a.jpg").rename(folder / "set/obj_train_data/a.jpg")
    (folder / "d.jpg").rename(folder / "set/obj_val_data/d.jpg")
    assert objects(folder / "set" / named) == {"a.jpg": [("cat", 10, 20, 40, 60)]}


HOLE = (
    "0.1 0.25 0.19 0.375 0.2 0.3625 0.3 0.375 0.3 0.6125 0.19 0.6125 0.19 0.375 0.1 0.25 0.1 0.7375 0.4 0.75 0.4 0.25"
)


def test_outline_that_repeats_a_vertex_is_no_pose(folder):
    write(folder, {"data.yaml": "train: images\nnames: [dog]\n", "labels/a.txt": f"0 {HOLE}\n", "images/x": ""})
    (folder / "a.jpg").rename(folder / "images/a.jpg")
    assert objects(folder / "data.yaml") == {"a.jpg": [("dog", 10, 20, 40, 60)]}
    found = read_source(folder / "data.yaml", geometry="polygon").annotations
    (shape,) = [item.geometry for instance in found.instances for item in instance.objects]
    assert len(shape.coordinates) == 8  # of the ring around the hole
    assert any("several rings" in note for note in found.notes)


@pytest.mark.parametrize(("sixth", "is_read"), [(("0.9", "0.2"), True), (("4", "17"), True), (("1.57", "0.7"), False)])
def test_sixth_number_that_can_be_an_angle_is_a_problem(folder, sixth, is_read):
    rows = "".join(f"0 0.25 0.5 0.3 0.5 {value}\n" for value in sixth)
    write(folder, {"data.yaml": "train: images\nnames: [dog]\n", "labels/a.txt": rows, "images/x": ""})
    (folder / "a.jpg").rename(folder / "images/a.jpg")
    found = read_source(folder / "data.yaml", on_bad_box="drop_box").annotations
    assert [len(instance.objects) for instance in found.instances] == [2 * is_read]
    assert len(found.problems) == 2 * (not is_read)


FOLDERS = {
    "ICDAR": "10,20,40,20,40,60,10,60,word\n",
    "WIDER FACE": "0--Parade/a.jpg\n1\n449 330 122 149 0 0 0 0 0 0\n",
    "MOT": "1,2,10,20,30,40,1,-1,-1,-1\n",
    "VisDrone": "10,20,30,40,1,4,0,0\n",
    "Cartucho": "cat 10 20 40 60\n",
}


@pytest.mark.parametrize("tool", FOLDERS)
@pytest.mark.parametrize("below", ["", "labels_2/"])
def test_folder_of_another_format_is_named(folder, tool, below):
    write(folder, {f"set/{below}a.txt": FOLDERS[tool]})
    for path in (folder / "set", folder / f"set/{below}a.txt"):
        with pytest.raises(InputError, match=tool):
            read_source(path)


def test_object_that_labelme_marks_as_deleted_is_left_out(folder):
    point = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in ((10, 20), (40, 20), (40, 60), (10, 60)))
    rows = "".join(
        f"<object><name>{name}</name><deleted>{deleted}</deleted><polygon>{point}</polygon></object>"
        for name, deleted in (("cat", 0), ("dog", 1))
    )
    write(folder, {"Annotations/a.xml": f"<annotation><filename>a.jpg</filename>{rows}</annotation>"})
    found = read_source(folder, folder).annotations
    assert [item.desc for instance in found.instances for item in instance.objects] == ["cat"]
    assert sum(count for note, count in found.notes.items() if "deleted" in note) == 1
    rows = rows.replace(">0<", ">1<")
    write(folder, {"Annotations/a.xml": f"<annotation><filename>a.jpg</filename>{rows}</annotation>"})
    empty = [finding for finding in examine(folder / "Annotations") if finding.code == "no_boxes"]
    assert "2 objects that their file marks as deleted" in empty[0].evidence


def test_yolo_obb_is_named_with_its_geometry(folder):
    corners = "0.3 0.2 0.5 0.4 0.4 0.5 0.2 0.3"
    write(folder, {"data.yaml": "train: images\nnames: [ship]\n", "labels/a.txt": f"0 {corners}\n", "images/x": ""})
    (folder / "a.jpg").rename(folder / "images/a.jpg")
    found = read_source(folder / "data.yaml").annotations
    assert any("--geometry oriented" in note for note in found.notes)
    (record,) = read_source(folder / "data.yaml", geometry="oriented").annotations.instances
    vertices = sorted(record.objects[0].geometry.coordinates)
    assert vertices == pytest.approx(sorted(map(float, corners.split())))
    write(folder, {"labels/a.txt": "0 0.3 0.2 0.5 0.4 0.4 0.7 0.2 0.3\n"})
    assert not any("oriented" in note for note in read_source(folder / "data.yaml").annotations.notes)


@pytest.mark.parametrize("iscrowd", [2, -1, "1"])
def test_iscrowd_of_another_value_is_a_problem(folder, iscrowd):
    write(folder, {"a.json": coco(["a.jpg"], ROW, ROW | {"iscrowd": iscrowd})})
    (problem,) = read_source(folder / "a.json", on_bad_box="drop_box").annotations.problems
    assert problem.field == "iscrowd" and "annotations[1]" in problem.where
