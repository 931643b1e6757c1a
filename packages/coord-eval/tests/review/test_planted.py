"""Probabilities from faults that are planted into the labels themselves."""

import numpy as np
import pytest
from coco_builder import coco, iou
from scipy.optimize import minimize

from coord_eval import Detections, load_ground_truth
from coord_eval.review import review
from coord_eval.review.confidence import compare
from coord_eval.review.figures import SetFigures
from coord_eval.review.planted import LEAST_LABELS, _probabilities, _rate, _regression, judged_by_planted_faults, plant
from coord_eval.review.probability import LABEL_KINDS

LABEL_STEPS, OTHER_STEPS = ((0, 0.25), (0.25, 0.5), (0.5, 1)), ((0, 0.5), (0.5, 1))


@pytest.mark.parametrize("few", [1, 0])
def test_faults_are_planted_only_into_enough_labels_that_are_no_crowd_regions(few):
    labels = LEAST_LABELS - few
    objects = [(n % 20, 1 + n % 2, [n, n, 20, 20]) for n in range(labels + 40)]
    truth = coco(*objects, names=("cat", "dog"), images=range(20), size=(600, 600))
    for row in truth["annotations"][labels:]:
        row["iscrowd"] = 1
    said = [
        {"image_id": row["image_id"], "category_id": row["category_id"], "bbox": row["bbox"], "score": 0.9}
        for row in truth["annotations"][:labels:2]
    ]
    found = review(truth, said, least=0.0)
    assert found.rests_on["planted_faults"] == (0 if few else 5 * labels)
    assert len(found.judged) == labels
    assert all(0 <= item.probability <= 1 for item in found.judged + found.findings)
    assert np.isfinite([item.probability for item in found.judged]).all()


def planted_in(names=("cat", "dog", "cow"), sized=True, labels=300, seed=0, **more):
    """Labels of 40 images, a crowd region of a name of its own: the truth, the faults made, and their rows by kind."""
    draw = np.random.default_rng(1)
    objects = [
        (n % 40, 1 + n % len(names), [*draw.uniform(0, 350, 2).tolist(), *draw.uniform(0.5, 150, 2).tolist()])
        for n in range(labels)
    ]
    document = coco(*objects, (0, 1, [5, 5, 90, 90]), names=(*names, "crowd"), images=range(41), size=(500, 500))
    document["annotations"][-1] |= {"iscrowd": 1, "category_id": 1 + len(names)}
    for image in document["images"]:
        image.update({} if sized else {"width": None, "height": None})
    truth = load_ground_truth(document)
    made = plant(truth, np.random.default_rng(seed))
    kinds = {LABEL_KINDS[k]: np.flatnonzero(made.kind_p == k) for k in np.unique(made.kind_p)}
    return truth, made, kinds


