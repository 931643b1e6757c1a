"""Exports are read back by the tools they are meant for, and expressions are scored."""

import contextlib
import csv
import io
import json

import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from coord_eval import (
    InputError,
    oracle_predictions,
    parse_answer,
    score,
    score_expressions,
    to_coco_results,
    to_fiftyone,
    to_supervision,
    write_exports,
)
from coord_eval.cli import main


@pytest.fixture
def evaluation(coco_set):
    records = oracle_predictions(coco_set)
    records[1]["text"] = records[1]["text"].replace("cat", "unicorn").replace("dog", "unicorn")
    return score(coco_set, records)


def test_coco_results_score_the_same_in_pycocotools(coco_set, evaluation, tmp_path):
    truth = {**coco_set, "annotations": [{**a, "id": a["id"] + 1} for a in coco_set["annotations"]]}
    (tmp_path / "t.json").write_text(json.dumps(truth))
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(tmp_path / "t.json"))
        evaluator = COCOeval(coco, coco.loadRes(to_coco_results(evaluation)), "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    assert evaluator.stats[0] == pytest.approx(evaluation.coco["AP"])
    assert score(coco_set, to_coco_results(evaluation)).coco == pytest.approx(evaluation.coco)


def test_csv_has_a_row_for_each_picture_and_class(evaluation, tmp_path):
    write_exports(evaluation, tmp_path)
    rows = list(csv.DictReader((tmp_path / "images.csv").open()))
    assert len(rows) == len(evaluation.truth)
    assert sum(int(row["hits"]) for row in rows) == int((evaluation.matches.iou_D >= 0.5).sum())
    classes = list(csv.DictReader((tmp_path / "classes.csv").open()))
    assert {row["class"]: float(row["AP"]) for row in classes} == {
        name: row["AP"] for name, row in evaluation.per_class.items()
    }


def test_a_label_is_never_a_formula(tmp_path):
    truth = {
        "images": [{"id": 1, "file_name": "=HYPERLINK(1)", "width": 9, "height": 9}],
        "categories": [{"id": 1, "name": "+cmd"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}],
    }
    write_exports(score(truth, []), tmp_path)
    assert next(csv.DictReader((tmp_path / "images.csv").open()))["image"] == "'=HYPERLINK(1)"
    assert next(csv.DictReader((tmp_path / "classes.csv").open()))["class"] == "'+cmd"


def test_fiftyone_labels_keep_unknown_ones_and_lie_in_the_unit_square(evaluation):
    records = to_fiftyone(evaluation)
    assert len(records) == len(evaluation.truth)
    items = [item for record in records for item in record["detections"]]
    assert len(items) == len(evaluation.detections)
    assert "unicorn" in {item["label"] for item in items}
    for item in items:
        x, y, w, h = item["bounding_box"]
        assert 0 <= x < x + w <= 1 + 1e-9 and 0 <= y < y + h <= 1 + 1e-9


def test_supervision(evaluation):
    pytest.importorskip("supervision")
    by_name = to_supervision(evaluation)
    assert sum(len(d) for d in by_name.values()) == len(evaluation.detections)
    name, found = next((n, d) for n, d in by_name.items() if len(d))
    image = evaluation.truth.file_names.index(name)
    x, y, w, h = evaluation.detections.boxes_D4[evaluation.detections.image_D == image][0]
    assert found.xyxy[0].tolist() == pytest.approx([x, y, x + w, y + h])
    assert found.data["class_name"][0] in (*evaluation.truth.categories, "unicorn")


def test_without_supervision_the_error_says_what_to_install(evaluation, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(InputError, match=r"coord-eval\[supervision\]"):
        to_supervision(evaluation)


def test_the_command_writes_them_all(coco_set, tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(coco_set))
    (tmp_path / "p.json").write_text("[]")
    files = ["--ground-truth", str(tmp_path / "t.json"), "--predictions", str(tmp_path / "p.json")]
    assert main(["score", *files, "--out", str(tmp_path / "o"), "--export"]) == 0
    assert {p.name for p in (tmp_path / "o").iterdir()} == {
        "evaluation.json",
        "report.html",
        "images.csv",
        "classes.csv",
        "coco_results.json",
        "fiftyone.json",
    }


def test_referring_expressions():
    half = "<|box_start|>(0,0),(500,1000)<|box_end|>"
    texts = ["<|box_start|>(0,0),(1000,1000)<|box_end|>", half + half, "I see no such thing."]
    boxes = [(0, 0, 1, 1), (0, 0, 1, 1), (0, 0, 1, 1)]
    found = score_expressions(boxes, map(parse_answer, texts), thresholds=(0.5, 0.75))
    assert found.accuracy == pytest.approx({"0.5": 2 / 3, "0.75": 1 / 3})
    assert found.mean_iou == pytest.approx(0.5)
    assert (found.phrases, found.without_box, found.several_boxes) == (3, 1, 1)
    assert score_expressions([], []).accuracy == {"0.5": 0.0}
    with pytest.raises(InputError, match="3 boxes and 0 answers"):
        score_expressions(boxes, [])
