"""The table of metrics: what one row brings, for the built-in rows and for one of a user's own."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from coco_builder import generated_set

from coord_eval import (
    METRICS,
    Figure,
    InputError,
    Metric,
    ReportSettings,
    compare,
    ratio_over_images,
    register_metric,
    resample,
    score,
)
from coord_eval.cli.main import main
from coord_eval.cli.summaries import evaluation_lines
from coord_eval.metrics.errors import ERROR_KINDS
from coord_eval.metrics.figures import OTHER_NAMES, join_lines
from coord_eval.metrics.metric_table import HEADLINE, figure_of, figures


@pytest.fixture
def evaluation(coco_set, noisy_results):
    return score(coco_set, noisy_results(coco_set, 0))


def place_of(row, values):
    return {"top": values, "analysis": values["analysis"], "metrics": values.get("metrics", {})}[row.place]


def test_every_row_stands_in_the_json_and_is_documented(evaluation):
    values = json.loads(evaluation.to_json())
    for row in METRICS.values():
        if row.place != "none":
            assert place_of(row, values)[row.name] is not None
            assert row.documentation


def test_every_figure_is_resampled_and_every_resampled_number_is_a_figure(evaluation):
    """With one image as often as it is there, each figure is the value itself."""
    drawn = resample(evaluation, 1, seed=0)
    for name in drawn.point:
        assert figure_of(name)
    for row in METRICS.values():
        for figure in row.figures:
            assert any(figure.covers(name) for name in drawn.point), figure.name
    assert drawn.point["AP"] == pytest.approx(evaluation.coco["AP"])
    assert drawn.point["APs"] == pytest.approx(evaluation.coco["APs"])
    assert drawn.point["f1_75"] == evaluation.detection["0.75"]["f1"]
    assert drawn.point["cost_missed"] == evaluation.analysis["errors"]["missed"]["cost"]


@pytest.mark.slow
def test_every_figure_of_weighted_images_is_that_of_the_set_with_them_so_often(noisy_results):
    """The images are written out: left out where the weight is 0, and under two ids where it is 2."""
    truth = generated_set(12)
    ranked = sorted(noisy_results(truth, 0), key=lambda row: row["score"])
    results = [{**row, "score": (place + 1) / len(ranked)} for place, row in enumerate(ranked)]  # no two alike
    evaluation = score(truth, results)
    weights_BI = np.random.default_rng(3).integers(0, 3, (2, 12), np.int32)
    together = figures(evaluation, weights_BI)
    order = [image["id"] for image in truth["images"]]
    for b, weights_I in enumerate(weights_BI):
        copies = [(i, i + 1000 * n) for i, weight in zip(order, weights_I, strict=True) for n in range(weight)]
        written = {**truth, "images": [], "annotations": []}
        rows = []
        for image, copy in copies:
            written["images"] += [
                {**row, "id": copy, "file_name": f"{copy}.jpg"} for row in truth["images"] if row["id"] == image
            ]
            own = [row for row in truth["annotations"] if row["image_id"] == image]
            written["annotations"] += [
                {**row, "image_id": copy, "id": row["id"] + 100_000 * (copy // 1000)} for row in own
            ]
            rows += [{**row, "image_id": copy} for row in results if row["image_id"] == image]
        alone = figures(score(written, rows), np.ones((1, len(copies)), np.int32))
        assert {name for name in together.keys() - alone.keys() if not name.startswith("confused_")} == set()
        for name in together.keys() & alone.keys() - {"AP_constant_score"}:  # its ties are broken by the order of boxes
            assert together[name][b] == pytest.approx(alone[name][0], rel=1e-9, nan_ok=True), name


@pytest.mark.slow
def test_a_figure_is_prepared_alone_as_with_all_others(evaluation):
    for name in [figure.name for row in METRICS.values() for figure in row.figures if "*" not in figure.name]:
        assert set(resample(evaluation, 2, metrics=[name]).point) == {name}


@pytest.fixture
def missed():
    def share(scored):
        missed_N = ~scored.truth.crowd_N & (scored.matches.iou_N < 0.5)
        return ratio_over_images(scored.sum_objects(missed_N), scored.objects_per_image)

    row = Metric(
        name="missed_share",
        documentation="Share of objects without a box.",
        measure=share,
        figures=(Figure("missed_share", "low", headline=True),),
    )
    yield register_metric(row)
    METRICS.remove("missed_share")


@pytest.mark.slow
def test_registered_metric_appears_everywhere_from_one_row(missed, noisy_results, tmp_path, capsys):
    coco_set = generated_set(4)
    results = noisy_results(coco_set, 0)
    evaluation = score(coco_set, results, report=ReportSettings(bootstrap=3))
    expected = 1 - evaluation.detection["0.5"]["recall"]
    assert json.loads(evaluation.to_json())["metrics"]["missed_share"] == pytest.approx(expected)
    assert evaluation["missed_share"] == pytest.approx(expected)
    assert evaluation.intervals["missed_share"]["value"] == pytest.approx(expected)
    assert "missed_share" in evaluation.brief()
    report = evaluation.write_report(tmp_path / "report").read_text()
    assert report.count("missed_share") >= 2  # its own table, and the intervals
    worse = score(coco_set, results[::3])
    comparison = compare({"all": evaluation, "third": worse}, resamples=2)
    difference = comparison.differences["third"]["missed_share"]
    assert (difference.value > 0, difference.share_better, difference.p is not None) == (True, 0.0, True)
    (tmp_path / "t.json").write_text(json.dumps(coco_set))
    (tmp_path / "r.json").write_text(json.dumps(results))
    words = ["--ground-truth", str(tmp_path / "t.json"), "--predictions", str(tmp_path / "r.json")]
    assert main(["score", *words, "--out", str(tmp_path / "out"), "--no-report"]) == 0
    assert f"missed_share {expected:.3f}" in capsys.readouterr().out


@pytest.mark.slow
def test_headline_figures_named_by_the_data_reach_console_report_and_comparison(noisy_results, tmp_path):
    coco_set = generated_set(4)

    def by_label(scored):
        parts = {}
        for k, name in enumerate(scored.truth.categories):
            mine_N = ~scored.truth.crowd_N & (scored.truth.category_N == k)
            parts[f"found_{name}"] = ratio_over_images(
                scored.sum_objects(mine_N & (scored.matches.iou_N >= 0.5)), scored.sum_objects(mine_N)
            )
        if scored.matches.iou_N.mean() > 0.3:
            parts["found_more"] = parts["found_red car"]
        return lambda weights_BI: {name: part(weights_BI) for name, part in parts.items()}

    row = Metric(name="found", documentation="", measure=by_label, figures=(Figure("found_*", headline=True),))
    register_metric(row)
    try:
        results = noisy_results(coco_set, 0)
        both = {
            "all": score(coco_set, results, report=ReportSettings(bootstrap=3)),
            "third": score(coco_set, results[::3]),
        }
        comparison = compare(both, resamples=3)
        assert any(line.startswith("found_red car") for line in evaluation_lines(both["all"]))
        assert "; found_red car" in both["all"].write_report(tmp_path).read_text()
        assert any("found_red car" in line for line in comparison.lines())
        assert comparison.differences["third"]["found_red car"].p is not None
        assert any(note.startswith("found_more: not a figure of every run") for note in comparison.notes)
    finally:
        METRICS.remove("found")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"name": "coco"}, "metric 'coco': there is one of this name already"),
        ({"name": "mine", "place": "top"}, "place: expected 'metrics'"),
        ({"name": "mine", "figures": (Figure("f1_of_9_objects"),)}, "a figure 'f1_of_9_objects' exists"),
    ],
)
def test_register_metric_refuses_a_taken_name_and_another_place(row, message):
    with pytest.raises(InputError, match=message):
        register_metric(Metric(documentation="", measure=lambda scored: np.sum, **row))


def test_metric_without_measure_and_value_is_refused():
    with pytest.raises(InputError, match="expected a measure or a value"):
        Metric(name="mine", documentation="")


def test_evaluation_has_figures_by_name_also_by_those_of_other_libraries(evaluation):
    assert evaluation["map_50"] == evaluation["map50"] == evaluation["AP50"] == evaluation.coco["AP50"]
    for name, way in (
        ("map50", r"use \['map50'\]"),
        ("AP", r"use \['AP'\]"),
        ("stats", "use .coco"),
        ("colour", "'colour'$"),
    ):
        with pytest.raises(AttributeError, match=way):
            getattr(evaluation, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(evaluation), "failing", property(lambda self: [].missing), raising=False)
        with pytest.raises(AttributeError, match="'list' object has no attribute 'missing'"):
            _ = evaluation.failing
    assert evaluation["mar_100"] == evaluation.coco["AR100"]
    assert evaluation["f1"] == evaluation.detection["0.5"]["f1"]
    with pytest.raises(InputError, match="unknown metric 'mAP60'"):
        evaluation["mAP60"]


def test_evaluation_shows_itself_in_short(evaluation):
    assert len(repr(evaluation)) < 200 and f"AP {evaluation.coco['AP']:.3f}" in repr(evaluation)
    assert f"{evaluation.coco['AP50']:.3f}" in evaluation._repr_html_()


def test_evaluation_computes_a_metric_when_it_is_used(coco_set, noisy_results):
    """`score` alone needs neither labels merged nor the ceiling; the diagnosis of a low AP needs some."""
    evaluation = score(coco_set, noisy_results(coco_set, 0), report=ReportSettings(diagnose=False))
    waiting = {"coco_class_agnostic", "ceiling", "matches", "matches_any_label"}
    assert not waiting & evaluation.__dict__.keys()
    noted = evaluation.with_notes(after=["a note"])
    assert noted.notes[-1] == "a note" and evaluation.notes == noted.notes[:-1]
    assert not waiting & noted.__dict__.keys()
    assert noted.ceiling["AP"] > 0.9


@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("high", "AP AP50 APs AR100 precision recall f1 mean_iou f1_75 count_exact_share recall_small"),
        ("zero", "count_error bias_x1_pixels bias_y2_bins"),
        ("low", "count_absolute_error duplicates ece cost_missed cost_label confused_cat_as_dog"),
    ],
)
def test_goal_of_a_figure_says_which_change_is_better(goal, names):
    assert {name: figure_of(name).goal for name in names.split()} == dict.fromkeys(names.split(), goal)


OURS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
TORCHMETRICS = "map map_50 map_75 map_small map_medium map_large mar_1 mar_10 mar_100 mar_small mar_medium mar_large"


def test_names_of_other_libraries_are_those_of_the_same_figures():
    """As torchmetrics, supervision and Ultralytics document theirs."""
    expected = dict(zip(TORCHMETRICS.split(), OURS, strict=True))
    expected |= {"map50_95": "AP", "map50": "AP50", "map75": "AP75", "mAP": "AP", "mAP50-95": "AP", "mAP50": "AP50"}
    expected |= {"mAP75": "AP75", "mAP@50": "AP50", "mAP@50:95": "AP"}
    assert expected | {"metrics/mAP50-95(B)": "AP", "metrics/mAP50(B)": "AP50"} == OTHER_NAMES


def test_figures_that_come_first_are_tested_and_shares_are_those_within_0_and_1():
    first = ("AP", "AP50", "AP75", "precision", "recall", "f1", "f1_75", "f1_miou", "mean_iou")
    assert first == HEADLINE
    every = [figure for row in METRICS.values() for figure in row.figures]
    edges = [f"bias_{edge}_{unit}" for unit in ("pixels", "bins") for edge in ("x1", "y1", "x2", "y2")]
    costs = [f"cost_{kind}" for kind in ERROR_KINDS]
    counts = ["count_error", "count_absolute_error", "duplicates"]
    assert {figure.name for figure in every if not figure.is_share} == {*edges, *costs, *counts}
    low = {"count_absolute_error", "duplicates", "ece", "confused_*_as_*", *costs}
    assert {figure.name for figure in every if figure.goal == "low"} == low
    assert {figure.name for figure in every if figure.goal == "zero"} == {"count_error", *edges}


def test_resampled_figures_of_the_set_are_those_that_it_states(coco_set, noisy_results, shrunk):
    truth, results = shrunk(coco_set, noisy_results(coco_set, 0))
    evaluation = score(truth, results[:60], report=ReportSettings(diagnose=False))
    found = {name: float(value[0]) for name, value in figures(evaluation, np.ones((1, 20), np.int32)).items()}
    for name in OURS:
        assert found[name] == pytest.approx(evaluation.coco[name], abs=1e-12)
    for name in ("AP", "AP50", "AP75"):
        assert found[f"{name}_any_label"] == pytest.approx(evaluation.coco_class_agnostic[name], abs=1e-12)
    assert found["AP_constant_score"] == pytest.approx(evaluation.coco_constant_score["AP"], abs=1e-12)
    assert evaluation.coco_constant_score != evaluation.coco
    for suffix, iou in (("", "0.5"), ("_75", "0.75"), ("_miou", "0.5:0.95")):
        for rate in ("precision", "recall", "f1"):
            assert found[f"{rate}{suffix}"] == pytest.approx(evaluation.detection[iou][rate])
            assert found[f"{rate}{suffix}_any_label"] == pytest.approx(evaluation.detection_class_agnostic[iou][rate])
            assert found[f"macro_{rate}{suffix}"] == pytest.approx(evaluation.analysis["macro"][iou][rate])
    assert evaluation.detection != evaluation.detection_class_agnostic
    assert (found["mean_iou"], found["mean_iou_any_label"]) == pytest.approx(
        (evaluation.mean_iou, evaluation.mean_iou_class_agnostic)
    )
    assert evaluation.mean_iou < evaluation.mean_iou_class_agnostic


def test_notes_stand_where_they_belong_and_intervals_come_with_theirs(evaluation):
    noted = evaluation.with_notes(("first",), ("last",))
    assert noted.notes == ("first", *evaluation.notes, "last")
    rows = {"AP": {"value": 0.5, "low": 0.25, "high": 0.75}}
    assert noted.with_intervals(rows, ["few"]).notes == (*noted.notes, "few")
    assert noted.with_intervals(rows).intervals == rows and evaluation.intervals == {}
    data = replace(evaluation, calibrated=True).to_dict()
    assert (
        data["calibrated"] is True and not {"calibrated", "fusion", "shapes", "metrics"} & evaluation.to_dict().keys()
    )


@pytest.mark.parametrize("count", [1, 5, 6, 8])
def test_labels_that_are_unknown_are_counted_and_the_first_five_named(one_cat, count):
    """Two boxes of each; where none has a known label a figure of 0 says why."""
    rows = [
        {"image_id": 1, "category_id": 9 + n % count, "bbox": [1, 2, 30, 40], "score": 0.5} for n in range(2 * count)
    ]
    hit = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 0.5}
    found = score(one_cat, [*rows, hit], report=ReportSettings(diagnose=False))
    assert found.counts["unknown_label_detections"] == 2 * count and len(found.unknown_labels) == count
    (line,) = join_lines(found)
    names = ", ".join(f"'category_id {9 + n}' (2)" for n in range(min(count, 5)))
    more = f" and {count - 5} more" if count > 5 else ""
    assert line == f"{2 * count} boxes with labels that the ground truth does not have, counted as false: {names}{more}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found["AP"] > 0
    unknown = score(one_cat, rows, report=ReportSettings(diagnose=False))
    with pytest.warns(
        UserWarning, match=f"AP is 0: none of {2 * count} boxes has a known label: answers name 'category_id 9'"
    ):
        assert unknown["AP"] == 0
    with pytest.warns(UserWarning, match="AP50 is 0: the predictions have no box"):
        assert score(one_cat, [], report=ReportSettings(diagnose=False))["map_50"] == 0
