"""Confidence intervals over images and paired comparisons."""

import json

import numpy as np
import pytest

from coord_eval import InputError, compare, oracle_predictions, resample, score
from coord_eval.cli.main import main


@pytest.fixture
def runs(coco_set, noisy_results):
    results = noisy_results(coco_set, 0)
    return {"base": score(coco_set, results), "less": score(coco_set, results[::2])}


def test_resample_is_a_data_set_drawn_with_replacement(runs):
    """The spread of recall against the same computed from counts of each image by hand."""
    evaluation = runs["base"]
    drawn = resample(evaluation, resamples=300, seed=5).draws["recall"]
    regular = ~evaluation.truth.crowd_N
    images = len(evaluation.truth)
    objects = np.bincount(evaluation.truth.image_N[regular], minlength=images)
    hits = np.bincount(evaluation.truth.image_N[regular & (evaluation.matches.iou_N >= 0.5)], minlength=images)
    draw = np.random.default_rng(5)
    expected = []
    for _ in range(300):
        chosen = draw.integers(0, images, images)
        expected.append(hits[chosen].sum() / objects[chosen].sum())
    np.testing.assert_allclose(drawn, expected)


def test_intervals_of_the_same_seed_are_the_same_and_hold_the_value(runs):
    a, b, c = (resample(runs["base"], 50, seed=s).intervals() for s in (1, 1, 2))
    assert a == b
    assert a != c
    assert all(row["low"] <= row["value"] <= row["high"] for row in a.values())
    assert a["AP"]["low"] < a["AP"]["high"]


def test_compare_run_with_itself_differs_by_nothing(runs):
    comparison = compare({"a": runs["base"], "b": runs["base"]}, resamples=30)
    for difference in comparison.differences["b"].values():
        assert (difference.value, difference.low, difference.high, difference.share_better) == (0, 0, 0, 0)
    assert set(comparison.class_gains["b"].values()) == {0.0}


def test_compare_paired_intervals_are_narrower_than_those_of_the_runs(runs):
    comparison = compare(runs, resamples=200)
    recall = comparison.differences["less"]["recall"]
    assert recall.high < 0
    assert recall.share_better == 0
    own = comparison.metrics["base"]["AP"]
    paired = comparison.differences["less"]["AP"]
    assert paired.high - paired.low < own["high"] - own["low"] + 0.05
    value = runs["less"].coco["AP"] - runs["base"].coco["AP"]
    assert paired.value == pytest.approx(value)
    name = next(iter(comparison.class_gains["less"]))
    gain = runs["less"].per_class[name]["AP"] - runs["base"].per_class[name]["AP"]
    assert comparison.class_gains["less"][name] == pytest.approx(gain)


def test_compare_refuses_other_ground_truth_and_single_runs(coco_set, runs):
    other = {**coco_set, "annotations": coco_set["annotations"][1:]}
    with pytest.raises(InputError, match="base and other were scored against different ground truth"):
        compare({"base": runs["base"], "other": score(other, [])})
    with pytest.raises(InputError, match="at least two runs"):
        compare({"base": runs["base"]})
    with pytest.raises(InputError, match="bootstrap"):
        resample(score({"images": [], "annotations": [], "categories": []}, []))


def test_compare_notes_runs_ranked_by_different_scores(coco_set, runs):
    words = score(coco_set, oracle_predictions(coco_set))
    assert "different scores" in compare({"a": runs["base"], "b": words}, resamples=2).notes[0]


def test_compare_command(coco_set, noisy_results, tmp_path, capsys):
    results = noisy_results(coco_set, 0)
    (tmp_path / "t.json").write_text(json.dumps(coco_set))
    (tmp_path / "a.json").write_text(json.dumps(results))
    (tmp_path / "b.json").write_text(json.dumps(results[::2]))
    files = [f"all={tmp_path / 'a.json'}", f"half={tmp_path / 'b.json'}"]
    common = ["compare", "--ground-truth", str(tmp_path / "t.json"), "--resamples", "20"]
    assert main([*common, *files, "--out", str(tmp_path / "out"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert printed["differences"]["half"]["recall"]["value"] < 0
    assert "half against all" in (tmp_path / "out" / "comparison.html").read_text()
    assert main([*common, *files]) == 0
    assert "half against all" in capsys.readouterr().out
    assert main([*common, files[0], files[0]]) == 2
    assert main([*common, files[0]]) == 2
