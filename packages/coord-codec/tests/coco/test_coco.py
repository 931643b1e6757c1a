"""COCO documents: rows and instances agree, each fault is listed where it stands, and what is refused takes along."""

import copy
import math
from typing import NamedTuple

import numpy as np
import pytest

from coord_codec import (
    BoxFlag,
    Category,
    InputError,
    Instance,
    encode_target,
    read_annotations,
    select_objects,
    write_instances,
)
from coord_codec.coco.document import origin_of_areas
from coord_codec.coco.reader import numbered
from coord_codec.coco.rows import PHRASES

TURNED = 20 * (math.cos(math.pi / 6) + math.sin(math.pi / 6))
"""Half a side of the box around a square of 40 pixels that was turned by 30 degrees."""


class Row(NamedTuple):
    image: int
    category: int
    bbox_xywh: tuple
    area: float
    iscrowd: bool
    is_target: bool


def rows_of(table):
    """The rows of a file one by one."""
    boxes = np.concatenate([table.boxes_N4[:, :2], table.sides_N2], axis=1).tolist()
    flags = (table.has(flag).tolist() for flag in (BoxFlag.CROWD, BoxFlag.TARGET))
    return list(
        map(Row, table.image_N.tolist(), table.label_N.tolist(), map(tuple, boxes), table.area_N.tolist(), *flags)
    )


def changed(document, path, value):
    document = copy.deepcopy(document)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


def test_read_annotations_gives_instances_and_the_rows_of_the_file(coco):
    found = read_annotations(coco)
    assert [i.image for i in found.instances] == ["b.jpg", "a.jpg"]
    assert found.instances[0].objects[0].bbox == (20 / 200, 10 / 100, 120 / 200, 60 / 100)
    assert found.instances[0].objects[0].area == 1234.5 and found.instances[1].objects[0].area is None
    assert found.categories == (Category(1, "cat"), Category(3, "dog"))
    assert list(found.table.image_ids) == [4, 9]
    none = changed(coco, ("annotations", 0, "area"), 0)  # as some tools write where they know none
    for document in (none, changed(none, ("annotations", 0, "attributes"), {"occluded": False})):
        read = read_annotations(document)
        assert not read.problems and len(read.table) == len(found.table)
    assert rows_of(found.table) == [
        (1, 1, (20, 10, 100, 50), 1234.5, False, True),
        (0, 0, (0, 0, 64, 48), 64 * 48, False, True),
        (0, 0, (8, 8, 16, 16), 77, True, False),
    ]
    assert found.problems == () and found.notes == {"crowd regions, which are not training targets": 1}


def test_read_annotations_makes_the_instances_that_validation_would(coco):
    """They are built without validation, for speed."""
    for instance in read_annotations(coco).instances:
        again = Instance.model_validate(instance.model_dump(mode="json", exclude_unset=True))
        assert again == instance
        assert again.model_dump(exclude_unset=True) == instance.model_dump(exclude_unset=True)


def test_crowd_regions_are_no_targets_but_stay_objects(coco, tmp_path):
    instance = read_annotations(coco).instances[1]
    assert [o.iscrowd for o in instance.objects] == [False, True] and len(instance.targets) == 1
    assert select_objects(instance) == ([instance.objects[0]], 0)
    assert encode_target(instance, markers="obj").count("<obj_start>") == 1
    write_instances(tmp_path / "a.jsonl", [instance])
    assert read_annotations(tmp_path / "a.jsonl").instances == (instance,)


