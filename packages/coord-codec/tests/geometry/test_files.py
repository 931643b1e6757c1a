"""Shapes in instance files and COCO files: what is read, what is refused and counted, what is written again."""

import json

import numpy as np
import pytest

from coord_codec import (
    CoordVocab,
    Instance,
    Object,
    annotate_coord_tokens,
    coordinates_of,
    encode_target,
    find_layout,
    ints_to_tokens,
    read_annotations,
    write_instances,
)
from coord_codec.coco.shapes import CLIPPED, HOLES

TRIANGLE = {"type": "polygon", "coordinates": [0.5, 0.1, 0.9, 0.5, 0.1, 0.5]}


def test_object_of_a_shape_alone_has_the_box_around_it():
    assert Object(desc="a", geometry=TRIANGLE).bbox == (0.1, 0.1, 0.9, 0.5)
    x1, y1, x2, y2 = Object(desc="a", geometry={"type": "point", "coordinates": [0.5, 0.25]}).bbox
    assert x1 < 0.5 < x2 and y1 < 0.25 < y2


def test_object_box_and_box_geometry_agree():
    box = [0.1, 0.2, 0.3, 0.4]
    assert Object(desc="a", bbox=box, geometry={"type": "box", "coordinates": box}).bbox == tuple(box)
    with pytest.raises(ValueError, match="geometry"):
        Object(desc="a", bbox=box, geometry={"type": "box", "coordinates": [0.1, 0.2, 0.3, 0.5]})


@pytest.mark.parametrize(
    ("geometry", "fault"),
    [
        ({"type": "blob", "coordinates": [0, 0]}, "expected one of box"),
        ({"type": ["polygon"], "coordinates": [0, 0]}, "expected one of box"),
        ({"type": "polygon", "coordinates": [[[0.1, 0.1], [0.5, 0.1], [0.5, 0.5]]]}, "holes"),
        ({"counts": "abc", "size": [9, 9]}, "run-length"),
        ({"type": "point", "coordinates": [5, 5]}, "outside"),
        ({"type": "oriented", "coordinates": [0.1, 0.1]}, "expected 8"),
        ({"type": "keypoints", "coordinates": [0.1, 0.1]}, "names"),
        ({"type": "keypoints", "coordinates": [0.1, 0.1, 1], "names": ["a"]}, "expected an even number"),
        ({"type": "keypoints", "coordinates": [0.1, 0.1], "names": ["a"], "visibility": [[2]]}, "visibility"),
        ({"type": "keypoints", "coordinates": [0.1, 0.1], "names": ["a"], "visibility": [3]}, "visibility"),
    ],
)
def test_shape_refused_names_the_field(geometry, fault):
    found = read_annotations([{"image": "a.jpg", "objects": [{"desc": "a", "geometry": geometry}]}])
    assert not found.instances
    assert any(problem.field == "objects[0].geometry" and fault in problem.message for problem in found.problems)


def test_instance_file_with_shapes_is_written_as_it_was_read(tmp_path):
    objects = [{"desc": "a", "bbox": [0.1, 0.1, 0.9, 0.5], "geometry": TRIANGLE}]
    write_instances(tmp_path / "a.jsonl", [Instance(image="a.jpg", objects=objects)])
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    assert json.loads(line)["objects"] == objects
    assert read_annotations(tmp_path / "a.jsonl").instances[0].objects[0].geometry.coordinates[:2] == (0.5, 0.1)


def test_shape_of_other_coordinates_is_not_annotated():
    with pytest.raises(ValueError, match=r"geometry\.coordinates: expected 2 coordinates of the geometry point"):
        annotate_coord_tokens({"objects": [{"geometry": {"type": "point", "coordinates": ints_to_tokens([1])}}]})
    assert not annotate_coord_tokens({"objects": [{"geometry": {"type": ["point"], "coordinates": [1, 2]}}]})


def test_shape_that_a_record_lacks_is_listed_at_its_line(tmp_path):
    line = {"image": "a.jpg", "objects": [{"desc": "cat", "bbox": [0.1, 0.2, 0.3, 0.4]}]}
    path = tmp_path / "a.jsonl"
    path.write_text("[1]\n" + json.dumps(line) + "\n")
    wrong, lacking = read_annotations(path, geometry="keypoints").problems
    assert (wrong.where, lacking.where, lacking.field) == (f"{path}:1", f"{path}:2", "objects[0].geometry")


def coco(**annotation):
    return {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 50}],
        "categories": [{"id": 3, "name": "cat", "keypoints": ["nose", "tail"]}],
        "annotations": [{"image_id": 1, "category_id": 3, "bbox": [10, 10, 40, 30], **annotation}],
    }


