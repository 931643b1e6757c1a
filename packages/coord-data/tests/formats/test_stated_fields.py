"""Fields beside a box, the same in every format: the property that no field of geometry, place or unit is ignored."""

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from coord_codec.fields import DELETED, rotated_corners, turn_of
from coord_data.formats.registry import FORMATS
from coord_data.formats.stated_fields import kept
from coord_data.reading.read import read_source
from coord_data.sources.raw import around

SIZE = (100, 50)
BOX = (20.0, 10.0, 60.0, 40.0)
UPRIGHT = tuple(value / side for value, side in zip(BOX, (*SIZE, *SIZE), strict=True))


def objects_in(value):
    """Yield the objects with a box in a JSON document."""
    if isinstance(value, dict) and {"bbox", "points", "x"} & value.keys():
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from objects_in(inner)


def write_json(name):
    """Return what writes the example of a format, which has that box, with further fields of its object."""
    example = FORMATS[name].examples["box"]

    def write(folder, fields):
        for file, text in example.files.items():
            document = json.loads(text)
            for item in objects_in(document):
                item.update(fields)
            (folder / file).write_text(json.dumps(document) + "\n")
        return folder / example.named

    return write


def write_table(folder, row):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row))
    writer.writeheader()
    writer.writerow(row)
    (folder / "a.csv").write_text(text.getvalue())
    return folder / "a.csv"


def write_csv(folder, fields):
    names = ("image", "label", "xmin", "ymin", "xmax", "ymax")
    return write_table(folder, dict(zip(names, ("a.jpg", "cat", *BOX), strict=True)) | fields)


def write_voc(folder, fields):
    corners = {"xmin": BOX[0], "ymin": BOX[1], "xmax": BOX[2], "ymax": BOX[3]}
    box = "".join(f"<{name}>{value}</{name}>" for name, value in corners.items())
    more = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    cat = f"<object><name>cat</name>{more}<bndbox>{box}</bndbox></object>"
    (folder / "a.xml").write_text(f"<annotation><filename>a.jpg</filename>{cat}</annotation>")
    return folder / "a.xml"


def write_qwen(folder, fields, box=BOX):
    answer = json.dumps([{"bbox_2d": box, "label": "cat", **fields}])
    turns = [{"role": "user", "content": "<image>Where?"}, {"role": "assistant", "content": answer}]
    (folder / "a.jsonl").write_text(json.dumps({"messages": turns, "images": ["a.jpg"]}) + "\n")
    return folder / "a.jsonl"


def write_qwen_in_thousandths(folder, fields):
    return write_qwen(folder, fields, [1000 * value for value in UPRIGHT])


def write_swift(folder, fields):
    lists = {name: [value] for name, value in fields.items()}
    turns = [{"role": "user", "content": "<image>Find <ref-object>"}, {"role": "assistant", "content": "<bbox>"}]
    objects = {"ref": ["cat"], "bbox": [BOX], **lists}
    (folder / "a.jsonl").write_text(json.dumps({"messages": turns, "images": ["a.jpg"], "objects": objects}) + "\n")
    return folder / "a.jsonl"


def write_captions(folder, fields):
    record = {"messages": [{"role": "user", "content": "<image>Find all."}], "images": ["a.jpg"]}
    objects = [{"caption": "cat", "bbox": BOX, "bbox_type": "real", "image": 0, **fields}]
    (folder / "a.jsonl").write_text(json.dumps({**record, "objects": objects}) + "\n")
    return folder / "a.jsonl"


def write_openimages(folder, fields):
    x1, y1, x2, y2 = UPRIGHT
    row = {"ImageID": "a.jpg", "LabelName": "cat", "XMin": x1, "XMax": x2, "YMin": y1, "YMax": y2, **fields}
    return write_table(folder, row)


