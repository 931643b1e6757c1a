"""The metrics beyond COCO, each on a case computed by hand."""

import json
import math
import random
from functools import partial

import numpy as np
import pytest
from coco_builder import coco, generated_set
from random_sets import random_set

from coord_eval import resample, score
from coord_eval.metrics.coco import beyond_limit
from coord_eval.metrics.detection import image_table
from coord_eval.metrics.draws import draw_weights, half_width
from coord_eval.metrics.errors import BACKGROUND, ERROR_KINDS, UNKNOWN, confused_pairs
from coord_eval.metrics.sums import rates

CAT, DOG = 1, 2


truth_of = partial(coco, names=("cat", "dog"), images=(0,), size=(400, 200))


def results(*rows):
    return [{"image_id": i, "category_id": k, "bbox": box, "score": s} for i, k, box, s in rows]


A, B, C = [10, 10, 40, 40], [100, 100, 40, 40], [200, 20, 100, 100]
TRUTH = truth_of((0, CAT, A), (0, CAT, B), (0, DOG, C))


def analysis(truth, *rows):
    return score(truth, results(*rows)).analysis


def test_macro_rates_are_the_mean_over_labels_with_objects():
    rows = [(0, CAT, A, 0.9), (0, CAT, [300, 100, 20, 20], 0.8), (0, 99, C, 0.7)]
    row = analysis(TRUTH, *rows)["macro"]["0.5"]
    # cat: 1 of 2 answered right, 1 of 2 found; dog: nothing.
    assert row == pytest.approx({"precision": 0.25, "recall": 0.25, "f1": 0.25})


def test_f1_at_miou_is_the_mean_over_ten_thresholds():
    shifted = [A[0] + 4, *A[1:]]  # IoU 36/44 = .818: a hit at .5 to .8
    found = analysis(truth_of((0, CAT, A)), (0, CAT, shifted, 1.0))["macro"]
    assert found["0.5:0.95"]["f1"] == pytest.approx(0.7)
    assert found["0.75"]["f1"] == 1.0


@pytest.mark.parametrize(("height", "hits"), [(40, 10), (30, 6), (29.9, 5), (28, 5), (20, 1), (19.9, 0)])
def test_rows_are_those_of_their_thresholds(height, hits):
    """An IoU of a height in 40: at .5, at .75, and of ten thresholds as many as it reaches."""
    found = score(truth_of((0, CAT, A)), results((0, CAT, [10, 10, 40, height], 0.9)))
    expected = {"0.5": float(height >= 20), "0.75": float(height >= 30), "0.5:0.95": hits / 10}
    for rows in (found.detection, found.detection_class_agnostic, found.analysis["macro"]):
        assert {iou: row["f1"] for iou, row in rows.items()} == pytest.approx(expected)
        assert {iou: row["recall"] for iou, row in rows.items()} == pytest.approx(expected)
    assert [found.coco[name] for name in ("AP50", "AP75", "AP")] == pytest.approx([*expected.values()])
    assert [found.per_class["cat"][name] for name in ("AP50", "AP")] == pytest.approx([expected["0.5"], hits / 10])
    assert [resample(found, 1).point[name] for name in ("f1", "f1_75", "f1_miou")] == pytest.approx(
        [*expected.values()]
    )


def test_edge_bias_shows_a_shift_with_its_sign():
    shifted = [A[0] + 2, A[1] - 1, A[2], A[3] + 1]
    bias = analysis(truth_of((0, CAT, A)), (0, CAT, shifted, 1.0))["edge_bias"]
    assert bias["pixels"] == pytest.approx({"x1": 2, "y1": -1, "x2": 2, "y2": 0})
    assert bias["bins"] == pytest.approx({"x1": 5, "y1": -5, "x2": 5, "y2": 0})
    assert bias["pairs"] == {"count": 1}


def test_count_error_and_duplicates():
    truth = truth_of((0, CAT, A), (1, CAT, A), (1, CAT, B), images=range(3))
    twice = [(0, CAT, A, 0.9), (0, CAT, [11, 10, 40, 40], 0.8), (1, CAT, A, 0.9)]
    stray = (0, CAT, [300, 100, 40, 40], 0.9)
    assert analysis(truth, *twice, stray)["count"]["duplicates"] == 1
    count = analysis(truth, *twice)["count"]
    assert count == pytest.approx(
        {"mean_error": 0.0, "mean_absolute_error": 2 / 3, "exact_share": 1 / 3, "duplicates": 1}
    )