def test_coco_segmentation_is_the_polygon_and_the_largest_outline_counts():
    parts = [[10, 10, 20, 10, 20, 20], [10, 10, 50, 10, 50, 40, 10, 40], [12, 12, 13, 12, 13, 13]]
    found = read_annotations(coco(segmentation=parts), geometry="polygon")
    assert found.instances[0].objects[0].geometry.coordinates == (0.1, 0.2, 0.5, 0.2, 0.5, 0.8, 0.1, 0.8)
    assert found.notes == {"objects of several outlines: the largest one is used": 1}


@pytest.mark.parametrize(
    ("segmentation", "fault"),
    [
        ({"counts": [0, 5], "size": [50, 100]}, "run-length"),
        ([[10, 10, 50, 40]], "at least 3"),
        ([[10, 10, 50, 40, 50, 10, 10, 40]], "cross"),
        ([[10, 10, 150, 10, 50, 40]], "outside its image"),
        ("mask", "expected a list"),
        ([None], "outline 0: expected a list of numbers, found None"),
        ([10, 10, 50, 10, 50, 40, 10, 40], "outline 0: expected a list of numbers, found 10"),
    ],
)
def test_coco_segmentation_refused_is_listed(segmentation, fault):
    found = read_annotations(coco(segmentation=segmentation, id=9), geometry="polygon", on_bad_box="drop_box")
    assert not found.instances[0].objects
    (problem,) = found.problems
    assert problem.field == "segmentation" and fault in problem.message and "(id 9)" in problem.where
    assert not read_annotations(coco(segmentation=segmentation), geometry="polygon", on_bad_box="drop_image").instances
    # Where boxes are taught nobody looks at it.
    assert len(read_annotations(coco(segmentation=segmentation)).instances[0].objects) == 1


@pytest.mark.parametrize("geometry", ["polygon", "oriented"])
def test_coco_outline_without_vertices_is_none(geometry):
    corners = (0.1, 0.2, 0.5, 0.2, 0.5, 0.8, 0.1, 0.8)
    found = read_annotations(coco(segmentation=[[]]), geometry=geometry)
    assert found.instances[0].objects[0].geometry.coordinates == corners
    assert list(found.notes) == [f"objects without a {geometry} geometry: the corners of the box are used"]
    found = read_annotations(coco(segmentation=[[], [10, 10, 50, 10, 50, 40, 10, 40]]), geometry=geometry)
    assert found.instances[0].objects[0].geometry.coordinates == corners and not found.notes


def test_coco_repeated_vertices_and_overshoot_are_counted():
    found = read_annotations(coco(segmentation=[[10, 10, 100.5, 10, 100.5, 10, 50, 40]]), geometry="polygon")
    assert found.instances[0].objects[0].geometry.coordinates == (0.1, 0.2, 1.0, 0.2, 0.5, 0.8)
    assert sorted(found.notes.values()) == [1, 1, 1]  # and the box is not the one around it


def test_coco_without_segmentation_has_the_corners_of_its_box_counted():
    found = read_annotations(coco(), geometry="oriented")
    assert found.instances[0].objects[0].geometry.coordinates == (0.1, 0.2, 0.5, 0.2, 0.5, 0.8, 0.1, 0.8)
    assert sum(found.notes.values()) == 1
    slanted = read_annotations(coco(segmentation=[[30, 10, 50, 25, 30, 40, 10, 25]]), geometry="oriented")
    assert slanted.instances[0].objects[0].geometry.coordinates[:2] == (0.3, 0.2) and not slanted.notes


@pytest.mark.parametrize("geometry", ["oriented", "polygon"])
def test_coco_rotated_box_is_its_rectangle(geometry):
    found = read_annotations(coco(attributes={"rotation": 30.0}), geometry=geometry)
    shape = found.instances[0].objects[0].geometry.coordinates
    pixels = np.array(shape).reshape(4, 2) * (100, 50)
    sides = np.linalg.norm(pixels - np.roll(pixels, 1, axis=0), axis=1)
    assert sorted(sides) == pytest.approx([30, 30, 40, 40]) and pixels.mean(axis=0) == pytest.approx([30, 25])
    assert len({*pixels[:, 0].round(6)}) == 4  # no side is upright
    assert min(shape[::2]) == pytest.approx(found.instances[0].objects[0].bbox[0]) and len(found.notes) == 1


@pytest.mark.parametrize("category_id", [3, 3.0, "3"])
def test_coco_keypoints_have_their_names(category_id):
    document = coco(keypoints=[20, 25, 2, 99, 99, 0])
    document["categories"][0]["id"] = category_id
    found = read_annotations(document, geometry="keypoints")
    shape = found.instances[0].objects[0].geometry
    assert (shape.names, shape.visibility, shape.coordinates) == (("nose", "tail"), (2, 0), (0.2, 0.5, 0.0, 0.0))
    none = read_annotations(coco(keypoints=[0] * 6), geometry="keypoints", on_bad_box="drop_image")
    assert not none.instances[0].objects and "none of the keypoints" in none.problems[0].message


