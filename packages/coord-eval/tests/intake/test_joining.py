"""Answers find their images and labels their categories."""

import json

import pytest
from coco_builder import coco

from coord_codec import Instance
from coord_eval import AnswerSettings, InputError, LabelSettings, ReportSettings, score, scored_objects

CAT = ("cat", [0.1, 0.1, 0.5, 0.5])
DOG = ("dog", [0.6, 0.6, 0.9, 0.9])


def test_label_matcher_counts_each_layer(instance, answer):
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
        labels=LabelSettings(synonyms={"tv": ["television"]}, label_callback={"kitty": "cat"}.get),
    )
    assert evaluation.labels == {"exact": 1, "normalized": 1, "synonym": 1, "callback": 1, "unknown": 1}
    assert evaluation.detection["0.5"]["recall"] == 1.0


def test_join_counts_answers_about_unknown_images(instance, answer):
    evaluation = score([instance(1, CAT)], [answer(1, CAT), answer(99, DOG)])
    assert (evaluation.join.unknown, evaluation.join.unknown_examples) == (1, ("99",))
    assert evaluation.detection["0.5"]["precision"] == 1.0


def test_answers_about_unknown_images_change_no_other_count(instance):
    """What is dropped or cut off is that of the answer it belongs to, whatever stands before and after it."""
    box = '{"bbox_2d": [100, 100, 500, 500], "label": "%s"}'
    texts = [f"[{box % 'cat'}, {box % 'moon'}]", f'[{box % "cat"}, {{"bbox_2d": [1, 2], "label": "cat"}}]', "no", "[]"]
    known = [{"image_id": n, "text": text} for n, text in enumerate(texts)]
    known[3]["finish_reason"] = "length"
    strangers = [{"image_id": 90 + n, "text": text, "finish_reason": "error"} for n, text in enumerate(texts)]
    settings = {"score_source": "constant", "answers": AnswerSettings(scale=1000)}
    settings["report"] = ReportSettings(diagnose=False)
    truth = [instance(n, CAT, DOG) for n in range(4)]
    wanted = score(truth, known, **settings).to_dict()
    assert wanted["format"]["dropped"] and wanted["format"]["truncated"] and wanted["unknown_labels"]
    for place in range(len(known) + 1):
        found = score(truth, [*known[:place], *strangers, *known[place:]], **settings).to_dict()
        assert found["join"]["unknown"] == len(strangers)
        for part in wanted.keys() - {"join", "notes"}:
            assert found[part] == wanted[part], part


def test_collect_results_counts_unknown_images_and_categories(coco_set):
    """pycocotools asserts on the first and passes over the second in silence."""
    known = {"image_id": 0, "category_id": 10, "bbox": [1, 1, 9, 9], "score": 0.5}
    evaluation = score(coco_set, [known, {**known, "image_id": 999}, {**known, "category_id": 77}])
    assert (evaluation.join.unknown, evaluation.join.unknown_examples) == (1, ("999",))
    assert evaluation.unknown_labels == {"category_id 77": 1}
    assert evaluation.counts["detections"] == 2


def test_join_refuses_predictions_of_another_data_set(instance, answer):
    with pytest.raises(InputError, match="none of 1 prediction is about an image"):
        score([instance(1, CAT)], [answer(99, DOG)])


@pytest.mark.parametrize("keys", [["image"], ["image_id"], ["image", "image_id"]])
def test_join_by_file_name(instance, answer, keys):
    """Answers about a folder of images have their names as ids, and a prepared set counts its own."""
    truth = [instance(1, CAT, image="a/x.jpg"), instance(2, DOG, image="b/x.jpg"), instance(3, CAT)]
    records = [answer(1, CAT), answer(2, DOG), answer(3, CAT)]
    for record, name in zip(records, ["a/x.jpg", "b/x.jpg", "somewhere/3.jpg"], strict=True):
        del record["image_id"]
        record.update(dict.fromkeys(keys, name))
    evaluation = score(truth, records)
    assert evaluation.join.by_name == 3
    assert evaluation.coco["AP50"] == 1.0