def test_count_error_of_exact_answers_is_0_where_objects_lie_in_a_crowd_region():
    truth = truth_of((0, CAT, A), (0, CAT, B), (0, CAT, [0, 0, 200, 200]))
    truth["annotations"][2]["iscrowd"] = 1
    lost_in_the_crowd = (0, CAT, [60, 60, 20, 20], 0.8)
    found = analysis(truth, (0, CAT, A, 0.9), (0, CAT, B, 0.9), lost_in_the_crowd)["count"]
    assert found == {"mean_error": 0, "mean_absolute_error": 0, "exact_share": 1, "duplicates": 0}


def test_breakdown_by_size_count_and_rank():
    truth = truth_of((0, CAT, [0, 0, 20, 20]), (0, CAT, A), (1, CAT, C), images=range(3))
    found = analysis(truth, (0, CAT, A, 0.9), (0, CAT, C, 0.9), (1, CAT, C, 0.5), (2, CAT, C, 0.5))
    assert {k: v["recall"] for k, v in found["by_size"].items()} == {"small": 0.0, "medium": 1.0, "large": 1.0}
    assert found["by_object_count"]["2-3"] == pytest.approx({"images": 1, "precision": 0.5, "recall": 0.5, "f1": 0.5})
    assert found["by_object_count"]["1"]["f1"] == 1.0
    assert found["by_rank"] == {
        "0": {"detections": 3, "precision": pytest.approx(2 / 3)},
        "1": {"detections": 1, "precision": 0.0},
    }


@pytest.mark.parametrize(
    ("label", "width", "kind"),
    [
        (CAT, 20, "duplicate"),  # an IoU of .5 exactly
        (CAT, 19.9, "localisation"),
        (CAT, 4, "localisation"),  # of .1 exactly
        (CAT, 3.9, "background"),
        (DOG, 20, "label"),
        (DOG, 19.9, "label_and_localisation"),
        (DOG, 4, "label_and_localisation"),
        (DOG, 3.9, "background"),
    ],
)
def test_kinds_of_errors_begin_at_their_borders(label, width, kind):
    found = analysis(TRUTH, (0, CAT, [0, 0, 1, 1], 0.1), (0, CAT, A, 0.9), (0, label, [10, 10, width, 40], 0.8))
    counts = {name: row["count"] for name, row in found["errors"].items() if name != "missed"}
    others = dict.fromkeys(counts, 0) | {"background": 1}
    assert counts == {**others, kind: others[kind] + 1}


def test_f1_against_threshold():
    rows = [(0, CAT, A, 0.9), (0, CAT, B, 0.6), (0, CAT, [300, 100, 20, 20], 0.3)]
    curve = analysis(TRUTH, *rows)["f1_against_threshold"]
    assert curve["best"] == pytest.approx({"threshold": 0.6, "precision": 1.0, "recall": 2 / 3, "f1": 0.8})
    assert curve["points"][-1] == pytest.approx([0.3, 2 / 3, 2 / 3, 2 / 3])


def test_f1_against_threshold_keeps_boxes_of_equal_score_together():
    rows = [(0, CAT, A, 0.5), (0, CAT, [300, 100, 20, 20], 0.5), (0, CAT, B, 0.5)]
    curve = analysis(TRUTH, *rows)["f1_against_threshold"]
    assert curve == {"best": None, "points": [pytest.approx([0.5, 2 / 3, 2 / 3, 2 / 3])]}


def test_expected_calibration_error():
    """Of four boxes at .95 three hit, of four at .15 one does: (|.95 - .75| + |.15 - .25|) / 2."""
    scores = [0.95] * 4 + [0.15] * 4
    hits = [True] * 3 + [False] + [True] + [False] * 3
    truth = truth_of(*((i, CAT, A) for i in range(8)), images=range(8))
    rows = [(i, CAT, A if hit else C, s) for i, (s, hit) in enumerate(zip(scores, hits, strict=True))]
    found = analysis(truth, *rows)["reliability"]
    assert found["ece"] == pytest.approx(0.15)
    assert [row[2] for row in found["bins"]] == [4, 4]
    assert [row[3:] for row in found["bins"]] == [pytest.approx([0.15, 0.25]), pytest.approx([0.95, 0.75])]
    assert analysis(truth, (0, CAT, A, 1.5))["reliability"] is None


