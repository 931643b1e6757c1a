"""Predictions from files and records; messages name file, line and field."""

import io
import json
import math

import numpy as np
import pytest

from coord_eval import AnswerSettings, InputError, score
from coord_eval.intake.predictions import load_predictions
from coord_eval.metrics.pycoco import QuietCOCO


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"image_id": 1}, r"line 2: text: missing; found the keys image_id"),
        ({"image_id": 1, "text": 3}, r"line 2: text"),
        ({"text": "x"}, r"line 2: image_id: missing"),
        ({"image_id": True, "text": "x"}, r"line 2: image_id"),
        ({"image_id": 1.5, "text": "x"}, r"line 2: image_id"),
        ({"image_id": 1, "text": "x", "finish_reason": "done"}, r"line 2: finish_reason: .*'stop'"),
        ({"image_id": 1, "text": "x", "coord_logprobs": [0.5]}, r"line 2: coord_logprobs\[0\]: .*found 0.5"),
        ({"image_id": 1, "text": "x", "coord_logprobs": ["a"]}, r"line 2: coord_logprobs\[0\]"),
        ({"image_id": 1, "text": "x", "coord_logprobs": {}}, r"line 2: coord_logprobs"),
        ({"image_id": 1, "text": "x", "desc_logprobs": [[-1], [1]]}, r"line 2: desc_logprobs\[1\]"),
        (
            {"image_id": 1, "text": "x", "desc_logprobs": [-1, -2], "desc_token_counts": [1]},
            r"line 2: desc_token_counts: they add up to 1",
        ),
    ],
)
def test_load_predictions_names_line_and_field(tmp_path, record, message):
    path = tmp_path / "p.jsonl"
    path.write_text('{"image_id": 0, "text": ""}\n' + json.dumps(record) + "\n")
    with pytest.raises(InputError, match=message):
        load_predictions(path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, math.nan], "score": 1}, r"\[0\]\.bbox"),
        ({"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": math.nan}, r"\[0\]\.score"),
        ({"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}, r"\[0\]\.score"),
        ({"image_id": 1, "category_id": 1, "bbox": [1, 2, -3, 4], "score": 1}, r"\[0\]\.bbox: .*width and height"),
        ({"category_id": 1, "bbox": [1, 2, 3, 4], "score": 1}, r"\[0\]\.image_id"),
    ],
)
def test_load_predictions_names_the_faulty_result(record, message):
    with pytest.raises(InputError, match=message):
        load_predictions([record])


def test_load_predictions_names_what_it_takes():
    with pytest.raises(InputError, match=r'predictions\[0\]: expected an object as \{"image_id": 1, .*, found str'):
        load_predictions(["[]"])
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="expected a list of results or answers, found int"):
        load_predictions(3)
    with pytest.raises(InputError, match="found an object with the keys a"):
        load_predictions({"a": 1})
    with pytest.raises(InputError, match="expected a score in each annotation, found 1 of 2 without"):
        load_predictions({"annotations": [{"score": 1.0}, {}], "images": []})
    table = pandas.DataFrame([{"image_id": 1, "text": "[]"}, {"image_id": 2, "text": "[]", "finish_reason": "stop"}])
    assert [p.finish_reason for p in load_predictions(table)] == [None, "stop"]


def test_load_predictions_accepts_blank_lines_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"image_id": 1, "text": "a\xe2\x80\xa8b"}\r\n\r\n')
    (prediction,) = load_predictions(path)
    assert prediction.text == "a\u2028b"


def test_load_predictions_accepts_an_error_without_text(one_cat):
    (prediction,) = load_predictions([{"image_id": 1, "finish_reason": "error"}])
    evaluation = score(one_cat, [{"image_id": 1, "finish_reason": "error"}])
    assert prediction.text == ""
    assert (evaluation.format["parsed"], evaluation.format["errors"]) == (0, 1)


RESULTS = [{"image_id": 1, "category_id": 1, "bbox": [1.0, 2.0, 30.0, 40.0], "score": 0.5}]


def rows(results):
    """Id of the image, id and name of the category, box and score of each row of a results list."""
    table = results.table
    columns = (table.image_N, table.label_N, table.boxes_N4[:, :2], table.sides_N2, table.score_N)
    return [
        (table.image_ids[image], *results.categories[label], *low, *sides, score)
        for image, label, low, sides, score in zip(*(column.tolist() for column in columns), strict=True)
    ]


