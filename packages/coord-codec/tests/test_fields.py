"""The table of fields beside a box: what turns, places, scales or deletes it, by name."""

import math

import numpy as np
import pytest

from coord_codec import InputError, Instance, read_annotations
from coord_codec.fields import (
    check_places,
    check_unit,
    is_deleted,
    largest_turn,
    meaning_of,
    names_place,
    numbers_of_images,
    outline_beside,
    rotated_corners,
    states_more,
    turn_of,
)


def turned_box(x, y, width, height, degrees):
    """Return the box around a turned rectangle by a rotation matrix."""
    angle = math.radians(degrees)
    matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    offsets = np.array([[-width, -height], [width, -height], [width, height], [-width, height]]) / 2
    corners = offsets @ matrix.T + [x + width / 2, y + height / 2]
    return (*corners.min(axis=0), *corners.max(axis=0))


def coco(*annotations):
    rows = [{"id": i, "image_id": 1, "category_id": 1, **row} for i, row in enumerate(annotations, 1)]
    images = [{"id": 1, "file_name": "a.jpg", "width": 200, "height": 100}]
    return {"images": images, "categories": [{"id": 1, "name": "cat"}], "annotations": rows}


@pytest.mark.parametrize("name", ["rotation", "angle", "theta", "rotationAngle", "angle_deg", "Rotation"])
@pytest.mark.parametrize("degrees", [30, -40, 90, 135.5])
def test_angle_beside_a_coco_box_turns_it_about_its_centre(name, degrees):
    found = read_annotations(coco({"bbox": [60, 30, 60, 20], name: degrees}))
    assert not found.problems
    box = np.array(found.instances[0].objects[0].bbox) * [200, 100, 200, 100]
    assert box == pytest.approx(turned_box(60, 30, 60, 20, degrees))


def test_unit_of_an_angle_is_that_of_the_file():
    small = {"bbox": [60, 30, 60, 20], "angle": 0.5}
    (problem,) = read_annotations(coco(small)).problems
    assert "may be in radians" in problem.message
    found = read_annotations(coco(small, small | {"angle": 40}))
    assert not found.problems
    box = np.array(found.instances[0].objects[0].bbox) * [200, 100, 200, 100]
    assert box == pytest.approx(turned_box(60, 30, 60, 20, 0.5))
    assert turn_of({"angle_rad": 0.5}) == pytest.approx(math.degrees(0.5))
    assert largest_turn([{"angle": -7}, {"theta": "12"}, {"angle": "left"}]) == 12


def test_angle_is_not_applied_to_the_box_around_an_outline():
    outline = rotated_corners((60, 30, 60, 20), 30)
    x1, y1, x2, y2 = turned_box(60, 30, 60, 20, 30)
    around = {"bbox": [x1, y1, x2 - x1, y2 - y1], "segmentation": [outline], "angle": 30}
    upright = {"bbox": [60, 30, 60, 20], "segmentation": [[60, 30, 120, 30, 120, 50, 60, 50]], "angle": 30}
    for row in (around, upright):
        (record,) = read_annotations(coco(row)).instances
        assert np.array(record.objects[0].bbox) * [200, 100, 200, 100] == pytest.approx((x1, y1, x2, y2))


@pytest.mark.parametrize("degrees", [8, 30, 60])
def test_oriented_box_turned_a_little_is_read(degrees):
    rows = [{"bbox": [60, 30, 60, 20], "rbbox": [90, 40, 60, 20, degrees]}]
    (record,) = read_annotations(coco(*rows)).instances
    box = np.array(record.objects[0].bbox) * [200, 100, 200, 100]
    assert box == pytest.approx(turned_box(60, 30, 60, 20, degrees))


@pytest.mark.parametrize("value", [[90, 40, 60, 20, 30], rotated_corners((60, 30, 60, 20), 30)])
def test_oriented_box_beside_an_unturned_one_is_read(value):
    outline = outline_beside({"rbbox": value}, (60, 30, 120, 50))
    assert outline == pytest.approx(rotated_corners((60, 30, 60, 20), 30))
    x1, y1, x2, y2 = turned_box(60, 30, 60, 20, 30)
    assert outline_beside({"quad_2d": value}, (x1, y1, x2, y2)) is None  # the box around it, as it should be
    with pytest.raises(InputError, match="rbbox: expected four corners"):
        outline_beside({"rbbox": value[:4]}, (60, 30, 120, 50))


@pytest.mark.parametrize(
    ("field", "value"), [("bbox_mode", 0), ("unit", "percent"), ("normalized", True), ("bbox_format", "cxcywh")]
)
def test_unit_that_the_format_does_not_have_is_a_problem(field, value):
    (problem,) = read_annotations(coco({"bbox": [60, 30, 60, 20], field: value})).problems
    assert problem.field == field
    check_unit(
        {field: {"bbox_mode": 1, "unit": "px", "normalized": False, "bbox_format": "xywh"}[field]}, "xywh", "pixels"
    )