def test_reliability_is_of_probabilities_only():
    answer = {"image_id": 0, "text": '[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}]'}
    assert score(TRUTH, [answer]).analysis["reliability"] is None


def test_confusion_with_background():
    stray, unknown = [300, 150, 30, 30], [350, 20, 30, 30]
    rows = [(0, DOG, A, 0.9), (0, CAT, B, 0.8), (0, CAT, stray, 0.7), (0, 99, unknown, 0.6)]
    assert analysis(TRUTH, *rows)["confusion"] == {
        BACKGROUND: {"cat": 1, UNKNOWN: 1},
        "cat": {"dog": 1, "cat": 1},
        "dog": {BACKGROUND: 1},
    }


def test_confused_pairs_are_those_of_the_best_scores(tmp_path):
    """A dog that is found stays found if a cat of a lower score lies better on it; hotcoco has the same matrix."""
    near = [C[0] + 8, *C[1:]]
    matrix = analysis(truth_of((0, DOG, C)), (0, DOG, near, 0.9), (0, CAT, C, 0.5))["confusion"]
    assert matrix == {"dog": {"dog": 1}, BACKGROUND: {"cat": 1}}
    equal = analysis(truth_of((0, DOG, C)), (0, DOG, near, 0.9), (0, CAT, C, 0.9))["confusion"]
    assert equal == {"dog": {"cat": 1}, BACKGROUND: {"dog": 1}}
    hotcoco = pytest.importorskip("hotcoco")
    truth, draw = generated_set(40), random.Random(5)
    for row in truth["annotations"]:
        row |= {"iscrowd": 0, "id": row["id"] + 1}
    names = [category["id"] for category in truth["categories"]]
    results = []
    for row in [row for row in truth["annotations"] for _ in range(draw.randint(0, 3))]:
        x, y, w, h = row["bbox"]
        box = [x + draw.gauss(0, 0.1 * w), y + draw.gauss(0, 0.1 * h), w * draw.uniform(0.8, 1.2), h]
        category = row["category_id"] if draw.random() < 0.6 else draw.choice(names)
        results.append({"image_id": row["image_id"], "category_id": category, "bbox": box, "score": draw.random()})
    for name, content in {"truth": truth, "results": results}.items():
        (tmp_path / name).write_text(json.dumps(content))
    loaded = hotcoco.COCO(str(tmp_path / "truth"))
    run = hotcoco.COCOeval(loaded, loaded.load_res(str(tmp_path / "results")), "bbox")
    theirs = run.confusion_matrix(iou_thr=0.5, max_det=10**6)
    labels = [*theirs["cat_names"], BACKGROUND]
    own = score(truth, results).analysis["confusion"]
    assert [[own.get(a, {}).get(b, 0) for b in labels] for a in labels] == theirs["matrix"].tolist()


@pytest.mark.slow
def test_error_kinds_each_on_its_own():
    off = [A[0] + 20, *A[1:]]  # IoU 1/3 with A
    near_dog = [C[0] + 60, *C[1:]]  # IoU 1/4 with C
    rows = {
        "localisation": (0, CAT, off, 0.9),
        "label": (0, DOG, A, 0.9),
        "background": (0, CAT, [350, 150, 20, 20], 0.9),
        "label_and_localisation": (0, CAT, near_dog, 0.9),
    }
    for name, row in rows.items():
        counts = {k: v["count"] for k, v in analysis(TRUTH, row)["errors"].items()}
        explained = name in ("localisation", "label")
        expected = dict.fromkeys(ERROR_KINDS, 0) | {name: 1, "missed": 3 - explained}
        assert counts == expected, name
    both = analysis(TRUTH, (0, CAT, A, 0.9), (0, CAT, A, 0.8))["errors"]
    assert {k: v["count"] for k, v in both.items()} == dict.fromkeys(ERROR_KINDS, 0) | {"duplicate": 1, "missed": 2}