BAD_RECORDS = [
    (("images", 0), 5, "images[0]: expected an object, found int"),
    (("images", 0, "id"), None, "images[0]: id: expected a whole number or text, found None"),
    (("images", 0, "id"), True, "images[0]: id: expected a whole number or text, found True"),
    (("images", 0, "id"), 4, "images[0]: id: 4 occurs 2 times"),
    (("images", 0, "width"), -5, "images[0]: width: expected a whole number of pixels above 0, found -5"),
    (("images", 0, "height"), 0, "images[0]: height: expected a whole number of pixels above 0, found 0"),
    (("images", 0, "width"), 99.5, "images[0]: width: expected a whole number of pixels above 0, found 99.5"),
    (("images", 0, "width"), "200", "images[0]: width: expected finite numbers, found '200'"),
    (("images", 0, "width"), 1 << 31, "images[0]: width: expected a whole number of pixels above 0"),
    (("images", 0, "height"), 1 << 31, "images[0]: height: expected a whole number of pixels above 0"),
    (("images", 0, "file_name"), "\ud800.jpg", "images[0]: file_name: expected a path, found"),
    (("images", 0, "id"), "\udfff", "images[0]: id: expected readable text, found"),
    (("images", 0, "file_name"), 7, "images[0]: file_name: expected a path, found 7"),
    (("categories", 0), "dog", "categories[0]: expected an object, found str"),
    (("categories", 0, "id"), 1, "categories[0]: id: 1 occurs 2 times"),
    (("categories", 0, "id"), 1.5, "categories[0]: id: expected a whole number or text, found 1.5"),
    (("categories", 0, "name"), " ", "categories[0]: name: expected a name, found ' '"),
    (("categories", 0, "name"), None, "categories[0]: name: expected a name, found None"),
    (("annotations", 0), [1], "annotations[0]: expected an object, found list"),
    (("annotations", 0, "image_id"), 99, "annotations[0] (id 1): image_id: 99 is not the id of an image"),
    (("annotations", 0, "image_id"), None, "annotations[0] (id 1): image_id: expected a whole number"),
    (("annotations", 0, "category_id"), 2, "annotations[0] (id 1): category_id: 2 is not the id of a category"),
    (("annotations", 0, "bbox"), None, "annotations[0] (id 1): bbox: expected 4 numbers, found None"),
    (("annotations", 0, "bbox"), [1, 2, 3], "annotations[0] (id 1): bbox: expected 4 numbers, found [1, 2, 3]"),
    (("annotations", 0, "bbox"), [1, 2, 3, math.nan], "annotations[0] (id 1): bbox: expected finite numbers"),
    (("annotations", 0, "bbox"), [1, 2, "3", 4], "annotations[0] (id 1): bbox: expected finite numbers"),
    (("annotations", 0, "bbox"), [1, 2, -3, 4], "annotations[0] (id 1): bbox: expected a width and height"),
    (("annotations", 0, "bbox"), [10**400, 2, 3, 4], "annotations[0] (id 1): bbox: expected finite numbers"),
    (("annotations", 0, "area"), "big", "annotations[0] (id 1): area: expected finite numbers, found 'big'"),
    (("annotations", 0, "area"), -1, "annotations[0] (id 1): area: expected at least 0, found -1"),
    (("annotations", 0, "iscrowd"), "no", "annotations[0] (id 1): iscrowd: expected 0 or 1, found 'no'"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD_RECORDS, ids=[m for *_, m in BAD_RECORDS])
def test_bad_coco_record_is_left_out_of_rows_and_instances_alike(coco, path, value, message):
    found = read_annotations(changed(coco, path, value))
    assert any(str(p).startswith(f"annotations: {message}") for p in found.problems), found.problems
    assert not any(p.training_only for p in found.problems)
    targets = [a for a in rows_of(found.table) if a.is_target]
    assert len(targets) == sum(len(i.targets) for i in found.instances) <= 1
    assert {i.image_id for i in found.instances} == set(found.table.image_ids)
    with pytest.raises(InputError, match="mend or remove"):
        found.check(training=False)
    with pytest.raises(InputError, match=r"problems? in the annotations"):
        read_annotations(changed(coco, path, value), strict=True)


TRAINING_ONLY = [
    (("annotations", 0, "bbox"), [10, 10, 0, 5], "the box has no area: (10, 10) to (10, 15)"),
    (("annotations", 0, "bbox"), [190, 10, 20, 5], "lies outside its image, which is 200 x 100 pixels"),
    (("annotations", 0, "bbox"), [200, 10, 1, 5], "the box has no area"),  # nothing is left after clipping
    (("categories", 0, "name"), "a <|box_end|> dog", "control token <|box_end|>"),
    (("images", 0, "file_name"), "", "the image cannot be trained on"),
    (("images", 0, "width"), None, "the image cannot be trained on"),
    (("images", 0, "height"), None, "the image cannot be trained on"),
]


@pytest.mark.parametrize(("path", "value", "message"), TRAINING_ONLY, ids=[m for *_, m in TRAINING_ONLY])
def test_record_without_training_use_stays_a_row_of_the_file_until_selected(coco, path, value, message):
    found = read_annotations(changed(coco, path, value))
    (problem,) = found.problems
    assert message in problem.message and problem.training_only
    found.check(training=False)
    assert len(rows_of(found.table)) == 3 and sum(len(i.targets) for i in found.instances) == 1
    chosen = found.select(found.instances)
    assert [a.is_target for a in rows_of(chosen.table)] == [True, False]


@pytest.mark.parametrize(
    ("ids", "found"), [(["9", "4", "4"], [1, 2]), (["009", 4.0, "4"], [1, 2]), (["9", "x", 5], [1, 0])]
)
def test_ids_that_differ_as_text_and_number_are_the_same(coco, ids, found):
    document = coco
    for row, image_id in zip(document["annotations"], ids, strict=True):
        row["image_id"] = image_id
    document["categories"][0]["id"] = "3"
    read = read_annotations(document)
    assert [len(i.objects) for i in read.instances] == found and len(read.problems) == 3 - sum(found)
    matched = sum(isinstance(i, str) and i.isdigit() for i in ids)
    assert read.notes["annotations whose image_id is the id of an image only if text is read as a number"] == matched
    assert read.notes["annotations whose category_id is the id of a category only if text is read as a number"] == 1


def test_id_that_may_be_two_images_is_none(coco):
    document = coco
    document["images"] += [{"id": "09", "file_name": "c.jpg", "width": -1, "height": 4}]
    document["annotations"][0]["image_id"] = "9"
    read = read_annotations(document)
    assert [len(i.objects) for i in read.instances] == [0, 2] and len(read.problems) == 2


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("0042", 42),
        ("9" * 18, int("9" * 18)),
        ("9" * 19, "9" * 19),
        ("a42", "a42"),
        ("٤٢", "٤٢"),
        ("-1", "-1"),
        (42, 42),
    ],
)
def test_id_in_text_is_a_number_up_to_eighteen_digits(value, number):
    assert numbered(value) == number


