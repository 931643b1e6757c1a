"""Exports are read back by the tools they are meant for."""

import csv
import json

import pytest

from coord_codec import Instance
from coord_eval import (
    InputError,
    oracle_predictions,
    score,
    to_coco_results,
    to_fiftyone,
    to_supervision,
    write_exports,
)
from coord_eval.cli.main import main


@pytest.fixture
def evaluation(coco_set):
    records = oracle_predictions(coco_set)
    records[1]["text"] = records[1]["text"].replace("cat", "unicorn").replace("dog", "unicorn")
    return score(coco_set, records)


def test_to_coco_results_score_the_same_in_pycocotools(coco_set, evaluation, by_hand):
    assert by_hand(coco_set, to_coco_results(evaluation))["AP"] == pytest.approx(evaluation.coco["AP"])
    assert score(coco_set, to_coco_results(evaluation)).coco == pytest.approx(evaluation.coco)


def test_write_exports_has_a_row_for_each_image_and_class(evaluation, tmp_path):
    write_exports(evaluation, tmp_path)
    rows = list(csv.DictReader((tmp_path / "images.csv").open()))
    assert len(rows) == len(evaluation.truth)
    assert sum(int(row["hits"]) for row in rows) == int((evaluation.matches.iou_D >= 0.5).sum())
    classes = list(csv.DictReader((tmp_path / "classes.csv").open()))
    assert {row["class"]: float(row["AP"]) for row in classes} == {
        name: row["AP"] for name, row in evaluation.per_class.items()
    }


def test_write_exports_never_writes_a_formula(one_cat, tmp_path):
    one_cat["images"][0]["file_name"], one_cat["categories"][0]["name"] = "=HYPERLINK(1)", "+cmd"
    write_exports(score(one_cat, []), tmp_path)
    assert next(csv.DictReader((tmp_path / "images.csv").open()))["image"] == "'=HYPERLINK(1)"
    assert next(csv.DictReader((tmp_path / "classes.csv").open()))["class"] == "'+cmd"


def test_to_fiftyone_keeps_unknown_labels_in_the_unit_square(evaluation):
    records = to_fiftyone(evaluation)
    assert len(records) == len(evaluation.truth)
    items = [item for record in records for item in record["detections"]]
    assert len(items) == len(evaluation.detections)
    assert "unicorn" in {item["label"] for item in items}
    for item in items:
        x, y, w, h = item["bounding_box"]
        assert 0 <= x < x + w <= 1 + 1e-9 and 0 <= y < y + h <= 1 + 1e-9


def test_to_supervision(evaluation):
    pytest.importorskip("supervision")
    by_name = to_supervision(evaluation)
    assert sum(len(d) for d in by_name.values()) == len(evaluation.detections)
    name, found = next((n, d) for n, d in by_name.items() if len(d))
    image = evaluation.truth.file_names.index(name)
    x, y, w, h = evaluation.detections.boxes_D4[evaluation.detections.image_D == image][0]
    assert found.xyxy[0].tolist() == pytest.approx([x, y, x + w, y + h])
    assert found.data["class_name"][0] in (*evaluation.truth.categories, "unicorn")


def test_to_supervision_names_the_missing_extra(evaluation, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(InputError, match="pip install supervision"):
        to_supervision(evaluation)


def test_score_export_writes_every_file(coco_set, tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(coco_set))
    (tmp_path / "p.json").write_text("[]")
    files = ["--ground-truth", str(tmp_path / "t.json"), "--predictions", str(tmp_path / "p.json")]
    assert main(["score", *files, "--out", str(tmp_path / "o"), "--export"]) == 0
    files = ["classes.csv", "coco_results.json", "evaluation.json", "fiftyone.json", "images.csv", "report.html"]
    assert sorted(p.name for p in (tmp_path / "o").iterdir()) == files


def test_exports_in_pixels_refuse_a_ground_truth_without_sizes(tmp_path):
    cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}
    evaluation = score([Instance(image="a.jpg", objects=[cat])], [{"image": "a.jpg", "text": ""}])
    for export in (to_coco_results, lambda evaluation: write_exports(evaluation, tmp_path / "o")):
        with pytest.raises(InputError, match="the ground truth states no image sizes"):
            export(evaluation)
    assert not list(tmp_path.rglob("*.*"))
