"""LVIS by its own rules: equal to the lvis package where it is installed, and to plain loops."""

import json
import logging

import numpy as np
import pytest

from coord_eval import AnswerSettings, InputError, LabelSettings, score_lvis
from coord_eval.cli.main import main


def federated(coco_set, seed=0):
    """Turn the generated COCO set into an LVIS one."""
    draw = np.random.default_rng(seed)
    data = {**coco_set, "images": [], "annotations": [], "categories": []}
    for category, letter in zip(coco_set["categories"], "rcfrcf", strict=True):
        data["categories"].append({**category, "id": category["id"] + 1, "frequency": letter})
    for a in coco_set["annotations"]:
        if not a["iscrowd"]:
            row = {**a, "id": a["id"] + 1, "category_id": a["category_id"] + 1, "image_id": a["image_id"] + 1}
            row.pop("iscrowd")
            data["annotations"].append(row)
    for image in coco_set["images"]:
        present = {a["category_id"] for a in data["annotations"] if a["image_id"] == image["id"] + 1}
        absent = [c["id"] for c in data["categories"] if c["id"] not in present]
        data["images"].append(
            {
                **image,
                "id": image["id"] + 1,
                "neg_category_ids": [k for k in absent if draw.random() < 0.4],
                "not_exhaustive_category_ids": [k for k in sorted(present) if draw.random() < 0.4],
            }
        )
    return data


def moved(results):
    return [{**r, "image_id": r["image_id"] + 1, "category_id": r["category_id"] + 1} for r in results]


@pytest.fixture(params=range(3))
def lvis_set(coco_set, noisy_results, shrunk, request):
    """Objects of all sizes, rare to frequent labels, distinct scores."""
    truth, results = shrunk(coco_set, noisy_results(coco_set, request.param))
    for n, result in enumerate(results):
        result["score"] = 1 - n / len(results)
    return federated(truth, request.param), moved(results)


def test_score_lvis_equals_the_lvis_package(lvis_set, tmp_path, monkeypatch):
    lvis = pytest.importorskip("lvis")
    monkeypatch.setattr(np, "float", float, raising=False)  # the package predates NumPy 1.24
    (tmp_path / "t.json").write_text(json.dumps(lvis_set[0]))
    (tmp_path / "p.json").write_text(json.dumps(lvis_set[1]))
    logging.disable(logging.CRITICAL)
    evaluator = lvis.LVISEval(str(tmp_path / "t.json"), str(tmp_path / "p.json"), "bbox")
    evaluator.run()
    logging.disable(logging.NOTSET)
    found = score_lvis(tmp_path / "t.json", tmp_path / "p.json").summary
    assert found == pytest.approx(dict(evaluator.results), abs=1e-9)


def naive_lvis(data, results, iou):
    """The rules of LVIS in plain loops."""

    def one(category, threshold, low, high):
        """AP and recall of one label; None without objects."""
        marked, total = [], 0
        for image in data["images"]:
            here = lambda row: (row["image_id"], row["category_id"]) == (image["id"], category)  # noqa: B023, E731
            objects = [a for a in data["annotations"] if here(a)]
            if not objects and category not in image["neg_category_ids"]:
                continue
            total += sum(low <= a["area"] <= high for a in objects)
            free = list(objects)
            for box in sorted(filter(here, results), key=lambda r: -r["score"]):
                near = [a for a in free if iou(box["bbox"], a["bbox"]) >= threshold]
                near.sort(key=lambda a: (low <= a["area"] <= high, iou(box["bbox"], a["bbox"])))
                if near:
                    free.remove(near[-1])
                    if low <= near[-1]["area"] <= high:
                        marked.append((box["score"], True))
                elif (
                    category not in image["not_exhaustive_category_ids"]
                    and low <= box["bbox"][2] * box["bbox"][3] <= high
                ):
                    marked.append((box["score"], False))
        if not total:
            return None
        hits, curve = 0, []
        for place, (_, hit) in enumerate(sorted(marked, reverse=True), 1):
            hits += hit
            curve.append((hits / total, hits / place))
        points = (max((p for r, p in curve if r >= at), default=0.0) for at in np.linspace(0, 1, 101))
        return sum(points) / 101, hits / total

    letters = {c["id"]: c["frequency"] for c in data["categories"]}
    sizes = {"": (0, 1e10), "s": (0, 32**2), "m": (32**2, 96**2), "l": (96**2, 1e10)}
    thresholds = [0.5 + 0.05 * i for i in range(10)]
    table = {
        (size, k, t): found
        for size, area in sizes.items()
        for k in letters
        for t in thresholds
        if (found := one(k, t, *area)) is not None
    }

    def mean(what, size="", t=None, letter=None):
        rows = [
            found[what]
            for (s, k, level), found in table.items()
            if s == size and t in (None, level) and letter in (None, letters[k])
        ]
        return sum(rows) / len(rows) if rows else -1.0

    numbers = {"AP": mean(0), "AP50": mean(0, t=thresholds[0]), "AP75": mean(0, t=thresholds[5])}
    numbers |= {f"AP{size}": mean(0, size) for size in "sml"}
    numbers |= {f"AP{letter}": mean(0, letter=letter) for letter in "rcf"}
    return numbers | {f"AR{size}@300": mean(1, size) for size in sizes}