WRITERS = {
    "coco": (write_json("coco"), "auto"),
    "jsonl": (write_json("jsonl"), "auto"),
    "csv": (write_csv, "auto"),
    "voc": (write_voc, "auto"),
    "qwen": (write_qwen_in_thousandths, "qwen"),
    "qwen-pixels": (write_qwen, "qwen-pixels"),
    "swift": (write_swift, "auto"),
    "swift 2": (write_captions, "auto"),
    "vg": (write_json("vg"), "auto"),
    "openimages": (write_openimages, "auto"),
    "labelme": (write_json("labelme"), "auto"),
    "via": (write_json("via"), "auto"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder for each format, with the image that its record names."""
    made = {}
    for name in WRITERS:
        folder = tmp_path_factory.mktemp(name)
        for image in ("a.jpg", "1.jpg"):
            Image.new("RGB", SIZE).save(folder / image)
        made[name] = folder
    return made


def read(folders, kind, fields):
    write, format = WRITERS[kind]
    return read_source(write(folders[kind], fields), folders[kind], format, on_bad_box="drop_box").annotations


def boxes(annotations):
    return [list(item.bbox) for instance in annotations.instances for item in instance.objects]


@pytest.mark.parametrize("kind", WRITERS)
def test_box_without_further_fields_is_read_as_it_is(folders, kind):
    found = read(folders, kind, {})
    assert not found.problems
    assert boxes(found) == [pytest.approx(UPRIGHT)]


TURNS = st.sampled_from(["angle", "rotation", "theta", "rotation_deg", "Angle"])


@pytest.mark.parametrize("kind", WRITERS)
@given(name=TURNS, degrees=st.integers(7, 173) | st.integers(-173, -7))
def test_angle_turns_the_box_or_is_a_problem(folders, kind, name, degrees):
    found = read(folders, kind, {name: degrees})
    x1, y1, x2, y2 = BOX
    turned = around(rotated_corners((x1, y1, x2 - x1, y2 - y1), degrees))
    expected = np.array(turned) / [*SIZE, *SIZE]
    if kind in ("coco", "csv", "voc", "qwen-pixels", "vg", "labelme", "via"):  # in pixels
        assert not found.problems
        assert boxes(found) == [pytest.approx(expected)]
    else:
        assert found.problems and not boxes(found)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(("field", "value"), [("unit", "percent"), ("box_format", "cxcywh"), ("coord_space", "mm")])
def test_unit_that_the_format_does_not_have_is_a_problem(folders, kind, field, value):
    found = read(folders, kind, {field: value})
    assert found.problems and not boxes(found)


@pytest.mark.parametrize("kind", WRITERS)
def test_deleted_object_is_never_a_target(folders, kind):
    if kind == "swift":
        pytest.skip("its objects have no fields of their own")
    found = read(folders, kind, {"deleted": 1})
    assert not boxes(found)
    assert found.problems or any("deleted" in note for note in found.notes)


def test_deleted_objects_are_counted_one_by_one_beside_fields_that_are_not_read():
    objects = [{"deleted": 1}, {"bbox": BOX}, "no object", {"deleted": True, "part": {"x": 1}}, {"is_deleted": "yes"}]
    remaining, notes = kept(objects, frozenset(["bbox"]), {})
    assert remaining == objects[1:3]
    assert notes.count(DELETED) == 3 and len(notes) == 4


@pytest.mark.parametrize("fields", [{}, {"angle": 30}])
def test_box_of_three_numbers_is_told_as_such_whatever_stands_beside_it(folders, fields):
    folder = folders["qwen-pixels"]
    found = read_source(write_qwen(folder, fields, BOX[:3]), folder, "qwen-pixels", on_bad_box="drop_box").annotations
    assert ["four" in problem.message for problem in found.problems] == [True]


@pytest.mark.parametrize("kind", WRITERS)
@given(name=st.sampled_from(["breed", "track_id", "score2", "comment"]), value=st.integers(0, 9))
def test_field_that_changes_nothing_leaves_the_box(folders, kind, name, value):
    found = read(folders, kind, {name: value})
    assert not found.problems
    assert boxes(found) == [pytest.approx(UPRIGHT)]


OF_ITS_IMAGE = [k for k in WRITERS if k not in ("csv", "swift")]  # which have columns and lists of their own


@pytest.mark.parametrize("kind", OF_ITS_IMAGE)
@pytest.mark.parametrize(("field", "value"), [("image", 2), ("image", "b.png"), ("frame", 2), ("photo", "x.png")])
def test_object_that_names_another_image_is_a_problem(folders, kind, field, value):
    found = read(folders, kind, {field: value})
    assert found.problems and not boxes(found)


@pytest.mark.parametrize("kind", OF_ITS_IMAGE)
@pytest.mark.parametrize(
    "fields",
    [
        *({"image": "{name}"}, {"file_name": "images/{name}"}, {"image": "{stem}"}, {"view": "front"}),
        *({"camera": "left"}, {"image_type": "rgb"}, {"timestamp": 1700000000}, {"video_id": 3, "track_id": 2}),
        {"keyframe": True},
    ],
)
def test_object_that_names_its_own_image_is_read(folders, kind, fields):
    name = "1.jpg" if kind == "vg" else "a.jpg"
    stated = {k: v.format(name=name, stem=name[0]) if isinstance(v, str) else v for k, v in fields.items()}
    found = read(folders, kind, stated)
    assert not found.problems
    assert boxes(found) == [pytest.approx(UPRIGHT)]


def write_frames(folder, frames, **of_images):
    images, rows = [], []
    for k, frame in enumerate(frames):
        name = f"{'ab'[k]}.png"
        Image.new("RGB", SIZE).save(folder / name)
        images.append({"id": 7 + k, "file_name": name, "width": SIZE[0], "height": SIZE[1]})
        images[-1] |= {field: values[k] for field, values in of_images.items()}
        rows += [{"image_id": 7 + k, "category_id": 1, "bbox": [8, 8, 60, 30], "frame": frame}] * 2
    document = {"images": images, "categories": [{"id": 1, "name": "cat"}], "annotations": rows}
    (folder / "a.json").write_text(json.dumps(document))
    return folder / "a.json"


@pytest.mark.parametrize(
    ("frames", "of_images", "count"),
    [
        ([0, 1], {}, 4),  # as tools number the frames of a video
        ([5, 5], {}, 0),
        ([5, 5], {"frame_id": [5, 6]}, 2),
        ([8], {}, 0),
        ([8], {"frame_index": [8]}, 2),
        ([7], {}, 2),
    ],
)
def test_frame_of_a_coco_annotation_is_that_of_its_image(tmp_path, frames, of_images, count):
    path = write_frames(tmp_path, frames, **of_images)
    assert len(boxes(read_source(path, tmp_path, on_bad_box="drop_box").annotations)) == count


@pytest.mark.parametrize(("own", "is_read"), [(7, True), (8, False)])
def test_id_of_an_image_beside_an_object_is_that_of_its_record(tmp_path, own, is_read):
    Image.new("RGB", SIZE).save(tmp_path / "a.jpg")
    record = {"image": "a.jpg", "image_id": own, "objects": [{"desc": "cat", "bbox": UPRIGHT, "image_id": 7}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    assert len(boxes(read_source(tmp_path / "a.jsonl", tmp_path, on_bad_box="drop_box").annotations)) == int(is_read)


@pytest.mark.parametrize("name", ["rotation", "rot", "bbox_angle", "theta"])
def test_a_column_that_turns_the_box_is_not_told_as_not_read(tmp_path, name):
    Image.new("RGB", SIZE).save(tmp_path / "a.jpg")
    path = write_csv(tmp_path, {name: 30, "breed": "tabby"})
    notes = [note for note in read_source(path, images=tmp_path).notes if "not read" in note]
    assert notes == [f"{path}: columns that are not read: breed"]


@pytest.mark.parametrize("name", ["attributes", "extra", "properties", "metadata"])
def test_an_angle_among_further_fields_is_read(name):
    assert turn_of({"bbox": [0, 0, 4, 2], name: {"rotation": 30}}) == 30
