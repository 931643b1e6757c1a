"""The threshold curve against counts made here, and the choice of a threshold."""

import pytest

from coord_eval import InputError, score, threshold_curve
from coord_eval.metrics.thresholds import wilson


@pytest.fixture
def curve(coco_set, noisy_results):
    return threshold_curve(score(coco_set, noisy_results(coco_set, 3)), resamples=20)


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
