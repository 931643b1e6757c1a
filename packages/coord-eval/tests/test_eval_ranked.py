"""Our own precision and recall are COCO's, threshold by threshold and label by label, weights included."""

import importlib.util

import numpy as np
import pytest

from coord_eval import score
from coord_eval.ap_table import ApTable
from coord_eval.coco import coco_scores
from coord_eval.detection_metrics import IOU_THRESHOLDS
from coord_eval.ranked import mean_present, ranked_matches, ranked_matches_by_area


def tables(truth, detections):
    return [ApTable(truth, detections, m) for m in ranked_matches_by_area(truth, detections, IOU_THRESHOLDS)]


@pytest.mark.parametrize("seed", range(3))
def test_equals_pycocotools(coco_set, noisy_results, shrunk, seed):
    """Precision and recall of every label, threshold, size and limit, with ties of score and crowds."""
    evaluation = score(*shrunk(coco_set, noisy_results(coco_set, seed)))
    reference = coco_scores(evaluation.truth, evaluation.detections)
    for area, table in enumerate(tables(evaluation.truth, evaluation.detections)):
        expected_TRK = reference.precision_TRKAM[:, :, :, area, 2]
        expected_TRK = np.where(expected_TRK < 0, np.nan, expected_TRK)
        np.testing.assert_allclose(table.average_precision()[0], expected_TRK.mean(axis=1), atol=1e-12)
        for place, limit in enumerate((1, 10, 100)):
            expected_TK = reference.recall_TKAM[:, :, area, place]
            expected_TK = np.where(expected_TK < 0, np.nan, expected_TK)
            np.testing.assert_allclose(table.average_recall(limit)[0], expected_TK.mean(axis=0), atol=1e-12)


def test_a_weight_is_that_many_copies_of_the_picture(coco_set, noisy_results, shrunk, copied):
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


def test_average_precision_by_hand():
    """Hit, false, hit of two objects: precision 1 up to recall one half, then 2/3: (51 + 50 * 2/3) / 101."""
    image = {"id": 1, "width": 100, "height": 100}
    boxes = [[0, 0, 20, 20], [50, 50, 20, 20]]
    objects = [
        {"id": n, "image_id": 1, "category_id": 1, "bbox": box, "area": 400, "iscrowd": 0}
        for n, box in enumerate(boxes, 1)
    ]
    truth = {"images": [image], "annotations": objects, "categories": [{"id": 1, "name": "cup"}]}
    answered = [boxes[0], [80, 0, 10, 10], boxes[1]]
    results = [
        {"image_id": 1, "category_id": 1, "bbox": box, "score": 1 - n / 10} for n, box in enumerate(answered)
    ]
    expected = (51 + 50 * 2 / 3) / 101
    assert score(truth, results).coco_class_agnostic["AP50"] == pytest.approx(expected)  # our own matching
    assert score(truth, results).coco["AP50"] == pytest.approx(expected)  # the backend's
    assert score(truth, []).coco_class_agnostic["AP50"] == 0.0


@pytest.mark.skipif(
    importlib.util.find_spec("faster_coco_eval") is None,
    reason="the extra fast (faster-coco-eval) is not installed",
)
@pytest.mark.parametrize("seed", range(3))
def test_faster_coco_eval_gives_the_same_numbers(coco_set, noisy_results, seed):
    for results in (noisy_results(coco_set, seed), []):
        slow, fast = (score(coco_set, results, backend=b) for b in ("pycocotools", "faster-coco-eval"))
        assert fast.backend == "faster-coco-eval"
        assert {k: v["AP"] for k, v in fast.per_class.items()} == pytest.approx(
            {k: v["AP"] for k, v in slow.per_class.items()}, abs=1e-12
        )
        for key in ("coco", "coco_constant_score", "ceiling"):
            assert getattr(fast, key) == pytest.approx(getattr(slow, key), abs=1e-12), key


@pytest.mark.skipif(
    importlib.util.find_spec("faster_coco_eval") is not None, reason="faster-coco-eval is installed"
)
def test_a_backend_that_is_not_installed_says_what_to_install(coco_set):
    with pytest.raises(ValueError, match=r"pip install coord-eval\[fast\]"):
        score(coco_set, [], backend="faster-coco-eval")


def test_beyond_a_hundred_of_one_label_coco_looks_away():
    truth = {
        "images": [{"id": 0, "file_name": "0.jpg", "width": 500, "height": 500}],
        "categories": [{"id": 0, "name": "cat"}],
        "annotations": [{"id": 0, "image_id": 0, "category_id": 0, "bbox": [10, 10, 50, 50]}],
    }
    stray = [{"image_id": 0, "category_id": 0, "bbox": [300, 300, 9, 9], "score": 0.9}] * 100
    hit = {"image_id": 0, "category_id": 0, "bbox": [10, 10, 50, 50], "score": 0.5}
    evaluation = score(truth, [*stray, hit])
    assert evaluation.coco["AP50"] == 0.0
    assert evaluation.counts["beyond_coco_limit"] == 1
    assert any("beyond 100" in note for note in evaluation.notes)
    assert evaluation.detection["0.5"]["recall"] == 1.0  # no such limit without scores
    matches = ranked_matches(evaluation.truth, evaluation.detections, [0.5])
    assert ApTable(evaluation.truth, evaluation.detections, matches).average_precision() == 0.0


def test_neither_objects_nor_boxes():
    evaluation = score({"images": [], "annotations": [], "categories": []}, [])
    for table in tables(evaluation.truth, evaluation.detections):
        assert table.average_precision().shape == (1, 10, 0)
        assert table.average_recall(1).shape == (1, 0)