def test_error_cost_is_the_ap50_gained_by_repairing_it():
    """Both cats are found, the dog is called a cat with the highest score: cat AP50 2/3 and dog AP50 0."""
    wrong, right = (0, CAT, C, 0.9), (0, DOG, C, 0.9)
    cats = [(0, CAT, A, 0.8), (0, CAT, B, 0.7)]
    before, after = score(TRUTH, results(wrong, *cats)), score(TRUTH, results(right, *cats))
    errors = before.analysis["errors"]
    assert errors["label"]["cost"] == pytest.approx(after.coco["AP50"] - before.coco["AP50"])
    assert errors["label"]["cost"] == pytest.approx(1 - (2 / 3) / 2)
    missing = score(TRUTH, results(right, cats[0]))
    full = score(TRUTH, results(right, *cats))
    assert missing.analysis["errors"]["missed"]["cost"] == pytest.approx(full.coco["AP50"] - missing.coco["AP50"])


def test_error_cost_of_a_localisation_error_is_its_hit():
    off = (0, CAT, [A[0] + 20, *A[1:]], 0.9)
    base = score(truth_of((0, CAT, A)), results(off))
    assert base.coco["AP50"] == 0.0
    assert base.analysis["errors"]["localisation"] == {"count": 1, "cost": pytest.approx(1.0)}


def test_analysis_of_empty_sets(coco_set):
    for truth in (coco_set, {"images": [], "annotations": [], "categories": []}, truth_of()):
        found = score(truth, []).analysis
        json.dumps(found, allow_nan=False)
        assert found["count"]["duplicates"] == 0


def test_analysis_adds_up_on_a_noisy_set(coco_set, noisy_results):
    evaluation = score(coco_set, noisy_results(coco_set, 2))
    errors = evaluation.analysis["errors"]
    assert all(row["cost"] >= -1e-12 for row in errors.values())
    table = evaluation.analysis["confusion"]
    objects = sum(sum(row.values()) for true, row in table.items() if true != BACKGROUND)
    assert objects == evaluation.counts["objects"]
    assert math.isclose(
        sum(r["objects"] for r in evaluation.analysis["by_size"].values()), evaluation.counts["objects"]
    )


TIDECV = {  # AP50 and costs of tidecv 1.0.1 in per cent, without crowds and with distinct scores
    "all labels": (40.14197803217265, 7.647039855797686, 11.532631947694625, 0.4685284756188963, 1.0502983419801453),
    "one without objects": (33.46552362202575, 4.412335452169351, 10.069909344902129, 0.5745172669790648, 1.1677553110),
}


@pytest.mark.parametrize("case", TIDECV)
def test_error_costs_equal_tidecv(noisy_results, case):
    """A label without objects counts as AP 0 in tidecv's mean over labels, so that 5 labels are divided by 6."""
    truth = generated_set(40)
    truth["annotations"] = [a for a in truth["annotations"] if not a["iscrowd"]]
    results = [{**r, "score": r["score"] + 1e-4 * i} for i, r in enumerate(noisy_results(truth, 3))]
    share = 1.0
    if case != "all labels":
        truth["annotations"] = [a for a in truth["annotations"] if a["category_id"] != 40]
        share = 5 / 6
    evaluation = score(truth, results)
    ap, *costs = TIDECV[case]
    assert 100 * share * evaluation.coco["AP50"] == pytest.approx(ap)
    kinds = ("label", "localisation", "label_and_localisation", "duplicate")
    found = [100 * share * evaluation.analysis["errors"][kind]["cost"] for kind in kinds]
    assert found == pytest.approx(costs, abs=1e-6)


@pytest.mark.parametrize(("side", "sizes"), [(32, {"APs", "APm"}), (96, {"APm", "APl"}), (31, {"APs"}), (97, {"APl"})])
def test_an_object_on_the_border_of_two_areas(side, sizes):
    """COCO counts it in both ranges, the breakdown by size in the upper one alone."""
    truth = coco((1, 1, [10, 10, side, side]), size=(200, 200))
    evaluation = score(truth, [{"image_id": 1, "category_id": 1, "bbox": [10, 10, side, side], "score": 1.0}])
    assert {key for key in ("APs", "APm", "APl") if evaluation.coco[key] >= 0} == sizes
    counted = {name: row["objects"] for name, row in evaluation.analysis["by_size"].items()}
    upper = {"small": side < 32, "medium": 32 <= side < 96, "large": side >= 96}
    assert counted == {name: int(is_own) for name, is_own in upper.items()}


