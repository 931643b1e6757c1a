"""The one reader of annotations: formats told by content, instance lines, refused objects."""

import copy
import json

import pytest

from coord_codec import AnnotationSet, Category, InputError, Instance, read_annotations, read_instances

GOOD = {"image": "a.jpg", "image_id": 1, "objects": [{"desc": "cat", "bbox": [0, 0, 0.5, 0.5]}]}


def test_instance_lines_are_the_instances_of_read_instances(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [GOOD, {"image": "b.jpg", "objects": [{"desc": "ant", "bbox": [0, 0, 2, 1]}]}, {**GOOD, "image_id": 2}]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n[1\n")
    found = read_annotations(path)
    assert found.instances == read_instances(path).instances and found.problems == read_instances(path).problems
    assert [p.where for p in found.problems] == [f"{path}:2", f"{path}:4"]
    assert found.categories == (Category(1, "cat"),) and found.root == tmp_path and found.table is None


def test_repeated_id_of_an_instance_line_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({**GOOD, "image": name}) for name in ("a.jpg", "b.jpg")))
    found = read_annotations(path)
    assert [i.image for i in found.instances] == ["a.jpg"]
    assert str(found.problems[0]).startswith(f"{path}:2: image_id: expected an id of its own, found 1")


@pytest.mark.parametrize("name", ["coco.json", "coco.jsonl", "coco"])
@pytest.mark.parametrize("indent", [None, 2])
def test_format_is_told_by_content(coco, tmp_path, name, indent):
    path = tmp_path / name
    path.write_text("\n" + json.dumps(coco, indent=indent))
    if name.endswith(".jsonl") and indent:
        assert not read_annotations(path).instances  # lines of JSONL, each listed
        return
    assert read_annotations(path).table == read_annotations(coco).table
    path.write_text(json.dumps([GOOD]))
    assert read_annotations(path).instances == (Instance(**GOOD),)
    path.write_text(json.dumps(GOOD))
    assert read_annotations(path).instances == (Instance(**GOOD),)
    path.write_text(json.dumps([GOOD, {"image": "b.jpg"}, 7], indent=indent))
    found = read_annotations(path)
    assert found.instances == (Instance(**GOOD),)
    assert [problem.where for problem in found.problems] == [f"{path}: instances[{n}]" for n in (1, 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", None),
        ("[]", None),
        ('[{"image_id": 1, "bbox": [1, 2, 3, 4], "score": 1}]', "a list of detections has no images"),
        ('{"a": 1}', r"expected COCO JSON .* found an object with the keys \['a'\]"),
        ('{"images": [], "categories": []}', r"expected COCO JSON .* found an object with the keys"),
        ("{\n", "line 2: not JSON"),
        ("7", "found a JSON int"),
    ],
)
def test_read_annotations_refuses_what_is_neither_format(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    if message is None:
        assert read_annotations(path).instances == ()
    else:
        with pytest.raises(InputError, match=message):
            read_annotations(path)


def test_read_annotations_names_a_missing_file_or_folder(coco, tmp_path):
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        read_annotations(tmp_path / "none.json")
    with pytest.raises(InputError, match="expected a file of annotations, found a folder"):
        read_annotations(tmp_path)
    with pytest.raises(InputError, match="expected a folder of images, found nothing there"):
        read_annotations(coco, tmp_path / "none")


def test_annotation_set_of_instances_and_of_a_copied_document(coco):
    document = coco
    kept = copy.deepcopy(document)
    found = read_annotations(document)
    assert document == kept, "the reader changes nothing"
    again = read_annotations(found.instances)
    assert isinstance(again, AnnotationSet) and again.instances == found.instances
    assert [c.name for c in again.categories] == ["cat", "dog"]


@pytest.mark.parametrize("kind", ["coco", "coco with sizes", "jsonl"])
def test_path_with_backslashes_is_that_with_slashes_where_only_that_exists(tmp_path, kind):
    names = {"sub\\b.jpg": "sub/b.jpg", ".\\a.jpg": "a.jpg", "a\\b.jpg": "a\\b.jpg", "gone\\c.jpg": "gone\\c.jpg"}
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").mkdir()
    for name in ("sub/b.jpg", "a.jpg", "a/b.jpg", "a\\b.jpg"):
        (tmp_path / name).touch()
    size = {"width": 9, "height": 9} if "sizes" in kind else {}
    rows = [{"id": n, "file_name": name, **size} for n, name in enumerate(names)]
    text = json.dumps({"images": rows, "annotations": [], "categories": []})
    if kind == "jsonl":
        text = "".join(json.dumps({"image": name, "objects": []}) + "\n" for name in names)
    (tmp_path / "x.txt").write_text(text)
    asked = []
    found = read_annotations(tmp_path / "x.txt", image_size=lambda name: asked.append(name) or (9, 9))
    assert [i.image for i in found.instances] == list(names.values())
    assert found.notes == {"image paths with backslashes, found with slashes": 2}
    assert asked == (list(names.values()) if kind == "coco" else [])
    assert kind == "jsonl" or list(found.table.names) == list(names.values())


def with_box(*boxes, **fields):
    objects = [{"desc": "cat", "bbox": box} for box in boxes]
    return {"image": "a.jpg", "width": 200, "height": 100, "objects": objects} | fields


GOOD_BOX, SWAPPED = [0.1, 0.1, 0.6, 0.6], [0.6, 0.1, 0.1, 0.6]
FLAT, THIN = [0.1, 0.1, 0.1, 0.6], [0.1, 0.1, 0.1001, 0.6]
# A refused object, how many objects stay with `drop_image` (None: the image goes), and with `drop_box`.
REFUSED = [(SWAPPED, None, 1), ([0.1, 0.1, 2, 0.6], None, 1), (["0", 0, 1, 1], None, 1), (FLAT, 1, 1), (THIN, 1, 1)]


@pytest.mark.parametrize(("box", "with_image", "alone"), REFUSED)
def test_refused_object_of_an_instance_line_does_not_teach_omission(tmp_path, box, with_image, alone):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(with_box(GOOD_BOX, box)) + "\n" + json.dumps(with_box(GOOD_BOX)) + "\n")
    for policy, left in (("drop_image", with_image), ("drop_box", alone)):
        found = read_annotations(path, on_bad_box=policy)
        assert [len(i.objects) for i in found.instances] == [n for n in (left, 1) if n is not None]
        (problem,) = found.problems
        assert problem.is_box and problem.where == f"{path}:1" and problem.field.startswith("objects[1].bbox")
        assert [getattr(i, "uncertain", []) for i in found.instances] == [["cat"], []][-len(found.instances) :]
    with pytest.raises(InputError, match=r"1 object is refused"):
        read_annotations(path, on_bad_box="error")


def test_refused_objects_are_named_by_their_position_in_the_record():
    found = read_annotations([with_box(THIN, SWAPPED, GOOD_BOX, THIN)], on_bad_box="drop_box")
    assert [problem.field for problem in found.problems] == [f"objects[{n}].bbox" for n in (1, 0, 3)]
    assert len(found.instances[0].objects) == 1
