"""An annotation is judged alike as a column, in a file, and alone; and its note counts every one of its kind."""

import copy
import json

import numpy as np
import pytest

from coord_codec import json_stream, read_annotations
from coord_codec.coco import columns
from coord_codec.coco import document as coco_document
from coord_codec.coco.document import WITH_REFUSED
from coord_codec.coco.reader import AREA_TOO_LARGE, CROWDS, NOT_AROUND, WITHOUT_OBJECTS, ZERO_AREA
from coord_codec.coco.rows import PHRASES
from coord_codec.coco.shapes import ROTATED, SEVERAL
from coord_codec.fields import CERTAIN, DELETED, NOT_READ
from coord_codec.origins import ABOUT, ORIGINS, SHORT, WIDE

AROUND, BESIDE = [[20, 10, 60, 10, 60, 40, 20, 40]], [[100, 10, 150, 10, 150, 40]]
LARGEST = 1.05 * 41 * 31
"""Area of a mask that a box of 40 by 30 rounded pixels may have."""
# What an annotation of 40 by 30 pixels states besides, which notes count it, and what it becomes: an object (True), a
# crowd region, nothing at all (None), or the word of the field for which it is refused.
ROWS = {
    "plain": ({}, [], True),
    "area 0": ({"area": 0}, [], True),
    "area None": ({"area": None}, [], True),
    "area of a mask": ({"area": 800.5}, [], True),
    "the largest area": ({"area": LARGEST}, [], True),
    "an area too large": ({"area": LARGEST + 1}, [AREA_TOO_LARGE], True),
    "an area far too large": ({"area": 1e300}, [AREA_TOO_LARGE], True),
    "an area below 0": ({"area": -0.5}, [], "area"),
    "an endless area": ({"area": float("inf")}, [], "area"),
    "no number as area": ({"area": float("nan")}, [], True),
    "a crowd": ({"iscrowd": 1}, [CROWDS], "crowd"),
    "a crowd of an endless area": ({"iscrowd": 1, "area": float("inf")}, [], "area"),
    "a crowd of any area": ({"iscrowd": 1, "area": 1e6}, [CROWDS], "crowd"),
    "a crowd beside its outline": ({"iscrowd": 1, "segmentation": BESIDE}, [CROWDS], "crowd"),
    "a turned crowd": ({"iscrowd": 1, "rotation_deg": 90}, [CROWDS, ROTATED], "crowd"),
    "segments": ({"segments_info": []}, [], True),
    "no crowd": ({"iscrowd": 0}, [], True),
    "a flag of 2": ({"iscrowd": 2}, [], "iscrowd"),
    "a flag of -1": ({"iscrowd": -1}, [], "iscrowd"),
    "no width": ({"bbox": [20, 10, 0, 30]}, [ZERO_AREA], "bbox"),
    "no height": ({"bbox": [20, 10, 40, 0]}, [ZERO_AREA], "bbox"),
    "no side": ({"bbox": [20, 10, 0, 0]}, [ZERO_AREA], "bbox"),
    "a width below 0": ({"bbox": [60, 10, -40, 30]}, [], "bbox"),
    "a height below 0": ({"bbox": [20, 40, 40, -30]}, [], "bbox"),
    "an endless height": ({"bbox": [20, 10, 40, float("inf")]}, [], "bbox"),
    "an outline within its box": ({"segmentation": AROUND}, [], True),
    "an outline of a triangle": ({"segmentation": [[20, 10, 60, 10, 60, 40]]}, [], True),
    "an outline elsewhere": ({"segmentation": BESIDE}, [NOT_AROUND], True),
    "an outline above": ({"segmentation": [[20, 50, 60, 50, 60, 80]]}, [NOT_AROUND], True),
    "two outlines within it": ({"segmentation": [[20, 10, 30, 10, 30, 40], [50, 10, 60, 10, 60, 40]]}, [], True),
    "a mask": ({"segmentation": {"counts": "0", "size": [100, 200]}}, [], True),
    "both": ({"segmentation": BESIDE, "area": 1e5}, [NOT_AROUND, AREA_TOO_LARGE], True),
    "a caption": ({"caption": "left"}, [PHRASES], True),
    "a phrase": ({"phrase": "left"}, [PHRASES], True),
    "a breed": ({"breed": 0}, [NOT_READ.format("breed")], True),
    "a breed that is empty": ({"breed": ""}, [], True),
    "a score of 1": ({"score": 1.0}, [CERTAIN.format("score")], True),
    "a score as text": ({"score": "1"}, [CERTAIN.format("score")], True),
    "a score": ({"score": 0.5}, [NOT_READ.format("score")], True),
    "deleted": ({"deleted": True}, [DELETED], None),
    "not deleted": ({"deleted": False}, [], True),
    "turned": ({"rotation_deg": 90}, [ROTATED], True),
    "turned by nothing": ({"rotation": 0}, [], True),
    "a percentage": ({"unit": "percent"}, [], "unit"),
    "another frame": ({"frame_id": 3}, [], "frame_id"),
    "of its image by name": ({"image_name": "b.jpg"}, [NOT_READ.format("image_name")], True),
    "of its image by its stem": ({"image_name": "b"}, [NOT_READ.format("image_name")], True),
    "of another image by name": ({"image_name": "c.jpg"}, [], "image_name"),
    "nothing": ({"category_id": 5, "bbox": None}, [WITHOUT_OBJECTS], None),
    "nothing by a box of zeros": ({"category_id": 5, "bbox": [0, 0, 0, 0]}, [WITHOUT_OBJECTS], None),
    "nothing by an outline of none": (
        {"category_id": 5, "bbox": [0, 0, 0, 0], "segmentation": []},
        [WITHOUT_OBJECTS],
        None,
    ),
    "nothing, with a box": ({"category_id": 5}, [], True),
}