@pytest.mark.parametrize("field", [{"yaw": 40}, {"heading": 1.5}, {"is_rotated": True}])
def test_angle_that_may_not_be_that_of_the_box_is_a_problem(field):
    (problem,) = read_annotations(coco({"bbox": [60, 30, 60, 20], **field})).problems
    assert problem.field == next(iter(field))


def test_deleted_object_is_left_out_and_counted():
    found = read_annotations(coco({"bbox": [60, 30, 60, 20], "deleted": 1}, {"bbox": [0, 0, 60, 20], "deleted": 0}))
    assert len(found.instances[0].objects) == 1
    assert sum("deleted" in note for note in found.notes) >= 1


@pytest.mark.parametrize(
    "more", [{"angle": 30}, {"rbbox": [0.4, 0.4, 0.1, 0.2, 30]}, {"unit": "percent"}, {"deleted": True}]
)
def test_instance_with_a_field_that_changes_its_box_is_refused(more):
    record = {"image": "a.jpg", "objects": [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6], **more}]}
    with pytest.raises(ValueError, match=next(iter(more))):
        Instance.model_validate(record)
    harmless = dict.fromkeys(more, 0)
    Instance.model_validate({**record, "objects": [{**record["objects"][0], **harmless}]})


def test_objects_of_several_frames_are_no_record_of_one_image():
    objects = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6], "frame": frame} for frame in (3, 4)]
    with pytest.raises(ValueError, match="frame: expected objects of one image"):
        check_places(objects)
    with pytest.raises(ValueError, match="frame: expected an object of the record's own image"):
        Instance(image="a.jpg", objects=objects)
    labelled = [{**row, "frame": 3, "timestamp": f"2024-01-0{row['frame']}"} for row in objects]
    for own in ({"image": "clip/frame_0003.jpg"}, {"image": "a.jpg", "frame": 3}):
        assert len(Instance(**own, objects=labelled).objects) == 2


@pytest.mark.parametrize(
    ("own", "field", "is_refused"),
    [
        ({"image": "a.jpg"}, {"frame": 3}, True),
        ({"image": "a3.jpg"}, {"frame": 3}, False),
        ({"image": "a.jpg"}, {"image_id": 7}, False),  # the record states no id
        ({"image": "a.jpg", "image_id": 8}, {"image_id": 7}, True),
        ({"image": "a.jpg", "image_id": 7}, {"image_id": 7}, False),
        ({"image": "a.jpg", "frame_id": 2}, {"frame_id": 7}, True),
        ({"image": "a.jpg", "frame_id": 7}, {"frame_id": 7}, False),
        ({"image": "sub/a.jpg"}, {"image": "b.jpg"}, True),
        ({"image": "sub/a.jpg"}, {"image": "x\\a.jpg"}, False),
        ({"image": "sub/a.jpg"}, {"image": "a"}, False),
        ({"image": "a.jpg"}, {"frame": None}, False),
        ({"image": "a.jpg"}, {"frame": ""}, False),
    ],
)
def test_object_of_another_image_than_its_record_is_refused(own, field, is_refused):
    if is_refused:
        with pytest.raises(ValueError, match=f"{next(iter(field))}: expected an object of the record's own image"):
            check_places([field], own)
    else:
        check_places([field], own)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("coords_type", "unit"),
        ("boxFormat", "unit"),
        ("bbox mode", "unit"),
        ("order", ""),
        ("system", ""),
        ("boxes", ""),
    ],
)
def test_unit_is_named_by_boxes_and_their_convention_together(name, meaning):
    assert meaning_of(name) == meaning


def test_names_of_no_meaning_change_nothing():
    assert meaning_of("breed") == "" and meaning_of("track_id") == "harmless"
    found = read_annotations(coco({"bbox": [60, 30, 60, 20], "breed": "x", "track_id": 3, "rotation": 0}))
    assert not found.problems
    assert {name for note in found.notes for name in ("breed", "track_id", "rotation") if f" {name}," in note} == {
        "breed",
        "track_id",
    }


@pytest.mark.parametrize(
    ("record", "degrees"),
    [
        ({"angle_deg": 30, "rotation_deg": 210}, 30),
        ({"angle_deg": 30, "rotation_deg": 0}, 30),
        ({"angle_deg": 30, "rotation_deg": 31}, None),
        *(({"angle_deg": turn}, 0) for turn in (0, 180, 360, -180, 540)),
        ({"angle_deg": 90}, 90),
        ({"angle": 1e6}, 0),
        ({"angle": "1e7", "rotation_deg": 30}, 30),
        ({"angle": 999_999}, 999_999),
        ({"angle": 6.2}, None),
        ({"angle": 6.3}, 6.3),
        ({"angle": True}, None),
        ({"angle": False}, 0),
        ({"angle": "left"}, 0),
        ({"heading": 30}, None),
        ({"attributes": {"rotation": 0.5}}, 0.5),
    ],
)
def test_angle_of_a_box_is_one_and_half_turns_are_none(record, degrees):
    if degrees is None:
        with pytest.raises(InputError):
            turn_of(record)
    else:
        assert turn_of(record) == degrees


