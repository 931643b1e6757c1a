"""Object and Instance: what a record may be, and messages that name the field."""

import json
import math

import pytest
from pydantic import ValidationError

from coord_codec import Instance, Object, read_annotations
from coord_codec.boxes import widened
from coord_codec.records import descriptions_in, phrase_of, with_uncertain

BOX = [0.1, 0.2, 0.3, 0.4]


def tokens(*bins):
    return [f"<|coord_{k}|>" for k in bins]


def faults(**record):
    with pytest.raises(ValidationError) as caught:
        Instance(**{"image": "a.jpg", "objects": [], **record})
    return {".".join(map(str, e["loc"])): e["msg"] for e in caught.value.errors()}


def box_fault(bbox, **record):
    found = faults(objects=[{"desc": "cat", "bbox": BOX}, {"desc": "cat", "bbox": bbox}], **record)
    assert list(found) == ["objects.1.bbox"]
    return found["objects.1.bbox"]


def test_a_whole_record():
    record = {
        "image": "images/a.jpg", "width": 640, "height": 480, "image_id": 42, "split": "val",
        "objects": [{"desc": "red car", "bbox": BOX, "iscrowd": 0, "_note": [1]}],
    }  # fmt: skip
    instance = Instance(**record)
    assert (instance.image, instance.width, instance.height, instance.image_id) == ("images/a.jpg", 640, 480, 42)
    assert instance.objects == (Object(desc="red car", bbox=BOX, iscrowd=0, _note=[1]),)
    assert instance.objects[0].bbox == (0.1, 0.2, 0.3, 0.4)
    assert instance.model_extra == {"split": "val"}
    assert instance.objects[0].model_extra == {"_note": [1]}
    assert instance.model_dump(mode="json", exclude_unset=True) == record


def test_the_least_record():
    instance = Instance(image="a.jpg", objects=[])
    assert instance.objects == () and instance.width is instance.height is instance.image_id is None
    assert Instance(image="a.jpg", objects=[], image_id="0001").image_id == "0001"


def test_record_takes_whole_numbers_with_a_point_as_pandas_writes_them():
    record = json.loads('{"image": "a.jpg", "width": 640.0, "height": 480.0, "image_id": 42.0, "objects": []}')
    instance = Instance.model_validate(record)
    assert repr((instance.width, instance.height, instance.image_id)) == "(640, 480, 42)"


def test_frozen():
    instance = Instance(image="a.jpg", objects=[{"desc": "cat", "bbox": BOX}])
    with pytest.raises(ValidationError):
        instance.image = "b.jpg"
    with pytest.raises(ValidationError):
        instance.objects[0].desc = "dog"


def test_token_boxes_are_thousandths():
    assert Object(desc="cat", bbox=tokens(0, 7, 500, 999)).bbox == (0.0, 0.007, 0.5, 0.999)
    assert "'<|coord_007|>' is not a coordinate token" in box_fault(["<|coord_007|>", *tokens(1, 2, 3)])
    assert "'<|coord_1000|>' is not a coordinate token" in box_fault(tokens(0, 0, 1000, 1))
    assert "0.5 is not a coordinate token" in box_fault([*tokens(0, 0, 7), 0.5])
    assert "'0.1' is not a coordinate token" in box_fault(["0.1", "0.2", "0.3", "0.4"])
    assert "x1 < x2" in box_fault(tokens(5, 0, 5, 1))


