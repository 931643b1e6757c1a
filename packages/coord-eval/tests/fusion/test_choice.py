"""The choice of calibration and weights on annotated images (`coord-eval fuse --ground-truth`)."""

import json

import numpy as np
import pytest
from coco_builder import coco

from coord_eval import (
    Calibration,
    FusionChoice,
    FusionTrial,
    InputError,
    ReportSettings,
    ThresholdCurve,
    choose_fusion,
    fuse_predictions,
    resample,
    score,
)
from coord_eval.cli.main import main
from coord_eval.fusion.choice import sure_trial
from coord_eval.settings import FusionRule

IMAGES, PLACES = range(40), range(6)


def detector(seed, *, finds, false):
    """Results that find a share of the objects, each of them at random, with as many false boxes as is said."""
    draw = np.random.default_rng(seed)
    rows = []
    for image in IMAGES:
        for place in PLACES:
            where = {"image_id": image, "category_id": 1 + place % 3}
            box, shift = [100.0 * place, 10.0, 40.0, 40.0], draw.normal(0, 2, 2)
            if draw.random() < finds:
                moved = [box[0] + shift[0], box[1] + shift[1], 40.0, 40.0]
                rows.append({**where, "bbox": moved, "score": draw.uniform(0.3, 1)})
            if draw.random() < false:
                rows.append({**where, "bbox": [*draw.uniform(0, 500, 2), 30.0, 30.0], "score": draw.uniform(0.1, 0.8)})
    return rows


TRUTH = coco(
    *((i, 1 + p % 3, [100.0 * p, 10.0, 40.0, 40.0]) for i in IMAGES for p in PLACES),
    names=("cat", "dog", "cow"),
    images=IMAGES,
    size=(700, 600),
)


@pytest.fixture
def fused(tmp_path, capsys):
    """Fuse two lists with the truth; return what is printed as JSON, and the file."""

    def run(a, b, *options):
        files = {"a": a, "b": b, "truth": TRUTH}
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        lists, out = [f"{name}={tmp_path / name}.json" for name in "ab"], tmp_path / "fused.json"
        truth = ["--ground-truth", str(tmp_path / "truth.json")]
        assert main(["fuse", *lists, "--out", str(out), *truth, *options, "--json"]) == 0
        return json.loads(capsys.readouterr().out), json.loads(out.read_text())

    return run


@pytest.mark.slow
def test_what_one_detector_misses_another_finds_so_they_are_fused(fused):
    lists = {name: detector(seed, finds=0.6, false=0.1) for name, seed in (("a", 1), ("b", 2))}
    told, records = fused(*lists.values())
    chosen = told["choice"]["chosen"]
    assert chosen["alone"] is None
    assert chosen["gain"] - chosen["standard_error"] > 0
    alone = {f"{name} alone": score(TRUTH, rows, "pycocotools").coco["AP"] for name, rows in lists.items()}
    stated = {row["name"]: row["ap"] for row in told["choice"]["trials"]}
    assert {name: stated[name] for name in alone} == pytest.approx(alone)
    assert score(TRUTH, records, "pycocotools").coco["AP"] > max(alone.values()) + 0.1
    # A trial without a map is what the fused file has.
    raw = next(row for row in told["choice"]["trials"] if not row["alone"] and not row["calibrated"])
    ensemble = fuse_predictions(lists, weights=raw["weights"])
    assert score(TRUTH, [*ensemble.records], "pycocotools").coco["AP"] == pytest.approx(raw["ap"])


@pytest.mark.parametrize(
    ("other_gain", "gain", "is_fused"),
    [(-0.016, 0.026, True), (-0.016, 0.024, False), (-0.014, 0.011, True), (-0.014, 0.01, False)],
)
def test_a_fusion_is_chosen_if_its_gain_is_sure_or_it_is_not_sure_which_list_is_better(other_gain, gain, is_fused):
    """All gains have a standard error of .01."""

    def trial(name, gain, alone=None):
        return FusionTrial(name, 0.5 + gain, gain, gain - 0.02, gain + 0.02, 0.01, alone, (1.0, 1.0), False)

    kept, other = trial("a alone", 0.0, "a"), trial("b alone", other_gain, "b")
    trials = (trial("fused", gain), kept, other)
    chosen = sure_trial(trials, kept)
    assert (chosen.name == "fused") == is_fused
    told = "b alone may be as good: annotate more images to know" in FusionChoice(trials, chosen, {}, 20, ()).lines()
    assert told == (other_gain > -0.015 and not is_fused)


NO_DIAGNOSIS = ReportSettings(diagnose=False)


