"""The table of metrics: what one row brings, for the built-in rows and for one of a user's own."""

import json

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
from coord_eval.metrics.metric_table import figure_of, figures


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
