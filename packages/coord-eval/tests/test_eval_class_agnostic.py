"""What stands beside the headline: AP of any label and under a constant score, against pycocotools used by hand."""

import collections
import contextlib
import io
import json

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from coord_codec import Instance, encode_target
from coord_eval import COCO_KEYS, score


def by_hand(truth, results, folder, use_categories=0):
    """Ids are moved up by one, since pycocotools cannot match an object with id 0."""
    truth = {**truth, "annotations": [{**a, "id": a["id"] + 1} for a in truth["annotations"]]}
    (folder / "truth.json").write_text(json.dumps(truth))
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(folder / "truth.json"))
        evaluator = COCOeval(coco, coco.loadRes(results), "bbox")
        evaluator.params.useCats = use_categories
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return dict(zip(COCO_KEYS, evaluator.stats, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_equal_to_pycocotools_without_categories(coco_set, noisy_results, shrunk, seed, tmp_path):
    """Coarse scores and boxes said twice under two labels: ties of score and of overlap, sizes, crowds."""
    coco_set, results = shrunk(coco_set, noisy_results(coco_set, seed))
    results += [{**r, "category_id": 10 * ((r["category_id"] // 10 + 1) % 6)} for r in results[::3]]
    evaluation = score(coco_set, results)
    assert evaluation.coco_class_agnostic == pytest.approx(by_hand(coco_set, results, tmp_path), abs=1e-12)
    assert evaluation.coco_class_agnostic["AP50"] > 1.1 * evaluation.coco["AP50"]


@pytest.mark.parametrize("seed", range(3))
def test_a_constant_score_equals_pycocotools(coco_set, noisy_results, shrunk, seed, tmp_path):
    """All ties: COCO's order is that of pictures and of answers."""
    coco_set, results = shrunk(coco_set, noisy_results(coco_set, seed))
    expected = by_hand(coco_set, [{**r, "score": 1.0} for r in results], tmp_path, use_categories=1)
    assert score(coco_set, results).coco_constant_score == pytest.approx(expected, abs=1e-12)


def test_more_than_a_hundred_boxes_in_a_picture(coco_set, noisy_results, tmp_path):
    """COCO's limit is 100 boxes of a label and picture; with one label it is 100 of a picture."""
    draw = np.random.default_rng(0)
    results = noisy_results(coco_set, 1)
    fullest = collections.Counter(r["image_id"] for r in results).most_common(1)[0][0]
    strays = [
        {"image_id": fullest, "category_id": 10 * int(k), "bbox": [float(k), 5.0, 20.0, 30.0], "score": 0.95}
        for k in draw.integers(0, 6, 150)
    ]
    evaluation = score(coco_set, [*results, *strays])
    expected = by_hand(coco_set, [*results, *strays], tmp_path)
    assert evaluation.coco_class_agnostic == pytest.approx(expected, abs=1e-12)
    assert evaluation.coco_class_agnostic["AR100"] < score(coco_set, results).coco_class_agnostic["AR100"]


def test_unknown_labels_find_objects_too():
    cat = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}
    truth = [Instance(image="1.jpg", image_id=1, width=100, height=100, objects=[cat])]
    said = Instance(image="1.jpg", objects=[{**cat, "desc": "unicorn"}])
    evaluation = score(truth, [{"image_id": 1, "text": encode_target(said, markers="obj")}])
    assert (evaluation.coco["AP"], evaluation.coco_class_agnostic["AP"]) == (0.0, pytest.approx(1.0))


def test_in_json_and_nothing_said(coco_set):
    data = json.loads(score(coco_set, []).to_json())
    assert list(data["coco_class_agnostic"]) == list(COCO_KEYS)
    assert set(data["coco_class_agnostic"].values()) == {0.0}