@pytest.mark.slow
def test_score_lvis_equals_plain_loops(lvis_set, naive_iou):
    found, expected = score_lvis(*lvis_set).summary, naive_lvis(*lvis_set, naive_iou)
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, abs=1e-9)
    assert min(found.values()) > 0


def tiny(**image):
    return {
        "images": [
            {"id": 1, "width": 100, "height": 100, "neg_category_ids": [], "not_exhaustive_category_ids": [], **image}
        ],
        "categories": [{"id": 1, "name": "cat", "frequency": "f"}, {"id": 2, "name": "dog", "frequency": "r"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20]}],
    }


HIT = {"image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20], "score": 0.5}
STRAY_CAT = {**HIT, "bbox": [60, 60, 20, 20], "score": 0.9}
DOG = {**HIT, "category_id": 2, "score": 0.9}


def test_score_lvis_counts_unverified_categories():
    found = score_lvis(tiny(), [HIT, DOG, {**HIT, "category_id": 7}])
    assert found.summary["AP"] == pytest.approx(1.0)
    assert (found.unverified, found.unknown, found.detections) == (1, 1, 3)
    assert score_lvis(tiny(neg_category_ids=[2]), [HIT, DOG]).unverified == 0


def test_score_lvis_ignores_boxes_where_annotation_is_not_exhaustive():
    assert score_lvis(tiny(), [HIT, STRAY_CAT]).summary["AP50"] == pytest.approx(0.5)
    open_ = tiny(not_exhaustive_category_ids=[1])
    assert score_lvis(open_, [HIT, STRAY_CAT]).summary["AP50"] == pytest.approx(1.0)


def test_score_lvis_of_absent_frequency_groups_is_minus_one():
    summary = score_lvis(tiny(), [HIT]).summary
    assert summary["APf"] == pytest.approx(1.0)
    assert (summary["APr"], summary["APc"]) == (-1.0, -1.0)


def test_score_lvis_keeps_300_boxes_an_image():
    strays = [{**DOG, "score": 0.9}] * 300
    found = score_lvis(tiny(neg_category_ids=[2]), [*strays, HIT])
    assert (found.beyond_limit, found.summary["AP"]) == (1, 0.0)


def test_score_lvis_notes_options_that_change_nothing_on_a_results_list():
    assert not score_lvis(tiny(), [HIT]).notes
    (note,) = score_lvis(
        tiny(),
        [HIT],
        "constant",
        answers=AnswerSettings(scale="infer"),
        labels=LabelSettings(synonyms={"cat": ["kitty"]}),
    ).notes
    assert note.endswith("itself: scale, score_source, synonyms had no effect")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["images"][0].pop("neg_category_ids"), "neg_category_ids: expected a list; is this an LVIS file"),
        (lambda d: d["categories"][0].pop("frequency"), r"categories\[id=1\]\.frequency"),
        (lambda d: d["images"][0].update(neg_category_ids=[[2]]), r"neg_category_ids: expected a whole number or text"),
    ],
)
def test_score_lvis_refuses_a_file_that_is_not_lvis(change, message):
    data = tiny()
    change(data)
    with pytest.raises(InputError, match=message):
        score_lvis(data, [])


