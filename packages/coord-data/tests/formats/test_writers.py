"""Who wrote a file, and where its pixels begin and end: every row of the table, and the reading that chooses."""

import json
from itertools import product

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data.formats.writers import WRITERS, Sides, counted_by, sides_of
from coord_data.reading.read import read_source

SIZE = (200, 100)
CAR, AT_BORDER = (20, 10, 60, 50), (0, 0, 30, 40)
OBJECT = (
    "<object><name>car</name>{pose}<bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax></bndbox>"
    "{further}</object>"
)
POSE = "<pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult>"
PYLABEL = (
    "<object><name>car</name><pose/><truncated/><difficult/><bndbox><xmin>{0}</xmin><xmax>{2}</xmax><ymin>{1}</ymin>"
    "<ymax>{3}</ymax></bndbox></object>"
)


def database(text, more=""):
    return f"<source><database>{text}</database>{more}</source>"


PATH = "<path>/home/a.jpg</path>"
HEADS = {
    "VOC devkit": database("The VOC2007 Database"),
    "supervision": database("roboflow.ai"),
    "Roboflow": PATH + database("roboflow.com"),
    "Label Studio": database("MyDatabase") + "<owner><name>Label Studio</name></owner>",
    "darwin-py": database("darwin"),
    "X-AnyLabeling": database("https://github.com/CVHub520/X-AnyLabeling"),
    "Kili": PATH + database("Kili Technology"),
    "Supervisely": database("", "<annotation>PASCAL VOC</annotation><image/>"),
    "make-sense": PATH + database("Unspecified"),
    "dtlpy": PATH + database("Unknown"),
    "FiftyOne": PATH + database(""),
    "LabelMe (labelme2voc.py)": "<database/><annotation/><image/>",
    "pylabel": "",
    "pascal-voc-writer": PATH + database("Unknown"),
    "labelImg": PATH + database("Unknown"),
}
FROM_1 = {"VOC devkit", "supervision", "Roboflow", "pascal-voc-writer"}
"""Writers that count from 1, or whose boxes are read so where nothing shows another origin."""


def as_written(writer, box):
    """Return the numbers that a tool writes for a box: an independent restatement of the table."""
    x1, y1, x2, y2 = box
    if writer in FROM_1:
        return x1 + 1, y1 + 1, x2, y2
    if writer == "Supervisely":
        return x1, y1, x2 - 1, y2 - 1
    return (max(x1, 1), max(y1, 1), x2, y2) if writer == "labelImg" else box


def voc(head, *boxes, top="\n", form=OBJECT, pose=POSE, further=""):
    stated = "".join(form.format(*box, pose=pose, further=further) for box in boxes)
    depth = "<depth/>" if form is PYLABEL else "<depth>3</depth>"
    size = f"<size><width>200</width><height>100</height>{depth}</size>"
    return f"<annotation>{top}<folder>f</folder><filename>a.jpg</filename>{head}{size}{stated}</annotation>"


def write(folder, text, name="a.xml"):
    Image.new("RGB", SIZE).save(folder / "a.jpg")
    (folder / name).write_text(text if isinstance(text, str) else json.dumps(text))
    return folder / name


def pixels(found):
    """Return the corners in pixels of all objects."""
    return [
        tuple(round(value * side, 3) for value, side in zip(item.bbox, SIZE * 2, strict=True))
        for instance in found.annotations.instances
        for item in instance.objects
    ]


def test_every_writer_of_pascal_voc_has_a_sample():
    assert [row.name for row in WRITERS if row.is_by] == list(HEADS)