CROWDED = truth_of((0, CAT, A), (0, CAT, B), (0, CAT, [200, 0, 100, 200]), (1, CAT, A), images=range(4))
CROWDED["annotations"][2]["iscrowd"] = 1
INSIDE, HALF_INSIDE, OUTSIDE = [210, 10, 30, 30], [180, 60, 40, 40], [179, 120, 40, 40]
SAID = [
    (0, CAT, A, 0.9), (0, CAT, INSIDE, 0.8), (0, CAT, HALF_INSIDE, 0.7), (0, CAT, OUTSIDE, 0.6), (0, DOG, INSIDE, 0.5),
    (1, CAT, [10, 10, 40, 20], 0.4), (2, CAT, A, 0.3),
]  # fmt: skip
"""A hit, two boxes of which half or more lies in a crowd region of their label, two others; half a hit; a stray one."""


def test_boxes_in_crowd_regions_count_nowhere():
    """Of seven boxes five count; an image without objects and boxes is right."""
    found = score(CROWDED, results(*SAID))
    rates = {"precision": 2 / 5, "recall": 2 / 3, "f1": 4 / 8}
    assert found.detection["0.5"] == pytest.approx(rates) and found.mean_iou == pytest.approx((1 + 0 + 0.5) / 3)
    assert found.analysis["macro"]["0.5"] == pytest.approx({"precision": 2 / 4, "recall": 2 / 3, "f1": 4 / 7})
    table = image_table(found)
    assert {name: table[name] for name in ("objects", "answered", "hits")} == {
        "objects": [2, 1, 0, 0], "answered": [3, 1, 1, 0], "hits": [1, 1, 0, 0]
    }  # fmt: skip
    assert table["f1"] == pytest.approx([2 / 5, 1, 0, 1]) and table["mean_iou"] == pytest.approx([0.5, 0.5, 0, 0])
    assert (table["image_id"], table["image"]) == ((0, 1, 2, 3), ("0.jpg", "1.jpg", "2.jpg", "3.jpg"))
    count = {"mean_error": (1 + 0 + 1 + 0) / 4, "mean_absolute_error": 2 / 4, "exact_share": 2 / 4, "duplicates": 0}
    assert found.analysis["count"] == pytest.approx(count)
    # By score: each threshold keeps the boxes from it on.
    points = found.analysis["f1_against_threshold"]["points"]
    counted = [(0.9, 1, 1), (0.6, 1, 2), (0.5, 1, 3), (0.4, 2, 4), (0.3, 2, 5)]
    assert points == [pytest.approx([s, h / n, h / 3, 2 * h / (n + 3)]) for s, h, n in counted]
    draws = resample(found, 1, metrics=[f"f1_from_{n / 10}" for n in range(1, 10)]).point
    expected = {s: 2 * h / (n + 3) for s, h, n in counted}
    kept = {n / 10: expected[min(s for s in expected if s >= n / 10)] for n in range(1, 10)}
    assert draws == pytest.approx({f"f1_from_{t}": value for t, value in kept.items()})
    bins = found.analysis["reliability"]["bins"]
    assert [(b[0], b[2], b[4]) for b in bins] == [
        (s, 1, h) for s, h in ((0.3, 0), (0.4, 1), (0.5, 0), (0.6, 0), (0.9, 1))
    ]
    assert found.per_class["cat"] | {"AP": 0, "AP50": 0} == {"AP": 0, "AP50": 0, "objects": 3, "detections": 6}
    assert found.per_class["dog"]["objects"] == 0 and found.per_class["dog"]["detections"] == 1
    matrix = found.analysis["confusion"]
    assert matrix == {BACKGROUND: {"cat": 2}, "cat": {"cat": 2, BACKGROUND: 1}}
    errors = {kind: row["count"] for kind, row in found.analysis["errors"].items()}
    assert errors == dict.fromkeys(ERROR_KINDS, 0) | {"background": 3, "missed": 1}


