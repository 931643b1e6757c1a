"""What counts when answers are scored, and that everything is counted."""

import inspect
import itertools
import json
import re

import pytest

from coord_codec import CoordGrid, Instance, Object, int_to_token, token_to_int
from coord_eval import (
    COCO_KEYS,
    AnswerSettings,
    CeilingSettings,
    InputError,
    LabelSettings,
    ReportSettings,
    fuse_predictions,
    oracle_predictions,
    score,
    score_expression_files,
    score_lvis,
    scored_objects,
)
from coord_eval.review import review

CAT = ("cat", [0.1, 0.1, 0.5, 0.5])
DOG = ("dog", [0.6, 0.6, 0.9, 0.9])


def test_score_of_an_empty_list_is_zero(coco_set):
    evaluation = score(coco_set, [])
    assert set(evaluation.coco.values()) == {0.0}
    assert evaluation.detection["0.5"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert evaluation.mean_iou == 0.0
    assert evaluation.ceiling["AP"] > 0.9


@pytest.mark.slow
def test_fields_of_records_are_taken_as_keywords_with_a_sentence(one_cat, answer):
    """As before they were records; each says the new form, and acts as it does."""
    records = [answer(1, CAT)]
    with pytest.warns(DeprecationWarning) as told:
        older = score(one_cat, records, "pycocotools", scale=999, max_objects=3, bootstrap=2, lenient=True)
    assert [str(one.message).split(";")[0] for one in told] == [
        "score(scale=...) is now score(answers=AnswerSettings(scale=...))",
        "score(max_objects=...) is now score(ceiling=CeilingSettings(max_objects=...))",
        "score(bootstrap=...) is now score(report=ReportSettings(bootstrap=...))",
        "score(lenient=...) is now score(labels=LabelSettings(lenient=...))",
    ]
    assert {one.filename for one in told} == {__file__}
    settings = {"ceiling": CeilingSettings(max_objects=3), "report": ReportSettings(bootstrap=2)}
    settings |= {"answers": AnswerSettings(scale=999), "labels": LabelSettings(lenient=True)}
    assert older.to_json() == score(one_cat, records, "pycocotools", **settings).to_json()


def test_a_setting_that_acts_in_score_alone_is_refused_elsewhere(one_cat, answer):
    calls = {
        "review": lambda given: review(one_cat, [answer(1, CAT)], answers=given),
        "fuse_predictions": lambda given: fuse_predictions({"a": [answer(1, CAT)]}, answers=given),
        "scored_objects": lambda given: scored_objects(answer(1, CAT), answers=given),
        "score_lvis": lambda given: score_lvis({}, [], answers=given),
        "score_expression_files": lambda given: score_expression_files([], [], answers=given),
    }
    for name, call in calls.items():
        with pytest.raises(InputError, match=rf"fuse: it acts in score\(\), and has no effect in {name}\(\)"):
            call(AnswerSettings(fuse="nms"))
    with pytest.raises(InputError, match="lenient: it acts in score"):
        review(one_cat, [answer(1, CAT)], labels=LabelSettings(lenient=True))


def test_score_documents_each_keyword_of_its_signature_and_takes_it(one_cat, answer):
    parameters = inspect.signature(score).parameters.values()
    documented = re.findall(r"^    (\w+): ", inspect.getdoc(score).split("Args:")[1].split("Raises:")[0], re.MULTILINE)
    assert [p.name for p in parameters] == documented
    assert {p.kind for p in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    records = [answer(1, CAT)]
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    assert score(one_cat, records, **defaults).to_json() == score(one_cat, records).to_json()
    with pytest.raises(TypeError, match="'scales'"):
        score(one_cat, records, scales=1000)


def test_score_counts_images_without_answer_and_without_objects(instance, answer):
    truth = [instance(1, CAT), instance(2, CAT), instance(3)]
    evaluation = score(truth, [answer(1, CAT), answer(3, CAT)])
    assert evaluation.join.answered == 2
    assert evaluation.detection["0.5"] == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5})
    # The false box of image 3 ranks after the hit (same score, later image); recall stops at one half.
    assert evaluation.coco["AR100"] == 0.5
    assert evaluation.mean_iou == 0.5


