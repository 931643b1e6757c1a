"""The threshold curve against counts made here, and the choice of a threshold."""

import pytest
from coco_builder import coco

from coord_eval import InputError, score, threshold_curve
from coord_eval.metrics.thresholds import Threshold, ThresholdCurve, best_threshold, wilson


@pytest.fixture
def curve(coco_set, noisy_results):
    return threshold_curve(score(coco_set, noisy_results(coco_set, 3)), resamples=20)


@pytest.mark.slow
def test_curve_equals_the_rates_of_the_boxes_kept(curve, coco_set, noisy_results):
    results = noisy_results(coco_set, 3)
    assert [row[0] for row in curve.points] == sorted({r["score"] for r in results}, reverse=True)
    for threshold, precision, recall, f1 in curve.points[2:9:3]:
        kept = score(coco_set, [r for r in results if r["score"] >= threshold])
        counted, hits = ~kept.ranked.ignored_TD[0], kept.ranked.hit_TD[0]
        assert precision == pytest.approx(hits.sum() / counted.sum())
        assert recall == pytest.approx(hits.sum() / kept.counts["objects"])
        assert f1 == pytest.approx(2 * precision * recall / (precision + recall))
        found = curve.at(threshold)
        assert sum(row.boxes for row in found.classes.values()) == counted.sum()
        assert sum(row.recall * row.objects for row in found.classes.values()) == pytest.approx(hits.sum())
        for rate, value in (("precision", precision), ("recall", recall), ("f1", f1)):
            assert found.intervals[rate]["low"] <= value <= found.intervals[rate]["high"]


def test_choose_takes_the_best_of_what_fits(curve):
    target = sorted(row[1] for row in curve.points)[len(curve.points) // 2]
    chosen = curve.choose(precision=target)
    assert chosen.precision >= target
    assert chosen.recall == max(recall for _, precision, recall, _ in curve.points if precision >= target)
    assert "50% chance of it on other images" in curve.choose(precision=chosen.precision).note
    careful = curve.choose(precision=target - 0.2, careful=True)
    assert careful.intervals["precision"]["low"] >= target - 0.2 and "50%" not in careful.note
    with pytest.raises(InputError, match="highest lower end of its interval is"):
        curve.choose(precision=1, careful=True)
    target = curve.points[4][2]
    chosen = curve.choose(recall=target)
    assert chosen.recall >= target
    assert chosen.precision == max(precision for _, precision, recall, _ in curve.points if recall >= target)
    assert curve.choose().f1 == max(row[3] for row in curve.points)
    reached = max(row[2] for row in curve.points)
    with pytest.raises(
        InputError, match=f"a recall of 0.99 cannot be reached: the highest is {reached:.3f}, at a score"
    ):
        curve.choose(recall=0.99)
    with pytest.raises(InputError, match="expected a precision or a recall, found both"):
        curve.choose(precision=0.5, recall=0.5)
    with pytest.raises(InputError, match="precision: expected a share above 0 and up to 1, found 90"):
        curve.choose(precision=90)


def test_threshold_without_a_box_is_refused(coco_set):
    with pytest.raises(InputError, match="no threshold can be chosen"):
        threshold_curve(score(coco_set, [])).choose()


@pytest.mark.parametrize(("successes", "trials"), [(0, 5), (3, 7), (40, 41), (5, 5)])
def test_wilson_equals_scipy(successes, trials):
    from scipy.stats import binomtest  # slow to import

    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    assert wilson(successes, trials) == pytest.approx((successes / trials, expected.low, expected.high), abs=1e-6)


POINTS = (
    (0.9, 1.0, 0.2, 0.3),
    (0.7, 0.8, 0.5, 0.6),
    (0.5, 0.8, 0.6, 0.65),
    (0.3, 0.5, 0.6, 0.55),
    (0.1, 0.4, 0.9, 0.55),
)
BOUNDS = tuple((p - 0.1, p + 0.05, r - 0.2, r + 0.05, f - 0.1, f + 0.1) for _, p, r, f in POINTS)
CLASSES = {"cat": {"objects": 10, "boxes": [0, 5, 6, 9, 20], "hits": [0, 4, 5, 5, 9]}}
MADE = ThresholdCurve(POINTS, BOUNDS, CLASSES)


@pytest.mark.parametrize(
    ("asked", "value", "wanted"),
    [
        ({}, 0.5, "best f1"),
        ({"precision": 0.8}, 0.5, "precision=0.8"),  # the higher recall of two
        ({"precision": 0.81}, 0.9, "precision=0.81"),
        ({"precision": 0.7, "careful": True}, 0.5, "precision=0.7"),
        ({"precision": 0.71, "careful": True}, 0.9, "precision=0.71"),
        ({"recall": 0.6}, 0.5, "recall=0.6"),  # the higher precision of two
        ({"recall": 0.61}, 0.1, "recall=0.61"),
        ({"recall": 0.5, "careful": True}, 0.1, "recall=0.5"),
        ({"recall": 0.2}, 0.9, "recall=0.2"),
    ],
)
def test_threshold_is_chosen_among_the_points_that_have_what_is_wanted(asked, value, wanted):
    found = MADE.choose(**asked)
    assert (found.value, found.wanted) == (value, wanted)
    place = [row[0] for row in POINTS].index(value)
    assert (found.precision, found.recall, found.f1) == POINTS[place][1:]
    bounds = [found.intervals[rate][end] for rate in ("precision", "recall", "f1") for end in ("low", "high")]
    assert tuple(bounds) == BOUNDS[place]
    row, (boxes, hits) = found.classes["cat"], (CLASSES["cat"][key][place] for key in ("boxes", "hits"))
    assert (row.objects, row.boxes) == (10, boxes)
    assert (row.precision, row.precision_low, row.precision_high) == wilson(hits, boxes)
    assert (row.recall, row.recall_low, row.recall_high) == wilson(hits, 10)
    assert ("chance of it on other images" in found.note) == bool(asked)
    low = BOUNDS[place][0 if "precision" in asked else 2]
    is_unsure = "careful" not in asked and any(share > low for share in asked.values())
    assert ("interval lies above" in found.note or "is sure" in found.note) == is_unsure


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"precision": 0.0}, "precision: expected a share above 0 and up to 1, found 0.0"),
        ({"recall": 0.0}, "recall: expected a share above 0"),
        ({"recall": 1.01}, "recall: expected a share above 0"),
        ({"precision": 0.5, "recall": 0.5}, "found both"),
        (
            {"precision": 0.95, "careful": True},
            r"highest lower end of its interval is 0\.900, at a score of 0\.9, with a recall of 0\.200",
        ),
        (
            {"recall": 0.95},
            r"reached: the highest is 0\.900, at a score of 0\.1, with a precision of 0\.400; ask for less",
        ),
    ],
)
def test_what_cannot_be_chosen_is_told_with_what_can(asked, message):
    with pytest.raises(InputError, match=message):
        MADE.choose(**asked)