def test_rows_are_in_the_order_of_their_numbers_and_text_comes_last(coco):
    for table, noun in (("images", "file_name"), ("categories", "name")):
        coco[table] += [{"id": each, noun: str(each), "width": 9, "height": 9} for each in ("x", 30, "2", 5)]
    found = read_annotations(coco)
    assert list(found.table.image_ids) == [4, 5, 9, 30, "2", "x"]
    assert [category.id for category in found.categories] == [1, 3, 5, 30, "2", "x"]
    assert found.table.labels == tuple(category.name for category in found.categories)


@pytest.mark.parametrize("image_id", ["b.jpg", 77, None])
def test_annotations_of_no_image_at_all_are_an_error(coco, image_id):
    document = coco
    for row in document["annotations"]:
        row["image_id"] = image_id
    with pytest.raises(InputError, match=r"annotations\[0\] \(id 1\): image_id: .* ids such as 4: write the same ids"):
        read_annotations(document)
    assert read_annotations({**document, "annotations": []}).instances
    for image in document["images"]:
        image["width"] = -1
    with pytest.raises(InputError, match=r"ids such as [49]"):  # of images that are left out
        read_annotations(document)


def test_rows_of_one_id_are_left_out_however_many_there_are(coco):
    coco["images"] += [{"id": 9, "file_name": name, "width": 9, "height": 9} for name in "xy"]
    coco["categories"] += [{"id": 3, "name": name} for name in "xyz"]
    found = read_annotations(coco)
    assert [i.image for i in found.instances] == ["a.jpg"] and found.categories == (Category(1, "cat"),)
    times = [problem.message.partition(";")[0] for problem in found.problems if problem.field == "id"]
    assert times == ["3 occurs 4 times"] * 4 + ["9 occurs 3 times"] * 3


@pytest.mark.parametrize("place", [("images", 0, "query"), ("annotations", 0, "caption")])
def test_phrases_that_are_not_read_are_counted(coco, place):
    both = changed(changed(coco, place, "the left cat"), (place[0], 1, place[2]), "the right dog")
    assert read_annotations(both).notes[PHRASES] == 2


def test_boxes_are_clipped_by_a_pixel_and_counted(coco):
    found = read_annotations(changed(coco, ("annotations", 0, "bbox"), [-1, 0.5, 202, 100.4]))
    assert found.instances[0].objects[0].bbox == (0, 0.005, 1, 1) and not found.problems
    assert found.notes["boxes clipped by at most 1 pixel"] == 1
    assert rows_of(found.table)[0].bbox_xywh == (-1, 0.5, 202, 100.4)