@pytest.mark.parametrize(("scores", "has"), [((0.0, 1.0), True), ((-0.01, 0.5), False), ((0.5, 1.01), False)])
def test_scores_that_may_be_probabilities_lie_within_0_and_1(scores, has):
    found = score(TRUTH, results(*((0, CAT, box, s) for box, s in zip((A, B), scores, strict=True))))
    assert bool(found.analysis["reliability"]) == has
    point = resample(found, 1, metrics=["f1_from_0.5", "ece"]).point
    assert [math.isnan(value) for value in point.values()] == [not has] * 2


def test_rows_by_place_and_by_number_of_objects_begin_at_their_borders():
    counts = (1, 2, 3, 4, 7, 8, 15, 16, 20)
    truth = truth_of(
        *((image, CAT, [15 * n, 10, 10, 10]) for image, count in enumerate(counts) for n in range(count)),
        images=range(len(counts)),
    )
    rows = [(i, CAT, [15 * n, 10, 10, 10], 0.5) for i, count in enumerate(counts) for n in range(count)]
    found = analysis(truth, *rows)
    images = {name: row["images"] for name, row in found["by_object_count"].items()}
    assert images == {"1": 1, "2-3": 2, "4-7": 2, "8-15": 2, "16+": 2}
    texts = [
        {
            "image_id": i,
            "text": json.dumps([{"bbox_2d": [15 * n, 10, 15 * n + 10, 20], "label": "cat"} for n in range(count)]),
        }
        for i, count in enumerate(counts)
    ]
    places = {name: row["detections"] for name, row in score(truth, texts).analysis["by_rank"].items()}
    at = [n for count in counts for n in range(count)]
    ranges = {"0": (0, 0), "1": (1, 1), "2-3": (2, 3), "4-7": (4, 7), "8-15": (8, 15), "16+": (16, 99)}
    assert places == {name: sum(low <= n <= high for n in at) for name, (low, high) in ranges.items()}


def test_of_several_errors_on_one_object_the_first_by_score_is_repaired():
    """Two boxes of a third of an IoU on one cat: the second is removed whenever its kind is repaired."""
    off, other = [A[0] + 20, *A[1:]], [A[0], A[1] + 20, *A[2:]]
    both = score(
        truth_of((0, CAT, A), (0, CAT, B)), results((0, CAT, off, 0.9), (0, CAT, other, 0.8), (0, CAT, B, 0.7))
    )
    right = score(truth_of((0, CAT, A), (0, CAT, B)), results((0, CAT, A, 0.9), (0, CAT, B, 0.7)))
    gain = right.coco["AP50"] - both.coco["AP50"]
    assert both.analysis["errors"]["localisation"] == {"count": 2, "cost": pytest.approx(gain)}
    # A label error of a higher score takes the object, so that a localisation error on it is removed when repaired.
    mixed = score(TRUTH, results((0, DOG, A, 0.9), (0, CAT, off, 0.8), (0, CAT, B, 0.7), (0, DOG, C, 0.6)))
    repaired = {
        "label": [(0, CAT, A, 0.9), (0, CAT, off, 0.8), (0, CAT, B, 0.7), (0, DOG, C, 0.6)],
        "localisation": [(0, DOG, A, 0.9), (0, CAT, B, 0.7), (0, DOG, C, 0.6)],
    }
    for kind, rows in repaired.items():
        gain = score(TRUTH, results(*rows)).coco["AP50"] - mixed.coco["AP50"]
        assert mixed.analysis["errors"][kind]["cost"] == pytest.approx(gain), kind
    # What a localisation error explains is not missed, and is still to be found after the repair.
    three = [(0, CAT, A), (0, CAT, B), (0, CAT, C)]
    rows = results((0, CAT, A, 0.9), (0, CAT, [B[0] + 20, *B[1:]], 0.8))
    before, after = (score(truth_of(*objects), rows) for objects in (three, three[:2]))
    gain = after.coco["AP50"] - before.coco["AP50"]
    assert before.analysis["errors"]["missed"] == {"count": 1, "cost": pytest.approx(gain)} and 0 < gain < 0.5
    # If all objects of a label are missed, none is left after the repair.
    missed = analysis(truth_of((0, CAT, A), (0, DOG, C)), (0, CAT, A, 0.9))
    assert missed["errors"]["missed"] == {"count": 1, "cost": pytest.approx(0.5)}