def test_load_predictions_takes_results_in_every_shape(tmp_path, one_cat, monkeypatch):
    """JSON lines, CSV, a COCO data set with scores, pycocotools' object and standard input give the same boxes."""
    expected = rows(load_predictions(RESULTS))
    assert expected == [(1, 1, None, 1, 2, 30, 40, 0.5)]
    lines = "".join(json.dumps(record) + "\n" for record in RESULTS)
    (tmp_path / "results.jsonl").write_text(lines)
    (tmp_path / "results.csv").write_text('image_id,category_id,bbox,score\n1,1,"[1.0, 2.0, 30.0, 40.0]",0.5\n')
    (tmp_path / "cvat.json").write_text(json.dumps({**one_cat, "annotations": RESULTS}))
    (tmp_path / "R.JSON").write_text(json.dumps(RESULTS))
    for name in ("results.jsonl", "results.csv", "R.JSON"):
        assert rows(load_predictions(tmp_path / name)) == expected, name
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert rows(load_predictions("-")) == expected
    coco = QuietCOCO()
    coco.dataset = {**one_cat, "annotations": RESULTS}
    for named in (load_predictions(coco), load_predictions(tmp_path / "cvat.json")):
        assert rows(named) == [(1, 1, "cat", 1, 2, 30, 40, 0.5)] and list(named.table.names) == ["1.jpg"]


def test_score_takes_pycocotools_ground_truth_and_texts_by_image(one_cat):
    coco = QuietCOCO()
    coco.dataset = one_cat
    text = '[{"bbox_2d": [10, 25, 310, 525], "label": "cat"}]'
    evaluation = score(coco, {1: text}, answers=AnswerSettings(scale=1000))
    assert evaluation["AP"] == pytest.approx(1.0)


def test_load_predictions_takes_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(RESULTS), tmp_path / "p.parquet")
    assert rows(load_predictions(tmp_path / "p.parquet")) == rows(load_predictions(RESULTS))