@pytest.mark.parametrize("sized", [True, False])
def test_planted_faults_are_what_their_kinds_say(sized):
    truth, made, kinds = planted_in(sized=sized)
    labels, regular = made.labels, np.flatnonzero(~truth.crowd_N)
    assert [*kinds] == [*LABEL_KINDS] and {len(rows) for rows in kinds.values()} == {300}
    for rows in kinds.values():  # each label once, in its own image, and none of a crowd region
        assert sorted(labels.image_N[rows].tolist()) == sorted(truth.image_N[regular].tolist())
    assert 3 not in labels.category_N
    for kind, (has_source, new_name, new_box) in {
        "renamed": (True, True, False), "moved": (True, False, True), "mixed": (True, True, True),
    }.items():  # fmt: skip
        rows = kinds[kind]
        source = made.source_p[rows]
        assert has_source and sorted(source.tolist()) == regular.tolist()
        assert ((labels.category_N[rows] != truth.category_N[source]) == new_name).all()
        changed = (labels.boxes_N4[rows] != truth.boxes_N4[source]).any(axis=1)
        assert changed.mean() > 0.95 if new_box else not changed.any()
    assert (made.source_p[np.concatenate([kinds["spurious"], kinds["duplicate"]])] == -1).all()
    assert np.array_equal(labels.boxes_N4[kinds["mixed"]], labels.boxes_N4[kinds["moved"]])
    assert np.array_equal(made.like_p[kinds["mixed"]], kinds["moved"])
    own = np.concatenate([rows for kind, rows in kinds.items() if kind != "mixed"])
    assert np.array_equal(made.like_p[own], own)
    # A duplicate lies nearly where its label does; a stray one has the size of some label.
    rows = kinds["duplicate"]
    off = labels.boxes_N4[rows] - truth.boxes_N4[made.source_p[kinds["moved"]]]
    assert np.abs(off / np.tile(truth.boxes_N4[made.source_p[kinds["moved"]], 2:], 2))[:, :2].mean() < 0.1
    shares = [
        np.isclose(labels.boxes_N4[n, 2:], truth.boxes_N4[regular, 2:]).any(axis=0).all() for n in kinds["spurious"]
    ]
    assert np.mean(shares) > 0.9
    sides = labels.boxes_N4[:, 2:]
    assert (sides > 0).all()
    if sized:
        ends = labels.boxes_N4[:, :2] + sides
        assert (labels.boxes_N4[:, :2] >= 0).all() and (ends[sides.min(axis=1) > 1] <= 500 + 1e-6).all()
    else:
        assert (labels.boxes_N4[:, :2] < 0).any()  # nobody knows where such an image begins to end


def test_moved_labels_are_shifted_or_resized_by_what_happens_to_boxes():
    """By 20 to 40 % of a side, or to 1/2, 2/3, 4/3 or 2 of one; now and then of both, or joined with another."""
    truth, made, kinds = planted_in(sized=False)
    rows = kinds["moved"]
    old, new = truth.boxes_N4[made.source_p[rows]], made.labels.boxes_N4[rows]
    times = (new[:, 2:] / old[:, 2:]).round(9)
    shift = (new[:, :2] - old[:, :2]) / old[:, 2:]
    shifted = (times == 1).all(axis=1)
    sizes = shift[shifted][np.abs(shift[shifted]) > 1e-9]
    assert len(sizes) == shifted.sum() and (np.abs(sizes) >= 0.2).all() and (np.abs(sizes) <= 0.4).all()
    assert {*np.sign(sizes)} == {-1, 1} and 0.3 < shifted.mean() < 0.5
    resized = (times != 1).sum(axis=1) == 1
    one = times[resized][times[resized] != 1]
    assert {0.5, 0.666666667, 1.333333333, 2.0} <= {*one} and 0.4 < resized.mean() < 0.65
    assert np.isin(one, [0.5, 0.666666667, 1.333333333, 2.0]).mean() > 0.95


def test_a_set_of_one_name_has_no_faults_of_names():
    _, made, kinds = planted_in(names=("cat",))
    assert [*kinds] == ["moved", "spurious", "duplicate"] and {*made.labels.category_N} == {0}
    _, _, kinds = planted_in(labels=1100)
    assert {len(rows) for rows in kinds.values()} == {1000}


@pytest.mark.slow
def test_each_label_has_its_own_probabilities_and_crowd_regions_have_none(spoilt, said):
    """Crowd regions before the labels move the rows of all of them, and change nothing else."""
    document = spoilt[0]
    region = {"id": -1, "category_id": 1, "bbox": [590.0, 390.0, 5.0, 5.0], "area": 25.0, "iscrowd": 1}
    crowded = {
        **document,
        "annotations": [*({**region, "image_id": i, "id": -i - 1} for i in range(9)), *document["annotations"]],
    }
    plain, other = (review(d, said, least=0.0) for d in (document, crowded))
    assert [item.probability for item in plain.judged] == pytest.approx([item.probability for item in other.judged])
    assert other.rests_on["planted_faults"] == plain.rests_on["planted_faults"]
    truth = load_ground_truth(crowded)
    boxes = np.array([row["bbox"] for row in said])
    of = [row["image_id"] for row in said], [row["category_id"] - 1 for row in said]
    detections = Detections.of(truth, *of, boxes, [row["score"] for row in said], np.zeros(len(said)))
    found, _ = judged_by_planted_faults(truth, detections, compare(truth, detections, False), np.arange(5))
    assert not found.kind_NK[truth.crowd_N].any() and found.kind_NK[~truth.crowd_N].all(axis=1).mean() > 0.9
    assert sum(found.rates[kind] for kind in LABEL_KINDS) == pytest.approx(found.kind_NK.sum() / (~truth.crowd_N).sum())
    assert found.rates["missing"] == pytest.approx(found.missing_d.sum() / (~truth.crowd_N).sum())