@pytest.mark.parametrize("writer", HEADS)
def test_boxes_are_read_as_their_writer_meant_them(tmp_path, writer):
    form = PYLABEL if writer == "pylabel" else OBJECT
    further, pose = ("<attributes></attributes>", "") if writer == "dtlpy" else ("", POSE)
    top = "\n    " if writer == "pascal-voc-writer" else "\n\t"
    boxes = [as_written(writer, box) for box in (CAR, AT_BORDER)]
    found = read_source(write(tmp_path, voc(HEADS[writer], *boxes, top=top, form=form, pose=pose, further=further)))
    assert pixels(found) == [CAR, AT_BORDER]
    told = [note for note in found.annotations.notes if "boxes by" in note]
    assert len(told) == (writer not in ("VOC devkit", "supervision"))
    assert all(writer in note and "--read-as" in note for note in told)


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        ([(1, 1, 60, 50), (20, 1, 60, 50)], [(0, 0, 60, 50), (20, 0, 60, 50)]),
        ([(1, 1, 60, 50), (0, 10, 60, 50)], [(1, 1, 60, 50), (0, 10, 60, 50)]),
        ([(20, 0, 60, 50), (1, 1, 60, 50)], [(20, 0, 60, 50), (1, 1, 60, 50)]),
    ],
)
def test_sides_at_1_of_labelimg_are_the_border_unless_its_files_have_sides_at_0(tmp_path, stated, wanted):
    """labelImg itself writes no 0; who edits its files does."""
    found = read_source(write(tmp_path, voc(HEADS["labelImg"], *stated, top="\n\t")))
    assert pixels(found) == wanted


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("from-1", (19, 9, 60, 50)),
        ("from-0", CAR),
        ("from-0-to-last", (20, 10, 61, 51)),
        ("from-1-past-last", (19, 9, 59, 49)),
        ("from-0-past-last", (20, 10, 59, 49)),
        ("from-0-first-early", (21, 11, 60, 50)),
        ("from-0,moved-left:2px", (22, 10, 62, 50)),
    ],
)
@pytest.mark.parametrize("writer", ["VOC devkit", "labelImg", "Supervisely", "COCO"])
def test_reading_chooses_the_origin_whatever_the_writer(tmp_path, word, wanted, writer):
    """The numbers 20, 10, 60, 50 stand in the file, with areas and names that say otherwise."""
    if writer == "COCO":
        path = write(tmp_path, coco([20, 10, 40, 40], area=41 * 41), "a.json")
    else:
        path = write(tmp_path, voc(HEADS[writer], CAR))
    found = read_source(path, read_as=word)
    assert pixels(found) == [wanted]
    assert not any("boxes by" in note for note in found.annotations.notes)


def test_origin_is_refused_for_numbers_that_are_no_pixels(tmp_path):
    record = {"image": "a.jpg", "objects": [{"desc": "car", "bbox": [0.1, 0.1, 0.3, 0.5]}]}
    path = write(tmp_path, json.dumps(record) + "\n", "a.jsonl")
    with pytest.raises(InputError, match=r"from-1: expected numbers in pixels, found unit"):
        read_source(path, read_as="from-1")


def coco(*boxes, area=None, **further):
    rows = [
        {"id": n, "image_id": 1, "category_id": 1, "bbox": list(box), "area": area or box[2] * box[3], **further}
        for n, box in enumerate(boxes, 1)
    ]
    image = {"id": 1, "file_name": "a.jpg", "width": 200, "height": 100}
    return {"images": [image], "categories": [{"id": 1, "name": "car"}], "annotations": rows}


def test_half_of_the_files_with_a_decimal_point_count_from_0():
    read = [counted_by(None, Sides(files, decimals)).origin.word for files, decimals in ((2, 1), (3, 1), (0, 0))]
    assert read == ["from-0", "from-1", "from-1"]


@pytest.mark.parametrize(
    ("document", "wanted", "told"),
    [
        (coco([20, 10, 40, 40]), CAR, ""),
        (coco([20, 10, 39, 39], area=1600), CAR, "a pixel larger (Supervisely)"),
        (coco([20, 10, 40, 40], area=1234), CAR, ""),
        (coco([20, 10, 41, 41], scalabel_id="0"), CAR, "scalabel, which adds a pixel"),
        (coco([20, 10, 40, 40], area=900, scalabel_id="0", segmentation=[[20, 10, 60, 10, 40, 50]]), CAR, ""),
    ],
)
def test_coco_by_what_its_areas_and_fields_show(tmp_path, document, wanted, told):
    found = read_source(write(tmp_path, document, "a.json"))
    assert pixels(found) == [wanted]
    assert [told in note for note in found.annotations.notes if "a pixel" in note] == [True] * bool(told)


def test_centres_of_supervisely_are_moved_back(tmp_path):
    for name in ("images/train", "labels/train"):
        (tmp_path / "set" / name).mkdir(parents=True)
    Image.new("RGB", SIZE).save(tmp_path / "set" / "images" / "train" / "a.jpg")
    boxes = [CAR, (100, 30, 181, 89)]
    lines = [
        f"0 {(x1 + x2 - 1) // 2 / 200:.6f} {(y1 + y2 - 1) // 2 / 100:.6f} {(x2 - x1) / 200:.6f} {(y2 - y1) / 100:.6f}\n"
        for x1, y1, x2, y2 in boxes
    ]
    (tmp_path / "set" / "labels" / "train" / "a.txt").write_text("".join(lines))
    config = "names: [car]\nnc: 1\ncolors: [[1, 2, 3]]\ntrain: ../set/images/train\ntrain_labels: ../set/labels/train\n"
    (tmp_path / "set" / "data_config.yaml").write_text(config)
    for named in (tmp_path / "set", tmp_path / "set" / "data_config.yaml"):
        assert pixels(read_source(named)) == boxes


