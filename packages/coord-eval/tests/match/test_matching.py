"""Rules of COCO's matching that only ties and borders show."""

from contextlib import redirect_stdout
from io import StringIO

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from coord_eval import load_ground_truth, score
from coord_eval.match.matching import AREAS, ranked_matches_by_area


def results_for(boxes):
    return [{"image_id": 1, "category_id": 1, "bbox": box, "score": 0.5} for box in boxes]


def test_of_objects_with_equal_iou_the_last_is_matched(one_cat):
    """As in pycocotools, which keeps searching while the IoU is at least the best so far."""
    one_cat["annotations"].append({**one_cat["annotations"][0], "id": 2})
    evaluation = score(one_cat, results_for([[1, 2, 30, 40]]))
    assert evaluation.coco_matches.object_D.tolist() == [1]


def test_area_ranges_include_both_of_their_ends(one_cat, by_hand):
    """An object of 32 x 32 pixels is small and medium, as in pycocotools."""
    one_cat["annotations"][0] |= {"bbox": [1, 2, 32, 32], "area": 1024}
    truth = load_ground_truth(one_cat)
    results = results_for([[1, 2, 32, 32]])
    evaluation = score(truth, results)
    counted = [m.counted_N[0] for m in ranked_matches_by_area(truth, evaluation.detections)]
    assert len(AREAS) == 4 and counted == [True, True, True, False]
    resampled = {name: evaluation.coco_class_agnostic[name] for name in ("APs", "APm", "APl")}
    expected = by_hand({**one_cat, "annotations": [{**one_cat["annotations"][0], "iscrowd": 0}]}, results)
    np.testing.assert_allclose([*resampled.values()], [expected[name] for name in resampled])


def test_annotation_with_id_0_is_matched(one_cat):
    """pycocotools alone takes the id 0 for no match, and so scores the same file 0."""
    one_cat["annotations"][0] |= {"id": 0, "area": 1200, "iscrowd": 0}
    results = results_for([one_cat["annotations"][0]["bbox"]])
    with redirect_stdout(StringIO()):
        truth = COCO()
        truth.dataset = one_cat
        truth.createIndex()
        alone = COCOeval(truth, truth.loadRes([*results]), "bbox")
        alone.evaluate()
        alone.accumulate()
        alone.summarize()
    assert (round(score(one_cat, results)["AP"], 9), alone.stats[0]) == (1.0, 0.0)


def test_score_of_coordinates_is_the_geometric_mean(one_cat):
    text = "<obj_start>cat<|coord_10|><|coord_20|><|coord_300|><|coord_500|><obj_end>"
    record = {"image_id": 1, "text": text, "coord_logprobs": [-1.0, -2.0, -3.0, -4.0]}
    assert np.log(score(one_cat, [record]).detections.scores_D).tolist() == [-2.5]


def test_stated_area_that_exceeds_the_box_is_noted(one_cat):
    assert not any("state an area" in note for note in load_ground_truth(one_cat).notes)
    one_cat["annotations"][0]["area"] = 5000
    assert any(note.startswith("1 object states an area larger") for note in load_ground_truth(one_cat).notes)