def document(coco, rows):
    kept = copy.deepcopy(coco)
    kept["categories"].append({"id": 5, "name": "No_Animal"})
    plain = {"image_id": 9, "category_id": 3, "bbox": [20, 10, 40, 30]}
    kept["annotations"] = [{"id": n, **plain, **row} for n, row in enumerate(rows, 1)]
    return kept


def alone(content):
    """The same document with ids that are no columns of numbers, so that each row is read by itself."""
    rows = [
        {**row, "image_id": float(row["image_id"]), "category_id": float(row["category_id"])}
        for row in content["annotations"]
    ]
    return {**content, "annotations": rows}


@pytest.mark.parametrize("name", ROWS)
def test_annotation_is_judged_alike_on_every_way_and_counted_each_time(coco, tmp_path, name):
    row, notes, outcome = ROWS[name]
    content = document(coco, [{}, row, {}, row, row])
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    ways = [read_annotations(content), read_annotations(alone(content)), read_annotations(path)]
    for found in ways:
        assert found.notes == dict.fromkeys(notes, 3), found.notes
        boxes = [obj for instance in found.instances for obj in instance.objects]
        assert sum(not obj.iscrowd for obj in boxes) == 2 + 3 * (outcome is True)
        assert sum(obj.iscrowd for obj in boxes) == 3 * (outcome == "crowd")
        told = [] if outcome in (True, None, "crowd") else [outcome] * 3
        assert [problem.field for problem in found.problems] == told
        assert [problem.where.partition(": ")[2] for problem in found.problems] == [
            f"annotations[{n}] (id {n + 1})" for n in (1, 3, 4)
        ][: len(told)]
        assert found.table == ways[0].table and found.instances == ways[0].instances
        assert [p.message for p in found.problems] == [p.message for p in ways[0].problems]


PLAIN = {"image_id": 9, "category_id": 3, "bbox": [20, 10, 40, 30]}


def test_numbers_of_frames_are_read_as_such_only_where_each_image_has_its_own(coco):
    rows = [{"frame": 0}, {"frame": 0}, {"frame": 1, "image_id": 4, "bbox": [1, 1, 9, 9]}]
    assert not read_annotations(document(coco, rows)).problems
    for other in ({"frame": 0, "image_id": 4}, {"frame": 1}):
        assert read_annotations(document(coco, [*rows, other])).problems