def test_score_counts_unknown_labels_as_false(instance, answer):
    truth = [instance(1, CAT)]
    clean = score(truth, [answer(1, CAT)])
    noisy = score(truth, [answer(1, CAT, ("unicorn", [0.2, 0.2, 0.3, 0.3]), ("unicorn", [0.1, 0.1, 0.5, 0.5]))])
    assert clean.detection["0.5"]["precision"] == 1.0
    assert noisy.detection["0.5"]["precision"] == pytest.approx(1 / 3)
    assert noisy.unknown_labels == {"unicorn": 2}
    assert noisy.counts["unknown_label_detections"] == 2
    # COCO averages over labels with truth: a label without any has no AP and takes no part.
    assert noisy.coco["AP"] == clean.coco["AP"]


def test_score_of_instances_without_ids_equals_that_of_coco(coco_set):
    """Truth in the manner of VOC: a file name, corners and a name for each object, nothing else."""
    names = {c["id"]: c["name"] for c in coco_set["categories"]}
    boxed = {**coco_set, "annotations": []}
    instances, records = [], oracle_predictions(coco_set, max_objects=2)
    for image in coco_set["images"]:
        width, height = image["width"], image["height"]
        objects = []
        for a in coco_set["annotations"]:
            if a["image_id"] == image["id"] and not a["iscrowd"]:
                x, y, w, h = a["bbox"]
                box = [x / width, y / height, (x + w) / width, (y + h) / height]
                objects.append({"desc": names[a["category_id"]], "bbox": box})
                boxed["annotations"].append({**a, "area": w * h})
        instances.append(Instance(image=image["file_name"], width=width, height=height, objects=objects))
    by_name = [{"image": record["image"], "text": record["text"]} for record in records]
    corners, coco = score(instances, by_name), score(boxed, records)
    assert corners.join.by_name == len(instances)
    assert corners.coco == pytest.approx(coco.coco, abs=1e-9)
    assert corners.mean_iou == pytest.approx(coco.mean_iou)


def test_score_without_image_sizes_lacks_only_metrics_by_size(instance, answer):
    sized = [instance(1, CAT, DOG, size=(640, 200))]
    bare = [Instance(image="1.jpg", image_id=1, objects=sized[0].objects)]
    record = answer(1, ("cat", [0.12, 0.1, 0.5, 0.52]), DOG)
    with_size, without = score(sized, [record]), score(bare, [record])
    assert without.coco["AP"] == pytest.approx(with_size.coco["AP"])
    assert without.mean_iou == pytest.approx(with_size.mean_iou)
    assert {without.coco[key] for key in ("APs", "APm", "APl", "ARs", "ARm", "ARl")} == {-1.0}
    assert any("no size" in note for note in without.notes)


def test_score_ignores_crowd_regions(one_cat):
    crowd = {"id": 2, "image_id": 1, "category_id": 1, "bbox": [40, 40, 60, 40], "iscrowd": 1}
    one_cat["annotations"].append(crowd)
    boxes = ([1, 2, 30, 40], [50, 50, 10, 10], [35, 0, 10, 10])
    hit, inside, outside = ({"image_id": 1, "category_id": 1, "bbox": box, "score": 1.0} for box in boxes)
    row = score(one_cat, [hit, inside, inside, outside]).detection["0.5"]
    assert row == pytest.approx({"precision": 0.5, "recall": 1.0, "f1": 2 / 3})
    assert score(one_cat, [hit, inside]).coco["AP"] == pytest.approx(1.0)


def naive_matching(truth, results, threshold, iou):
    """Pairs in order of descending IoU by plain loops over everything; returns hits, boxes, objects, sum of IoU."""
    objects = [a for a in truth["annotations"] if not a["iscrowd"]]
    pairs = [
        (iou(r["bbox"], a["bbox"]), i, j)
        for (i, r), (j, a) in itertools.product(enumerate(results), enumerate(objects))
        if r["image_id"] == a["image_id"] and r["category_id"] == a["category_id"]
    ]
    used_r, used_a, hits, total = set(), set(), 0, 0.0
    for value, i, j in sorted(pairs, reverse=True):
        if i in used_r or j in used_a or value <= 0:
            continue
        used_r.add(i)
        used_a.add(j)
        hits += value >= threshold
        total += value
    return hits, len(results), len(objects), total


