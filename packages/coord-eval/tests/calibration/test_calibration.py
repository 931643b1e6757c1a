"""Calibration against references, on generated boxes whose true probability is known."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from coco_builder import coco
from scipy import stats
from scipy.optimize import isotonic_regression

from coord_eval import (
    AnswerSettings,
    Calibration,
    InputError,
    ScoredObject,
    ThresholdCurve,
    fit_calibration,
    score,
    threshold_curve,
)
from coord_eval.calibration.calibration import out_of_fold
from coord_eval.calibration.knots import fit_knots, interpolate, isotonic
from coord_eval.cli.main import main
from coord_eval.intake.digests import digest_of_detections, digest_of_truth
from coord_eval.metrics.draws import sum_interval
from coord_eval.resampling.bootstrap import reliability_with_intervals


def generated(images, seed=0, labels=1, per_image=6):
    """A COCO set and results whose boxes are hits with the probability score², on an object each."""
    draw = np.random.default_rng(seed)
    names = {k: f"label {k}" for k in range(labels)}
    truth = coco(names=names, images=range(images), size=(700, 100))
    results = []
    for image in range(images):
        for place in range(per_image):
            box, label = [100.0 * place, 10.0, 40.0, 40.0], int(draw.integers(labels))
            value = float(draw.uniform(0.2, 1))
            where = {"image_id": image, "category_id": label}
            truth["annotations"].append({"id": len(results), **where, "bbox": box})
            shift = 0.0 if draw.random() < value**2 else 45.0
            results.append({**where, "bbox": [box[0] + shift, *box[1:]], "score": value})
    return truth, results


@pytest.fixture(scope="module")
def fitted():
    evaluation = score(*generated(120))
    return evaluation, fit_calibration(evaluation, rests_on={"model": "tiny"})


@pytest.mark.parametrize("seed", range(5))
def test_isotonic_equals_scipy(seed):
    draw = np.random.default_rng(seed)
    value, weight = draw.random(12).round(1), draw.integers(1, 9, 12).astype(float)
    assert isotonic(value, weight) == pytest.approx(isotonic_regression(value, weights=weight).x)


def test_fit_knots_are_smoothed_shares_of_groups_of_boxes():
    score_D = np.repeat([0.1, 0.5, 0.9], [4, 8, 4])
    hit_D = np.array([1, 0, 0, 0] + [0, 1] * 4 + [1, 1, 1, 1], bool)
    knots = fit_knots(score_D, hit_D, 0.5, 2.0)
    # Sixteen boxes make two groups; the middle falls into the boxes of equal score, which stay together.
    assert knots == ((0.1, (1 + 1) / (4 + 2)), (pytest.approx(7.6 / 12), (8 + 1) / (12 + 2)))


def test_few_high_scores_among_many_low_ones_have_probabilities_of_their_own():
    """A tenth of the boxes has scores above .5, whose probability is the score; the others are hits once in fifty."""
    draw = np.random.default_rng(0)
    score_D = np.where(draw.random(9000) < 0.1, draw.uniform(0.5, 1, 9000), draw.uniform(0, 0.1, 9000))
    hit_D = draw.random(9000) < np.where(score_D > 0.5, score_D, 0.02)
    at = np.array([0.6, 0.8, 0.9, 0.97])
    assert interpolate(fit_knots(score_D, hit_D, 0.1, 2.0, 25), at) == pytest.approx(at, abs=0.1)
    chosen_D = score_D > 0.5
    order = np.argsort(score_D[chosen_D])
    reference = isotonic_regression(hit_D[chosen_D][order].astype(float)).x
    mine = interpolate(fit_knots(score_D, hit_D, 0.1, 2.0, 25), score_D[chosen_D][order])
    assert np.abs(mine - reference).mean() < 0.04


def test_calibrated_scores_are_the_true_probabilities(fitted):
    evaluation, calibration = fitted
    at = np.array([0.35, 0.5, 0.65, 0.8, 0.95])
    assert calibration(at) == pytest.approx(at**2, abs=0.12)
    before, after = calibration.reliability["before"], calibration.reliability["after"]
    assert before["ece"] == pytest.approx(evaluation.analysis["reliability"]["ece"])
    # The mean of s - s² over scores from .2 to 1 is .187.
    assert before["low"] < before["ece"] < before["high"]
    assert before["ece"] == pytest.approx(0.187, abs=0.04)
    assert after["ece"] < 0.06
    # The cross-validated reliability foretells that of other images.
    other = score(*generated(400, seed=1), answers=AnswerSettings(calibration=calibration))
    assert other.analysis["reliability"]["ece"] < 0.05
    assert other.notes[-1].startswith("scores are calibrated: P(IoU > .5), from 720 boxes")


def test_calibration_keeps_the_order_and_ap(coco_set, noisy_results):
    results = noisy_results(coco_set, 2)
    before = score(coco_set, results)
    calibration = fit_calibration(before, resamples=2)
    after = score(coco_set, results, answers=AnswerSettings(calibration=calibration))
    assert after.coco == before.coco
    assert after.calibrated
    assert "which are these very ones" in after.notes[-1]
    steps = np.linspace(0, 1, 2001)
    assert (np.diff(calibration(steps)) > 0).all()
    assert 0 <= calibration(steps).min() <= calibration(steps).max() <= 1
    with pytest.raises(InputError, match="calibrated already"):
        fit_calibration(after)


def test_category_with_enough_boxes_has_a_map_of_its_own():
    truth, results = generated(100, labels=2)
    kept = [r for r in results if r["category_id"] == 0] + [r for r in results if r["category_id"] == 1][:100]
    calibration = fit_calibration(score(truth, kept), resamples=2)
    assert set(calibration.classes) == {"label 0"}
    own, common = calibration([0.6], ["label 0"]), calibration([0.6], ["label 1"])
    assert own != common == calibration([0.6])
    # Few boxes of a label move the map of all by a twentieth each, and these move the share of all by a half each.
    scored = score(truth, kept)
    chosen_D, hit_D = ~scored.ranked.ignored_TD[0], scored.ranked.hit_TD[0]
    own_D = chosen_D & (scored.detections.category_D == 0)
    score_D, share = scored.detections.scores_D, hit_D[chosen_D].mean()
    assert calibration.knots == fit_knots(score_D[chosen_D], hit_D[chosen_D], share, 2.0, 25)
    assert calibration.classes["label 0"] == fit_knots(score_D[own_D], hit_D[own_D], calibration.knots, 20.0, 25)
    objects = [ScoredObject(label, (0, 0, 1, 1), (), (0, 0), score=0.6) for label in ("label 0", "label 1")]
    assert [o.score for o in calibration.apply(objects)] == [*own, *common]


def test_scores_of_any_range_are_even_about_its_middle_and_stay_in_order_beyond_it(fitted):
    """The knots are flat, so that what is left of the score is seen alone."""
    flat = replace(fitted[1], range=(-4.0, 2.0), knots=[(-4.0, 0.5), (2.0, 0.5)], classes={})
    steps = flat([-100.0, -4.0, -1.0, 2.0, 98.0])
    assert (np.diff(steps) > 0).all() and steps[2] == pytest.approx(0.5)
    assert steps[:2] + steps[:2:-1] == pytest.approx([1.0, 1.0])
    assert np.diff(steps)[1] == pytest.approx(2 * (steps[1] - flat([-1e12])[0]) / 2)


def test_calibration_file_is_read_back(fitted, tmp_path):
    _, calibration = fitted
    calibration.write(tmp_path / "calibration.json")
    assert Calibration.read(tmp_path / "calibration.json") == calibration
    values = json.loads(calibration.to_json())
    assert values["rests_on"]["model"] == "tiny"
    assert (values["rests_on"]["images"], values["rests_on"]["boxes"]) == (120, 720)
    for change, message in (
        ({"version": 2}, "version: expected a calibration of version 1, found 2"),
        (
            {"knots": [[0.5, 0.6], [0.4, 0.7]]},
            r"knots: expected pairs of score and probability in \[0, 1\], both ascending",
        ),
        ({"knots": [[0.5, 1.6]]}, r"in \[0, 1\]"),
        ({"thresholds": {**values["thresholds"], "intervals": []}}, "thresholds: intervals: expected a row"),
        ({"knots": None}, "calibration: knots"),
    ):
        with pytest.raises(InputError, match=message):
            Calibration.from_dict({**values, **change})
    with pytest.raises(InputError, match="it is for scores of the source results, and these are of stated"):
        calibration.check("stated")
    with pytest.raises(InputError, match="it is for boxes fused by nothing"):
        score(*generated(3), answers=AnswerSettings(fuse="nms:0.5", calibration=calibration))
    with pytest.raises(InputError, match=r"expected scores in \[0, 1\]"):
        calibration([0.5, 1.5])
    with pytest.raises(InputError, match="expected finite scores, found nan"):
        replace(calibration, range=(-3.0, 3.0))([0.5, float("nan")])
    with pytest.raises(InputError, match="range: expected a lowest and a higher finite score"):
        replace(calibration, range=(1.0, 1.0))


@pytest.mark.slow
def test_calibration_refuses_what_it_cannot_rest_on():
    truth, results = generated(12)
    with pytest.raises(InputError, match=r"it needs at least 20 images \(found 12\); add images"):
        fit_calibration(score(truth, results))
    truth, results = generated(25)
    with pytest.raises(InputError, match=r"at least 50 boxes \(found 0\), 10 hits \(found 0\)"):
        fit_calibration(score(truth, []))
    with pytest.raises(InputError, match="all boxes have the same score"):
        fit_calibration(score(truth, [{**r, "score": 0.5} for r in results]))
    with pytest.raises(InputError, match="expected scores that tell boxes apart, found those of the source constant"):
        fit_calibration(score(truth, [{"image_id": 0, "text": '[{"bbox_2d": [1, 2, 3, 4], "label": "label 0"}]'}]))


UNITS = {
    "per cent": lambda share: 100 * share,
    "margins": lambda share: np.log(share / (1 - share)),
    "hundreds below 0": lambda share: 30 * share - 500,
}


@pytest.mark.parametrize("unit", UNITS)
def test_scores_of_any_unit_become_the_probabilities_that_isotonic_regression_gives(unit):
    truth, results = generated(200)
    value = np.clip([row["score"] for row in results], 0.21, 0.999)
    told = UNITS[unit](value)
    scored = score(truth, [{**row, "score": float(s)} for row, s in zip(results, told, strict=True)])
    calibration = fit_calibration(scored, resamples=2)
    order = np.argsort(scored.detections.scores_D, kind="stable")
    reference = isotonic_regression(scored.ranked.hit_TD[0][order].astype(float)).x
    mine = calibration(scored.detections.scores_D[order])
    assert np.abs(mine - reference).mean() < 0.05
    # The unit changes the tilt within a group of boxes alone.
    shares = [{**row, "score": float(s)} for row, s in zip(results, value, strict=True)]
    plain = fit_calibration(score(truth, shares), resamples=2)
    if unit != "margins":  # between the knots of margins the lines are others
        assert mine == pytest.approx(np.sort(plain(value)), abs=2e-3)
    assert calibration.reliability["before"] == {}
    assert calibration.reliability["after"]["ece"] < 0.06
    # Scores beyond those of the fit keep their order too, which AP needs.
    low, high = min(told), max(told)
    beyond = calibration(np.linspace(2 * low - high, 2 * high - low, 2001))
    assert (np.diff(beyond) > 0).all() and 0 <= beyond[0] <= beyond[-1] <= 1
    with pytest.raises(InputError, match="calibrate scores of another unit with a map of their own"):
        plain(told)
    assert Calibration.from_dict(json.loads(calibration.to_json())) == calibration


def test_thresholds_are_told_as_scores_were_and_calibrated():
    truth, results = generated(100, labels=2)
    kept = [r for r in results if r["category_id"] == 0] + [r for r in results if r["category_id"] == 1][:100]
    rows = [{**r, "score": 100 * r["score"]} for r in kept]
    calibration = fit_calibration(score(truth, rows), resamples=2)
    chosen = calibration.choose()
    grid = np.linspace(0, 100, 100_001)
    assert set(chosen.before) == {"", "label 0"}
    for label, least in chosen.before.items():
        reaches = calibration(grid, [label] * len(grid)) >= chosen.value
        assert least == pytest.approx(grid[reaches][0], abs=1e-3)
        below, at = calibration([np.nextafter(least, 0), least], [label] * 2)
        assert below < chosen.value <= at
    assert f"({chosen.before['']:.4g}, label 0 {chosen.before['label 0']:.4g} before calibration)" in str(chosen)
    assert calibration.before(1.0) is None
    _, note = calibration.applied(score(truth, kept).detections, "results", {})
    assert "and these end at 0.9978: one unit?" in note
    assert "one unit?" not in calibration.applied(score(truth, rows).detections, "results", {})[1]


@pytest.mark.parametrize(("hits", "verdict"), [(72, ": they are too low"), (58, ""), (30, ": they are too high")])
def test_the_highest_scores_have_wilson_s_interval_and_are_told_where_they_lie_outside(fitted, hits, verdict):
    bins = [[0.6, 0.7, 100, 0.64, 0.63, 0.5, 0.7], [0.7, 0.8, 79, 0.735, hits / 79, 0.8, 1.0]]
    row = {"ece": 0.01, "low": 0.0, "high": 0.02, "bins": bins}
    told = [*replace(fitted[1], reliability={"before": {}, "after": row}).lines()]
    wilson = stats.binomtest(hits, 79).proportion_ci(method="wilson")
    interval = f"{hits / 79:.3f} [{wilson.low:.3f}, {wilson.high:.3f}]"
    assert f"the highest scores, 0.7 to 0.8: 79 boxes, mean 0.735, of which {interval} hit{verdict}" in told
    assert "the scores, from 0 to 1, are no probabilities, and become such" in told


def test_calibrate_command_and_score_with_its_file(tmp_path, capsys):
    truth, results = generated(30)
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    (tmp_path / "results.json").write_text(json.dumps(results))
    files = ["--ground-truth", str(tmp_path / "truth.json"), "--predictions", str(tmp_path / "results.json")]
    out = str(tmp_path / "calibration.json")
    assert main(["calibrate", *files, "--fuse", "nms:0.7", "--out", out]) == 0
    printed = capsys.readouterr().out
    assert "calibration error after, cross-validated: " in printed
    assert "recall 0.95: a recall of 0.95 cannot be reached" in printed
    assert Calibration.read(out).fused == "nms:0.7"
    report = ["--out", str(tmp_path / "report"), "--calibration", out]
    assert main(["score", *files, *report, "--fuse", "nms:0.7"]) == 0
    assert json.loads((tmp_path / "report" / "evaluation.json").read_text())["calibrated"] is True
    assert main(["score", *files, *report]) == 2
    assert "fuse them alike, or calibrate again" in capsys.readouterr().err
    assert main(["calibrate", *files, "--out", files[3]]) == 2


@pytest.mark.slow
@pytest.mark.drawn(1)
@pytest.mark.parametrize("gap", [0.0, 0.02, 0.15])
def test_interval_of_the_calibration_error_covers_the_error_itself(gap):
    """In .9 of simulated sets or more; resamples around the error of the sample covered none of a true error of 0."""
    draw, images, boxes = np.random.default_rng(3), 80, 6
    covered = []
    for _ in range(120):
        score_ID = draw.random((images, boxes))
        hit_ID = draw.random((images, boxes)) < np.clip(score_ID + np.where(score_ID < 0.5, gap, -gap), 0, 1)
        in_bin_IDX = np.eye(10)[np.minimum(score_ID * 10, 9).astype(int)]
        sums_IX = (in_bin_IDX * (score_ID - hit_ID)[..., None]).sum(axis=1)
        count_IX = in_bin_IDX.sum(axis=1)
        weights_BI = np.stack([np.bincount(draw.integers(0, images, images), minlength=images) for _ in range(200)])
        draws_BX = weights_BI @ sums_IX / (weights_BI @ count_IX).sum(axis=1, keepdims=True)
        low, high = sum_interval(sums_IX.sum(axis=0) / count_IX.sum(), draws_BX, count_IX.sum(axis=0))
        covered.append(low <= gap <= high)
    assert np.mean(covered) >= 0.9


def test_fit_knots_joins_runs_of_equal_values_at_the_mean_score_of_their_boxes():
    score_D = np.repeat([0.1, 0.2, 0.9], [40, 20, 40])
    hit_D = np.repeat([True, False, True], [40, 20, 40])
    (first, value), last = fit_knots(score_D, hit_D, 0.5, 0.0)
    assert (first, value) == (pytest.approx((0.1 * 40 + 0.2 * 20) / 60), pytest.approx(2 / 3))
    assert last == (pytest.approx(0.9), 1.0)


def test_boxes_in_crowd_regions_are_no_misses_of_the_fit():
    """A box in a crowd region is neither right nor wrong, so the fit is that of the set without it."""
    truth, results = generated(60)
    plain = fit_calibration(score(truth, results), resamples=2)
    crowd = {"id": len(truth["annotations"]), "image_id": 0, "category_id": 0, "bbox": [0, 60, 700, 40], "iscrowd": 1}
    truth["annotations"].append({**crowd, "area": 28000})
    inside = [{"image_id": 0, "category_id": 0, "bbox": [9.0 * n, 65, 20, 20], "score": 0.99} for n in range(60)]
    crowded = fit_calibration(score(truth, results + inside), resamples=2)
    assert crowded.knots == plain.knots
    assert {n: crowded.rests_on[n] for n in ("boxes", "hits", "misses")} == {
        n: plain.rests_on[n] for n in ("boxes", "hits", "misses")
    }


NO_CURVE = ThresholdCurve((), (), {})
FLAT = ((2.0, 0.2), (6.0, 0.2))


def test_scores_beyond_shares_are_mixed_in_by_their_place_in_the_range_of_the_fit():
    """x / (1 + |x|) as a share, where x is -1 and 1 at the ends of the range: a thousandth of the map."""
    found = Calibration(FLAT, "results", NO_CURVE, range=(2.0, 6.0))([-2, 2, 4, 6, 8])
    assert (found - 0.999 * 0.2) * 1000 == pytest.approx([0.5 - 0.5 * 3 / 4, 0.25, 0.5, 0.75, 0.5 + 0.5 * 2 / 3])
    shares = Calibration(((0.0, 0.2), (1.0, 0.2)), "results", NO_CURVE)([0, 0.25, 1])
    assert (shares - 0.999 * 0.2) * 1000 == pytest.approx([0, 0.25, 1])


@pytest.mark.parametrize("range_", [(0.0, 1.0), (0.0, 100.0), (-3.0, 1.0)])
def test_score_before_a_map_is_the_one_that_it_takes_there_for_each_label(range_):
    low, high = range_
    ends = ((low, 0.1), (high, 0.9))
    made = Calibration(ends, "results", NO_CURVE, {"cat": ((low, 0.0), (high, 0.4))}, range_)
    for label, reached in ((None, 0.5), ("dog", 0.5), ("cat", 0.2)):
        place = made.before(reached, label)
        assert place == pytest.approx((low + high) / 2, abs=0.01 * (high - low))
        assert made([place], [label or "dog"])[0] == pytest.approx(reached)
    assert made.before(0.95) is None and made.before(0.6, "cat") is None
    reached = made([high + 0.5 * (high - low)])[0] if range_ != (0.0, 1.0) else made([high])[0]
    assert made([made.before(reached)])[0] == pytest.approx(reached, abs=1e-9)  # also beyond the scores of the fit
    assert made([high, high, high], ["cat", "dog", "cat"]) == pytest.approx([0.4, 0.9, 0.4], abs=1e-3)


@pytest.mark.parametrize(
    ("range_", "end", "is_told"),
    [((0.0, 50.0), 0.9, True), ((0.0, 50.0), 2.0, False), ((0.0, 10.0), 0.9, False), ((0.0, 1.0), 0.9, False)],
)
def test_scores_that_may_be_of_another_unit_than_the_map_are_told(one_cat, range_, end, is_told):
    found = score(one_cat, [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": end}])
    made = Calibration(((range_[0], 0.1), (range_[1], 0.9)), "results", NO_CURVE, range=range_)
    detections, note = made.applied(found.detections, "results", {})
    assert ("one unit?" in note) == is_told and "unknown boxes" in note and "these very ones" not in note
    assert detections.scores_D.tolist() == made([end]).tolist()
    digest = {"predictions": digest_of_detections(found.detections), "boxes": 1}
    assert "from 1 boxes" in (same := replace(made, rests_on=digest).applied(found.detections, "results", {})[1])
    assert "these very ones" in same
    for source, fusion in (("stated", {}), ("results", {"rule": "nms:0.5"})):
        with pytest.raises(InputError, match="calibration: it is for"):
            made.applied(found.detections, source, fusion)


def test_scores_are_cross_validated_by_maps_of_the_images_of_other_folds():
    """Each fifth of the images by a fit of the other four, written out."""
    truth, results = generated(60, labels=2)
    scored = score(truth, results)
    fold_I = np.random.default_rng(3).permutation(60) % 5
    found = out_of_fold(scored, 3)
    image_D, hit_D, score_D = scored.detections.image_D, scored.ranked.hit_TD[0], scored.detections.scores_D
    for fold in range(5):
        others, own = fold_I[image_D] != fold, fold_I[image_D] == fold
        knots = fit_knots(score_D[others], hit_D[others], float(hit_D[others].mean()), 2.0, 25)
        assert found[own] == pytest.approx(0.999 * interpolate(knots, score_D[own]) + 0.001 * score_D[own])
    made = fit_calibration(scored, seed=3, resamples=2, rests_on={"model": "tiny"})
    boxes = {"images": 60, "boxes": 360, "hits": int(hit_D.sum()), "misses": int(360 - hit_D.sum())}
    assert made.rests_on == {
        **boxes, "iou": 0.5, "seed": 3, "folds": 5, "model": "tiny", "ground_truth": digest_of_truth(scored.truth),
        "predictions": digest_of_detections(scored.detections),
    }  # fmt: skip
    assert made.thresholds == threshold_curve(scored.with_scores(found, "results"), 2, 3)
    assert made.reliability["before"] == reliability_with_intervals(scored, 2, 3)
    assert made.reliability["after"] == reliability_with_intervals(scored.with_scores(found, "results"), 2, 3)


def test_threshold_of_a_calibration_is_that_of_its_curve_and_what_was_asked_for(fitted):
    calibration = fitted[1]
    for asked in ({}, {"precision": 0.5}, {"recall": 0.25}, {"precision": 0.5, "careful": True}):
        chosen = calibration.choose(**asked)
        assert replace(chosen, before={}) == calibration.thresholds.choose(**asked)
    assert calibration.choose(precision=0.5).value < calibration.choose(precision=0.5, careful=True).value
    told = [*calibration.lines()]
    assert told[0].startswith("fitted to 720 boxes in 120 images, ") and ", scored by results: " in told[0]
    for key, title in (("before", "before"), ("after", "after, cross-validated")):
        row = calibration.reliability[key]
        interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
        assert f"calibration error {title}: {row['ece']:.3f}; that of more images lies in {interval}" in told
    assert told[-1].startswith(f"best F1: score of at least {calibration.choose().value:.4g}")


@pytest.mark.parametrize(("highest", "groups"), [(0, 5), (11, 5), (10, 6), (5, 7), (3, 7), (2, 8)])
def test_the_group_of_the_highest_scores_is_halved_down_to_so_many_boxes(highest, groups):
    """Of 100 boxes five groups of 20: the last one is halved to 10, 5 and 2, while so many are left."""
    knots = fit_knots(np.arange(100.0), np.zeros(100, bool), ((0.0, 0.0), (99.0, 0.5)), 5.0, highest)
    assert len(knots) == groups
    ends = [20, 40, 60, 80, 90, 95, 98, 100]
    starts = [0, *sorted({*ends[: 4 + groups - 5], *ends[:4]}), 100]
    assert [at for at, _ in knots] == pytest.approx([(a + b - 1) / 2 for a, b in pairwise(starts)])
    assert [p for _, p in knots] == pytest.approx(
        [5 * (a + b - 1) / 2 / 99 / 2 / (b - a + 5) for a, b in pairwise(starts)]
    )


@pytest.mark.parametrize(
    ("knots", "range_", "is_valid"),
    [
        (((0.2, 0.5), (0.4, 0.5)), (0, 1), True),  # flat
        (((0.2, 0.5), (0.2, 0.6)), (0, 1), False),
        (((0.2, 0.5), (0.4, 0.4)), (0, 1), False),
        (((-2.0, 0.5), (4.0, 0.6)), (0, 1), False),  # a score that is no share
        (((-2.0, 0.5), (4.0, 0.6)), (-2, 4), True),
        (((-2.0, -0.5), (4.0, 0.6)), (-2, 4), False),
        ((), (0, 1), False),
        (((0.0, 0.0), (1.0, 1.0)), (0, 1), True),
    ],
)
def test_knots_ascend_and_are_probabilities_of_scores(knots, range_, is_valid):
    for given in ({"knots": knots}, {"knots": ((0.1, 0.1),), "classes": {"cat": knots}}):
        made = {"score_source": "results", "thresholds": NO_CURVE, "range": tuple(map(float, range_)), **given}
        if is_valid:
            assert Calibration(**made)
        else:
            with pytest.raises(
                InputError, match="cat: expected pairs" if "classes" in given else "knots: expected pairs"
            ):
                Calibration(**made)


def test_calibrated_and_fused_scores_are_not_calibrated_again():
    truth, results = generated(30)
    made = fit_calibration(score(truth, results, answers=AnswerSettings(fuse="nms:0.5")), resamples=2)
    assert made.fused == "nms:0.5"
    again = score(truth, results, answers=AnswerSettings(fuse="nms:0.5", calibration=made))
    with pytest.raises(InputError, match="calibrated already"):
        fit_calibration(again)
