"""LVIS by its own rules: against the lvis package where it is installed, and by hand."""

import json
import logging

import numpy as np
import pytest

from coord_eval import InputError, score_lvis


def federated(coco_set, seed=0):
    """Turn the generated COCO set into an LVIS one."""
    draw = np.random.default_rng(seed)
    data = {**coco_set, "images": [], "annotations": [], "categories": []}
    for category, letter in zip(coco_set["categories"], "rcfrcf", strict=True):
        data["categories"].append({**category, "id": category["id"] + 1, "frequency": letter})
    for a in coco_set["annotations"]:
        if not a["iscrowd"]:
            row = {**a, "id": a["id"] + 1, "category_id": a["category_id"] + 1, "image_id": a["image_id"] + 1}
            row.pop("iscrowd")
            data["annotations"].append(row)
    for image in coco_set["images"]:
        present = {a["category_id"] for a in data["annotations"] if a["image_id"] == image["id"] + 1}
        absent = [c["id"] for c in data["categories"] if c["id"] not in present]
        data["images"].append(
            {
                **image,
                "id": image["id"] + 1,
                "neg_category_ids": [k for k in absent if draw.random() < 0.4],
                "not_exhaustive_category_ids": [k for k in sorted(present) if draw.random() < 0.4],
            }
        )
    return data


def moved(results):
    return [{**r, "image_id": r["image_id"] + 1, "category_id": r["category_id"] + 1} for r in results]


@pytest.mark.parametrize("seed", range(3))
def test_against_the_lvis_package(coco_set, noisy_results, seed, tmp_path, monkeypatch):
    lvis = pytest.importorskip("lvis")
    monkeypatch.setattr(np, "float", float, raising=False)  # the package predates NumPy 1.24
    data, results = federated(coco_set, seed), moved(noisy_results(coco_set, seed))
    (tmp_path / "t.json").write_text(json.dumps(data))
    (tmp_path / "p.json").write_text(json.dumps(results))
    logging.disable(logging.CRITICAL)
    evaluator = lvis.LVISEval(str(tmp_path / "t.json"), str(tmp_path / "p.json"), "bbox")
    evaluator.run()
    logging.disable(logging.NOTSET)
    found = score_lvis(tmp_path / "t.json", tmp_path / "p.json").summary
    assert found == pytest.approx({key: evaluator.results[key] for key in found}, abs=1e-9)
    assert found["AP"] > 0.1


def tiny(**image):
    return {
        "images": [
            {
                "id": 1,
                "width": 100,
                "height": 100,
                "neg_category_ids": [],
                "not_exhaustive_category_ids": [],
                **image,
            }
        ],
        "categories": [
            {"id": 1, "name": "cat", "frequency": "f"},
            {"id": 2, "name": "dog", "frequency": "r"},
        ],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20]}],
    }


HIT = {"image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20], "score": 0.5}
STRAY_CAT = {**HIT, "bbox": [60, 60, 20, 20], "score": 0.9}
DOG = {**HIT, "category_id": 2, "score": 0.9}


def test_a_label_nobody_looked_for_is_left_out_and_counted():
    found = score_lvis(tiny(), [HIT, DOG, {**HIT, "category_id": 7}])
    assert found.summary["AP"] == pytest.approx(1.0)
    assert (found.unverified, found.unknown, found.detections) == (1, 1, 3)
    assert score_lvis(tiny(neg_category_ids=[2]), [HIT, DOG]).unverified == 0


def test_where_not_all_are_annotated_a_stray_box_is_not_wrong():
    assert score_lvis(tiny(), [HIT, STRAY_CAT]).summary["AP50"] == pytest.approx(0.5)
    open_ = tiny(not_exhaustive_category_ids=[1])
    assert score_lvis(open_, [HIT, STRAY_CAT]).summary["AP50"] == pytest.approx(1.0)


def test_frequency_groups_without_objects_are_minus_one():
    summary = score_lvis(tiny(), [HIT]).summary
    assert summary["APf"] == pytest.approx(1.0)
    assert (summary["APr"], summary["APc"]) == (-1.0, -1.0)


def test_three_hundred_boxes_a_picture():
    strays = [{**DOG, "score": 0.9}] * 300
    found = score_lvis(tiny(neg_category_ids=[2]), [*strays, HIT])
    assert (found.beyond_limit, found.summary["AP"]) == (1, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d["images"][0].pop("neg_category_ids"),
            "neg_category_ids: expected a list; is this an LVIS file",
        ),
        (lambda d: d["categories"][0].pop("frequency"), r"categories\[id=1\]\.frequency"),
    ],
)
def test_a_file_that_is_not_lvis(change, message):
    data = tiny()
    change(data)
    with pytest.raises(InputError, match=message):
        score_lvis(data, [])


def test_answers_in_words_are_turned_away():
    with pytest.raises(InputError, match="to_coco_results"):
        score_lvis(tiny(), [{"image_id": 1, "text": ""}])