def test_a_fault_is_judged_beside_the_other_labels_and_not_beside_its_source():
    """A label and its copy under another name, each beside the set but its source: the figures are the same.

    A copy of the label itself, made of it, has all the figures that it has.
    """
    truth, *_ = planted_in(labels=40)
    rows = np.flatnonzero(~truth.crowd_N)
    draw = np.random.default_rng(0)
    boxes = truth.boxes_N4[rows] * draw.uniform(0.9, 1.1, (len(rows), 4))
    nothing = np.zeros(len(rows), int)
    detections = Detections.of(
        truth,
        truth.image_N[rows],
        (truth.category_N[rows] + nothing + (rows % 5 == 0)) % 3,
        boxes,
        draw.random(len(rows)),
        nothing,
    )
    figures = SetFigures(truth, detections, compare(truth, detections, False))
    own = figures.of_own_labels()
    assert figures.of_labels(truth.take(rows), rows, np.arange(len(rows))) == pytest.approx(own)
    beside_all = figures.of_labels(truth.take(rows), np.full(len(rows), -1), np.arange(len(rows)))
    assert (beside_all != own).any(axis=1).all()  # beside all of them each has a twin, itself
    like = np.zeros(len(rows), int)
    twice = truth.take(rows[like])
    assert figures.of_labels(twice, rows[like], like) == pytest.approx(own[like])


def test_faults_are_told_from_the_set_by_a_logistic_regression():
    """Its weighted loss with a penalty of the squares, minimised by scipy; the share of the faults is taken off."""
    draw = np.random.default_rng(0)
    set_sF = np.append(draw.normal(0, 1, (200, 3)), np.ones((200, 1)), 1)
    faults_pF = np.append(draw.normal((1, -0.5, 0), 1, (80, 3)), np.ones((80, 1)), 1)
    weight_s = draw.uniform(0.2, 1, 200)
    x_F, is_fault = np.concatenate([set_sF, faults_pF]), np.arange(280) >= 200
    weight, penalty_F = np.append(weight_s, np.ones(80)), np.array([5.0, 5.0, 5.0, 1e-3])

    def loss(weights_F):
        odds = x_F @ weights_F
        return (weight * (np.logaddexp(0, odds) - is_fault * odds)).sum() + (penalty_F * weights_F**2).sum() / 2

    expected = minimize(loss, np.zeros(4), method="BFGS").x - [0, 0, 0, np.log(80 / weight_s.sum())]
    first = _regression(set_sF, weight_s, faults_pF, None)
    assert first[0] == pytest.approx(expected, abs=0.02)
    assert _regression(set_sF, weight_s, faults_pF, first)[0] == pytest.approx(expected, abs=0.02)
    for nothing in ((set_sF[:0], weight_s[:0], faults_pF), (set_sF, weight_s, faults_pF[:0])):
        assert not _regression(*nothing, None)[0].any()