def test_join_refuses_an_id_and_a_file_name_that_disagree(instance, answer):
    """Ids counted anew on one side would otherwise pair every answer with another picture."""
    truth = [instance(1, CAT), instance(2, DOG)]
    with pytest.raises(InputError, match=r"image_id 1 is '1.jpg' in the ground truth, and not 'data/2.jpg'"):
        score(truth, [answer(1, DOG, image="data/2.jpg")])
    assert score(truth, [answer(1, CAT, image="elsewhere/renamed.jpg")]).join.answered == 1


def test_join_by_an_ambiguous_file_name_is_unknown(instance, answer):
    truth = [instance(1, CAT, image="a/x.jpg"), instance(2, DOG, image="b/x.jpg")]
    record = {"image": "x.jpg", "text": ""}
    assert score(truth, [record, answer(1, CAT)]).join.unknown == 1


def test_join_treats_ids_as_text_and_as_numbers_alike(instance, answer):
    evaluation = score([instance(42, CAT)], [{**answer(42, CAT), "image_id": "42"}])
    assert evaluation.coco["AP"] == pytest.approx(1.0)


def test_label_matcher_refuses_two_categories_of_one_name(one_cat):
    one_cat["categories"].append({"id": 2, "name": "cat"})
    with pytest.raises(InputError, match="two are called 'cat'"):
        score(one_cat, [{"image_id": 1, "text": ""}])
    result = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 0.5}
    assert score(one_cat, [result]).coco["AP50"] == pytest.approx(1.0)


def test_join_takes_an_answer_for_each_label_that_was_asked_for(one_cat):
    one_cat["categories"].append({"id": 2, "name": "dog"})
    box = '[{"bbox": [0.0, 0.0, 0.5, 0.5]}]'
    evaluation = score(one_cat, [{"image_id": 1, "text": box, "label": name} for name in ("cat", "dog")])
    assert evaluation.detections.category_D.tolist() == [0, 1]
    assert evaluation.detections.rank_D.tolist() == [0, 1]
    assert (evaluation.join.answered, evaluation.format["answers"]) == (1, 2)
    assert (evaluation.format["clean"], evaluation.format["repairs"]) == (2, {})
    for twice in ({"image_id": 1, "text": box, "label": "cat"}, {"image_id": 1, "text": box}):
        with pytest.raises(InputError, match=r"predictions\[1\].*second answer for image 1.* `label` or `tile`"):
            score(one_cat, [twice] * 2)


def test_join_places_the_boxes_of_tiles_in_their_image():
    truth = coco((1, 1, [110, 10, 50, 80]), size=(200, 100))
    answers = [
        {"image_id": 1, "text": "[]", "tile": [0, 0, 100, 100]},
        {"image_id": 1, "text": '{"bbox": [10, 10, 60, 90], "label": "cat"}', "tile": [100, 0, 100, 100]},
    ]
    for scale in ("pixels", 100):
        assert score(truth, answers, answers=AnswerSettings(scale=scale)).detections.boxes_D4.tolist() == [
            [110, 10, 50, 80]
        ]
    with pytest.raises(InputError, match="tile: the scale"):
        score(truth, answers, answers=AnswerSettings(scale="infer"))


@pytest.mark.parametrize(("key", "value"), [("label", " "), ("label", 7), ("tile", [1, 2, 3]), ("tile", [0, 0, 0, 5])])
def test_prediction_refuses_a_faulty_label_or_tile(one_cat, key, value):
    with pytest.raises(InputError, match=f"predictions.0.: {key}"):
        score(one_cat, [{"image_id": 1, "text": "", key: value}])


def test_join_places_the_boxes_of_a_tile_in_an_image_of_unknown_size(one_cat):
    del one_cat["images"][0]["width"], one_cat["images"][0]["height"]
    record = {"image_id": 1, "text": '{"bbox": [10, 10, 60, 90], "label": "cat"}', "tile": [100, 0, 100, 100]}
    assert score(one_cat, [record], answers=AnswerSettings(scale=100)).detections.boxes_D4.tolist() == [
        [110, 10, 50, 80]
    ]


def test_ignored_labels_given_as_one_text_are_one_label(instance, answer):
    record = answer(1, CAT, ("noise", DOG[1]), ("no", [0.2, 0.2, 0.3, 0.3]))
    evaluation = score([instance(1, CAT)], [record], answers=AnswerSettings(ignored_labels="noise"))
    assert evaluation.format["dropped"] == {"ignored_label": 1}
    assert evaluation.unknown_labels == {"no": 1}
    objects, dropped = scored_objects(record, answers=AnswerSettings(ignored_labels="noise"))
    assert ([item.desc for item in objects], dropped) == (["cat", "no"], {"ignored_label": 1})


