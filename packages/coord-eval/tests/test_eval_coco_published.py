"""The numbers that the COCO authors print for their own example are reproduced to the last printed digit."""

import re

import pytest

from coord_eval import COCO_KEYS, score

pytestmark = pytest.mark.shared


@pytest.fixture
def published(shared_dir):
    text = (shared_dir / "cocoapi_val2014_100" / "val2014_fake_eval_res.txt").read_text()
    section = text.split("type=bbox")[1].split("type=")[0]
    values = re.findall(r"\] = (-?\d\.\d{3})", section)
    assert len(values) == 12
    return dict(zip(COCO_KEYS, values, strict=True))


@pytest.fixture
def evaluation(shared_dir):
    folder = shared_dir / "cocoapi_val2014_100"
    return score(folder / "instances_val2014_100.json", folder / "instances_val2014_fakebbox100_results.json")


def test_the_twelve_published_box_numbers(evaluation, published):
    assert {key: f"{value:.3f}" for key, value in evaluation.coco.items()} == published


def test_scores_of_a_results_list_are_kept_and_the_constant_ones_differ(evaluation):
    assert evaluation.score_source == "results"
    # The example's scores were drawn at random: here they rank a little worse than no score at all.
    assert evaluation.coco_constant_score["AP"] != evaluation.coco["AP"]


def test_boxes_whose_label_is_not_in_the_picture_count_against_precision(shared_dir, evaluation):
    """Leaving them out lifts AP from .505 to .562, the error of scoring only what matches."""
    import json

    folder = shared_dir / "cocoapi_val2014_100"
    truth = json.loads((folder / "instances_val2014_100.json").read_text())
    results = json.loads((folder / "instances_val2014_fakebbox100_results.json").read_text())
    present = {(a["image_id"], a["category_id"]) for a in truth["annotations"]}
    kept = [r for r in results if (r["image_id"], r["category_id"]) in present]
    flattered = score(truth, kept)
    assert f"{evaluation.coco['AP']:.3f}" == "0.505"
    assert f"{flattered.coco['AP']:.3f}" == "0.562"
    assert evaluation.detection["0.5"]["precision"] < flattered.detection["0.5"]["precision"]
