"""Exports are read back by the tools they are meant for."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from coco_builder import coco

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
from coord_eval.labelling.export import _cell


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


@pytest.mark.parametrize("first", "=+-@\t\r")
def test_text_that_a_spreadsheet_would_evaluate_is_escaped_and_numbers_are_not(first):
    assert _cell(f"{first}1") == f"'{first}1" and _cell(f"a{first}1") == f"a{first}1"
    assert (_cell(-1.5), _cell("a\0b"), _cell("")) == (-1.5, "a\ufffdb", "")


@pytest.mark.slow
def test_shapes_of_results_are_exported_as_pycocotools_reads_them():
    truth = coco((1, 1, [10, 10, 20, 20]), size=(100, 80))
    shapes = [[(1.0, 2.0), (0.0, 0.0), (5.0, 6.0)], []]
    found = score(truth, [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": s} for s in (0.5, 0.25)])
    for geometry, expected in (
        ("polygon", {"segmentation": [[1, 2, 0, 0, 5, 6]]}),
        ("keypoints", {"keypoints": [1, 2, 2, 0, 0, 0, 5, 6, 2]}),
    ):
        drawn = found.detections.changed(vertices_V2=np.array(shapes[0]), starts_N1=np.array([0, 3, 3]))
        rows = to_coco_results(dataclasses.replace(found, detections=drawn, shapes={"geometry": geometry}))
        assert [{k: v for k, v in row.items() if k in ("segmentation", "keypoints")} for row in rows] == [expected, {}]
    mask = {"size": [80, 100], "counts": [0, 100, 7900]}
    stated = [{"image_id": 1, "category_id": 1, "score": 0.5, "segmentation": mask}]
    (row,) = json.loads(json.dumps(to_coco_results(score(truth, stated))))
    assert sorted(row) == ["bbox", "category_id", "image_id", "score", "segmentation"]
    assert row["segmentation"]["size"] == [80, 100] and isinstance(row["segmentation"]["counts"], str)
    unknown = score(truth, [{"image_id": 1, "category_id": k, "bbox": [1, 2, 3, 4], "score": 0.5} for k in (1, 2)])
    assert [row["category_id"] for row in to_coco_results(unknown)] == [1]