REFUSED = {
    "outside of its image": {"bbox": [150, 10, 90, 20], "area": 9e4, "segmentation": [[1, 1, 9, 1, 9, 9]]},
    "outside of its image, turned": {"bbox": [150, 10, 90, 20], "attributes": {"rotation": 30}},
    "no crowd flag, turned": {"bbox": [50, 30, 40, 40], "attributes": {"rotation": 30}, "iscrowd": 2},
    "no area, too large": {"bbox": [10, 10, 0.01, 0.01], "area": 9e4},
    "clipped, a mask": {"bbox": [-1, 10, 90, 20], "segmentation": {"counts": "0", "size": [200, 100]}},
    "an outline outside": {"bbox": [9, 9, 90, 20], "segmentation": [[9, 9, 400, 9, 400, 29], [1, 1, 2, 2, 1, 2]]},
    "too small an outline": {"bbox": [-0.5, 9, 90, 20], "segmentation": [[0, 9, 0.01, 9, 0.01, 9.01, 0, 9]]},
}
"""Annotations that are refused where polygons are wanted, and that would be counted for something else too."""


@pytest.mark.parametrize("refused", REFUSED)
def test_refused_object_is_in_no_other_count(coco, refused):
    row = {"id": 7, "image_id": coco["images"][0]["id"], "category_id": 3, **REFUSED[refused]}
    options = {"on_bad_box": "drop_box", "geometry": "polygon"}
    for others in ([], coco["annotations"]):
        wanted = read_annotations({**coco, "annotations": others}, **options)
        found = read_annotations({**coco, "annotations": [*others, row]}, **options)
        assert len(found.problems) == len(wanted.problems) + 1 and found.notes == wanted.notes
        assert not found.table.has(BoxFlag.CLIPPED).any()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"attributes": {"rotation": 90.0, "occluded": False}}, (0.4, 0, 0.6, 1)),
        ({"attributes": {"rotation": -270}, "segmentation": []}, (0.4, 0, 0.6, 1)),
        ({"attributes": {"rotation": 30}, "bbox": [80, 30, 40, 40]}, (0.5 - TURNED / 200, 0.5 - TURNED / 100)),
        ({"attributes": {"rotation": 180}}, None),
        ({"attributes": {"rotation": "up"}}, None),
        ({"attributes": {"rotation": math.nan}}, None),
        ({"attributes": ["rotation"]}, None),
        ({"attributes": {"rotation": 90}, "segmentation": [[50, 30, 150, 30, 150, 70]]}, None),
        ({"attributes": {"rotation": 90}, "segmentation": [[50, 30, 150, 30, 150, 70, 50, 70]]}, (0.4, 0, 0.6, 1)),
        (
            {"attributes": {"rotation": 90}, "segmentation": [[50, 30, 150, 30, 150, 70, 50, 70, 50, 30]]},
            (0.4, 0, 0.6, 1),
        ),
        ({"attributes": {"rotation": 90}, "segmentation": [[50, 30, 150, 30, 150, 70, 50, 70]] * 2}, None),
    ],
)
def test_rotated_box_has_the_upright_box_around_it(coco, fields, expected):
    document = coco
    document["annotations"][0] |= {"bbox": [50, 30, 100, 40]} | fields
    found = read_annotations(document)
    box = expected or (0.25, 0.3, 0.75, 0.7)
    box = box if len(box) == 4 else (*box, 1 - box[0], 1 - box[1])
    assert found.instances[0].objects[0].bbox == pytest.approx(box, abs=1e-12)
    x, y, width, height = rows_of(found.table)[0].bbox_xywh
    assert (x / 200, y / 100, (x + width) / 200, (y + height) / 100) == pytest.approx(box, abs=1e-12)
    rotated = [count for note, count in found.notes.items() if note.startswith("rotated boxes")]
    assert rotated == [1] * (expected is not None) and not any("clipped" in note for note in found.notes)


def test_image_size_is_asked_for_images_that_state_none(coco):
    document = changed(coco, ("images", 0, "width"), None)
    found = read_annotations(document, image_size={"b.jpg": (200, 100)}.get)
    assert found.instances == read_annotations(coco).instances and not found.problems
    none = read_annotations(document, image_size=lambda name: None)
    assert [problem.field for problem in none.problems] == ["width"] and len(none.instances) == 1