def test_names_number_no_images_and_numbers_do_only_if_each_has_its_own():
    rows = [
        {"image_id": 7, "image_name": "a", "frame": 0, "page": 1},
        {"image_id": 9, "image_name": "b", "frame": 1, "page": 2},
    ]
    assert numbers_of_images(rows) == {"frame"} and numbers_of_images(rows[:1]) == frozenset()


@pytest.mark.parametrize(
    ("field", "unit", "agrees"),
    [
        *(({"origin": value}, "pixels", True) for value in ([0, 0], "top-left", 0, "", None)),
        *(({"origin": value}, "pixels", False) for value in ([1, 1], [0, 0.5], "bottom-left", 1, "centre")),
        *(({"scale": value}, "thousandths", True) for value in (1, 1000, "1000")),
        *(({"scale": value}, "thousandths", False) for value in (2, 100, [1, 2])),
        *(({"scale": value}, "pixels", value == 1) for value in (1, 2, 1000)),
        *(({"normalized": value}, "fractions", value) for value in (True, False, 1, 0)),
        *(({"absolute": value}, "pixels", value) for value in (True, False, 1, 0)),
        *(({"bbox_mode": value}, "pixels", value == 1) for value in (0, 1, 2, 3)),
        *(({"bbox_mode": value}, "fractions", value == 3) for value in (0, 1, 2, 3)),
        *(({"unit": value}, "fractions", value == "rel") for value in ("rel", "px", "norm1000", "percent", "what")),
        *(
            ({"bbox_format": value}, "pixels", "xywh" in value.lower())
            for value in ("xywh", "BoxMode.XYWH_ABS", "xyxy", "x1y1")
        ),
    ],
)
def test_unit_beside_a_box_agrees_or_is_refused(field, unit, agrees):
    if agrees:
        check_unit(field, "xywh", unit, "setting")
    else:
        with pytest.raises(InputError, match=f"^{next(iter(field))}: expected xywh in {unit}"):
            check_unit(field, "xywh", unit, "setting")


@pytest.mark.parametrize(
    ("apart", "scale", "is_around"), [(1.9, 1, True), (2.1, 1, False), (1.1, 0.01, False), (0.9, 0.01, True)]
)
def test_box_lies_around_its_outline_to_a_hundredth_and_to_a_pixel_where_it_has_some(apart, scale, is_around):
    outline = [c * scale for c in (0, 0, 100, 0, 100, 50, 0, 50)]
    found = outline_beside({"obb": outline}, (apart * scale, 0, 100 * scale, 50 * scale))
    assert found == (None if is_around else outline)


@pytest.mark.parametrize(
    ("record", "further", "deleted"),
    [
        *(({"deleted": value}, (), True) for value in (True, 1, "1", "True", "yes", "rejected")),
        *(({"deleted": value}, (), False) for value in (False, 0, "no", None, "")),
        *(({"exists": value}, (), True) for value in (False, 0, "no")),
        ({"exists": True}, (), False),
        ({"visible": 0}, (), False),
        ({"visible": 0}, ("aside",), True),
        ({"status": "hidden"}, ("aside",), True),
        ({"a": 1, "deleted": 0, "removed": 1}, (), True),
    ],
)
def test_object_is_deleted_by_what_its_fields_say(record, further, deleted):
    assert is_deleted(record, *further) is deleted


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        *(("frame", value, True) for value in (0, 3, "0", "a.jpg", 0.0)),
        *(("frame", value, False) for value in (None, "", " ", True, False)),
        *(("view", value, True) for value in (0, 2, "2", "view 3", "b", "tile_07")),
        *(("view", value, False) for value in ("front", "", "left side", None)),
    ],
)
def test_number_of_zero_names_a_place_and_a_word_of_a_view_none(name, value, named):
    assert names_place(name, value) is named


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        *(({"timestamp": 1.5}, {"timestamp": value}, value != 1.5) for value in (1.5, 2, 1e6, "2024-01-01")),
        ({"timestamp": 1.7e9}, {"timestamp": 1.8e9}, False),  # when they were labelled
        *(({"frame": 0}, {"frame": value}, value == 1) for value in (0, 1, None, "")),
        ({"view": "front"}, {"view": "side"}, False),
        ({"view": 1}, {"view": 2}, True),
        ({"frame": 1}, {"image": "a.jpg"}, False),
    ],
)
def test_objects_of_two_places_are_of_two_images(first, second, apart):
    seconds = all(
        isinstance(row.get("timestamp", 0), (int, float)) and row.get("timestamp", 0) < 1e6 for row in (first, second)
    )
    if apart and seconds:
        with pytest.raises(InputError, match="expected objects of one image"):
            check_places([first, second])
    else:
        check_places([first, second])


@pytest.mark.parametrize(
    "field", [{"image_source": "web"}, {"image_type": "rgb"}, {"camera": 3}, {"page": 7}, {"timestamp": 2}]
)
def test_what_names_no_image_may_differ_from_the_record(field):
    check_places([field], {"image": "a.jpg", "image_id": 5})
    assert not states_more({"id": 1, **field}) and states_more({"id": 1, "frame": 3})
    assert (
        states_more({"id": 1, "obb": []})
        and states_more({"bbox": 1, "deleted": 0, "note": 1})
        and not states_more({"id": 1, "note": 2})
    )
