"""Our own average precision is COCO's, threshold by threshold and label by label, weights included."""

import importlib.util

import numpy as np
import pytest

from coord_eval import score
from coord_eval.coco import coco_scores
from coord_eval.detection_metrics import IOU_THRESHOLDS
from coord_eval.ranked import ApTable, interpolated_ap, mean_present, ranked_matches


@pytest.mark.parametrize("seed", range(3))
def test_equals_pycocotools(coco_set, noisy_results, seed):
    evaluation = score(coco_set, noisy_results(coco_set, seed))
    reference_TRK = coco_scores(evaluation.truth, evaluation.detections).precision_TRKAM[:, :, :, 0, 2]
    table = ApTable(
        evaluation.truth,
        evaluation.detections,
        ranked_matches(evaluation.truth, evaluation.detections, IOU_THRESHOLDS),
    )
    ap_TK = table.average_precision()
    np.testing.assert_allclose(ap_TK, reference_TRK.mean(axis=1), atol=1e-12)
    assert mean_present(ap_TK) == pytest.approx(evaluation.coco["AP"], abs=1e-12)


def test_a_weight_is_that_many_copies_of_the_picture(coco_set, noisy_results):
    """Pictures are copied for real, under new ids, and scored by pycocotools."""
    results = noisy_results(coco_set, 1)
    for n, result in enumerate(results):
        result["score"] = 1 / (n + 2)  # no ties, whose order the copies would change
    draw = np.random.default_rng(3)
    weights = draw.integers(0, 4, len(coco_set["images"]))
    copied = {**coco_set, "images": [], "annotations": []}
    copied_results = []
    for image, weight in zip(coco_set["images"], weights, strict=True):
        for copy in range(weight):
            new = 1000 * image["id"] + copy
            copied["images"].append({**image, "id": new})
            for source, target in (
                (coco_set["annotations"], copied["annotations"]),
                (results, copied_results),
            ):
                target += [{**row, "image_id": new} for row in source if row["image_id"] == image["id"]]
    evaluation = score(coco_set, results)
    matches = ranked_matches(evaluation.truth, evaluation.detections, IOU_THRESHOLDS)
    weighted = ApTable(evaluation.truth, evaluation.detections, matches).average_precision(
        weights.astype(float)
    )
    assert mean_present(weighted) == pytest.approx(score(copied, copied_results).coco["AP"], abs=1e-9)


def test_average_precision_by_hand():
    """Hit, false, hit of two objects: precision 1 up to recall one half, then 2/3: (51 + 50 * 2/3) / 101."""
    ap = interpolated_ap(np.array([1.0, 0, 1]), np.array([0.0, 1, 0]), 2)
    assert ap == pytest.approx((51 + 50 * 2 / 3) / 101)
    assert interpolated_ap(np.array([]), np.array([]), 3) == 0.0


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