def test_rate_of_faults_is_the_least_that_explains_how_suspect_the_labels_are():
    draw = np.random.default_rng(1)
    faults_p = draw.normal(2, 1, 400)
    for wrong in (0, 30, 200):
        known_s = np.append(draw.normal(-2, 1, 1000 - wrong), draw.normal(2, 1, wrong))
        counted_s = draw.choice([0.8, 1.0], 1000)
        levels = [min(np.quantile(faults_p, q), 3.6) for q in np.linspace(0, 0.8, 40)]
        ratios = [(counted_s[known_s >= t].sum() + 1) / 1000 / (faults_p >= t).mean() for t in levels]
        assert _rate(known_s, faults_p, counted_s) == pytest.approx(min(*ratios, 1.0))
        assert _rate(known_s, faults_p, counted_s) == pytest.approx(wrong / 1000, abs=0.03)
    assert _rate(faults_p + 9, faults_p, np.ones(400)) == 1


def test_probabilities_grow_with_the_suspicion_and_add_up_to_the_rate():
    draw = np.random.default_rng(2)
    known_s, faults_p = draw.normal(-2, 1, 1000), draw.normal(2, 1, 400)
    at = np.sort(draw.normal(0, 2, 50))
    for rate in (0.001, 0.01):  # so low that no probability is cut
        found = _probabilities(known_s, faults_p, np.append(at, known_s), rate)
        assert np.diff(found[:50]).min() > -1e-12 and found.max() < 0.85 + 1e-12 and found.min() > 0
        assert (np.diff(found[:30]) > 0).all()
        assert found[50:].mean() == pytest.approx(rate, rel=0.05)
    assert _probabilities(known_s, faults_p, at, 0.9).max() > 0.8


@pytest.mark.slow
def test_as_many_labels_are_missing_as_have_a_fault_of_any_other_kind(spoilt, said):
    truth, boxes = load_ground_truth(spoilt[0]), np.array([row["bbox"] for row in said])
    of = [row["image_id"] for row in said], [row["category_id"] - 1 for row in said]
    detections = Detections.of(truth, *of, boxes, [row["score"] for row in said], np.zeros(len(said)))
    compared = compare(truth, detections, False)
    for answers in (np.flatnonzero(compared.partner_D < 0), np.arange(len(said))):  # whatever answers may show one
        found, _ = judged_by_planted_faults(truth, detections, compared, answers)
        assert found.rates["missing"] == pytest.approx(np.mean([found.rates[kind] for kind in LABEL_KINDS]), rel=0.4)


def test_each_half_is_judged_by_the_other_and_of_twins_each_counts_less(spoilt, said, monkeypatch):
    document, rated, judged = spoilt[0], [], []
    truth, boxes = load_ground_truth(document), np.array([row["bbox"] for row in said])
    of = [row["image_id"] for row in said], [row["category_id"] - 1 for row in said]
    detections = Detections.of(truth, *of, boxes, [row["score"] for row in said], np.zeros(len(said)))

    def rate(known_s, faults_p, counted_s):
        rated.append((len(known_s), counted_s))
        return 0.01

    def probability(known_s, faults_p, judged_n, rate):
        judged.append((len(known_s), len(judged_n)))
        return np.full(len(judged_n), 0.1 * (1 + len(judged) % 2))  # .2 by the first half, .1 by the second

    monkeypatch.setattr("coord_eval.review.planted._rate", rate)
    monkeypatch.setattr("coord_eval.review.planted._probabilities", probability)
    compared = compare(truth, detections, False)
    found, _ = judged_by_planted_faults(truth, detections, compared, np.arange(len(said)), seed=5)
    second_N = (np.random.default_rng(5).permutation(len(truth)) % 2 == 1)[truth.image_N]
    halves = ((~second_N).sum(), second_N.sum())
    assert found.kind_NK.sum(axis=1) == pytest.approx(np.where(second_N, 0.2, 0.1))
    assert judged[:4] == [halves, halves[::-1]] * 2 and [count for count, _ in rated] == [*halves] * 2
    corners = [(x, y, x + w, y + h) for x, y, w, h in truth.boxes_N4.tolist()]
    beside = [[n for n, image in enumerate(truth.image_N) if image == i] for i in range(len(truth))]
    twins = {
        n
        for row in beside
        for n in row
        for m in row
        if n != m and truth.category_N[n] == truth.category_N[m] and iou(corners[n], corners[m]) > 0.5
    }
    is_twin_N = np.isin(np.arange(len(corners)), sorted(twins))
    assert is_twin_N.any()
    for half_N, (_, counted_s) in zip((~second_N, second_N), rated, strict=False):
        assert np.array_equal(counted_s, np.where(is_twin_N[half_N], 0.8, 1.0))