@pytest.mark.parametrize(
    "further", ["<ignore>1</ignore>", "<rotated_box><cx>40</cx></rotated_box>", "<part><x>1</x></part>"]
)
def test_elements_that_are_not_read_are_told(tmp_path, further):
    found = read_source(write(tmp_path, voc(HEADS["VOC devkit"], CAR, further=further)))
    name = further[1:].partition(">")[0]
    assert [count for note, count in found.annotations.notes.items() if f"field {name}," in note] == [1]


def test_objects_within_another_element_are_refused_and_files_without_any_are_negatives(tmp_path):
    point = "<objects><object><points><point>20,10</point></points></object></objects>"
    write(tmp_path, voc(point))
    write(tmp_path, voc("").replace("a.jpg", "b.jpg"), "b.xml")
    Image.new("RGB", SIZE).save(tmp_path / "b.jpg")
    found = read_source(tmp_path).annotations
    assert [(i.image, i.objects) for i in found.instances] == [("b.jpg", ())]
    assert ["found objects, which is not read (FAIR1M" in problem.message for problem in found.problems] == [True]
    path = write(tmp_path, voc("<layers><layer>1</layer></layers>", CAR))
    assert "files with the element layers, which is not read" in read_source(path).annotations.notes


def test_numbers_of_phrases_are_no_names_of_classes(tmp_path):
    scene = "<object><name>2</name><scene>1</scene><nobndbox>0</nobndbox></object>"
    path = write(tmp_path, voc(scene, CAR))
    with pytest.raises(InputError, match="Flickr30k Entities"):
        read_source(path)
    path = write(tmp_path, voc("", CAR, further="<name>cat</name>"))
    assert "objects with several names, of which the first is read" in read_source(path).annotations.notes


@pytest.mark.parametrize(
    ("name", "box"),
    [("empty", {}), ("Blank", {"bbox": None}), ("no_animal", {"bbox": []}), ("none", {"bbox": [0] * 4})],
)
def test_category_empty_states_an_image_without_objects(tmp_path, name, box):
    """As COCO Camera Traps have it; an image-level label of an animal is none."""
    for stem in "bc":
        Image.new("RGB", SIZE).save(tmp_path / f"{stem}.jpg")
    images = [{"id": n, "file_name": f"{n}.jpg", "width": 200, "height": 100} for n in "abc"]
    rows = [{"id": 1, "image_id": "a", "category_id": 3, "bbox": [20, 10, 40, 40]}]
    rows += [{"id": 2, "image_id": "b", "category_id": 0, **box}, {"id": 3, "image_id": "c", "category_id": 3}]
    categories = [{"id": 0, "name": name}, {"id": 3, "name": "deer"}]
    path = write(tmp_path, {"images": images, "categories": categories, "annotations": rows}, "a.json")
    found = read_source(path).annotations
    assert [(i.image, len(i.objects)) for i in found.instances] == [("a.jpg", 1), ("b.jpg", 0)]
    assert [problem.field for problem in found.problems] == ["bbox"]


@pytest.mark.parametrize("shown", list(product([False, True], repeat=4)))
def test_what_corners_of_an_unknown_writer_show(shown):
    """Two borders a pixel apart say nothing of the second one."""
    at_0, _, _, past_end = shown
    if not at_0:
        expected = "from-1-past-last" if past_end else "from-1"
    else:
        expected = "from-0-to-last" if shown[1:] == (False, True, False) else "from-0"
    assert counted_by(None, Sides(3, 0, *shown)).origin.word == expected


@pytest.mark.parametrize("axis", [0, 1])
def test_sides_of_a_file_are_those_of_either_axis_and_any_box(axis):
    """A side at the border of one axis has another place on the other one."""
    names = {-2: "", -1: "before_end", 0: "at_end", 1: "past_end", 2: ""}
    for beyond, name in names.items():
        box = [20, 10, 60, 50]
        box[2 + axis] = SIZE[axis] + beyond
        for boxes in ([box, CAR], [CAR, box]):
            assert sides_of(boxes, SIZE, False) == Sides(1)._replace(**{name: True} if name else {})
            assert sides_of(boxes, None, True) == Sides(1, 1)
    box = [20, 10, 60, 50]
    box[axis] = 0
    for boxes in ([box, CAR], [CAR, box]):
        assert sides_of(boxes, SIZE, False) == Sides(1, at_0=True)
    shown = [sides_of([box], SIZE, True), sides_of([CAR], SIZE, False), sides_of([(5, 5, *SIZE)], SIZE, True)]
    assert sum(shown, Sides()) == Sides(3, 2, True, True)
