"""The one reader of annotations: formats told by content, instance lines, refused objects."""

import copy
import json

import pytest

from coord_codec import AnnotationSet, Category, InputError, Instance, geometry_of, read_annotations, read_instances
from coord_codec.coco.shapes import in_place_of

GOOD = {"image": "a.jpg", "image_id": 1, "objects": [{"desc": "cat", "bbox": [0, 0, 0.5, 0.5]}]}


def test_instance_lines_are_the_instances_of_read_instances(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [GOOD, {"image": "b.jpg", "objects": [{"desc": "ant", "bbox": [0, 0, 2, 1]}]}, {**GOOD, "image_id": 2}]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n[1\n")
    found = read_annotations(path)
    assert found.instances == read_instances(path).instances and found.problems == read_instances(path).problems
    assert [p.where for p in found.problems] == [f"{path}:2", f"{path}:4"]
    assert found.categories == (Category(1, "cat"),) and found.root == tmp_path and found.table is None


@pytest.mark.parametrize("image_id", [1, 0, "", "x", None])
def test_repeated_id_of_an_instance_line_is_left_out(tmp_path, image_id):
    path = tmp_path / "a.jsonl"
    rows = [{**GOOD, "image": name, "image_id": image_id} for name in ("a.jpg", "b.jpg")]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_annotations(path)
    if image_id is None:
        assert len(found.instances) == 2 and not found.problems
        return
    assert [i.image for i in found.instances] == ["a.jpg"] and found.image_ids == [image_id]
    (problem,) = found.problems
    assert (
        str(problem) == f"{path}:2: image_id: expected an id of its own, found {image_id!r}, which {path}:1 has already"
    )


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


def test_image_goes_with_one_object_that_is_wrong_beside_one_that_is_too_small():
    for boxes in ((FLAT, SWAPPED, GOOD_BOX), (SWAPPED, FLAT, GOOD_BOX)):
        assert not read_annotations([with_box(*boxes)], on_bad_box="drop_image").instances
    (kept,) = read_annotations([with_box(FLAT, THIN, GOOD_BOX)], on_bad_box="drop_image").instances
    assert len(kept.objects) == 1


def test_refused_objects_are_named_by_their_position_in_the_record():
    found = read_annotations([with_box(THIN, SWAPPED, GOOD_BOX, THIN)], on_bad_box="drop_box")
    assert [problem.field for problem in found.problems] == [f"objects[{n}].bbox" for n in (1, 0, 3)]
    assert len(found.instances[0].objects) == 1


def test_only_refused_objects_count_as_such(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, [with_box(SWAPPED), [1], with_box(GOOD_BOX), {"image": "b.jpg"}])))
    with pytest.raises(InputError, match=r"^1 object is refused") as told:
        read_annotations(path, on_bad_box="error")
    assert "[1]" not in str(told.value) and str(told.value).count("\n") == 1


def test_faults_of_training_alone_are_checked_only_there(coco):
    coco["annotations"][1]["bbox"] = [0, 0, 0, 5]
    found = read_annotations(coco)
    found.check(training=False)
    with pytest.raises(InputError, match=r"^1 problem in the annotations"):
        found.check()
    with pytest.raises(InputError, match=r"^1 problem in the annotations"):
        read_annotations(coco, strict=True)


@pytest.mark.parametrize("policy", [None, "drop_box", "drop_image"])
def test_table_of_a_training_has_its_images_targets_and_crowds(coco, policy):
    coco["annotations"].append({"id": 4, "image_id": 9, "category_id": 1, "bbox": [20, 10, 0, 5]})
    coco["annotations"].append({"id": 5, "image_id": 9, "category_id": 1, "bbox": [190, 10, 50, 5]})
    found = read_annotations(coco, on_bad_box=policy)
    assert found.image_ids == [i.image_id for i in found.instances] == ([4] if policy == "drop_image" else [9, 4])
    assert found.table.row_N.tolist() == {None: [0, 1, 2, 3, 4], "drop_box": [0, 1, 2], "drop_image": [1, 2]}[policy]
    assert list(found.table.image_ids) == ([4] if policy == "drop_image" else [4, 9])