def crowded_answers():
    """Answers near 60 labels, several of one or another name on each: truth, their comparison, corners of both."""
    truth, *_ = planted_in(labels=60)
    draw = np.random.default_rng(3)
    rows = draw.choice(np.flatnonzero(~truth.crowd_N), 200)
    boxes = truth.boxes_N4[rows] * draw.uniform(0.85, 1.15, (200, 4))
    of = truth.image_N[rows], draw.integers(0, 4, 200)
    detections = Detections.of(truth, *of, boxes, draw.random(200), np.zeros(200))
    corners = (np.append(b[:, :2], b[:, :2] + b[:, 2:], axis=1).tolist() for b in (truth.boxes_N4, boxes))
    return truth, detections, compare(truth, detections, True), *corners


def test_a_removed_label_is_shown_by_an_answer_of_its_name_before_a_more_confident_one():
    truth, detections, compared, corners_N, corners_D = crowded_answers()
    expected = {}
    for n in np.flatnonzero(~truth.crowd_N).tolist():
        same = [d for d in range(200) if detections.image_D[d] == truth.image_N[n]]
        beside = [d for d in same if iou(corners_N[n], corners_D[d]) >= 0.5]
        names = detections.category_D == truth.category_N[n]
        if beside:
            expected[n] = max(beside, key=lambda d, names=names: (names[d], compared.confidence_D[d]))
    labels, shown = SetFigures(truth, detections, compared).removals()
    assert dict(zip(labels.tolist(), shown.tolist(), strict=True)) == expected and len(expected) > 20


def test_figures_of_an_answer_are_what_lies_beside_it_without_the_removed_label():
    truth, detections, compared, corners_N, corners_D = crowded_answers()
    figures = SetFigures(truth, detections, compared)
    removed, shown = figures.removals()
    rows, without = np.append(shown, np.arange(200)), np.append(removed, np.full(200, -1))
    found = figures.of_answers(rows, without)

    def within(a, b):
        """The share of the first box that lies in the second."""
        sides = [max(min(a[k + 2], b[k + 2]) - max(a[k], b[k]), 0) / (a[k + 2] - a[k]) for k in (0, 1)]
        return sides[0] * sides[1]

    for row, d, gone in zip(found, rows.tolist(), without.tolist(), strict=True):
        image, name, own = detections.image_D[d], detections.category_D[d], corners_D[d]
        labels = [n for n in np.flatnonzero(~truth.crowd_N & (truth.image_N == image)).tolist() if n != gone]
        same, other = ([corners_N[n] for n in labels if (truth.category_N[n] == name) == is_] for is_ in (True, False))
        better = [
            corners_D[e]
            for e in np.flatnonzero((detections.image_D == image) & (detections.category_D == name)).tolist()
            if (compared.confidence_D[e], -e) > (compared.confidence_D[d], -d)
        ]
        expected = [np.clip(max((iou(own, box) for box in same), default=0), *ends) for ends in LABEL_STEPS]
        expected += [np.clip(max((iou(own, box) for box in other), default=0), *ends) for ends in OTHER_STEPS]
        expected += [
            max((within(own, box) for box in same), default=0),
            max((within(box, own) for box in same), default=0),
        ]
        expected += [
            max((iou(own, box) for box in better), default=0),
            max((within(own, box) for box in better), default=0),
        ]
        assert row[:9] == pytest.approx(expected), (d, gone)
        assert row[12:15] == pytest.approx(
            [np.log1p(len(same)), np.log1p(len(better)), np.clip(len(same) - len(better), -3, 3)]
        )
        assert row[17:19].tolist() == [not same, not better]
