"""Metrics under image weights are those of scoring the drawn images again from the start."""

import math

import numpy as np
import pytest
from coco_builder import coco

from coord_eval import InputError, resample, score
from coord_eval.metrics.draws import interval
from coord_eval.metrics.metric_table import METRICS, figures
from coord_eval.resampling.bootstrap import Resamples, few_objects_note, intervals_of, reliability_with_intervals

ROWS = {"": "0.5", "_75": "0.75", "_miou": "0.5:0.95"}
FROM = (0.2, 0.7)
NOT_SCORED_AGAIN = {f"f1_from_{n / 10}" for n in range(1, 10)} - {f"f1_from_{threshold}" for threshold in FROM}


def f1_from(truth, results, threshold):
    """F1 when only boxes from a score on were answered at all."""
    kept = [result for result in results if result["score"] >= threshold]
    points = score(truth, kept).analysis["f1_against_threshold"]["points"]
    return points[-1][3] if points else 0.0


def confused(data, pairs):
    """Share of a label's objects answered as another, by the confusion table."""
    table = data["analysis"]["confusion"]
    return {
        f"confused_{true}_as_{answered}": table[true].get(answered, 0) / sum(table[true].values())
        for true, answered in pairs
        if true in table
    }


def every_figure(truth, results, pairs):
    """Name of each resampled metric and its value in `evaluation.json`; what COCO calls -1 is left out."""
    data = score(truth, results).to_dict()
    found = dict(data["coco"])
    found |= {f"{key}_any_label": data["coco_class_agnostic"][key] for key in ("AP", "AP50", "AP75")}
    found = {name: value for name, value in found.items() if value > -1}
    analysis = data["analysis"]
    for suffix, row in ROWS.items():
        for key in ("precision", "recall", "f1"):
            found[f"{key}{suffix}"] = data["detection"][row][key]
            found[f"{key}{suffix}_any_label"] = data["detection_class_agnostic"][row][key]
            found[f"macro_{key}{suffix}"] = analysis["macro"][row][key]
    found["mean_iou"], found["mean_iou_any_label"] = data["mean_iou"], data["mean_iou_class_agnostic"]
    count = analysis["count"]
    found["count_error"], found["count_absolute_error"] = count["mean_error"], count["mean_absolute_error"]
    found["count_exact_share"], found["duplicates"] = count["exact_share"], count["duplicates"]
    for unit in ("pixels", "bins"):
        for edge, value in analysis["edge_bias"][unit].items():
            found[f"bias_{edge}_{unit}"] = value
    for size, row in analysis["by_size"].items():
        if row["objects"]:
            found[f"recall_{size}"], found[f"mean_iou_{size}"] = row["recall"], row["mean_iou"]
    found |= {f"f1_of_{n}_objects": row["f1"] for n, row in analysis["by_object_count"].items()}
    found |= {f"precision_at_place_{n}": row["precision"] for n, row in analysis["by_rank"].items()}
    found |= {f"cost_{kind}": row["cost"] for kind, row in analysis["errors"].items()}
    if analysis["reliability"]:
        found["ece"] = analysis["reliability"]["ece"]
        found |= {f"f1_from_{threshold}": f1_from(truth, results, threshold) for threshold in FROM}
    return found | confused(data, pairs)


def most_confused(evaluation):
    """The pairs of labels that are confused, few enough for all to have intervals."""
    table = evaluation.analysis["confusion"]
    pairs = [(n, t, a) for t, row in table.items() for a, n in row.items() if t != a and "(" not in t + a]
    assert 3 < len(pairs) <= 15
    return [(true, other) for _, true, other in pairs]


@pytest.fixture
def answered(coco_set, noisy_results, shrunk):
    """Crowds, sizes, doubles and strays; scores without ties, whose order among copies would be open."""
    truth, results = shrunk(coco_set, noisy_results(coco_set, 0))
    for n, result in enumerate(results):
        result["score"] = 1 - n / len(results)
    return truth, results


