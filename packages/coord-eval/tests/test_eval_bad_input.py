"""Bad files: the message names file, record and field, and says what was expected."""

import json
import math

import pytest

from coord_eval import InputError, load_ground_truth, score
from coord_eval.predictions import from_records, read_predictions


def base():
    return {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 100, "height": 80}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40]}],
    }


def broken(path, value):
    data = base()
    target = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("images",), None, r"list 'images'"),
        (("annotations",), {}, r"list 'annotations'"),
        (("annotations", 0, "image_id"), 7, r"annotations\[0\]\.image_id: 7 is not among"),
        (("annotations", 0, "category_id"), 7, r"annotations\[0\]\.category_id: 7 is not among"),
        (("annotations", 0, "bbox"), [1, 2, 3], r"annotations\[0\]\.bbox: expected 4 numbers"),
        (("annotations", 0, "bbox"), [1, 2, math.nan, 3], r"annotations\[0\]\.bbox: expected finite numbers"),
        (("annotations", 0, "bbox"), [1, 2, -3, 3], r"annotations\[0\]\.bbox: .*width and height"),
        (("annotations", 0, "bbox"), "1 2 3 4", r"annotations\[0\]\.bbox: expected 4 numbers"),
        (("annotations", 0, "area"), math.inf, r"annotations\[0\]\.area"),
        (("annotations", 0), 3, r"annotations\[0\]: expected an object"),
        (("images", 0, "id"), None, r"images\[0\]\.id"),
        (("images", 0, "width"), 0, r"images\[id=1\]: expected a positive width"),
        (("categories", 0, "name"), "", r"categories\[id=1\]\.name"),
        (
            ("categories",),
            [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}],
            r"categories\[1\]\.id: 1 occurs twice",
        ),
    ],
)
def test_ground_truth(path, value, message):
    with pytest.raises(InputError, match=message):
        load_ground_truth(broken(path, value))


def test_missing_iscrowd_area_and_annotation_ids_are_no_fault():
    data = base()
    del data["annotations"][0]["id"]
    truth = load_ground_truth(data)
    assert truth.area_N.tolist() == [1200.0]
    assert not truth.crowd_N.any()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.json", "{", r"t\.json, line 1: not JSON"),
        ("t.json", "[]", r"t\.json: expected COCO annotations, found a list"),
        ("t.json", b"\xff\xfe{", r"t\.json: not UTF-8"),
        ("t.json", "[" * 100_000, r"t\.json"),
        ("t.jsonl", '{"image": "a.jpg", "objects": []}\n{"image": 3}', r"t\.jsonl:2"),
        (
            "t.jsonl",
            '{"image": "a", "objects": [{"desc": "x", "bbox": [0, 0, 2, 1]}]}',
            r"objects\[0\]\.bbox",
        ),
    ],
)
def test_ground_truth_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=message):
        load_ground_truth(path)


def test_a_missing_file(tmp_path):
    for name in ("no.json", "no.jsonl"):
        with pytest.raises(InputError, match="cannot be read"):
            load_ground_truth(tmp_path / name)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"image_id": 1}, r"line 2, text: expected the answer as text, found nothing"),
        ({"image_id": 1, "text": 3}, r"line 2, text"),
        ({"text": "x"}, r"line 2, image_id: missing"),
        ({"image_id": True, "text": "x"}, r"line 2, image_id: expected a whole number or text"),
        ({"image_id": 1.5, "text": "x"}, r"line 2, image_id"),
        (
            {"image_id": 1, "text": "x", "finish_reason": "done"},
            r"line 2, finish_reason: expected one of stop",
        ),
        ({"image_id": 1, "text": "x", "coord_logprobs": [0.5]}, r"line 2, coord_logprobs: .*above 0"),
        ({"image_id": 1, "text": "x", "coord_logprobs": ["a"]}, r"line 2, coord_logprobs: expected finite"),
        ({"image_id": 1, "text": "x", "coord_logprobs": {}}, r"line 2, coord_logprobs: expected a list"),
        ({"image_id": 1, "text": "x", "desc_logprobs": [[-1], [1]]}, r"line 2, desc_logprobs\[1\]"),
        (
            {"image_id": 1, "text": "x", "desc_logprobs": [-1, -2], "desc_token_counts": [1]},
            r"line 2, desc_token_counts: they add up to 1",
        ),
    ],
)
def test_predictions(tmp_path, record, message):
    path = tmp_path / "p.jsonl"
    path.write_text('{"image_id": 0, "text": ""}\n' + json.dumps(record) + "\n")
    with pytest.raises(InputError, match=message):
        read_predictions(path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, math.nan], "score": 1}, r"\[0\]\.bbox"),
        ({"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": math.nan}, r"\[0\]\.score"),
        ({"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}, r"\[0\]\.score"),
        (
            {"image_id": 1, "category_id": 1, "bbox": [1, 2, -3, 4], "score": 1},
            r"\[0\]\.bbox: .*width and height",
        ),
        ({"category_id": 1, "bbox": [1, 2, 3, 4], "score": 1}, r"\[0\]\.image_id"),
    ],
)
def test_results(record, message):
    with pytest.raises(InputError, match=message):
        from_records([record])


def test_a_blank_line_and_a_byte_order_mark_are_no_fault(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"image_id": 1, "text": "a\xe2\x80\xa8b"}\r\n\r\n')
    (prediction,) = read_predictions(path)
    assert prediction.text == "a\u2028b"


def test_an_answer_that_failed_needs_no_text():
    (prediction,) = from_records([{"image_id": 1, "finish_reason": "error"}])
    evaluation = score(base(), [{"image_id": 1, "finish_reason": "error"}])
    assert prediction.text == ""
    assert (evaluation.format["parsed"], evaluation.format["errors"]) == (0, 1)


@pytest.mark.parametrize("source", ["results", "confidence"])
def test_an_unknown_score_source(source):
    with pytest.raises(InputError, match="score_source: expected one of auto"):
        score(base(), [{"image_id": 1, "text": ""}], score_source=source)


def test_an_unknown_backend():
    with pytest.raises(InputError, match="backend: expected one of"):
        score(base(), [], backend="coco")


def test_answers_in_words_need_a_picture_size_in_coco_files():
    data = base()
    del data["images"][0]["width"]
    text = '[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}]'
    with pytest.raises(InputError, match=r"images\[id=1\]: width and height are missing"):
        score(data, [{"image_id": 1, "text": text}])
    assert score(data, []).ceiling == {}


def test_two_categories_of_one_name_cannot_be_told_apart_in_words():
    data = base()
    data["categories"].append({"id": 2, "name": "cat"})
    with pytest.raises(InputError, match="two are called 'cat'"):
        score(data, [{"image_id": 1, "text": ""}])
    result = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 0.5}
    assert score(data, [result]).coco["AP50"] == pytest.approx(1.0)