def test_images_are_looked_for_in_the_folder_that_is_named(coco, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a/x.json").write_text(json.dumps(coco))
    assert read_annotations(tmp_path / "a/x.json").root == tmp_path / "a"
    assert read_annotations(tmp_path / "a/x.json", tmp_path / "b").root == tmp_path / "b"
    assert read_annotations(coco).root is None and read_annotations(coco, str(tmp_path / "b")).root == tmp_path / "b"
    with pytest.raises(InputError, match="expected a folder of images, found a file"):
        read_annotations(coco, tmp_path / "a/x.json")


@pytest.mark.parametrize("policy", ["drop_box", "drop_image"])
def test_object_without_the_shape_asked_for_is_refused_whatever_follows_it(policy):
    point = {"type": "point", "coordinates": [0.2, 0.3]}
    thin = {"type": "polygon", "coordinates": [0.1, 0.1, 0.9, 0.1, 0.9, 0.10001]}
    named = {"type": "keypoints", "coordinates": [0.2, 0.3], "names": ["a"]}
    objects = [
        {"desc": str(n), "bbox": GOOD_BOX, **({"geometry": shape} if shape else {})}
        for n, shape in enumerate((None, named, point))
    ]
    objects += [{"desc": "crowd", "bbox": GOOD_BOX, "iscrowd": True}]
    found = read_annotations([{"image": "a.jpg", "objects": objects}], on_bad_box=policy, geometry="keypoints")
    assert [p.field for p in found.problems] == ["objects[0].geometry", "objects[2].geometry"]
    assert [[o.desc for o in i.objects] for i in found.instances] == ([["1", "crowd"]] if policy == "drop_box" else [])
    objects = [{"desc": "a", "bbox": GOOD_BOX, "geometry": thin}, {"desc": "b", "bbox": GOOD_BOX}, *objects[2:]]
    found = read_annotations([{"image": "a.jpg", "objects": objects}], on_bad_box=policy, geometry="polygon")
    (instance,) = found.instances  # a shape that is too small takes no image along
    assert [o.desc for o in instance.objects] == ["b", "2", "crowd"] and instance.uncertain == ["a"]
    assert found.notes == {in_place_of(geometry_of("polygon")): 2} and instance.objects[2].geometry is None


def test_json_lines_of_one_record_name_what_it_lacks(tmp_path):
    path = tmp_path / "a.jsonl"
    for text, told in (
        ('{"a": 1}\n', "expected COCO JSON"),
        ('{"a": 1}\n{"b": 2}\n', None),
        ('{"image": "a"}\n', None),
    ):
        path.write_text(text)
        if told:
            with pytest.raises(InputError, match=told):
                read_annotations(path)
        else:
            assert len(read_annotations(path).problems) >= text.count("\n")


def test_list_is_told_by_any_of_its_records_and_crowds_have_classes(tmp_path):
    path, crowd = tmp_path / "a.json", {"desc": "crowd", "bbox": [0.0, 0.0, 0.5, 0.5], "iscrowd": True}
    path.write_text(json.dumps([{"image": "a.jpg"}, {"image": "b.jpg", "objects": [crowd]}]))
    found = read_annotations(path)
    assert [i.image for i in found.instances] == ["b.jpg"] and found.categories == (Category(1, "crowd"),)


@pytest.mark.parametrize("policy", ["drop_image", "drop_box"])
def test_fault_of_a_record_leaves_it_out_whatever_its_boxes_are(policy):
    for more in ({"width": -1}, {"image": 5}):
        found = read_annotations([{**with_box(GOOD_BOX, SWAPPED), **more}, with_box(GOOD_BOX)], on_bad_box=policy)
        assert len(found.instances) == 1 and {p.is_box for p in found.problems} == {True, False}
    two = read_annotations([with_box(SWAPPED, GOOD_BOX, [0.6, 0.1, 0.1, 0.6])], on_bad_box="drop_box")
    assert [len(i.objects) for i in two.instances] == [1] and len(two.problems) == 2
    assert read_annotations([{"image": "a.jpg", "objects": [{"desc": "a", "bbox": GOOD_BOX, "area": 0}]}]).instances