def test_score_precision_recall_and_mean_iou_equal_plain_loops(naive_iou, coco_set, noisy_results):
    truth = {**coco_set, "annotations": [{**a, "iscrowd": 0} for a in coco_set["annotations"]]}
    results = noisy_results(truth, 0)
    evaluation = score(truth, results)
    for key, threshold in (("0.5", 0.5), ("0.75", 0.75)):
        hits, boxes, objects, total = naive_matching(truth, results, threshold, naive_iou)
        row = evaluation.detection[key]
        assert row["precision"] == pytest.approx(hits / boxes)
        assert row["recall"] == pytest.approx(hits / objects)
        assert row["f1"] == pytest.approx(2 * hits / (boxes + objects))
    assert evaluation.mean_iou == pytest.approx(total / objects)


@pytest.mark.slow
def test_score_coco_metrics_equal_pycocotools(coco_set, noisy_results, by_hand):
    results = noisy_results(coco_set, 0)
    coco = score(coco_set, results).coco
    assert list(coco) == list(COCO_KEYS)
    assert coco == pytest.approx(by_hand(coco_set, results), rel=0, abs=1e-12)


def test_score_prints_nothing(coco_set, capfd):
    score(coco_set, oracle_predictions(coco_set))
    assert capfd.readouterr() == ("", "")


def test_evaluation_json_holds_every_key_of_the_contract_and_no_nan(coco_set):
    data = json.loads(score(coco_set, oracle_predictions(coco_set)).to_json())
    assert set(data["coco"]) == set(COCO_KEYS)
    assert set(data["detection"]) == {"0.5", "0.75", "0.5:0.95"}
    assert set(data["detection"]["0.5"]) == {"precision", "recall", "f1"}
    assert {"answers", "parsed", "truncated", "objects", "dropped"} <= set(data["format"])
    assert {"score_source", "mean_iou", "ceiling"} <= set(data)
    assert data["coco_constant_score"] == data["coco"]


def test_score_of_an_empty_data_set():
    evaluation = score({"images": [], "annotations": [], "categories": []}, [])
    assert evaluation.coco["AP"] == -1.0
    json.loads(evaluation.to_json())


@pytest.mark.parametrize("source", ["results", "confidence"])
def test_score_refuses_an_unknown_score_source(one_cat, source):
    with pytest.raises(InputError, match="score_source: expected one of auto"):
        score(one_cat, [{"image_id": 1, "text": ""}], score_source=source)


def test_score_refuses_an_unknown_backend(one_cat):
    with pytest.raises(InputError, match="backend: expected one of"):
        score(one_cat, [], backend="coco")


def test_score_of_text_answers_needs_image_sizes(one_cat):
    del one_cat["images"][0]["width"]
    text = '[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}]'
    with pytest.raises(InputError, match=r"images\[id=1\]: width and height are missing"):
        score(one_cat, [{"image_id": 1, "text": text}])
    assert score(one_cat, []).ceiling == {}


_TOKENS = re.compile(r"(<\|coord_\d+\|>)(<\|coord_\d+\|>)(<\|coord_\d+\|>)(<\|coord_\d+\|>)")


_LAST = CoordGrid().bins - 1


def _rewrite(records, change):
    """Apply ``change(bins) -> bins`` to every box in the texts."""

    def replace(match):
        bins = change([token_to_int(token) for token in match.groups()])
        return "".join(int_to_token(min(max(k, 0), _LAST)) for k in bins)

    return [{**record, "text": _TOKENS.sub(replace, record["text"])} for record in records]


@pytest.fixture(params=["generated", pytest.param("photographs", marks=pytest.mark.shared)])
def truth(request):
    if request.param == "generated":
        return request.getfixturevalue("coco_set")
    return request.getfixturevalue("shared_dir") / "coco_permissive33" / "instances.json"


@pytest.mark.parametrize(("markers", "form"), [("obj", "tokens"), ("qwen", "numbers")])
def test_oracle_predictions_score_exactly_the_ceiling(truth, markers, form):
    records = oracle_predictions(truth, markers=markers, form=form, max_objects=30)
    evaluation = score(truth, records, ceiling=CeilingSettings(max_objects=30))
    assert evaluation.coco == pytest.approx(evaluation.ceiling, abs=1e-12)
    assert evaluation.coco["AP"] > 0.95
    assert evaluation.format["dropped"] == {}