def test_pairs_of_labels_are_listed_by_how_often_and_fifteen_at_most():
    table = {f"t{n:02}": {f"t{n:02}": 99, "other": n, BACKGROUND: 50} for n in range(20)} | {BACKGROUND: {"other": 70}}
    assert confused_pairs(table) == [(f"t{n:02}", "other", n) for n in range(19, 4, -1)]
    rows = [(0, DOG, A, 0.9), (0, DOG, B, 0.9), (0, 99, C, 0.5)]
    matrix = analysis(TRUTH, *rows)["confusion"]
    assert matrix == {"cat": {"dog": 2}, "dog": {UNKNOWN: 1}} and [*matrix] == ["cat", "dog"]
    often = analysis(truth_of((0, CAT, A), (0, CAT, B), (0, CAT, C)), (0, CAT, A, 0.9), *rows[1:], (0, DOG, C, 0.9))
    assert [*often["confusion"]["cat"].items()] == [("dog", 2), ("cat", 1)]
    assert analysis(truth_of((0, CAT, A)), (0, DOG, [10, 10, 40, 20], 0.5))["confusion"] == {"cat": {"dog": 1}}
    shares = resample(score(TRUTH, results(*rows)), 1).point
    assert {name: value for name, value in shares.items() if name.startswith("confused")} == {
        "confused_cat_as_dog": 1, f"confused_dog_as_{UNKNOWN}": 1
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_any_label_is_what_pycocotools_gives_without_categories(by_hand, seed):
    """Ties are decided by the order of the categories there."""
    truth, boxes = random_set(random.Random(seed))
    known = {category["id"] for category in truth["categories"]}
    boxes = [row for row in boxes if row["category_id"] in known]
    assert score(truth, boxes).coco_class_agnostic == pytest.approx(
        by_hand(truth, boxes, use_categories=False), abs=1e-12
    )


def test_boxes_beyond_a_hundred_are_counted_by_image_and_label():
    draw = np.random.default_rng(0)
    image_D, category_D = draw.integers(0, 3, 1500), draw.choice([0, 2, 3], 1500, p=[0.6, 0.3, 0.1])
    naive = sum(max(((image_D == i) & (category_D == k)).sum() - 100, 0) for i in range(3) for k in range(4))
    assert beyond_limit(image_D, category_D) == naive > 0 == beyond_limit(image_D[:0], category_D[:0])
    assert beyond_limit(np.zeros(101, int), np.zeros(101, int)) == 1
    assert beyond_limit(np.zeros(100, int), np.zeros(100, int)) == 0


@pytest.mark.parametrize(("count", "t"), [(2, 12.706), (3, 4.303), (14, 2.160), (15, 2.145), (16, 2.145)])
def test_half_width_is_that_of_student(count, t):
    """His 97.5 % quantiles of one degree of freedom less; beyond fourteen that of fourteen."""
    values = np.random.default_rng(count).random(count).tolist()
    assert half_width(values) == pytest.approx(t * np.std(values, ddof=1) / count**0.5)
    assert half_width(values[:1]) is None


def test_images_are_drawn_with_replacement_as_often_as_there_are():
    parts = list(draw_weights(5, 40, 1))
    weights_BI = np.concatenate(parts)
    assert [len(part) for part in parts] == [16, 16, 8] and weights_BI.shape == (40, 5)
    assert (weights_BI.sum(axis=1) == 5).all() and (weights_BI.sum(axis=0) > 15).all()


@pytest.mark.parametrize("empty", [0.0, 1.0])
def test_rates_of_nothing_are_those_that_the_caller_names(empty):
    counts = (np.array([0.0, 2.0, 0.0]), np.array([0.0, 4.0, 0.0]), np.array([0.0, 2.0, 3.0]))
    found = rates(*counts, empty)
    assert {name: values.tolist() for name, values in found.items()} == {
        "precision": [empty, 0.5, empty],
        "recall": [empty, 1.0, 0.0],
        "f1": [empty, 4 / 6, 0.0],
    }