@pytest.fixture
def lvis_files(tmp_path, answer):
    (tmp_path / "lvis.json").write_text(json.dumps(tiny(neg_category_ids=[2])))
    dog = [0.5, 0.5, 0.9, 0.9]
    record = answer(1, ("cat", [0.1, 0.1, 0.3, 0.3]), ("dog", dog), ("unicorn", dog))
    (tmp_path / "p.jsonl").write_text(json.dumps(record) + "\n")
    return ["lvis", "--ground-truth", str(tmp_path / "lvis.json"), "--predictions", str(tmp_path / "p.jsonl")]


def test_lvis_of_text_answers_writes_and_prints(lvis_files, tmp_path, capsys):
    assert main([*lvis_files, "--out", str(tmp_path / "a" / "b"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads((tmp_path / "a" / "b" / "lvis.json").read_text())
    assert data["summary"]["AP"] == pytest.approx(1.0)
    assert (data["detections"], data["unknown"], data["score_source"]) == (3, 1, "constant")
    assert main(lvis_files) == 0
    printed = capsys.readouterr().out
    assert "AR@300   1.000" in printed
    assert "APr        n/a" in printed
    assert "1 box with a label unknown to LVIS, left out" in printed
    assert "ranked by constant" in printed


def test_score_lvis_of_results_equals_that_of_text_answers(lvis_files, tmp_path):
    box = {"image_id": 1, "score": 1.0}
    results = [{**box, "category_id": 1, "bbox": [10, 10, 20, 20]}, {**box, "category_id": 2, "bbox": [50, 50, 40, 40]}]
    words = score_lvis(tmp_path / "lvis.json", tmp_path / "p.jsonl")
    assert score_lvis(tiny(neg_category_ids=[2]), results).summary == pytest.approx(words.summary)


def test_lvis_without_frequencies_exits_2(lvis_files, tmp_path, capsys):
    data = {**tiny(), "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "lvis.json").write_text(json.dumps(data))
    assert main(lvis_files) == 2
    error = capsys.readouterr().err
    assert "expected r, c or f" in error or "category_id" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "content", ["[]", '{"image": "a.jpg", "objects": []}', json.dumps(tiny(neg_category_ids=None))]
)
def test_lvis_names_the_file_that_is_not_lvis(lvis_files, tmp_path, capsys, content):
    (tmp_path / "lvis.json").write_text(content)
    assert main(lvis_files) == 2
    assert f"{tmp_path / 'lvis.json'}" in capsys.readouterr().err


def test_scores_of_lvis_keep_the_notes_of_the_annotations_and_count_what_is_left_out():
    data = tiny(neg_category_ids=[2])
    data["annotations"][0]["area"] = 5000.0  # more than its box
    found = score_lvis(data, [HIT, DOG, {**HIT, "category_id": 7}, STRAY_CAT])
    assert any("state an area" in note or "states an area" in note for note in found.notes)
    assert (found.detections, found.beyond_limit, found.unverified, found.unknown) == (4, 0, 0, 1)
    assert found.to_dict()["summary"] == found.summary and found.join.images == 1
    low = [{**STRAY_CAT, "score": 0.1}] * 300  # of the most boxes the best are kept, wherever they stand
    assert score_lvis(tiny(), [*low, HIT]).summary["AP"] == pytest.approx(1)
    assert score_lvis(tiny(), [*low, HIT]).beyond_limit == 1 and score_lvis(tiny(), low).beyond_limit == 0
    found = score_lvis(tiny(), [*low, HIT, {**low[0], "category_id": 99, "score": 0.0}])  # it is beyond the limit
    assert (found.beyond_limit, found.unknown) == (2, 0)