@pytest.mark.parametrize(
    ("rows", "more", "notes"),
    [
        ([{"area": 41 * 31}] * 3, 1, {SHORT: 3}),
        ([{"area": 41 * 31}, {}, {"area": 41 * 31}], 1, {SHORT: 3}),
        ([{"area": 40 * 30}] * 3, 0, {}),
        ([{"area": 40 * 30, "iscrowd": 1}] * 9 + [{"area": 41 * 31}], 1, {SHORT: 10, CROWDS: 9}),
        ([{"area": 41 * 31, "iscrowd": 1}] * 9 + [{"area": 40 * 30}], 0, {CROWDS: 9}),
        ([{"scalabel_id": "a"}, {}], -1, {WIDE: 2}),
        ([{"scalabel_id": "a", "segmentation": AROUND}, {}], 0, {}),
    ],
)
def test_sides_are_counted_as_the_writer_of_the_file_does(coco, rows, more, notes):
    found = read_annotations(document(coco, rows))
    assert found.notes == notes and not found.problems
    assert found.table.sides_N2.tolist() == [[40 + more, 30 + more]] * len(rows)
    for again in (
        read_annotations(alone(document(coco, rows))),
        read_annotations(document(coco, rows), geometry="polygon"),
    ):
        assert again.table.sides_N2.tolist() == found.table.sides_N2.tolist()
    thin = read_annotations(document(coco, [*rows, {"bbox": [20, 10, 0.5, 30]}])).table.sides_N2[-1].tolist()
    assert thin == [max(0.5 + more, 0), 30 + more]


def test_problems_are_in_the_order_of_the_file_and_all_refused_words_are_kept(coco):
    outside, bad = {"bbox": [190, 10, 40, 30]}, {"bbox": [20, 10, -1, 30]}
    rows = [outside, bad, {**outside, "category_id": 1}, {"bbox": None}, outside]
    found = read_annotations(document(coco, rows), on_bad_box="drop_box")
    assert [p.where.partition(": ")[2][:14] for p in found.problems] == [f"annotations[{n}]" for n in range(5)]
    assert [getattr(i, "uncertain", None) for i in found.instances] == [["cat", "dog"], None]


def test_image_that_is_no_record_is_not_counted_as_left_out_with_its_object(coco):
    bad = {"bbox": [20, 10, -1, 30]}
    content = document(coco, [bad, {**bad, "image_id": 4}])
    assert read_annotations(content, on_bad_box="drop_image").notes == {WITH_REFUSED: 2}
    content["images"][0]["width"] = None
    assert read_annotations(content, on_bad_box="drop_image").notes == {WITH_REFUSED: 1}


def test_box_thinner_than_a_bin_is_left_out_where_it_would_be_taught(coco):
    content = document(coco, [{"bbox": [20, 10, 0.01, 30]}])
    assert len(read_annotations(content).instances[0].objects) == 1
    assert read_annotations(content, on_bad_box="drop_box").instances[0].objects == ()


def test_crowd_keeps_its_area_and_outlines_are_counted_from_the_second_on(coco):
    assert [obj.area for obj in read_annotations(coco).instances[1].objects] == [None, 77]
    second = [20, 10, 30, 10, 30, 20]
    for outlines, notes in (
        ([AROUND[0]], {}),
        ([AROUND[0], second], {SEVERAL: 1}),
        ([AROUND[0], second, second], {SEVERAL: 1}),
    ):
        found = read_annotations(document(coco, [{"segmentation": outlines}]), geometry="polygon")
        assert found.notes == notes and not found.problems


@pytest.mark.parametrize("part", [1, 2, 3, 100])
@pytest.mark.parametrize("more", [{}, {"caption": "x"}])
def test_file_that_is_read_in_parts_is_the_file(coco, tmp_path, monkeypatch, part, more):
    content = document(coco, [{"id": 7 - n, "bbox": [n, 1, 9, 9], **more} for n in range(7)])
    (tmp_path / "a.json").write_text(json.dumps(content))
    for module in (columns, coco_document):
        monkeypatch.setattr(module, "PART", part)
    monkeypatch.setattr(json_stream, "_BLOCK", 200)
    found = read_annotations(tmp_path / "a.json")
    assert found.table == read_annotations(content).table and found.notes == dict.fromkeys([PHRASES] if more else [], 7)