def test_bins_are_read_only_where_the_record_says_so():
    def box(bbox, **record):
        return Instance(image="a.jpg", objects=[{"desc": "cat", "bbox": bbox}], **record).objects[0].bbox

    assert box([0, 0, 1, 1]) == (0.0, 0.0, 1.0, 1.0)
    assert box([0, 0, 1, 1], coord_space="bins") == (0.0, 0.0, 0.001, 0.001)
    assert box([0, 0, 999.0, 1], coord_space="bins") == (0.0, 0.0, 0.999, 0.001)
    assert box(tokens(0, 0, 999, 1), coord_space="bins") == (0.0, 0.0, 0.999, 0.001)
    assert "coord_space" not in Instance(image="a.jpg", objects=[], coord_space="bins").model_extra
    for bad in ([0, 0, 0.5, 1], [0, 0, math.inf, 1], [0, 0, math.nan, 1]):
        assert "expected whole numbers" in box_fault_in_bins(bad)
    assert "0..999" in box_fault_in_bins([0, 0, 1000, 1])
    assert "expected 'bins' or no such key" in faults(coord_space="pixels")[""]


def box_fault_in_bins(bbox):
    good = {"desc": "cat", "bbox": [1, 2, 3, 4]}
    return faults(objects=[good, {"desc": "cat", "bbox": bbox}], coord_space="bins")["objects.1.bbox"]


REFUSED = {
    "expected x1 < x2 and y1 < y2": [[0.3, 0.2, 0.1, 0.4], [0.1, 0.4, 0.3, 0.2], [0.1, 0.2, 0.1, 0.4], [0, 0, 0, 0]],
    "outside [0, 1]": [
        [12, 34, 56, 78],
        [0.0, 0.0, 1.5, 1.0],
        [0.0, 0.5, 1.0, 1.5],
        [-0.5, 0.0, 0.5, 1.0],
        [-0.1, 0, 1, 1],
        [0, 0, 1, math.nan],
        [0, 0, math.inf, 1],
        [0, 0, 10**400, 1],
    ],
    "expected four values x1, y1, x2, y2": [[0, 0, 1], [0, 0, 1, 1, 1], [], None, "0 0 1 1", 5, {"x": 1}],
    "expected four numbers or four coordinate tokens": [[0, 0, True, 1], [0, 0, None, 1], [0, [0], 1, 1]],
}


@pytest.mark.parametrize(("told", "bad"), [(told, bad) for told, boxes in REFUSED.items() for bad in boxes])
def test_box_that_is_none_is_refused(told, bad):
    assert told in box_fault(bad)


def test_long_values_are_cut_in_messages():
    for fault in (box_fault([0.1] * 5000), box_fault([None] * 4 * 1000)):
        assert len(fault) < 300
    path = {str(n): n for n in range(5000)}
    (problem,) = read_annotations([{"image": "a.jpg", "objects": path}]).problems
    assert "found {'0': 0" in problem.message and len(problem.message) < 300


def test_arrays_are_boxes():
    np = pytest.importorskip("numpy", reason="boxes as arrays")
    in_bins = {"image": "a.jpg", "objects": [{"desc": "cat", "bbox": np.array([0, 0, 1, 1])}], "coord_space": "bins"}
    assert Instance(**in_bins).objects[0].bbox == (0.0, 0.0, 0.001, 0.001)
    bbox = np.array([0.125, 0.25, 0.5, 1], dtype=np.float32)
    assert Object(desc="cat", bbox=bbox).bbox == Object(desc="cat", bbox=list(bbox)).bbox == (0.125, 0.25, 0.5, 1.0)


@pytest.mark.parametrize("desc", ["red car", "猫", "a < b | c", "<b>", "x<|y", "50% off (1,2),(3,4)", '"quoted"\n'])
def test_descriptions_are_any_words(desc):
    assert Object(desc=desc, bbox=BOX).desc == desc