@pytest.mark.slow
def test_figures_on_the_images_as_they_are(answered):
    evaluation = score(*answered)
    found = resample(evaluation, resamples=1)
    constant = {"AP_constant_score": evaluation.coco_constant_score["AP"]}
    expected = every_figure(*answered, most_confused(evaluation)) | constant
    point = {name: value for name, value in found.point.items() if not math.isnan(value)}
    assert set(found.intervals()) == point.keys() == expected.keys() | NOT_SCORED_AGAIN
    assert {name: point[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    ones = np.ones((2, len(answered[0]["images"])), int)
    for name, values in figures(evaluation, ones).items():
        np.testing.assert_allclose(values, [found.point[name]] * 2, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_figures_on_drawn_images(answered, copied):
    """Naive reference: copy the drawn images and score all of them from the start."""
    evaluation = score(*answered)
    drawn = resample(evaluation, resamples=2, seed=11).draws
    draw = np.random.default_rng(11)
    images = len(answered[0]["images"])
    for b in range(2):
        weights = np.bincount(draw.integers(0, images, images), minlength=images)
        expected = every_figure(*copied(*answered, weights), most_confused(evaluation))
        left_out = NOT_SCORED_AGAIN | {"AP_constant_score"}  # all its scores are ties
        found = {name: draws[b] for name, draws in drawn.items() if not np.isnan(draws[b]) and name not in left_out}
        assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_ap_constant_score_on_drawn_images(answered, copied):
    """One box of a label and image, so that the order of ties is that of the images."""
    truth, results = answered
    results = list({(r["image_id"], r["category_id"]): r for r in results}.values())
    drawn = resample(score(truth, results), resamples=3, seed=2, metrics=["AP_constant_score"]).draws
    draw = np.random.default_rng(2)
    images = len(truth["images"])
    for b in range(3):
        weights = np.bincount(draw.integers(0, images, images), minlength=images)
        expected = score(*copied(truth, results, weights)).coco_constant_score["AP"]
        assert drawn["AP_constant_score"][b] == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_resample_of_some_metrics_draws_the_same(answered):
    evaluation = score(*answered)
    every = resample(evaluation, resamples=20, seed=4)
    for names in (["AP50", "mean_iou"], ["APs"], ["AP75_any_label"], ["AP_constant_score"], ["AR10", "ece"]):
        some = resample(evaluation, resamples=20, seed=4, metrics=names)
        assert set(some.draws) == set(names)
        for name in names:
            np.testing.assert_array_equal(some.draws[name], every.draws[name])
    with pytest.raises(InputError, match=r"unknown metric 'AP51'; known are"):
        resample(evaluation, resamples=1, metrics=["AP51"])


def test_interval_is_left_out_where_nothing_can_be_measured(coco_set):
    """Boxes below 32 pixels a side only; results without scores in [0, 1] are no probabilities."""
    image = {"id": 1, "file_name": "a.jpg", "width": 640, "height": 480}
    box = {"image_id": 1, "category_id": 10, "bbox": [8, 8, 16, 16]}
    truth = {**coco_set, "images": [image, {**image, "id": 2}], "annotations": [{"id": 1, **box}]}
    found = resample(score(truth, [{**box, "score": 7.0}]), resamples=20)
    intervals = found.intervals()
    assert not {"APm", "APl", "ARl", "recall_large", "ece", "f1_of_2-3_objects"} & set(intervals)
    assert pytest.approx(intervals["APs"]) == {"value": 1.0, "low": 1.0, "high": 1.0}
    # Where the image with the object was not drawn there is nothing to measure, and it lowers nothing.
    assert np.isnan(found.draws["AP"]).any()
    assert math.isnan(found.point["APl"])


def test_intervals_of_unknown_sizes_have_nothing_by_size():
    from coord_codec import Instance
    from coord_eval import oracle_predictions

    cat = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}
    truth = [Instance(image="a.jpg", image_id=1, objects=[cat])]
    intervals = resample(score(truth, oracle_predictions(truth)), resamples=3).intervals()
    assert intervals["AP"]["value"] == pytest.approx(1.0)
    assert not {"APs", "ARl", "recall_small"} & set(intervals)


def test_intervals_are_those_of_shares_where_values_are_shares():
    """Draws around a half of which many lie beyond 1 and below 0."""
    draws = np.random.default_rng(0).normal(0.5, 2, 200)
    names = {
        figure.name: figure.is_share for row in METRICS.values() for figure in row.figures if "*" not in figure.name
    }
    assert {*names.values()} == {True, False}
    undefined = np.where(np.arange(200) % 2, draws, np.nan)
    for values in (draws, undefined):
        found = Resamples(dict.fromkeys(names, 0.5), dict.fromkeys(names, values), 0).intervals()
        assert found == {name: interval(0.5, values, is_share) for name, is_share in names.items()}
        assert found["count_error"]["low"] < 0 and (found["AP"]["low"], found["AP"]["high"]) == (0, 1)
    own = [value for value in undefined if not np.isnan(value)]
    assert interval(0.5, undefined)["high"] == pytest.approx(np.percentile(own, 97.5) - np.mean(own) + 0.5)
    # The value itself lies in its interval, also where all resamples are on one side of it.
    for outlier, end in ((1000.0, "high"), (-1000.0, "low")):
        assert interval(0.5, np.append(np.zeros(99), outlier))[end] == 0.5
    assert interval(0.5, np.full(3, np.nan)) == {"value": 0.5, "low": 0.5, "high": 0.5}


def test_resamples_of_a_seed_are_told_by_steps_and_their_calibration_error_is_of_the_same(answered):
    evaluation = score(*answered)
    steps = []
    found = resample(evaluation, 20, 3, lambda *step: steps.append(step), ["f1"])
    assert steps == [("bootstrap", 16, 20), ("bootstrap", 20, 20)] and len(found.draws["f1"]) == 20 and found.seed == 3
    intervals, notes = intervals_of(evaluation, 20, 3)
    row = reliability_with_intervals(evaluation, 20, 3)
    expected = resample(evaluation, 20, 3).intervals()
    expected["ece"] |= {"low": row["low"], "high": row["high"]}
    assert intervals == expected and notes == few_objects_note(evaluation)
    assert row["ece"] == evaluation.analysis["reliability"]["ece"] and intervals["ece"]["value"] == row["ece"]
    assert [b[:5] for b in row["bins"]] == evaluation.analysis["reliability"]["bins"]
    assert all(low <= share <= high for *_, share, low, high in row["bins"])


@pytest.mark.parametrize(
    ("cats", "dogs", "told"),
    [(9, 10, "1 of 2 labels have fewer"), (10, 11, None), (9, 9, "2 of 2 labels"), (1, 0, "1 of 1 label has fewer")],
)
def test_labels_with_fewer_than_ten_objects_are_counted_without_crowd_regions(cats, dogs, told):
    objects = [(1, 1, [1, 1, 9, 9])] * (cats + 1) + [(1, 2, [1, 1, 9, 9])] * (dogs + 1)
    truth = coco(*objects, names=("cat", "dog", "cow"))
    for place in (0, cats + 1):
        truth["annotations"][place]["iscrowd"] = 1
    notes = few_objects_note(score(truth, []))
    assert len(notes) == bool(told) and all(note.startswith(told) for note in notes)