def test_sides_and_areas_are_those_of_the_file(coco):
    """In floating point x + width - x is another number, which would make an object of 32 x 32 a small one."""
    document = changed(coco, ("annotations", 0, "bbox"), [0.3, 5.8, 32, 32])
    del document["annotations"][0]["area"]
    table = read_annotations(document).table
    assert 0.3 + 32 - 0.3 < 32 and 5.8 + 32 - 5.8 < 32
    assert (table.sides_N2[0].tolist(), table.area_N[0]) == ([32, 32], 1024)
    assert table.boxes_N4[0].tolist() == [0.3, 5.8, 0.3 + 32, 5.8 + 32]


def test_select_keeps_the_rows_of_the_chosen_images(coco):
    found = read_annotations(coco)
    chosen = found.select(found.instances[:1])
    assert list(chosen.table.image_ids) == [9] and chosen.instances == found.instances[:1]
    assert [(a.image, a.area) for a in rows_of(chosen.table)] == [(0, 1234.5)]
    assert chosen.categories == found.categories


COCO_REFUSED = [
    ({"bbox": [150, 10, 60, 5]}, None),
    ({"bbox": [10, 10, -5, 5]}, None),
    ({"category_id": 99}, None),
    ({"bbox": [10, 10, 0, 5]}, 1),
    ({"bbox": [10, 10, 0.1, 5]}, 1),
    ({"bbox": [150, 10, 60, 5], "iscrowd": 1}, 1),
    ({"bbox": [10, 10, -5, 5], "iscrowd": 1}, 1),
]


@pytest.mark.parametrize(("fields", "with_image"), COCO_REFUSED)
def test_refused_annotation_of_coco_does_not_teach_omission(fields, with_image):
    images = [{"id": n, "file_name": f"{n}.jpg", "width": 200, "height": 100} for n in (1, 2)]
    good = {"category_id": 1, "bbox": [10, 10, 50, 50]}
    rows = [good | {"image_id": 1}, good | {"image_id": 1} | fields, good | {"image_id": 2}]
    document = {"images": images, "annotations": rows, "categories": [{"id": 1, "name": "cat"}]}
    for policy, left in (("drop_image", with_image), ("drop_box", 1)):
        found = read_annotations(document, on_bad_box=policy)
        assert [len(i.targets) for i in found.instances] == [n for n in (left, 1) if n is not None]
        assert [a.is_target for a in rows_of(found.table) if not a.iscrowd] == [True] * sum(
            n for n in (left, 1) if n is not None
        )
        assert sum(found.notes.get(n, 0) for n in found.notes if n.startswith("images left out")) == (left is None)
        assert [p.is_box for p in found.problems] == [True]
        refused = ["cat"] if fields.get("category_id", 1) == 1 else []
        assert [getattr(i, "uncertain", []) for i in found.instances] == [refused, []][-len(found.instances) :]
    with pytest.raises(InputError, match=r"1 object is refused"):
        read_annotations(document, on_bad_box="error")


def test_category_that_no_answer_can_name_takes_its_images_along():
    document = {
        "images": [{"id": n, "file_name": f"{n}.jpg", "width": 200, "height": 100} for n in (1, 2, 3)],
        "annotations": [{"image_id": n, "category_id": n, "bbox": [10, 10, 50, 50]} for n in (1, 2, 3)],
        "categories": [{"id": 1, "name": "cat"}, *({"id": n, "name": f"{n} <|box_end|>"} for n in (2, 3))],
    }
    assert [i.image for i in read_annotations(document, on_bad_box="drop_image").instances] == ["1.jpg"]
    alone = read_annotations(document, on_bad_box="drop_box").instances
    assert [(i.image, len(i.objects)) for i in alone] == [("1.jpg", 1), ("2.jpg", 0), ("3.jpg", 0)]


@pytest.mark.parametrize(("larger", "word"), [(19, "from-0-to-last"), (18, "from-0")])
def test_areas_a_pixel_larger_of_nineteen_boxes_in_twenty_tell_the_origin(larger, word):
    areas_N = np.array([1600.0] * larger + [1521.0] * (20 - larger))
    assert origin_of_areas(np.full((20, 2), 39.0), areas_N).word == word