VOCAB = CoordVocab(first_id=100)
SHAPES = {
    "point": {"type": "point", "coordinates": [0.25, 0.5]},
    "polygon": {"type": "polygon", "coordinates": [0.5, 0.1, 0.9, 0.5, 0.6, 0.6, 0.3, 0.55, 0.1, 0.5]},
    "oriented": {"type": "oriented", "coordinates": [0.3, 0.1, 0.6, 0.3, 0.5, 0.6, 0.2, 0.4]},
    "keypoints": {"type": "keypoints", "coordinates": [0.3, 0.1, 0.6, 0.3, 0, 0], "names": list("abc")},
}


def as_ids(text):
    """A tokenizer of the marker text: markers 1 and 2, coordinates from 100, any other character its code."""
    import re

    ids = []
    for token in re.findall(r"<obj_start>|<obj_end>|<\|coord_\d+\|>|.", text):
        if token.startswith("<|coord_"):
            ids.append(100 + int(token[8:-2]))
        else:
            ids.append({"<obj_start>": 1, "<obj_end>": 2}.get(token, 5000 + ord(token[0])))
    return ids


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("style", ["markers", "json"])
def test_target_of_a_geometry_is_found_again_in_its_ids(name, style):
    objects = [Object(desc=word, geometry=SHAPES[name]) for word in ("cat", "dog", "dog")]
    instance = Instance(image="a.jpg", objects=objects)
    text = encode_target(instance, markers="obj", style=style, geometry=name)
    layout = find_layout(as_ids(text), VOCAB, (1, 2) if style == "markers" else None, geometry=name)
    expected = coordinates_of(objects[0], name)
    assert [[k / 1000 for k in found.bins] for found in layout.objects] == [list(expected)] * 3
    assert not layout.reasons


def test_target_in_numbers():
    instance = Instance(image="a.jpg", objects=[Object(desc="cat", geometry=TRIANGLE)])
    assert encode_target(instance, markers="obj", form="numbers", geometry="polygon") == (
        "<obj_start>cat(500,100),(900,500),(100,500)<obj_end>"
    )
    assert encode_target(instance, style="json", form="numbers", geometry="point") == (
        '[{"point_2d": [500, 300], "label": "cat"}]'
    )


def test_layout_of_a_geometry_omits_other_arities():
    box = [1, 5099, 110, 120, 130, 140, 2]
    assert not find_layout(box, VOCAB, (1, 2), geometry="point").objects
    assert not find_layout(box, VOCAB, (1, 2), geometry="polygon").objects
    assert len(find_layout(box, VOCAB, (1, 2), geometry="box").objects) == 1
    assert find_layout([1, 5099, 110, 120, 2], VOCAB, (1, 2), geometry="point").objects[0].bins == (10, 20)


def test_coco_outline_that_reaches_a_hole_by_a_bridge_is_its_outer_ring_counted():
    ring = [10, 10, 50, 10, 50, 40, 10, 40]
    bridged = [*ring, 10, 10, 20, 20, 20, 30, 30, 30, 30, 20, 20, 20]
    found = read_annotations(coco(segmentation=[bridged]), geometry="polygon")
    assert found.instances[0].objects[0].geometry.coordinates == (0.1, 0.2, 0.5, 0.2, 0.5, 0.8, 0.1, 0.8)
    assert found.notes == {HOLES: 1}


def test_hidden_keypoint_has_its_place_and_one_without_a_label_has_none():
    found = read_annotations(coco(keypoints=[20, 25, 1, 30, 5, 0]), geometry="keypoints")
    shape = found.instances[0].objects[0].geometry
    assert (shape.visibility, shape.coordinates) == ((1, 0), (0.2, 0.5, 0.0, 0.0))


@pytest.mark.parametrize(("beyond", "is_read"), [(0, True), (1, True), (1.01, False)])
def test_outline_may_lie_a_pixel_beyond_each_border_of_its_image(beyond, is_read):
    outline = [-beyond, -beyond, 100 + beyond, -beyond, 100 + beyond, 50 + beyond, -beyond, 50 + beyond]
    found = read_annotations(coco(bbox=[0, 0, 100, 50], segmentation=[outline]), geometry="polygon")
    assert [len(i.objects) for i in found.instances] == [int(is_read)]
    if is_read:
        assert found.instances[0].objects[0].geometry.coordinates == (0, 0, 1, 0, 1, 1, 0, 1)
        assert found.notes == ({CLIPPED: 1} if beyond else {})