def test_annotations_of_some_images_are_those_of_the_document(coco):
    rows = [
        {"id": 0},
        {"image_id": 4, "area": 7.5, "iscrowd": 1},
        {"image_id": "9", "bbox": None},
        {"image_id": "b", "x": 1},
        5,
    ]
    rows = [{**PLAIN, **row} if isinstance(row, dict) else row for row in rows]
    held = columns.AnnotationColumns()
    held.add(rows)
    for ids, chosen in ({9}, [0, 2]), ({4}, [1]), ({"b"}, [3]), ({9, "b"}, [0, 2, 3]), (set(), []):
        found = [{key: value for key, value in row.items() if key != "iscrowd" or value} for row in held.of_images(ids)]
        assert found == [rows[n] for n in chosen]
    assert [held.record(n) for n in (2, 3, 4)] == rows[2:] and held.record(0)["id"] == 0
    held.add([{**PLAIN, "scalabel_id": "a"}])
    assert all("scalabel_id" in row for row in held.of_images({4}))  # by which their sides are told


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"bbox": 5}, "bbox"),
        ({"bbox": [5]}, "bbox"),
        ({"bbox": [1, 2, 3, 4, 5, 6, 7, 8]}, "bbox"),
        *(({name: [3, 3, 3, 3]}, name) for name in ("category_id", "iscrowd", "area")),
        ({"category_id": 3.5}, "category_id"),
        ({"iscrowd": 0.5}, "iscrowd"),
    ],
)
def test_rows_of_one_form_are_refused_in_a_file_as_in_memory(coco, tmp_path, row, field):
    content = document(coco, [row] * 4)
    (tmp_path / "a.json").write_text(json.dumps({**content, "annotations": [*content["annotations"]]}))
    for found in (read_annotations(tmp_path / "a.json"), read_annotations(content)):
        assert [problem.field for problem in found.problems] == [field] * 4 and not len(found.table)


def test_segments_of_panoptic_coco_are_named(coco):
    coco["annotations"] = [{"image_id": 9, "file_name": "b.png", "segments_info": [{"id": 1}]}]
    (problem,) = read_annotations(coco).problems
    assert problem.field == "segments_info" and "instances_*.json" in problem.message


@pytest.mark.parametrize(
    ("name", "is_nothing"),
    [
        *(
            (name, True)
            for name in (
                "empty",
                "Blank",
                "BACKGROUND",
                "nothing",
                "none",
                " no animal",
                "No_Animals",
                "no object",
                "no_objects",
            )
        ),
        *((name, False) for name in ("no", "emptyness", "animal", "cat", "non")),
    ],
)
def test_category_that_says_that_an_image_has_no_objects(coco, name, is_nothing):
    coco["categories"].append({"id": 5, "name": name})
    coco["annotations"] = [{"id": 1, "image_id": 9, "category_id": 5}]
    found = read_annotations(coco)
    assert (found.notes, len(found.problems)) == (({WITHOUT_OBJECTS: 1}, 0) if is_nothing else ({}, 1))


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("from-1", [3, 5, 12, 24]),
        ("from-0", [2, 4, 12, 24]),
        ("from-0-to-last", [2, 4, 11, 23]),
        ("from-1-past-last", [3, 5, 13, 25]),
        ("from-0-past-last", [2, 4, 13, 25]),
        ("from-0-first-early", [1, 3, 12, 24]),
    ],
)
def test_box_of_ten_by_twenty_pixels_is_that_of_every_origin(word, written):
    assert ORIGINS[word].corners(written) == (2, 4, 12, 24) and ORIGINS[word].word == word
    assert ABOUT.keys() == ORIGINS.keys() and len(set(ORIGINS.values())) == 6


@pytest.mark.parametrize(
    "ids", [[1, 2, 3], [-7, 0, 7], [0], [], ["a", 4, -4], [2**63, 2**63 - 1, -(2**63), 1 - 2**63], ["5", 5]]
)
def test_index_of_a_row_is_that_of_its_id_whatever_its_sign(ids):
    """Against a dictionary; an id of more than 64 bits is in no column, and the least one stands for none."""
    known = {key: place for place, key in enumerate(ids)}
    asked = [*range(-9, 10), 2**63 - 1, 1 - 2**63]
    assert coco_document._index_of(np.array(asked), known).tolist() == [known.get(key, -1) for key in asked]