def test_chance_of_what_is_wanted_and_the_careful_threshold_are_told():
    """A standard error is the 95 % interval over twice 1.96: .15 of precision at .8 are .038."""
    assert (
        MADE.choose(precision=0.78).note
        == "70% chance of it on other images; from a score of 0.9 on its interval lies above 0.78"
    )
    assert MADE.choose(precision=0.78, careful=True).note == "100% chance of it on other images"
    assert MADE.choose(recall=0.75).note == "99% chance of it on other images; no threshold is sure to have it"
    assert MADE.choose(precision=0.7).note == "100% chance of it on other images"


def test_rates_at_a_threshold_are_of_the_last_point_that_is_not_below_it():
    assert [MADE.at(t).value for t in (0.9, 0.8, 0.5, 0.49, 0.0)] == [0.9, 0.9, 0.5, 0.5, 0.1]
    assert MADE.at(0.5).wanted == "score=0.5" and MADE.at(0.5).note == ""
    with pytest.raises(InputError, match=r"no box has a score of at least 0\.91"):
        MADE.at(0.91)
    assert MADE.at(0.5).to_dict()["classes"]["cat"]["boxes"] == 6


@pytest.mark.parametrize(("labels", "more"), [(0, None), (3, None), (4, "and 1 more labels"), (6, "and 3 more labels")])
def test_threshold_as_text_has_the_rates_and_at_most_four_scores_before_calibration(labels, more):
    before = {"": 0.25, **{f"c{n}": 0.5 for n in range(labels)}, "none": None} if labels else {}
    rates = {rate: {"low": 0.125, "high": 0.875} for rate in ("precision", "recall", "f1")}
    text = str(Threshold(0.3, "best f1", 0.5, 0.25, 0.75, rates, {}, before=before))
    assert text.endswith(": precision 0.500 [0.125, 0.875], recall 0.250 [0.125, 0.875], f1 0.750 [0.125, 0.875]")
    shown = ["0.25", *(f"c{n} 0.5" for n in range(labels))][:4] + [more] * bool(more)
    assert text.startswith(
        "score of at least 0.3" + (f" ({', '.join(shown)} before calibration): " if labels else ": ")
    )


@pytest.mark.slow
def test_curve_counts_by_class_and_has_the_best_of_few_scores():
    """Boxes in a crowd region count nowhere; a class without objects counts by its boxes."""
    objects = [(1, 1, [0, 0, 20, 20]), (1, 1, [40, 0, 20, 20]), (1, 1, [0, 50, 50, 50])]
    truth = coco(*objects, names=("cat", "dog", "cow"))
    truth["annotations"][2]["iscrowd"] = 1
    rows = [
        (1, objects[0][2], 0.9),
        (2, [60, 60, 9, 9], 0.9),
        (1, [5, 55, 9, 9], 0.5),
        (1, objects[1][2], 0.4),
        (1, [80, 0, 9, 9], 0.4),
    ]
    results = [{"image_id": 1, "category_id": k, "bbox": box, "score": s} for k, box, s in rows]
    found = threshold_curve(score(truth, results), resamples=0)
    assert found.points == ((0.9, 0.5, 0.5, 0.5), (0.4, 0.5, 1.0, pytest.approx(2 / 3)))
    assert found.intervals[0] == (0.5,) * 6
    assert found.classes == {
        "cat": {"objects": 2, "boxes": [1, 3], "hits": [1, 2]}, "dog": {"objects": 0, "boxes": [1, 1], "hits": [0, 0]}
    }  # fmt: skip
    assert best_threshold(score(truth, results)) == {
        "threshold": 0.4,
        "precision": 0.5,
        "recall": 1.0,
        "f1": pytest.approx(2 / 3),
    }
    # The highest of several; none of a single score, or without a hit.
    two = [
        results[0],
        {**results[1], "score": 0.3},
        {**results[1], "score": 0.2, "bbox": objects[1][2], "category_id": 1},
    ]
    assert (
        best_threshold(score(truth, [two[0], *[{**two[0], "score": 0.5, "bbox": objects[1][2]}]]))["threshold"] == 0.5
    )
    equal = [two[0], {**two[1], "score": 0.8}, {**two[1], "score": 0.7}, two[2]]
    assert best_threshold(score(truth, equal))["threshold"] == 0.9
    assert best_threshold(score(truth, [results[0]] * 2)) is None
    assert best_threshold(score(truth, [results[1], {**results[1], "score": 0.1}])) is None
