"""Joining, labels, crowds, empties: what counts, what doesn't, and that everything is counted."""

import contextlib
import io
import itertools
import json

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from coord_codec import Instance, encode_target
from coord_eval import COCO_KEYS, InputError, oracle_predictions, score


def instance(image_id, *objects, image=None, size=(100, 100)):
    return Instance(
        image=image or f"{image_id}.jpg",
        image_id=image_id,
        width=size[0],
        height=size[1],
        objects=[{"desc": desc, "bbox": box} for desc, box in objects],
    )


def answer(image_id, *objects, **more):
    text = encode_target(instance(image_id, *objects), markers="obj", order="given")
    return {"image_id": image_id, "text": text, "finish_reason": "stop", **more}


CAT = ("cat", [0.1, 0.1, 0.5, 0.5])
DOG = ("dog", [0.6, 0.6, 0.9, 0.9])


def test_an_empty_list_scores_zero(coco_set):
    evaluation = score(coco_set, [])
    assert set(evaluation.coco.values()) == {0.0}
    assert evaluation.detection["0.5"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert evaluation.mean_iou == 0.0
    assert evaluation.ceiling["AP"] > 0.9


def test_pictures_without_answer_and_without_objects_count():
    truth = [instance(1, CAT), instance(2, CAT), instance(3)]
    evaluation = score(truth, [answer(1, CAT), answer(3, CAT)])
    assert evaluation.join.answered == 2
    assert evaluation.detection["0.5"] == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5})
    # The false box of picture 3 ranks after the hit (same score, later picture); recall stops at one half.
    assert evaluation.coco["AR100"] == 0.5
    assert evaluation.mean_iou == 0.5


def test_unknown_labels_count_against_precision():
    truth = [instance(1, CAT)]
    clean = score(truth, [answer(1, CAT)])
    noisy = score(
        truth, [answer(1, CAT, ("unicorn", [0.2, 0.2, 0.3, 0.3]), ("unicorn", [0.1, 0.1, 0.5, 0.5]))]
    )
    assert clean.detection["0.5"]["precision"] == 1.0
    assert noisy.detection["0.5"]["precision"] == pytest.approx(1 / 3)
    assert noisy.unknown_labels == {"unicorn": 2}
    assert noisy.counts["unknown_label_detections"] == 2
    # COCO averages over labels with truth: a label without any has no AP and takes no part.
    assert noisy.coco["AP"] == clean.coco["AP"]


def test_labels_are_matched_in_named_layers():
    truth = [instance(1, ("traffic light", CAT[1]), DOG, ("tv", [0.1, 0.6, 0.3, 0.9]), CAT)]
    boxes = {o.desc: list(o.bbox) for o in truth[0].objects}
    said = [
        ("Traffic-Light.", boxes["traffic light"]),
        ("dog", boxes["dog"]),
        ("Television", boxes["tv"]),
        ("kitty", boxes["cat"]),
        ("moon", [0.7, 0.1, 0.8, 0.2]),
    ]
    evaluation = score(
        truth,
        [answer(1, *said)],
        synonyms={"tv": ["television"]},
        label_callback={"kitty": "cat"}.get,
    )
    assert evaluation.labels == {"exact": 1, "normalized": 1, "synonym": 1, "callback": 1, "unknown": 1}
    assert evaluation.detection["0.5"]["recall"] == 1.0


def test_a_second_answer_for_a_picture_is_an_error():
    with pytest.raises(InputError, match=r"predictions\[1\].*second answer for image 1"):
        score([instance(1, CAT)], [answer(1, CAT), answer(1, CAT)])


def test_answers_about_unknown_pictures_are_counted_and_left_out():
    evaluation = score([instance(1, CAT)], [answer(1, CAT), answer(99, DOG)])
    assert (evaluation.join.unknown, evaluation.join.unknown_examples) == (1, ("99",))
    assert evaluation.detection["0.5"]["precision"] == 1.0


def test_results_about_unknown_pictures_and_categories_are_counted(coco_set):
    """pycocotools asserts on the first and passes over the second in silence."""
    known = {"image_id": 0, "category_id": 10, "bbox": [1, 1, 9, 9], "score": 0.5}
    evaluation = score(coco_set, [known, {**known, "image_id": 999}, {**known, "category_id": 77}])
    assert (evaluation.join.unknown, evaluation.join.unknown_examples) == (1, ("999",))
    assert evaluation.unknown_labels == {"category_id 77": 1}
    assert evaluation.counts["detections"] == 2


def test_corner_boxes_without_ids_score_as_the_same_coco_set(coco_set):
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


def test_predictions_of_another_data_set_are_an_error():
    with pytest.raises(InputError, match="none of the 1 predictions is about an image"):
        score([instance(1, CAT)], [answer(99, DOG)])


def test_answers_without_id_are_joined_by_file_name():
    truth = [instance(1, CAT, image="a/x.jpg"), instance(2, DOG, image="b/x.jpg"), instance(3, CAT)]
    records = [answer(1, CAT), answer(2, DOG), answer(3, CAT)]
    for record, name in zip(records, ["a/x.jpg", "b/x.jpg", "somewhere/3.jpg"], strict=True):
        del record["image_id"]
        record["image"] = name
    evaluation = score(truth, records)
    assert evaluation.join.by_name == 3
    assert evaluation.coco["AP50"] == 1.0