@pytest.mark.slow
def test_data_set_as_predictions_is_joined_by_the_names_of_its_own_ids(coco_set):
    """Images and categories that are numbered otherwise; ids count where there are no names."""
    truth = {**coco_set, "annotations": [row for row in coco_set["annotations"] if not row.get("iscrowd")]}
    ids = {key: [row["id"] for row in truth[key]] for key in ("images", "categories")}
    other = {key: dict(zip(own, reversed(own), strict=True)) for key, own in ids.items()}
    rows = [
        {
            **row,
            "image_id": other["images"][row["image_id"]],
            "category_id": other["categories"][row["category_id"]],
            "score": 1.0,
        }
        for row in truth["annotations"]
    ]
    renamed = {key: [{**row, "id": other[key][row["id"]]} for row in truth[key]] for key in ids}
    evaluation = score(truth, {**renamed, "annotations": rows})
    assert evaluation["AP50"] == pytest.approx(1) and sum("names count" in note for note in evaluation.notes) == 2
    assert score(truth, {"annotations": rows})["AP50"] < 0.5
    names = {key: {row["id"]: row for row in renamed[key]} for key in ids}
    listed = [
        row
        | {"file_name": names["images"][row["image_id"]]["file_name"]}
        | {"category_name": names["categories"][row["category_id"]]["name"]}
        for row in rows
    ]
    assert score(truth, listed).coco == evaluation.coco
    by_name = [{key: value for key, value in row.items() if key != "image_id"} for row in listed]
    assert score(truth, by_name).coco == evaluation.coco
    for key, field in (("images", "file_name"), ("categories", "name")):
        unknown = {**renamed, key: [{**row, field: f"other {row[field]}"} for row in renamed[key]]}
        with pytest.raises(InputError, match=r"is 'other .*' there and '.*' in the ground truth"):
            score(truth, {**unknown, "annotations": rows})


def test_answers_without_names_are_in_the_order_of_the_file(tmp_path):
    cats = [{"desc": "cat", "bbox": [0.1 * n, 0.2, 0.1 * n + 0.2, 0.5]} for n in (1, 2, 3)]
    boxes = [[100 * n, 200, 100 * n + 200, 500] for n in (1, 2, 3)]
    named = [{"image": f"{n}.jpg", "image_id": 30 - n, "width": 100, "height": 100} for n in (1, 2, 3)]
    instances = [Instance(**row, objects=[cat]) for row, cat in zip(named, cats, strict=True)]
    document = {
        "images": [{"id": r["image_id"], "file_name": r["image"], "width": 100, "height": 100} for r in named],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"id": n, "image_id": 30 - n, "category_id": 1, "bbox": [10 * n, 20, 20, 30]} for n in (1, 2, 3)
        ],
    }
    texts = [json.dumps([{"bbox_2d": box, "label": "cat"}]) for box in boxes]
    forms = ({"prompt": "<image>", "predict": text, "label": "[]"} for text in texts), ({"response": t} for t in texts)
    for truth, rows in zip((instances, document), forms, strict=True):
        path = tmp_path / "generated_predictions.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        evaluation = score(truth, path, answers=AnswerSettings(scale=1000, in_order=True))
        assert evaluation["AP"] == 1
        assert "3 answers are taken in the order of the ground truth's images, from 1.jpg to 3.jpg" in evaluation.notes
        with pytest.raises(InputError, match="line 1: image_id: missing"):
            score(truth, path, answers=AnswerSettings(scale=1000))
    for count in (2, 4):
        with pytest.raises(InputError, match=f"in_order: {count} answers for 3 images of the ground truth"):
            score(instances, [{"text": "[]"}] * count, answers=AnswerSettings(in_order=True))
    with pytest.raises(InputError, match=r"predictions\[1\]: image: 'a.jpg' names the image .* leave in_order out"):
        score(
            instances,
            [{"text": "[]"}, {"text": "[]", "image": "a.jpg"}, {"text": "[]"}],
            answers=AnswerSettings(in_order=True),
        )