@pytest.mark.parametrize("form", ["tokens", "numbers"])
def test_oracle_predictions_in_json_score_the_ceiling(truth, form):
    records = oracle_predictions(truth, style="json", form=form, max_objects=30)
    evaluation = score(truth, records, ceiling=CeilingSettings(max_objects=30))
    assert evaluation.coco == pytest.approx(evaluation.ceiling, abs=1e-12)


CHANGES = {
    "ids shifted by three": lambda b: [k + 3 for k in b],
    "scale doubled": lambda b: [2 * k for k in b],
    "x and y swapped": lambda b: [b[1], b[0], b[3], b[2]],
}


@pytest.mark.slow
@pytest.mark.drawn(1, "name")
@pytest.mark.parametrize("name", CHANGES)
def test_oracle_predictions_that_are_off_score_below_the_ceiling(truth, name):
    records = _rewrite(oracle_predictions(truth), CHANGES[name])
    evaluation = score(truth, records)
    assert evaluation.coco["AP"] < evaluation.ceiling["AP"] - 0.02
    assert evaluation.mean_iou < score(truth, oracle_predictions(truth)).mean_iou


def test_oracle_predictions_on_another_grid_score_below_the_ceiling(truth):
    records = oracle_predictions(truth)
    off = score(truth, records, answers=AnswerSettings(grid=CoordGrid(scale=999)))
    assert off.mean_iou < score(truth, records).mean_iou - 0.0003


def test_object_limit_lowers_the_ceiling_by_its_recall(coco_set):
    evaluation = score(coco_set, oracle_predictions(coco_set, max_objects=3), ceiling=CeilingSettings(max_objects=3))
    assert evaluation.coco == pytest.approx(evaluation.ceiling, abs=1e-12)
    assert evaluation.ceiling["AP"] < 0.8
    assert evaluation.detection["0.5"]["precision"] == 1.0


def test_ceiling_is_absent_if_a_category_cannot_stand_in_a_text(coco_set):
    coco_set["categories"][0]["name"] = "<obj_start>"
    evaluation = score(coco_set, [])
    assert evaluation.ceiling == {}
    assert any("no ceiling" in note and "<obj_start>" in note for note in evaluation.notes)


def test_options_for_text_that_change_nothing_on_a_results_list_are_noted():
    truth = [
        Instance(image="a", image_id=1, width=10, height=10, objects=[Object(desc="cat", bbox=(0.1, 0.1, 0.5, 0.5))])
    ]
    results = [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4], "score": 0.5}]
    assert not any("had no effect" in note for note in score(truth, results).notes)
    changed = score(
        truth,
        results,
        "pycocotools",
        "constant",
        answers=AnswerSettings(scale=999),
        labels=LabelSettings(synonyms={"cat": ["kitty"]}),
        ceiling=CeilingSettings(max_objects=3),
    )
    assert any("itself: scale, score_source, synonyms had no effect" in note for note in changed.notes)


def test_oracle_predictions_refuse_objects_in_an_image_without_size(one_cat):
    del one_cat["images"][0]["width"], one_cat["images"][0]["height"]
    with pytest.raises(InputError, match=r"images\[id=1\]: width and height are missing"):
        oracle_predictions(one_cat)
    assert [record["text"] for record in oracle_predictions({**one_cat, "annotations": []})] == [""]


@pytest.mark.parametrize(("faulty", "noted"), [(3, True), (1, False)])
def test_a_reason_of_more_than_half_of_the_drops_is_noted_with_what_to_try(faulty, noted):
    records = ['{"bbox_2d": [1, 2, 3], "label": "cat"}'] * faulty + ['{"bbox_2d": [1, 2, 30, 40], "label": "cat"}'] * 2
    images = [Instance(image="a.jpg", image_id=1, width=9, height=9, objects=[{"desc": "cat", "bbox": [0, 0, 1, 1]}])]
    notes = score(
        images, [{"image_id": 1, "text": f"[{', '.join(records)}]"}], answers=AnswerSettings(scale=1000)
    ).notes
    found = [note for note in notes if note.startswith("3 of 5 objects were dropped as wrong_arity: ")]
    assert bool(found) == noted
    assert all("geometry" in note for note in found)
