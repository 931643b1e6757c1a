"""annotate_coord_tokens: what tokens and bins mean, added in place, and nothing read into plain numbers."""

import copy

import pytest

from coord_codec import annotate_coord_tokens

np = pytest.importorskip("numpy", reason="boxes as arrays")


def tokens(*bins):
    return [f"<|coord_{k}|>" for k in bins]


def record(*boxes, **more):
    return {"image": "a.jpg", "objects": [{"desc": "cat", "bbox": box} for box in boxes], **more}


def test_tokens():
    r = record(tokens(1, 20, 300, 999))
    assert annotate_coord_tokens(r) is True
    assert r["objects"][0] == {
        "desc": "cat",
        "bbox": tokens(1, 20, 300, 999),
        "_coord_tokens": {"bbox": tokens(1, 20, 300, 999)},
        "_coord_token_ints": {"bbox": [1, 20, 300, 999]},
        "_coord_token_norm": {"bbox": [0.001, 0.02, 0.3, 0.999]},
    }
    once = copy.deepcopy(r)
    assert annotate_coord_tokens(r) is True and r == once


def test_bins_only_if_the_record_says_so():
    r = record([0, 0, 1, 1], coord_space="bins")
    assert annotate_coord_tokens(r) is True
    assert r["objects"][0]["_coord_tokens"] == {"bbox": tokens(0, 0, 1, 1)}
    assert r["objects"][0]["_coord_token_norm"] == {"bbox": [0.0, 0.0, 0.001, 0.001]}
    r = record([0, 0, 12.0, 7], coord_space="bins")
    assert annotate_coord_tokens(r) and r["objects"][0]["_coord_token_ints"] == {"bbox": [0, 0, 12, 7]}
    assert [type(k) for k in r["objects"][0]["_coord_token_ints"]["bbox"]] == [int] * 4


@pytest.mark.parametrize("box", [np.array([0, 0, 12, 7]), [*np.array([0, 0, 12, 7])], np.float32([0, 0, 12, 7])])
def test_numpy_bins(box):
    r = record(box, coord_space="bins")
    assert annotate_coord_tokens(r) is True
    assert r["objects"][0]["_coord_token_ints"] == {"bbox": [0, 0, 12, 7]}
    assert [type(k) for k in r["objects"][0]["_coord_token_ints"]["bbox"]] == [int] * 4
    assert annotate_coord_tokens(record(np.array([0, 0, 1, 1]))) is False
    assert annotate_coord_tokens(record(np.array(tokens(1, 2, 3, 4)))) is True


@pytest.mark.parametrize(
    "r",
    [
        record([0, 0, 1, 1]),
        record([0, 0, 1, 1], coord_space="unit"),
        record([12, 34, 56, 78]),
        record([0.1, 0.2, 0.3, 0.4]),
        record([0, 0, 0.5, 1], coord_space="bins"),
        record([0, 0, True, 1], coord_space="bins"),
        record([0, 0, float("nan"), float("inf")], coord_space="bins"),
        record([]),
        record(None),
        {"image": "a.jpg", "objects": [{"desc": "cat"}, "cat"]},
        {"image": "a.jpg", "objects": []},
        {"image": "a.jpg", "objects": None},
        {"image": "a.jpg"},
    ],
)
def test_nothing_to_annotate(r):
    before = copy.deepcopy(r)
    assert annotate_coord_tokens(r) is False
    assert str(r) == str(before)  # as text, since NaN differs from itself


def test_some_objects_with_and_some_without():
    r = record([0.1, 0.2, 0.3, 0.4], tokens(1, 2, 3, 4))
    assert annotate_coord_tokens(r) is True
    assert "_coord_tokens" not in r["objects"][0] and "_coord_tokens" in r["objects"][1]
    r["objects"] = ["cat", None, {"desc": "cat"}, {"bbox": tokens(5, 6, 7, 8)}, []]
    assert annotate_coord_tokens(r) is True and r["objects"][3]["_coord_token_ints"] == {"bbox": [5, 6, 7, 8]}


@pytest.mark.parametrize("objects", [5, True, "cat", {"desc": "cat"}])
def test_objects_that_are_no_list_are_named(objects):
    with pytest.raises(ValueError, match="objects: expected a list, found"):
        annotate_coord_tokens({"image": "a.jpg", "objects": objects})


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([*tokens(1, 2, 3), "<|coord_1000|>"], "'<|coord_1000|>' is not a coordinate token"),
        ([*tokens(1, 2, 3), 0.5], "0.5 is not a coordinate token"),
        ([*tokens(1, 2, 3), "<|coord_*|>"], "is not a coordinate token"),
        (tokens(1), "expected 4 coordinates of the geometry box (x1, y1, x2, y2: two corners), found 1"),
        (tokens(1, 2, 3, 4, 5), "found 5"),
        ([7], "found 1"),
        (np.array([1, 2]), "found 2"),
        ([0, 0, 1000, 1], "bin 1000"),
        ([0, 0, -1, 1], "bin -1"),
    ],
)
def test_a_wrong_box_is_named_and_the_record_left_alone(bad, words):
    r = record(tokens(1, 2, 3, 4), bad, coord_space="bins")
    before = copy.deepcopy(r)
    with pytest.raises(ValueError, match=r"^objects\[1\]\.bbox: ") as caught:
        annotate_coord_tokens(r)
    assert words in str(caught.value) and str(r) == str(before)


def test_box_and_shape_of_an_object_are_annotated_beside_each_other():
    shapes = {"point": [5, 6], "polygon": [5, 1, 9, 5, 1, 5], "oriented": [5, 1, 9, 5, 5, 9, 1, 5], "keypoints": [1, 2]}
    for name, bins in shapes.items():
        shape = {"type": name, "coordinates": tokens(*bins)}
        r = {"objects": [{"bbox": tokens(1, 2, 3, 4), "geometry": shape}, {"geometry": {**shape, "coordinates": bins}}]}
        assert annotate_coord_tokens(r) is True
        first, second = r["objects"]
        assert first["_coord_token_ints"] == {"bbox": [1, 2, 3, 4], name: bins} and "_coord_tokens" not in second
        assert first["_coord_tokens"] == {"bbox": tokens(1, 2, 3, 4), name: tokens(*bins)}
        assert first["_coord_token_norm"] == {"bbox": [0.001, 0.002, 0.003, 0.004], name: [k / 1000 for k in bins]}
