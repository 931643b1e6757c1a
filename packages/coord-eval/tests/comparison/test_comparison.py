"""Confidence intervals over images and paired comparisons."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coco_builder import coco, generated_set

from coord_eval import InputError, ReportSettings, compare, resample, score, training_curves
from coord_eval.cli.main import main
from coord_eval.comparison import compare as comparing
from coord_eval.comparison import page as page_module
from coord_eval.comparison.compare import paired_differences
from coord_eval.comparison.differences import Difference
from coord_eval.metrics.draws import interval
from coord_eval.metrics.metric_table import HEADLINE
from coord_eval.resampling import permutation
from coord_eval.resampling.bootstrap import Resamples
from coord_eval.resampling.permutation import exchange_p_values


@pytest.fixture(scope="module")
def runs(noisy_results):
    truth = generated_set(20)
    results = noisy_results(truth, 0)
    return {"base": score(truth, results), "less": score(truth, results[::4])}


@pytest.mark.slow
def test_resample_is_a_data_set_drawn_with_replacement(runs):
    """The spread of recall against the same computed from counts of each image by hand."""
    evaluation = runs["base"]
    drawn = resample(evaluation, resamples=100, seed=5).draws["recall"]
    regular = ~evaluation.truth.crowd_N
    images = len(evaluation.truth)
    objects = np.bincount(evaluation.truth.image_N[regular], minlength=images)
    hits = np.bincount(evaluation.truth.image_N[regular & (evaluation.matches.iou_N >= 0.5)], minlength=images)
    draw = np.random.default_rng(5)
    expected = []
    for _ in range(100):
        chosen = draw.integers(0, images, images)
        expected.append(hits[chosen].sum() / objects[chosen].sum())
    np.testing.assert_allclose(drawn, expected)


def test_intervals_of_the_same_seed_are_the_same_and_hold_the_value(runs):
    a, b, c = (resample(runs["base"], 50, seed=s).intervals() for s in (1, 1, 2))
    assert a == b
    assert a != c
    assert all(row["low"] <= row["value"] <= row["high"] for row in a.values())
    assert a["AP"]["low"] < a["AP"]["high"]


@pytest.mark.slow
def test_runs_that_found_nothing_have_one_verdict_in_place_of_their_diagnoses(coco_set, tmp_path):
    a, b = ('[{"bbox_2d": [1, 1, 9, 9], "label": "cat"}]', '[{"bbox_2d": [2, 2, 10, 10], "label": "cat"}]')
    runs = {name: score(coco_set, [{"image_id": i, "text": name} for i in range(20)]) for name in (a, b)}
    found = compare(runs, resamples=20)
    assert sum("no run has learnt" in note for note in found.notes) == 1
    assert not any("diagnosis" in note for note in found.notes)
    page = found.write_report(tmp_path).read_text()
    assert "Images that changed" not in page and "differences of the headline metrics" not in page


def test_page_of_a_comparison_has_every_section_and_the_differences(runs, tmp_path):
    found = compare({"base": runs["base"], "less": runs["less"], "same": runs["base"]}, resamples=10)
    text = found.write_report(tmp_path).read_text()
    titles = [re.sub(r"<[^>]+>", " ", title).split() for title in re.findall(r"<summary[^>]*>(<h2.*?)</summary>", text)]
    ap = found.differences["less"]["AP"]
    assert [" ".join(title) for title in titles] == [
        f"less against base AP {ap.value:+.3f} [{ap.low:+.3f}, {ap.high:+.3f}]",
        "Images that changed: less against base",
        "same against base AP +0.000 [+0.000, +0.000]",
        "Metrics 3 runs",
    ]
    for name in ("AP", "AP50", "precision", "recall"):
        row = found.metrics["less"][name]
        assert re.search(rf"<td[^>]*>{row['value']:.3f} \[{row['low']:.3f}, {row['high']:.3f}\]</td>", text)
    value = runs["less"].coco["AP"] - runs["base"].coco["AP"]
    assert ap.value == pytest.approx(value) and found.differences["less"]["recall"].share_better == 0
    gains = {name: runs["less"].per_class[name]["AP"] - row["AP"] for name, row in runs["base"].per_class.items()}
    assert found.class_gains["less"] == pytest.approx(gains, nan_ok=True)
    assert set(found.class_gains["same"].values()) <= {0.0}
    assert all(html.escape(found.verdict(run), quote=False) in text for run in ("less", "same"))


@pytest.mark.slow
def test_compare_paired_intervals_are_narrower_than_those_of_the_runs(runs):
    comparison = compare(runs, resamples=100)
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


@pytest.mark.slow
def test_compare_takes_the_mean_and_spread_over_seeds(coco_set, noisy_results):
    base, new = ([score(coco_set, noisy_results(coco_set, seed)[::step]) for seed in range(3)] for step in (1, 2))
    found = compare({"base": base, "new": new}, resamples=200)
    alone = [resample(run, 200, metrics=["AP", "recall"]).draws for run in (*base, *new)]
    for name in ("AP", "recall"):
        gains = [b[name] - a[name] for a, b in zip(base, new, strict=True)]
        row, difference = found.metrics["new"][name], found.differences["new"][name]
        assert row["seeds"] == pytest.approx([run[name] for run in new])
        assert row["value"] == pytest.approx(np.mean(row["seeds"]))
        assert row["over_seeds"] == pytest.approx(4.303 * np.std(row["seeds"], ddof=1) / 3**0.5)
        assert difference.value == pytest.approx(np.mean(gains))
        assert difference.over_seeds == pytest.approx(4.303 * np.std(gains, ddof=1) / 3**0.5)
        means = [np.mean([draws[name] for draws in of], axis=0) for of in (alone[:3], alone[3:])]
        draws = interval(difference.value, means[1] - means[0])
        assert (difference.low, difference.high) == pytest.approx((draws["low"], draws["high"]))
    ap = [found.metrics[name]["AP"]["value"] for name in found.metrics]
    assert f": AP {ap[0]:.3f} -> {ap[1]:.3f}, " in found.verdict("new")
    assert "worse in" in found.verdict("new") and "recall" in found.verdict("new")
    recall = found.differences["new"]["recall"]
    wide = replace(found, differences={"new": {"recall": replace(recall, over_seeds=1.1 * abs(recall.value))}})
    assert wide.verdict("new").endswith(", no headline metric differs")


def test_compare_takes_the_seeds_of_one_run_alone_and_refuses_seeds_without_a_pair(runs, tmp_path):
    alone = compare({"a": list(runs.values())}, resamples=5)
    assert alone.metrics["a"]["recall"]["seeds"] == pytest.approx([run["recall"] for run in runs.values()])
    assert "over seeds" not in "".join(alone.lines()) and alone.write_report(tmp_path).exists()
    with pytest.raises(InputError, match="as many seeds of each run"):
        compare({"a": list(runs.values()), "b": runs["base"]})


def test_compare_refuses_other_ground_truth_and_single_runs(coco_set, runs):
    other = {**coco_set, "annotations": coco_set["annotations"][1:]}
    with pytest.raises(InputError, match="base and other were scored against different ground truth"):
        compare({"base": runs["base"], "other": score(other, [])})
    with pytest.raises(InputError, match=r'runs by name, \{"base": a, "new": b\}, found list'):
        compare([runs["base"], runs["base"]])
    with pytest.raises(InputError, match="at least two runs"):
        compare({"base": runs["base"]})
    with pytest.raises(InputError, match="bootstrap"):
        resample(score({"images": [], "annotations": [], "categories": []}, []))


def test_compare_notes_runs_ranked_by_different_scores():
    truth = coco((1, 1, [10, 10, 40, 40]))
    stated = score(truth, [{"image_id": 1, "category_id": 1, "bbox": [10, 10, 40, 40], "score": 0.5}])
    words = score(truth, [{"image_id": 1, "text": '[{"bbox_2d": [100, 100, 500, 500], "label": "cat"}]'}])
    for other, told in ((words, True), (stated, False)):
        notes = compare({"a": stated, "b": other}, resamples=2).notes
        assert any("different scores" in note for note in notes) == told


@pytest.mark.parametrize(
    ("least", "other", "bent", "is_told"),
    [
        (0.05, 0.3, 1, True),
        (0.05, 0.06, 1, False),
        (0.05, 0.05, 1, False),
        (1.0, 1.0, 1, False),
        (-3.0, 0.1, 1, True),
        (0.05, 0.3, 0.1, False),
    ],
)
def test_lists_that_begin_at_different_scores_are_told_with_the_best_f1_of_each(coco_set, least, other, bent, is_told):
    """Of 100 scores spread evenly from the least one to 1, a quarter lies below .3, and one below .06.

    A list whose lowest scores are few is not cut: it has other scores.
    """
    annotated = [row for row in coco_set["annotations"] if not row.get("iscrowd")]
    runs = {}
    for name, begin in (("a", least), ("b", other)):
        scores = np.linspace(min(least, other), 1, 100)
        rows = [
            {"image_id": row["image_id"], "category_id": row["category_id"], "bbox": row["bbox"], "score": value}
            for row, value in zip(annotated, scores.tolist(), strict=False)
            if value >= begin
        ]
        low, span = begin, (1 - begin) or 1
        rows = [
            {**row, "score": low + span * ((row["score"] - low) / span) ** (bent if name == "b" else 1)} for row in rows
        ]
        runs[name] = score(coco_set, rows)
    told = [note for note in compare(runs, resamples=2).notes if "the scores begin differently" in note]
    assert len(told) == is_told
    if is_told:
        below = np.mean([value < runs["b"].detections.scores_D.min() for value in runs["a"].detections.scores_D])
        assert (
            f"a from {least:.2g}, {below:.0%} of its boxes below {runs['b'].detections.scores_D.min():.2g}" in told[0]
        )
        assert all(
            f"best F1 {run.analysis['f1_against_threshold']['best']['f1']:.3f}" in told[0] for run in runs.values()
        )


def test_compare_keeps_the_notes_of_each_run(coco_set, runs):
    plain = score(coco_set, [{"image_id": 0, "text": '[{"bbox_2d": [1, 2, 300, 400], "label": "cow"}]'}])
    notes = compare({"base": runs["base"], "plain": plain}, resamples=2).notes
    kept = [note for note in plain.notes if not note.startswith("diagnosis")]
    assert kept and [note for note in kept if f"plain: {note}" not in notes] == []
    assert any(note.startswith("plain: ") and "/1000 was assumed" in note for note in notes)
    assert any(note.startswith("plain: 1 box with labels that the ground truth does not have") for note in notes)
    assert any(note.startswith("plain: ") and "images are without an answer" in note for note in notes)


@pytest.mark.slow
def test_compare_permutes_until_a_difference_can_be_significant_and_says_which_are(runs):
    both = compare({**runs, "same": runs["base"]}, resamples=2)
    found = both.differences
    tests = sum(d.p is not None for rows in found.values() for d in rows.values())
    # The smallest p of so many permutations, times the number of tests, is just below .05.
    assert (both.resamples, both.permutations) == (2, 20 * tests)
    assert tests / (both.permutations + 1) < 0.05 <= tests / both.permutations
    assert min(d.p for d in found["less"].values() if d.p is not None) == tests / (both.permutations + 1)
    assert "2 resamples of the images, 360 permutations" in "".join(both.lines())
    assert found["less"]["recall"].differs and found["less"]["recall"].p < 0.05
    for row in found["same"].values():
        assert (row.value, row.low, row.high, row.share_better, row.differs) == (0, 0, 0, 0, False)
    assert set(both.class_gains["same"].values()) == {0.0}
    assert {name for name, row in found["less"].items() if row.p is not None} == set(HEADLINE)
    assert compare(runs, resamples=181).permutations == 181


@pytest.mark.slow
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
    (tmp_path / "c.json").write_text(json.dumps(results[1::2]))
    seeds = [*files, f"all={tmp_path / 'b.json'}", f"half={tmp_path / 'c.json'}"]
    assert main([*common, *seeds, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["metrics"]
    assert rows["all"]["AP"]["seeds"] == [printed["metrics"][run]["AP"]["value"] for run in ("all", "half")]
    assert main([*common, files[0]]) == 2


def test_paired_differences_adjust_p_by_holm():
    """p-values of .01, .02 and .04: times 3, 2 and 1, ascending."""
    names = HEADLINE[:3]
    drawn = {run: Resamples(dict.fromkeys(names, 0.5), dict.fromkeys(names, np.full(9, 0.5)), 0) for run in "ab"}
    found = paired_differences(drawn, {"b": dict(zip(names, (0.04, 0.01, 0.02), strict=True))})["b"]
    assert [found[name].p for name in names] == pytest.approx([0.04, 0.03, 0.04])
    assert all(found[name].differs for name in names)
    found = paired_differences(drawn, {"b": dict(zip(names, (0.04, 0.02, 0.9), strict=True))})["b"]
    assert [found[name].p for name in names] == pytest.approx([0.08, 0.06, 0.9])
    assert not any(row.differs for row in found.values())


def test_permutations_without_a_value_count_against_a_difference(runs, monkeypatch):
    def figures(weights_BI):
        own_BI = weights_BI[:, : weights_BI.shape[1] // 2]
        return {"AP": np.where(own_BI.min(axis=1) == own_BI.max(axis=1), own_BI[:, 0], np.nan)}

    monkeypatch.setattr(permutation, "prepare_figures", lambda scored, metrics: figures)
    assert exchange_p_values([runs["base"]], [runs["less"]], 50, seed=0, metrics=("AP",)) == {"AP": 1.0}


@pytest.mark.slow
def test_exchange_p_values_equal_scoring_the_exchanged_answers_again(coco_set, noisy_results):
    first, second = (  # distinct scores, since pycocotools has the order of the images among equal ones
        [{**r, "score": r["score"] + 1e-5 * (2 * i + seed)} for i, r in enumerate(noisy_results(coco_set, seed))]
        for seed in (0, 1)
    )
    second = second[:-20]
    a, b = score(coco_set, first), score(coco_set, second)
    found = exchange_p_values([a], [b], 3, seed=4, metrics=("AP", "f1"))
    swaps = np.random.default_rng(4).integers(0, 2, (3, len(coco_set["images"])), np.int32)
    differences = {"AP": [], "f1": []}
    for swap in swaps:
        mixed = [
            score(coco_set, [r for r in one if not swap[r["image_id"]]] + [r for r in other if swap[r["image_id"]]])
            for one, other in ((first, second), (second, first))
        ]
        differences["AP"].append(mixed[1].coco["AP"] - mixed[0].coco["AP"])
        differences["f1"].append(mixed[1].detection["0.5"]["f1"] - mixed[0].detection["0.5"]["f1"])
    seen = {"AP": b.coco["AP"] - a.coco["AP"], "f1": b.detection["0.5"]["f1"] - a.detection["0.5"]["f1"]}
    for name, values in differences.items():
        extreme = sum(abs(value) >= abs(seen[name]) - 1e-12 for value in values)
        assert found[name] == (1 + extreme) / 4


def test_interval_is_moved_so_that_the_resamples_have_the_value_as_mean():
    draws = np.random.default_rng(0).normal(0.6, 0.01, 5000)
    found = interval(0.5, draws)
    assert (found["low"], found["high"]) == pytest.approx((0.4804, 0.5196), abs=0.001)
    assert interval(0.999, draws, share=True)["high"] == 1.0


def test_labels_with_few_objects_are_noted(coco_set, copied):
    note = "6 of 6 labels have fewer than 10 objects"
    few = {**coco_set, "annotations": [a for a in coco_set["annotations"] if a["image_id"] < 8]}
    assert any(note in found for found in score(few, [], report=ReportSettings(bootstrap=2)).notes)
    many, _ = copied(coco_set, [], [5] * 20)
    assert not any("fewer than 10" in found for found in score(many, [], report=ReportSettings(bootstrap=2)).notes)


OBJECTS = [(image, 1 + place, [100.0 * place, 10.0, 40.0, 40.0]) for image in range(4) for place in range(3)]
SMALL = coco(*OBJECTS, names=("cat", "dog", "cow", "bird"), images=range(4), size=(400, 100))
"""Four images of a cat, a dog and a cow each, and no bird."""


def small_run(seed, finds, truth=SMALL, shift=0.0):
    """A run that finds shares of the cats, dogs and cows, in boxes that lie as far to the right as is said."""
    draw = np.random.default_rng(seed)
    rows = [
        {"image_id": image, "category_id": label, "bbox": [x + shift, *rest], "score": draw.uniform(0.1, 1)}
        for image, label, (x, *rest) in OBJECTS
        if draw.random() < finds[label - 1]
    ]
    return score(truth, rows, report=ReportSettings(diagnose=False))


@pytest.fixture(scope="module")
def small():
    """Two seeds of a run, of one that finds fewer cats and more cows, and of the first one again."""
    base = [small_run(seed, (1, 0.8, 0.5)) for seed in (0, 1)]
    new = [small_run(seed, (0.4, 0.8, 1), shift=1) for seed in (2, 3)]
    return {"base": base, "new": new, "same": base}


@pytest.fixture(scope="module")
def small_comparison(small):
    told = []
    return compare(small, 4, 7, lambda *step: told.append(step)), told


def test_figures_of_a_comparison_are_means_over_seeds_with_their_spread(small, small_comparison):
    found, told = small_comparison
    drawn = {name: [resample(run, 4, 7) for run in seeds] for name, seeds in small.items()}
    difference, tests = found.differences["new"], len(HEADLINE)
    for metric in ("AP", "recall", "count_absolute_error", "bias_x1_pixels"):
        values = {name: [run.point[metric] for run in seeds] for name, seeds in drawn.items()}
        means = {name: np.mean([run.draws[metric] for run in seeds], axis=0) for name, seeds in drawn.items()}
        row, gains = difference[metric], np.subtract(values["new"], values["base"])
        assert found.metrics["new"][metric]["seeds"] == values["new"]
        assert found.metrics["new"][metric]["value"] == pytest.approx(np.mean(values["new"]))
        spread = [12.706 * np.std(one, ddof=1) / 2**0.5 for one in (values["new"], gains)]
        assert [found.metrics["new"][metric]["over_seeds"], row.over_seeds] == pytest.approx(spread)
        bounds = interval(np.mean(gains), means["new"] - means["base"])
        assert (row.value, row.low, row.high) == pytest.approx((bounds["value"], bounds["low"], bounds["high"]))
        size = {"count_absolute_error": np.negative, "bias_x1_pixels": lambda off: -np.abs(off)}.get(metric, np.abs)
        assert row.share_better == np.mean(size(means["new"]) > size(means["base"]))
    same = found.differences["same"].values()
    assert {(row.value, row.low, row.high, row.share_better, row.differs) for row in same} == {(0, 0, 0, 0, False)}
    gains = {
        label: np.mean([b.per_class[label]["AP"] - a.per_class[label]["AP"] for a, b in zip(*pair, strict=True)])
        for pair in [(small["base"], small["new"])]
        for label in ("cat", "dog", "cow")
    }
    assert gains["cat"] < 0 < gains["cow"]
    by_size = sorted(gains, key=lambda label: -abs(gains[label]))
    assert found.class_gains["new"] == pytest.approx(gains) and [*found.class_gains["new"]] == by_size
    p = {name for name, row in difference.items() if row.p is not None}
    assert p == {*HEADLINE} and (found.resamples, found.permutations) == (4, 20 * 2 * tests)
    assert [step for step in told if step[0] == "bootstrap"] == [("bootstrap", 4, 4)] * 6


def test_lines_json_and_page_of_a_comparison_hold_what_it_found(small_comparison, tmp_path):
    found, _ = small_comparison
    written = found.write_report(tmp_path / "new" / "folder")
    values = json.loads((written.parent / "comparison.json").read_text())
    assert values == json.loads(found.to_json()) and "runs" not in values
    assert values["verdicts"] == [found.verdict(run) for run in ("new", "same")]
    lines, page = list(found.lines()), written.read_text()
    assert lines[-2:] == values["verdicts"] and "base, mean over 2 seeds" in lines
    assert not any(line.startswith("  duplicates ") for line in lines)  # no headline figure
    ap = {name: row["AP"] for name, row in found.metrics.items()}
    shown = [f"{row['value']:.3f} ± {row['over_seeds']:.3f}" for row in ap.values()]
    metrics = page[page.index("<h2>Metrics") :]
    assert all(text in metrics for text in shown) and "<td>duplicates" in metrics
    for text in (*values["verdicts"], *found.notes[:1], "mean over 2 seeds", "AP gained by label"):
        assert html.escape(text) in page
    row = found.differences["new"]["AP"]
    assert f"AP {row.value:+.3f} [{row.low:+.3f}, {row.high:+.3f}]".replace("-", "\u2212") in page.replace(
        "-", "\u2212"
    )
    assert page.count("Images that changed: new against base</h2>") == 1
    assert "Images that changed: same" not in page and page.count("differences of the headline metrics") == 2
    assert "<h2>Training" not in page
    log = [{"step": step, "loss": 1 / step, "eval_AP": 0.5} for step in (1, 2)]
    trained = replace(found, training=training_curves({"base": [log]}, {"loss": "total loss"}))
    asked: list[str] = []
    assert trained.write_report(tmp_path, image_root=asked.append).read_text().count("<h2>Training") == 1
    assert asked and list(trained.lines()) == [*lines, *trained.training.lines()] != lines


def test_verdict_names_figures_that_differ_over_images_and_over_seeds_by_what_is_better(small_comparison):
    found, _ = small_comparison
    one = replace(found, metrics=found.metrics | {"new": {}}, differences={"new": {}})
    assert one.verdict("new") == "new against base: no headline metric differs"
    row = Difference(0.2, 0.1, 0.3, 1.0, p=0.01, differs=True, over_seeds=0.1)
    of = {"recall": 0.2, "f1": -0.2, "count_absolute_error": -0.2, "duplicates": 0.2, "count_error": 0.4}
    metrics = {"base": {name: {"value": 0.5} for name in of}, "new": {n: {"value": 0.5 + d} for n, d in of.items()}}
    metrics["base"]["count_error"], metrics["new"]["count_error"] = {"value": -0.5}, {"value": -0.1}
    made = replace(found, metrics=metrics, differences={"new": {n: replace(row, value=d) for n, d in of.items()}})
    better, worse = made.verdict("new").split("better in ")[1].split("; worse in ")
    assert [[part.split()[0] for part in side.split(", ")] for side in (better, worse)] == [
        ["recall", "count_absolute_error", "count_error"],
        ["f1", "duplicates"],
    ]
    for changed in ({"over_seeds": 0.2}, {"differs": False}):
        rows = {"recall": replace(row, **changed)}
        assert replace(made, differences={"new": rows}).verdict("new").endswith("no headline metric differs")
    assert "better in recall" in replace(made, differences={"new": {"recall": replace(row, over_seeds=None)}}).verdict(
        "new"
    )


def test_runs_that_cannot_be_compared_are_refused(small):
    one = small["base"][0]
    for change in ({"iscrowd": 1}, {"bbox": [0.0, 10.0, 40.0, 41.0]}, {"category_id": 4}):
        first, *others = SMALL["annotations"]
        other = small_run(0, (1, 1, 1), SMALL | {"annotations": [{**first, **change}, *others]})
        with pytest.raises(InputError, match="base and other were scored against different ground truth"):
            compare({"base": one, "other": other}, 1)
    other = small_run(0, (1, 1, 1), SMALL | {"categories": [{"id": k, "name": f"{k}"} for k in range(1, 5)]})
    for runs, message in (
        ({"base": [one, other]}, "base and base were scored against different"),
        ({"base": one}, "at least two runs, found 1"),
        ({"base": small["base"], "new": one}, "as many seeds of each run"),
        ([one, one], r'runs by name, \{"base": a, "new": b\}, found list'),
    ):
        with pytest.raises(InputError, match=message):
            compare(runs, 1)


@pytest.mark.slow
def test_figures_that_some_run_lacks_are_told_and_not_tested(small, monkeypatch):
    base, new = (small[name][0] for name in ("base", "new"))
    for lacks in (base, new):
        names = {id(base): ["AP", "f1"], id(new): ["AP", "f1"]} | {id(lacks): ["AP"]}
        monkeypatch.setattr(comparing, "headline", lambda run, names=names: names[id(run)])
        found = compare({"base": base, "new": new}, 2)
        assert "f1: not a figure of every run, so not compared" in found.notes
        assert {name for name, row in found.differences["new"].items() if row.p is not None} == {"AP"}


@pytest.mark.parametrize(("p", "expected"), [((0.01, 0.0125, 0.04), (0.03, 0.03, 0.04)), ((0.7, 0.8, 0.9), (1, 1, 1))])
def test_adjusted_p_values_ascend_up_to_1(p, expected):
    names = HEADLINE[:3]
    drawn = {run: Resamples(dict.fromkeys(names, 0.5), dict.fromkeys(names, np.full(9, 0.5)), 0) for run in "ab"}
    found = paired_differences(drawn, {"b": dict(zip(names, p, strict=True))})["b"]
    assert [found[name].p for name in names] == pytest.approx(expected)


def test_a_run_that_found_nothing_beside_one_that_did_has_the_verdict_for_itself(small):
    nothing = score(SMALL, [{"image_id": 0, "text": '[{"bbox_2d": [1, 900, 9, 990], "label": "cat"}]'}])
    notes = compare({"base": small["base"][0], "nothing": nothing}, 2).notes
    assert not any("no run has learnt" in note or "diagnosis: " in note for note in notes)
    assert sum(note.startswith("nothing: AP below 0.02, and no other reading") for note in notes) == 1
    both = compare({"base": nothing, "nothing": nothing}, 2).notes
    assert sum("no other reading" in note for note in both) == 1 and any(
        note.startswith("no run has learnt") for note in both
    )


def test_share_of_better_resamples_is_of_those_in_which_the_figure_is_defined():
    draws = {"a": [0.1, 0.2, 0.3, np.nan], "b": [0.2, 0.2, np.nan, np.nan]}
    drawn = {run: Resamples({"AP": 0.5}, {"AP": np.array(own)}, 0) for run, own in draws.items()}
    assert paired_differences(drawn, {"b": {}})["b"]["AP"].share_better == 0.5  # equal is not better
    none = {run: Resamples({"AP": 0.5}, {"AP": np.full(2, np.nan)}, 0) for run in "ab"}
    assert paired_differences(none, {"b": {}})["b"]["AP"].share_better == 0


def test_p_values_are_the_share_of_exchanges_over_all_seeds_with_as_large_a_difference():
    """Two seeds of two runs, exchanged image by image and scored from the start; with a crowd region."""
    truth = SMALL | {"annotations": [*SMALL["annotations"], SMALL["annotations"][0] | {"id": 99, "iscrowd": 1}]}
    truth["annotations"][-1]["bbox"] = [300.0, 10.0, 90.0, 80.0]
    draw, lists = np.random.default_rng(0), []
    for shares in ((1, 0.8, 0.5), (0.9, 0.6, 0.5), (0.5, 0.8, 1), (0.2, 0.9, 0.7)):
        rows = [(i, k, box) for i, k, box in OBJECTS if draw.random() < shares[k - 1]]
        rows += [(i, 1, [310.0, 20.0, 30.0, 30.0]) for i in range(4) if draw.random() < 0.5]
        lists.append([{"image_id": i, "category_id": k, "bbox": b, "score": draw.random()} for i, k, b in rows])
    quiet = ReportSettings(diagnose=False)
    runs = [score(truth, rows, report=quiet) for rows in lists]
    found = exchange_p_values(runs[:2], runs[2:], 6, seed=4, metrics=("AP", "f1"))

    def difference(swap):
        pairs = []
        for one, other in zip(lists[:2], lists[2:], strict=True):
            both = [
                [row for row in first if not swap[row["image_id"]]] + [row for row in second if swap[row["image_id"]]]
                for first, second in ((one, other), (other, one))
            ]
            a, b = (score(truth, rows, report=quiet) for rows in both)
            pairs.append((b["AP"] - a["AP"], b["f1"] - a["f1"]))
        return np.mean(pairs, axis=0)

    seen = np.abs(difference([0] * 4))
    swaps = np.random.default_rng(4).integers(0, 2, (6, 4), np.int32)
    extreme = sum(np.abs(difference(swap)) >= seen - 1e-12 for swap in swaps)
    assert (found["AP"], found["f1"]) == pytest.approx(tuple((1 + extreme) / 7))
    assert min(found.values()) > 1 / 7 and max(found.values()) < 1


def test_page_takes_the_images_of_the_ground_truth_unless_others_are_named(small_comparison, monkeypatch):
    found, _ = small_comparison
    base = found.runs["base"][0]
    runs = {"base": [replace(base, truth=replace(base.truth, root=Path("own")))], "new": found.runs["new"]}
    seen = []
    monkeypatch.setattr(page_module, "changed_images", lambda both, root: seen.append((list(both), root)) or "")
    one = replace(found, runs=runs, differences={"new": found.differences["new"]}, metrics={
        name: found.metrics[name] for name in ("base", "new")
    })  # fmt: skip
    log = [{"step": step, "loss": 1 / step} for step in (1, 2)]
    trained = replace(one, training=training_curves({"base": [log]}, {"loss": "total loss"}))
    for given, root in ((None, Path("own")), ("named", Path("named")), (Path("path"), Path("path")), (str, str)):
        page = page_module.comparison_page(trained, given)
        assert seen.pop() == (["base", "new"], root) and not seen
        assert page.count("<h2>Training") == 1 and "<title>new against base" in page
    page_module.comparison_page(replace(one, runs={}))
    assert not seen


def test_notebook_shows_the_verdicts_and_the_headline_figures_of_each_run(small_comparison):
    found, _ = small_comparison
    shown = found._repr_html_()
    assert all(html.escape(found.verdict(run), quote=False) in shown for run in ("new", "same"))
    assert re.findall(r"<th(?: [^>]*)?>(.*?)</th>", shown) == ["run", *HEADLINE]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", shown)
    assert cells[: 1 + len(HEADLINE)] == ["base", *(f"{found.metrics['base'][n]['value']:.3f}" for n in HEADLINE)]


def test_scores_that_are_no_probabilities_are_not_compared_by_where_they_begin(small):
    """A rank begins wherever the longest answer ends."""
    run = small["base"][0]
    for source, is_told in (("results", True), ("emission_rank", False)):
        lists = {"a": np.linspace(0.05, 1, len(run.detections)), "b": np.linspace(0.5, 1, len(run.detections))}
        groups = {
            name: [replace(run, detections=run.detections.changed(score_N=scores), score_source=source)]
            for name, scores in lists.items()
        }
        assert bool(list(comparing._least_scores_note(groups))) == is_told