def test_an_id_and_a_file_name_that_disagree_are_an_error():
    """Ids counted anew on one side would otherwise pair every answer with another picture."""
    truth = [instance(1, CAT), instance(2, DOG)]
    with pytest.raises(InputError, match=r"image_id 1 is '1.jpg' in the ground truth, and not 'data/2.jpg'"):
        score(truth, [answer(1, DOG, image="data/2.jpg")])
    assert score(truth, [answer(1, CAT, image="elsewhere/renamed.jpg")]).join.answered == 1


def test_an_ambiguous_file_name_is_unknown_rather_than_guessed():
    truth = [instance(1, CAT, image="a/x.jpg"), instance(2, DOG, image="b/x.jpg")]
    record = {"image": "x.jpg", "text": ""}
    assert score(truth, [record, answer(1, CAT)]).join.unknown == 1


def test_ids_as_text_and_as_numbers_are_the_same_picture():
    evaluation = score([instance(42, CAT)], [{**answer(42, CAT), "image_id": "42"}])
    assert evaluation.coco["AP"] == pytest.approx(1.0)


def test_without_sizes_iou_figures_stand_and_sized_ones_do_not():
    sized = [instance(1, CAT, DOG, size=(640, 200))]
    bare = [Instance(image="1.jpg", image_id=1, objects=sized[0].objects)]
    record = answer(1, ("cat", [0.12, 0.1, 0.5, 0.52]), DOG)
    with_size, without = score(sized, [record]), score(bare, [record])
    assert without.coco["AP"] == pytest.approx(with_size.coco["AP"])
    assert without.mean_iou == pytest.approx(with_size.mean_iou)
    assert {without.coco[key] for key in ("APs", "APm", "APl", "ARs", "ARm", "ARl")} == {-1.0}
    assert any("no size" in note for note in without.notes)


def test_crowd_regions_are_neither_hit_nor_missed():
    truth = {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 100, "height": 100}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 20, 20]},
            {"id": 2, "image_id": 1, "category_id": 1, "bbox": [40, 40, 60, 60], "iscrowd": 1},
        ],
    }
    inside = {"image_id": 1, "category_id": 1, "bbox": [50, 50, 10, 10], "score": 1.0}
    outside = {"image_id": 1, "category_id": 1, "bbox": [25, 0, 10, 10], "score": 1.0}
    hit = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 20, 20], "score": 1.0}
    row = score(truth, [hit, inside, inside, outside]).detection["0.5"]
    assert row == pytest.approx({"precision": 0.5, "recall": 1.0, "f1": 2 / 3})
    assert score(truth, [hit, inside]).coco["AP"] == pytest.approx(1.0)


def naive_matching(truth, results, threshold):
    """Pairs in order of falling IoU by plain loops over everything; returns hits, boxes, objects."""

    def iou(a, b):
        w = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
        h = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
        inter = max(w, 0) * max(h, 0)
        return inter / (a[2] * a[3] + b[2] * b[3] - inter)

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


@pytest.mark.parametrize("seed", range(4))
def test_precision_recall_and_mean_iou_against_plain_loops(coco_set, noisy_results, seed):
    truth = {**coco_set, "annotations": [{**a, "iscrowd": 0} for a in coco_set["annotations"]]}
    results = noisy_results(truth, seed)
    evaluation = score(truth, results)
    for key, threshold in (("0.5", 0.5), ("0.75", 0.75)):
        hits, boxes, objects, total = naive_matching(truth, results, threshold)
        row = evaluation.detection[key]
        assert row["precision"] == pytest.approx(hits / boxes)
        assert row["recall"] == pytest.approx(hits / objects)
        assert row["f1"] == pytest.approx(2 * hits / (boxes + objects))
    assert evaluation.mean_iou == pytest.approx(total / objects)


@pytest.mark.parametrize("seed", range(4))
def test_coco_numbers_equal_pycocotools_used_by_hand(coco_set, noisy_results, seed, tmp_path):
    """Ids are moved up by one for the hand-made run, since pycocotools cannot match an object with id 0."""
    truth = {**coco_set, "annotations": [{**a, "id": a["id"] + 1} for a in coco_set["annotations"]]}
    results = noisy_results(truth, seed)
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(tmp_path / "truth.json"))
        evaluator = COCOeval(coco, coco.loadRes(results), "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    evaluation = score(coco_set, results)
    assert list(evaluation.coco) == list(COCO_KEYS)
    np.testing.assert_allclose(list(evaluation.coco.values()), evaluator.stats, rtol=0, atol=1e-12)


def test_nothing_is_printed(coco_set, capfd):
    score(coco_set, oracle_predictions(coco_set))
    assert capfd.readouterr() == ("", "")


def test_json_holds_every_key_of_the_contract_and_no_nan(coco_set):
    data = json.loads(score(coco_set, oracle_predictions(coco_set)).to_json())
    assert set(data["coco"]) == set(COCO_KEYS)
    assert set(data["detection"]) == {"0.5", "0.75", "0.5:0.95"}
    assert set(data["detection"]["0.5"]) == {"precision", "recall", "f1"}
    assert {"answers", "parsed", "truncated", "objects", "dropped"} <= set(data["format"])
    assert {"score_source", "mean_iou", "ceiling"} <= set(data)
    assert data["coco_constant_score"] == data["coco"]


def test_an_empty_data_set_gives_no_error():
    evaluation = score({"images": [], "annotations": [], "categories": []}, [])
    assert evaluation.coco["AP"] == -1.0
    json.loads(evaluation.to_json())