def found_by(finds, seed=0, images=8, falsely=0.0, margin=0.0):
    """Ground truth of a cat, a dog and a cow in each image, and by name the shares of each that a list finds.

    Beside the truth and the lists it returns the lists scored.
    """
    draw = np.random.default_rng(seed)
    objects = [(image, place) for image in range(images) for place in range(3)]
    boxes = [(image, 1 + place, [100.0 * place, 10.0, 40.0, 40.0]) for image, place in objects]
    truth = coco(*boxes, names=("cat", "dog", "cow"), images=range(images), size=(700, 600))
    lists = {}
    for name, share in finds.items():
        rows = [(image, label, box) for image, label, box in boxes if draw.random() < share[label - 1]]
        rows += [(image, label, [400.0, 10.0, 40.0, 40.0]) for image, label, _ in boxes if draw.random() < falsely]
        lists[name] = [
            {"image_id": image, "category_id": label, "bbox": box, "score": draw.uniform(0.1, 1) - margin}
            for image, label, box in rows
        ]
    return truth, lists, {name: score(truth, rows, report=NO_DIAGNOSIS) for name, rows in lists.items()}


EVENLY, BY_LABEL = {"b": (0.5, 0.5, 0.5), "a": (0.6, 0.6, 0.6)}, {"b": (0.2, 0.2, 1), "a": (0.9, 0.9, 0.1)}


@pytest.mark.parametrize(("finds", "larger"), [(EVENLY, 1), (BY_LABEL, 0)])
def test_standard_error_of_a_gain_is_the_larger_one_over_images_and_over_categories(finds, larger):
    truth, lists, rated = found_by(finds)
    choice = choose_fusion(rated, weights=[1, 1], resamples=30, seed=3)
    (trial,) = [row for row in choice.trials if row.alone is None]
    fused = score(truth, [*fuse_predictions(lists, weights=trial.weights).records], report=NO_DIAGNOSIS)
    gain_K = [fused.per_class[name]["AP"] - rated["a"].per_class[name]["AP"] for name in fused.per_class]
    draws = [resample(scored, 30, 3, metrics=["AP"]).draws["AP"] for scored in (fused, rated["a"])]
    errors = np.std(gain_K, ddof=1) / 3**0.5, np.std(draws[0] - draws[1])
    assert errors[larger] > 1.1 * errors[1 - larger]
    assert (trial.gain, trial.standard_error) == pytest.approx((np.mean(gain_K), errors[larger]))


@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize("method", ["wbf", "nms:0.3"])
def test_the_best_list_has_one_to_eight_times_the_weight_of_the_other_and_each_trial_is_what_fusing_gives(
    names, method
):
    truth, lists, rated = found_by({name: BY_LABEL[name] for name in names})
    choice = choose_fusion(rated, FusionRule.parse(method), resamples=2)
    assert rated["a"]["AP"] > rated["b"]["AP"]
    fusions = [row for row in choice.trials if row.alone is None]
    best, one = names.index("a"), names.index("b")
    assert sorted((row.weights[best], row.weights[one]) for row in fusions) == [(1, 1), (2, 1), (4, 1), (8, 1)]
    assert [row.ap for row in choice.trials] == sorted((row.ap for row in choice.trials), reverse=True)
    assert {row.alone: row.ap for row in choice.trials if row.alone} == pytest.approx(
        {name: own["AP"] for name, own in rated.items()}
    )
    for row in fusions:
        fused = fuse_predictions(lists, method=method, weights=row.weights).records
        assert score(truth, [*fused], report=NO_DIAGNOSIS)["AP"] == pytest.approx(row.ap)
        assert row.gain == pytest.approx(row.ap - rated["a"]["AP"])
    assert choice.images == 8 and choice.calibrations == {}


def test_margins_below_0_are_fused_by_nms_as_they_are_and_by_wbf_not_at_all_without_a_map():
    _, _, rated = found_by(BY_LABEL, margin=0.5)
    for method, trials, notes in (("wbf", 0, 2), ("nms", 4, 1)):
        choice = choose_fusion(rated, FusionRule.parse(method), resamples=2)
        assert (len([row for row in choice.trials if row.alone is None]), len(choice.notes)) == (trials, notes)
        assert any("some are below 0" in note for note in choice.notes) == (method == "wbf")


def test_lists_that_can_be_calibrated_are_tried_both_ways_and_maps_go_with_a_calibrated_choice_alone():
    _, _, rated = found_by({"b": (0.4, 0.9, 0.5), "a": (0.5, 0.4, 0.9)}, images=25, falsely=0.4)
    choice = choose_fusion(rated, weights=[2, 1], resamples=2)
    assert sorted((row.calibrated, row.weights) for row in choice.trials if row.alone is None) == [
        (False, (2, 1)),
        (True, (2, 1)),
    ]
    assert {*choice.calibrations} == ({"a", "b"} if choice.chosen.calibrated else set()) and choice.notes == ()
    kept = choose_fusion({"b": rated["b"], "same": rated["b"]}, weights=[1, 1], resamples=2)
    assert (kept.chosen.alone, kept.calibrations) == ("b", {})


@pytest.mark.slow
def test_margins_below_0_are_calibrated_and_not_fused_as_they_are(fused):
    lists = [
        [
            {**row, "score": float(np.log(row["score"] / (1.001 - row["score"])))}
            for row in detector(seed, finds=0.6, false=0.3)
        ]
        for seed in (1, 2)
    ]
    told, records = fused(*lists)
    assert {row["calibrated"] for row in told["choice"]["trials"] if not row["alone"]} == {True}
    assert told["choice"]["chosen"]["calibrated"]
    assert any("scores as they are are not tried" in note for note in told["notes"])
    assert all(0 <= row["score"] <= 1 for row in records)