def test_fused_objects_of_a_record_are_scored_in_place_of_its_text():
    cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}
    truth = [{"image": "a.jpg", "image_id": 1, "width": 100, "height": 50, "objects": [cat]}]
    stated = {"desc": "cat", "bbox_xyxy": [10, 10, 50, 30], "score": 0.75}
    record = {"image_id": 1, "width": 100, "height": 50, "text": "no box", "objects": [stated], "finish_reason": "stop"}
    assert score(truth, [record])["AP"] == 0
    evaluation = score(truth, [record | {"fused": {}}])
    assert evaluation["AP"] == pytest.approx(1) and evaluation.detections.scores_D.tolist() == [0.75]
    assert any("fused" in note for note in evaluation.notes)
    for faulty in ({"width": None}, {"objects": None}, {"objects": [{"desc": "cat"}]}):
        with pytest.raises(InputError, match=r"predictions\[0\]: (fused|objects)"):
            score(truth, [record | {"fused": {}} | faulty])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "image_id,text\n1,a\n".encode("utf-16"), "not UTF-8 text"),
        ("a.csv", b"image_id,text\n1,a,b\n", r"line 2: expected 2 cells, found 3"),
        ("a.csv", b"image_id,category_id,bbox,score\n1,1\n", r"line 2: expected 4 cells, found 2"),
        (
            "a.csv",
            b"image_id,category_id,x,y,width,height,score\n",
            r"expected the columns .*bbox.*, found image_id, c",
        ),
        ("a.csv", None, "cannot be read"),
        ("a.parquet", b"PAR1 and no more", "no readable Parquet file"),
        ("a.jsonl", b'{"image": " ", "text": "[]"}', "line 1: image"),
        ("a.jsonl", b"", "empty"),
    ],
)
def test_file_that_cannot_be_read_is_one_line(tmp_path, name, content, message):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}.*{message}") as raised:
        load_predictions(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_long_cell_of_a_csv_file_is_read(tmp_path):
    (tmp_path / "a.csv").write_text(f"image_id,text\n1,{'a' * 200_000}\n")
    assert len(load_predictions(tmp_path / "a.csv")[0].text) == 200_000


@pytest.mark.parametrize(
    "unusual", [{"image_id": "a"}, {"score": np.float32(0.5)}, {"image": "1.jpg"}, {"bbox": (1, 2, 3, 4)}]
)
def test_columns_of_unusual_records_are_those_of_usual_ones(unusual):
    """Records are read at once or one by one, with the same result."""
    usual = [{"image_id": n % 3, "category_id": n % 2, "bbox": [1.0, 2.0, 3.0, n], "score": 0.5} for n in range(6)]
    odd = {**usual[0], **unusual}
    assert rows(load_predictions([*usual, odd]))[:6] == rows(load_predictions(usual))
    for record in (
        {**usual[0], "bbox": [1, 2, True, 4]},
        {**usual[0], "score": "0.5"},
        {**usual[0], "bbox": [1, 2, -3, 4]},
        {**usual[0], "image_id": None},
        {**usual[0], "category_id": {}},
    ):
        with pytest.raises(InputError, match=r"predictions\[6\]"):
            load_predictions([*usual, record, {**record, "bbox": 5}])


def test_cells_of_names_stay_text_and_a_list_after_a_byte_order_mark_is_read(tmp_path):
    row = {"image_id": "7", "text": "8", "image": "9", "finish_reason": "stop", "label": "10", "coord_logprobs": "[-1]"}
    (tmp_path / "a.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n\n")
    (found,) = load_predictions(tmp_path / "a.csv")
    stated = (found.image_id, found.text, found.image, found.finish_reason, found.label, found.coord_logprobs)
    assert stated == (7, "8", "9", "stop", "10", (-1,))
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf \n" + json.dumps(RESULTS).encode())
    assert rows(load_predictions(tmp_path / "a.json")) == rows(load_predictions(RESULTS))


@pytest.mark.parametrize(
    ("fields", "stated"),
    [
        ({"input_width": 3}, {"input_size": None}),
        ({"input_width": 3, "input_height": 4}, {"input_size": (3, 4)}),
        ({"bbox": [1, 2, 3, 4], "category_id": 1, "score": 1}, {"text": "x"}),  # an answer, whatever else it holds
        ({"coord_logprobs": [5e-4, -1]}, {"coord_logprobs": (0, -1)}),
        ({"coord_expected": [-5e-7, 1 + 5e-7]}, {"coord_expected": (0, 1)}),
        ({"image_id": 2.0, "tile": [0, 0, 1, 1]}, {"image_id": 2, "tile": (0, 0, 1, 1)}),
        ({"image_id": None, "image": "a.jpg"}, {"image_id": None, "image": "a.jpg"}),
    ],
)
def test_fields_of_a_record_are_those_of_its_answer(fields, stated):
    (found,) = load_predictions([{"image_id": 1, "text": "x", **fields}])
    assert {name: getattr(found, name) for name in stated} == stated


OUTLINE, POINTS = [1, 2, 31, 2, 31, 42], [1, 2, 2, 0, 0, 0, 31, 42, 1]


def test_shapes_of_results_place_their_boxes_and_stay_with_their_rows():
    both = {"image_id": 1, "category_id": 1, "score": 0.5}
    mask = {"size": [4, 5], "counts": [6, 2, 2, 2, 8]}
    rows = [{"segmentation": [OUTLINE]}, {"keypoints": POINTS}, {"segmentation": mask}, {"bbox": [1, 2, 3, 4]}]
    rows.append({"bbox": [5, 6, 7, 8], "segmentation": [OUTLINE], "keypoints": POINTS})
    found = load_predictions([{**both, **row} for row in rows])
    boxes = [[1, 2, 31, 42], [0, 0, 31, 42], [1, 2, 3, 4], [1, 2, 4, 6], [5, 6, 12, 14]]
    assert found.table.boxes_N4.tolist() == boxes
    areas = [shape and shape.get("area", "stated") for shape in found.shapes_R]
    assert areas == [None, 31 * 42, 4, None, "stated"]
    part = found[np.array([4, 1])]
    assert [sorted(shape) for shape in part.shapes_R] == [["keypoints", "segmentation"], ["area", "keypoints"]]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"segmentation": [[1, 2, 3, 4]]}, "three points or more an outline, found 4 numbers"),
        ({"segmentation": [OUTLINE, [*OUTLINE, 7]]}, "three points or more an outline, found 6, 7 numbers"),
        ({"segmentation": {"size": [2, 2], "counts": [5, -1]}}, r"segmentation.counts: expected runs of 4 pixels"),
        ({"segmentation": {"size": [2, 2], "counts": [5]}}, r"segmentation.counts: expected runs of 4 pixels, found 5"),
        ({"segmentation": {"size": [2, 2], "counts": 4}}, r"segmentation.counts: expected text or a list of runs"),
        ({"segmentation": "x"}, "expected outlines or a mask, found 'x'"),
        ({"keypoints": [1, 2]}, "keypoints: expected x, y and v of each, found 2 numbers"),
    ],
)
def test_faulty_shape_of_a_result_is_named(shape, message):
    with pytest.raises(InputError, match=rf"predictions\[0\]\.{message if '.' in message[:14] else '.*' + message}"):
        load_predictions([{"image_id": 1, "category_id": 1, "score": 0.5, "bbox": [1, 2, 3, 4], **shape}])
