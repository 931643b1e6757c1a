"""The metrics beyond COCO, each on a case computed by hand."""

import json
import math
import random
from functools import partial

import pytest
from coco_builder import coco, generated_set

from coord_eval import score
from coord_eval.metrics.errors import BACKGROUND, ERROR_KINDS, UNKNOWN

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