@pytest.mark.parametrize(
    ("desc", "word"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("a <obj_start> b", "<obj_start>"),
        ("a<obj_end>", "<obj_end>"),
        ("<|box_start|>", "<|box_start|>"),
        ("cat <|coord_7|>", "<|coord_7|>"),
        ("cat <|coord_*|>", "<|coord_*|>"),
        ("cat <|coord_1000|>", "<|coord_1000|>"),
        ("cat<|im_end|>", "<|im_end|>"),
        *((f"a {token} b", token) for token in ("<image>", "<video>", "<audio>", "<IMG_CONTEXT>", "[IMG]")),
        *((f"a{token}", token) for token in ("<start_of_image>", "<image_soft_token>", "<audio_soft_token>")),
        *((token, token) for token in ("<|object_ref_start|>", "<|object_ref_end|>", "<|box_end|>", "<|image_pad|>")),
        ("\ud800", "surrogate"),
        (5, "string"),
        (None, "string"),
    ],
)
def test_descriptions_that_would_break_the_text(desc, word):
    assert word in faults(objects=[{"desc": desc, "bbox": BOX}])["objects.0.desc"]


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("image", ""), ("image", None), ("width", 0), ("width", "640"), ("width", 640.5), ("height", -1),
        ("height", True), ("image_id", 1.5), ("objects", None), ("objects", {"desc": "cat"}),
    ],
)  # fmt: skip
def test_other_fields_are_named(field, bad):
    assert any(name.split(".")[0] == field for name in faults(**{field: bad}))


def test_missing_fields_are_named():
    with pytest.raises(ValidationError) as caught:
        Instance.model_validate({"objects": [{"desc": "cat"}, {"bbox": BOX}]})
    assert [e["loc"] for e in caught.value.errors()] == [("image",), ("objects", 0, "bbox"), ("objects", 1, "desc")]


@pytest.mark.parametrize(
    ("box", "wide"),
    [
        ((0.5, 0.25, 0.5, 0.75), (0.4995, 0.25, 0.5005, 0.75)),
        ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0005, 0.0005)),
        ((1.0, 0.5, 1.0, 0.5), (0.9995, 0.4995, 1.0, 0.5005)),
        ((0.1, 0.2, 0.3, 0.4), (0.1, 0.2, 0.3, 0.4)),
    ],
)
def test_box_around_a_shape_without_an_extent_has_one_within_the_image(box, wide):
    assert widened(box) == pytest.approx(wide)


def test_refused_descriptions_join_those_that_were_uncertain_and_must_be_words():
    instance = Instance(image="a.jpg", objects=[], uncertain=["owl", "cat"], absent="cow", query=" ")
    joined = with_uncertain(instance, ["dog", "cat", None, 5, "", "<|box_end|>"])
    assert (
        descriptions_in(joined, "uncertain") == ("cat", "dog", "owl") and with_uncertain(instance, [None]) is instance
    )
    assert descriptions_in(instance, "absent") is None and descriptions_in(instance, "other") is None
    assert phrase_of(instance) is None and phrase_of(Instance(image="a.jpg", objects=[], query="a cat")) == "a cat"


def test_fraction_of_a_pixel_or_of_an_id_is_none():
    for field in ("width", "height", "image_id"):
        assert any(name.split(".")[0] == field for name in faults(**{field: 7.5}))
        assert getattr(Instance(image="a.jpg", objects=[], **{field: 7.0}), field) == 7


def test_shape_is_kept_beside_a_box_and_read_in_bins_with_it():
    shape = {"type": "point", "coordinates": [100, 200]}
    in_bins = {"image": "a.jpg", "objects": [{"desc": "a", "bbox": [0, 0, 500, 500], "geometry": shape}]}
    (obj,) = Instance(**in_bins, coord_space="bins").objects
    assert (obj.bbox, obj.geometry.coordinates) == ((0.0, 0.0, 0.5, 0.5), (0.1, 0.2))
    assert Object(desc="a", bbox=BOX, geometry={"type": "point", "coordinates": [0.9, 0.9]}).bbox == tuple(BOX)
    with pytest.raises(ValueError, match="expected four values"):
        Object(desc="a", bbox=[], geometry={"type": "point", "coordinates": [0.9, 0.9]})
    for more in ({"angle_deg": 30}, {"obb": [1] * 8}):
        for before in range(3):
            told = faults(objects=[{"desc": "a", "bbox": BOX}] * before + [{"desc": "a", "bbox": BOX, **more}])
            assert any("beside bbox" in message for message in told.values())
