"""The twelve COCO metrics: published values, and any label and a constant score against pycocotools used by hand."""

import collections
import json
import re

import numpy as np
import pytest

from coord_eval import COCO_KEYS, score
from coord_eval.match.matching import ranked_matches_by_area
from coord_eval.metrics.coco import ApTable, coco_scores, mean_present


@pytest.mark.slow
def test_class_agnostic_equals_pycocotools_without_categories(coco_set, noisy_results, shrunk, by_hand):
    """Coarse scores and boxes stated twice under two labels: ties of score and of overlap, sizes, crowds."""
    coco_set, results = shrunk(coco_set, noisy_results(coco_set, 0))
    results += [{**r, "category_id": 10 * ((r["category_id"] // 10 + 1) % 6)} for r in results[::3]]
    evaluation = score(coco_set, results)
    assert evaluation.coco_class_agnostic == pytest.approx(by_hand(coco_set, results, use_categories=False), abs=1e-12)
    assert evaluation.coco_class_agnostic["AP50"] > 1.04 * evaluation.coco["AP50"]


@pytest.mark.slow
def test_constant_score_equals_pycocotools(coco_set, noisy_results, shrunk, by_hand):
    """All ties: COCO's order is that of images and of answers."""
    coco_set, results = shrunk(coco_set, noisy_results(coco_set, 0))
    expected = by_hand(coco_set, [{**r, "score": 1.0} for r in results])
    assert score(coco_set, results).coco_constant_score == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_class_agnostic_of_more_than_a_hundred_boxes_in_an_image(coco_set, noisy_results, by_hand):
    """COCO's limit is 100 boxes of a label and image; with one label it is 100 of an image."""
    draw = np.random.default_rng(0)
    results = noisy_results(coco_set, 1)
    fullest = collections.Counter(r["image_id"] for r in results).most_common(1)[0][0]
    strays = [
        {"image_id": fullest, "category_id": 10 * int(k), "bbox": [float(k), 5.0, 20.0, 30.0], "score": 0.95}
        for k in draw.integers(0, 6, 150)
    ]
    evaluation = score(coco_set, [*results, *strays])
    expected = by_hand(coco_set, [*results, *strays], use_categories=False)
    assert evaluation.coco_class_agnostic == pytest.approx(expected, abs=1e-12)
    assert evaluation.coco_class_agnostic["AR100"] < score(coco_set, results).coco_class_agnostic["AR100"]


def test_class_agnostic_lets_unknown_labels_find_objects(instance, answer):
    box = [0.1, 0.1, 0.5, 0.5]
    evaluation = score([instance(1, ("cat", box))], [answer(1, ("unicorn", box))])
    assert (evaluation.coco["AP"], evaluation.coco_class_agnostic["AP"]) == (0.0, pytest.approx(1.0))


def test_class_agnostic_in_json_without_answers(coco_set):
    data = json.loads(score(coco_set, []).to_json())
    assert list(data["coco_class_agnostic"]) == list(COCO_KEYS)
    assert set(data["coco_class_agnostic"].values()) == {0.0}


@pytest.fixture
def published(shared_dir):
    text = (shared_dir / "cocoapi_val2014_100" / "val2014_fake_eval_res.txt").read_text()
    section = text.split("type=bbox")[1].split("type=")[0]
    values = re.findall(r"\] = (-?\d\.\d{3})", section)
    assert len(values) == 12
    return dict(zip(COCO_KEYS, values, strict=True))


@pytest.fixture
def official(shared_dir):
    folder = shared_dir / "cocoapi_val2014_100"
    return score(folder / "instances_val2014_100.json", folder / "instances_val2014_fakebbox100_results.json")


@pytest.mark.shared
def test_twelve_published_box_numbers(official, published):
    assert {key: f"{value:.3f}" for key, value in official.coco.items()} == published


@pytest.mark.shared
def test_scores_of_a_results_list_are_kept_and_the_constant_ones_differ(official):
    assert official.score_source == "results"
    # The example's scores were drawn at random: here they rank a little worse than no score at all.
    assert official.coco_constant_score["AP"] != official.coco["AP"]


@pytest.mark.shared
def test_precision_counts_boxes_whose_label_is_not_in_the_image(shared_dir, official):
    """Leaving them out lifts AP from .505 to .562, the error of scoring only what matches."""
    folder = shared_dir / "cocoapi_val2014_100"
    truth = json.loads((folder / "instances_val2014_100.json").read_text())
    results = json.loads((folder / "instances_val2014_fakebbox100_results.json").read_text())
    present = {(a["image_id"], a["category_id"]) for a in truth["annotations"]}
    kept = [r for r in results if (r["image_id"], r["category_id"]) in present]
    flattered = score(truth, kept)
    assert f"{official.coco['AP']:.3f}" == "0.505"
    assert f"{flattered.coco['AP']:.3f}" == "0.562"
    assert official.detection["0.5"]["precision"] < flattered.detection["0.5"]["precision"]


def tables(truth, detections):
    return [ApTable(truth, detections, m) for m in ranked_matches_by_area(truth, detections)]


@pytest.mark.slow
def test_ap_table_equals_pycocotools(coco_set, noisy_results, shrunk):
    """Precision and recall of every label, threshold, size and limit, with ties of score and crowds."""
    evaluation = score(*shrunk(coco_set, noisy_results(coco_set, 0)))
    reference = coco_scores(evaluation, "pycocotools")
    parts = (reference.all_areas, *reference.by_size)
    for table, expected in zip(tables(evaluation.truth, evaluation.detections), parts, strict=True):
        expected_TRK = np.where(expected.precision_TRK < 0, np.nan, expected.precision_TRK)
        np.testing.assert_allclose(table.average_precision()[0], expected_TRK.mean(axis=1), atol=1e-12)
        for limit, recall_TK in zip((1, 10, 100), expected.recall_LTK, strict=True):
            expected_TK = np.where(recall_TK < 0, np.nan, recall_TK)
            np.testing.assert_allclose(table.average_recall(limit)[0], expected_TK.mean(axis=0), atol=1e-12)


@pytest.mark.slow
def test_ap_table_weight_is_that_many_copies_of_the_image(coco_set, noisy_results, shrunk, copied):
    """Two weightings at once, a label without objects in one of them, against pycocotools on real copies."""
    coco_set, results = shrunk(coco_set, noisy_results(coco_set, 1))
    for n, result in enumerate(results):
        result["score"] = 1 / (n + 2)  # no ties, whose order the copies would change
    draw = np.random.default_rng(3)
    weights_BI = draw.integers(0, 4, (2, len(coco_set["images"])))
    with_cats = {a["image_id"] for a in coco_set["annotations"] if a["category_id"] == 0}
    weights_BI[1, sorted(with_cats)] = 0
    evaluation = score(coco_set, results)
    found = tables(evaluation.truth, evaluation.detections)
    for b, weights in enumerate(weights_BI):
        expected = score(*copied(coco_set, results, weights)).coco
        for key, table in zip(("AP", "APs", "APm", "APl"), found, strict=True):
            ap_TK = table.average_precision(weights_BI)[b]
            assert mean_present(ap_TK) == pytest.approx(expected[key], abs=1e-12)
        for limit in (1, 10, 100):
            recall_K = found[0].average_recall(limit, weights_BI)[b]
            assert mean_present(recall_K) == pytest.approx(expected[f"AR{limit}"], abs=1e-12)


def test_average_precision_by_hand(one_cat):
    """Hit, false, hit of two objects: precision 1 up to recall one half, then 2/3: (51 + 50 * 2/3) / 101."""
    boxes = [[0, 0, 20, 20], [50, 50, 20, 20]]
    objects = [{**one_cat["annotations"][0], "id": n, "bbox": box} for n, box in enumerate(boxes)]
    truth = {**one_cat, "annotations": objects}
    answered = [boxes[0], [80, 0, 10, 10], boxes[1]]
    results = [{"image_id": 1, "category_id": 1, "bbox": box, "score": 1 - n / 10} for n, box in enumerate(answered)]
    expected = (51 + 50 * 2 / 3) / 101
    assert score(truth, results).coco_class_agnostic["AP50"] == pytest.approx(expected)
    assert score(truth, results).coco["AP50"] == pytest.approx(expected)
    assert score(truth, []).coco_class_agnostic["AP50"] == 0.0


def test_coco_leaves_out_detections_beyond_a_hundred_of_one_label(one_cat):
    stray = [{"image_id": 1, "category_id": 1, "bbox": [60, 60, 9, 9], "score": 0.9}] * 100
    hit = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 0.5}
    evaluation = score(one_cat, [*stray, hit])
    assert evaluation.coco["AP50"] == 0.0
    assert evaluation.counts["beyond_coco_limit"] == 1
    assert any("beyond 100" in note for note in evaluation.notes)
    assert evaluation.detection["0.5"]["recall"] == 1.0  # no such limit without scores
    matches = ranked_matches_by_area(evaluation.truth, evaluation.detections, [0.5])[0]
    assert ApTable(evaluation.truth, evaluation.detections, matches).average_precision() == 0.0


def test_ap_table_of_neither_objects_nor_boxes():
    evaluation = score({"images": [], "annotations": [], "categories": []}, [])
    for table in tables(evaluation.truth, evaluation.detections):
        assert table.average_precision().shape == (1, 10, 0)
        assert table.average_recall(1).shape == (1, 0)