@pytest.mark.slow
def test_a_list_of_confident_false_boxes_is_left_out(fused):
    good, bad = detector(1, finds=0.9, false=0.1), detector(2, finds=0.0, false=1.0)
    told, records = fused(good, bad)
    assert told["choice"]["chosen"]["alone"] == "a"
    assert [(row["image_id"], row["score"]) for row in records] == [(row["image_id"], row["score"]) for row in good]
    assert np.array([row["bbox"] for row in records]) == pytest.approx(np.array([row["bbox"] for row in good]))


def test_too_little_to_calibrate_on_is_told_and_raw_scores_are_tried():
    few = {name: score(TRUTH, detector(seed, finds=0.1, false=0)) for name, seed in (("a", 1), ("b", 2))}
    choice = choose_fusion(few, resamples=20)
    assert not any(row.calibrated for row in choice.trials)
    assert "calibrated scores are not tried: calibration: too little to rest on" in choice.notes[0]


@pytest.mark.shared
@pytest.mark.slow
def test_real_detectors_are_not_fused_below_the_better(real_detectors):
    lists = {name: real_detectors(name) for name in ("centernet", "nanodet")}
    rated = {name: score(*pair, report=ReportSettings(diagnose=False)) for name, pair in lists.items()}
    choice = choose_fusion(rated)
    ensemble = fuse_predictions(
        {name: rows for name, (_, rows) in lists.items()},
        weights=choice.chosen.weights,
        calibrations=choice.calibrations,
        alone=choice.chosen.alone,
    )
    truth = lists["centernet"][0]
    best = max(scored.coco["AP"] for scored in rated.values())
    assert (
        score(truth, [*ensemble.records], "pycocotools", report=ReportSettings(diagnose=False)).coco["AP"]
        >= best - 1e-9
    )


def test_calibrations_map_the_scores_of_their_file_before_fusion(tmp_path, capsys):
    row = {"image_id": 1, "category_id": 1, "bbox": [10.0, 10.0, 40.0, 40.0]}
    half = Calibration(((0.0, 0.0), (1.0, 0.5)), "results", ThresholdCurve((), (), {}))
    for name, content in (("a", [{**row, "score": 0.8}]), ("b", [{**row, "score": 0.6}])):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    half.write(tmp_path / "half.json")
    lists, out = [f"{name}={tmp_path / name}.json" for name in "ab"], tmp_path / "fused.json"
    assert main(["fuse", *lists, "--out", str(out), "--calibration", f"a={tmp_path / 'half.json'}"]) == 0
    assert json.loads(out.read_text())[0]["score"] == pytest.approx((float(half([0.8])[0]) + 0.6) / 2)
    capsys.readouterr()
    assert main(["fuse", *lists, "--out", str(out), "--calibration", f"c={tmp_path / 'half.json'}"]) == 2
    assert "expected names of the files (a, b), found c" in capsys.readouterr().err


def test_margins_below_0_without_a_map_name_the_file_and_the_command():
    row = {"image_id": 1, "category_id": 1, "bbox": [10.0, 10.0, 40.0, 40.0]}
    lists = {"a": [{**row, "score": 0.5}], "b.json": [{**row, "score": -1.5}]}
    with pytest.raises(InputError, match=r"fuse: b\.json: .* found some from -1\.5 on") as told:
        fuse_predictions(lists)
    assert "calibrate --ground-truth G --predictions b.json --out b-calibration.json" in str(told.value)
    assert "--calibration b.json=b-calibration.json, or use --method nms" in str(told.value)
    assert fuse_predictions(lists, method="nms").counts["objects"] == 1
    margins = Calibration(((-3.0, 0.1), (3.0, 0.9)), "results", ThresholdCurve((), (), {}), range=(-3.0, 3.0))
    fused = fuse_predictions(lists, calibrations={"b.json": margins})
    assert fused.records[0]["score"] == pytest.approx((0.5 + float(margins([-1.5])[0])) / 2)


@pytest.mark.parametrize(("least", "count", "is_told"), [(0.3, 60, False), (0.9, 20, True), (0.9, 19, False)])
def test_scores_of_unlike_distribution_are_told_with_the_commands_that_mend_it(least, count, is_told):
    draw = np.random.default_rng(0)
    row = {"image_id": 1, "category_id": 1, "bbox": [10.0, 10.0, 40.0, 40.0]}
    lists = {
        name: [{**row, "score": float(value)} for value in draw.uniform(low, 1, count)]
        for name, low in (("a", 0.3), ("b", least))
    }
    note = next(note for note in fuse_predictions(lists).notes if "--ground-truth G" in note)
    assert ("the scores hardly mean the same" in note) == is_told
    assert "calibrate --ground-truth G --predictions a --out a-calibration.json" in note
    assert "--calibration a=a-calibration.json --calibration b=b-calibration.json" in note


def test_one_list_leaves_nothing_to_choose():
    with pytest.raises(InputError, match="at least two files"):
        choose_fusion({"a": score(TRUTH, [])})
