"""Fusion within one set of answers (`score --fuse`), and of several files (`coord-eval fuse`)."""

import json
from pathlib import Path

import pytest
from coco_builder import coco

from coord_codec import Instance
from coord_eval import AnswerSettings, Calibration, InputError, ThresholdCurve, fuse, fuse_predictions, score
from coord_eval.cli.main import main


@pytest.mark.slow
def test_score_with_fusion_equals_the_score_of_fused_boxes(coco_set, noisy_results):
    results = noisy_results(coco_set, 1)
    by_image = {}
    for row in results:
        x, y, w, h = row["bbox"]
        item = {"desc": str(row["category_id"]), "bbox": [x, y, x + w, y + h], "score": row["score"]}
        by_image.setdefault(row["image_id"], []).append(item)
    fused = [
        {
            "image_id": i,
            "category_id": int(o.desc),
            "bbox": [o.box[0], o.box[1], o.box[2] - o.box[0], o.box[3] - o.box[1]],
        }
        | {"score": o.score}
        for i, items in by_image.items()
        for o in fuse([items], method="nms", iou=0.6).objects
    ]
    assert len(fused) < len(results)
    evaluation = score(coco_set, results, answers=AnswerSettings(fuse="nms:0.6"))
    assert evaluation.detection == score(coco_set, fused).detection
    assert evaluation.fusion["rule"] == "nms:0.6"
    assert (evaluation.fusion["boxes"], evaluation.fusion["objects"]) == (len(results), len(fused))
    assert f"fused by nms:0.6: {len(results)} boxes became {len(fused)}" in evaluation.notes
    assert evaluation.to_dict()["fusion"] == evaluation.fusion


def test_score_with_fusion_refuses_shapes(one_cat):
    with pytest.raises(InputError, match="geometry polygon: expected boxes"):
        score(one_cat, [], answers=AnswerSettings(geometry="polygon", fuse="nms"))


def answer(image_id, boxes, **fields):
    items = [{"bbox_2d": box, "label": label, "confidence": score} for label, box, score in boxes]
    return {"image_id": image_id, "text": json.dumps(items), "finish_reason": "stop", **fields}


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


A = [answer(1, [("cat", [100, 100, 500, 500], 0.9), ("dog", [600, 600, 900, 900], 0.4)]), answer(2, [])]
B = [answer(1, [("Cat", [100, 100, 500, 600], 0.3)]), answer(3, [("cat", [0, 0, 1000, 1000], 0.8)])]


def test_fuse_files_writes_answers_that_score_reads(tmp_path, capsys):
    for name, records in (("a.jsonl", A), ("b.jsonl", B)):
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    a, b, out = (str(tmp_path / name) for name in ("a.jsonl", "b.jsonl", "fused.jsonl"))
    assert main(["fuse", f"a={a}", f"b={b}", "--scale", "1000", "--out", out]) == 0
    printed = capsys.readouterr().out
    assert "4 boxes of 3 images became 3" in printed
    assert "b: 1 of 3 images have no answer, as if it had found nothing there: 2" in printed
    records = read(out)
    assert [record["image_id"] for record in records] == [1, 2, 3]
    assert json.loads(records[0]["text"]) == [
        {"bbox_2d": [0.1, 0.1, 0.5, 0.525], "label": "cat", "confidence": 0.6},
        {"bbox_2d": [0.6, 0.6, 0.9, 0.9], "label": "dog", "confidence": 0.2},
    ]
    objects = [(1, 1, [10, 10, 40, 42.5]), (1, 2, [60, 60, 30, 30]), (3, 1, [0, 0, 100, 100])]
    truth = coco(*objects, names=("cat", "dog"), images=(1, 2, 3))
    evaluation = score(truth, out)
    assert evaluation.score_source == "stated"
    assert evaluation.coco["AP"] == pytest.approx(1.0)
    # A file is not overwritten by what is made of it.
    assert main(["fuse", a, b, "--out", a]) == 2
    assert read(a) == A


def test_fuse_results_lists_by_category_id():
    row = {"image_id": 1, "category_id": 3, "bbox": [10.0, 10.0, 40.0, 40.0], "score": 0.9}
    low = {**row, "bbox": [10.0, 10.0, 40.0, 44.0], "score": 0.3}
    other = {**row, "category_id": 4}
    ensemble = fuse_predictions({"a": [row, other], "b": [low]})
    assert [(r["category_id"], r["score"], r["bbox"]) for r in ensemble.records] == [
        (3, pytest.approx(0.6), pytest.approx([10, 10, 40, 41])),
        (4, 0.45, [10, 10, 40, 40]),
    ]
    assert ensemble.counts["files"]["b"]["merged"] == 1


def test_fuse_joins_images_by_id_and_by_name():
    named = [{"image": "a.jpg", "text": "[]"}, {"image": "c.jpg", "text": "[]"}]
    ensemble = fuse_predictions({"a": [answer(7, [], image="a.jpg")], "b": named})
    assert [(r.get("image_id"), r["image"]) for r in ensemble.records] == [(7, "a.jpg"), (None, "c.jpg")]
    assert [row["missing"] for row in ensemble.counts["files"].values()] == [1, 0]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": A, "b": [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2], "score": 1}]}, "a holds answers with"),
        ({"a": A, "b": [answer(9, [])]}, "no image has predictions in two of a, b"),
        ({"a": [answer(1, [], tile=[0, 0, 10, 10])]}, "tiles need the size of their image"),
    ],
)
def test_fuse_files_refuses_what_cannot_be_fused(files, message):
    with pytest.raises(InputError, match=message):
        fuse_predictions(files)


def test_score_with_fusion_joins_boxes_cut_by_the_edge_of_a_tile():
    # The left tile and the right one show half of a cat each; a third answer is about the whole image.
    left = answer(1, [("cat", [750, 200, 1000, 500], 0.8)], tile=[0, 0, 120, 100])
    right = answer(1, [("cat", [0, 200, 250, 500], 0.8)], tile=[120, 0, 80, 100])
    truth = [Instance(image="a.jpg", image_id=1, width=200, height=100, objects=[{"desc": "cat", "bbox": CAT}])]
    evaluation = score(truth, [left, right], answers=AnswerSettings(scale=1000, fuse="wbf"))
    assert evaluation.detections.boxes_D4.tolist() == [pytest.approx([90, 20, 50, 30])]
    assert evaluation.mean_iou == pytest.approx(1.0)
    assert evaluation.notes[-1].endswith("2 boxes became 1, 2 of 2 that the edge of a tile cuts were joined")
    # A tile that was asked about without an answer lowers the score of what another view found in it.
    whole, empty = answer(1, [("cat", [150, 200, 300, 500], 0.8)]), answer(1, [], tile=[0, 0, 120, 100])
    assert score(
        truth, [whole, empty], answers=AnswerSettings(scale=1000, fuse="wbf")
    ).detections.scores_D.tolist() == [pytest.approx(0.4)]


CAT = [0.45, 0.2, 0.7, 0.5]


def test_fused_boxes_stand_in_the_order_of_the_first_of_their_boxes():
    found = [("cat", 0), ("dog", 300), ("cat", 600), ("dog", 305), ("bird", 800)]
    text = answer(1, [(label, [x, 0, x + 100, 100], 0.5) for label, x in found])
    (record,) = fuse_predictions({"a": [text]}, answers=AnswerSettings(scale=1000), method="nms").records
    kept = [(item["label"], item["bbox_2d"][0]) for item in json.loads(record["text"])]
    assert kept == [("cat", 0), ("dog", 0.3), ("cat", 0.6), ("bird", 0.8)]


ROW = {"image_id": 1, "category_id": 1, "bbox": [10.0, 10.0, 40.0, 40.0]}
HALF = Calibration(((0.0, 0.0), (1.0, 0.5)), "results", ThresholdCurve((), (), {}))


@pytest.mark.parametrize(
    ("names", "given", "is_told"),
    [
        ("ab", {}, True),
        ("a", {}, False),
        ("ab", {"weights": [1, 2]}, False),
        ("ab", {"calibrations": {"a": HALF}}, False),
        ("ab", {"alone": "a"}, False),
    ],
)
def test_what_a_fusion_may_cost_is_told_where_nobody_chose_it(names, given, is_told):
    """Likewise that scores are of several kinds, if they are."""
    lists = {name: [{**ROW, "score": 0.5}, {**ROW, "image_id": 2, "score": 0.5}] for name in names}
    notes = fuse_predictions(lists, **given).notes
    assert any("fusing may give less" in note for note in notes) == is_told
    if "calibrations" not in given:
        texts = {"a": A, "b": [{"image_id": 1, "text": "cat [100, 100, 500, 500]"}]}
        notes = fuse_predictions({name: texts[name] for name in names}, **given).notes
        assert any("scores of several kinds are mixed" in note for note in notes) == is_told


def test_a_file_alone_stays_as_it_is_beside_others_whatever_their_scores():
    lists = {"a": [{**ROW, "score": -0.5}, {**ROW, "score": 0.25}], "b": [{**ROW, "score": 0.9}]}
    kept = fuse_predictions(lists, alone="a")
    assert [row["score"] for row in kept.records] == [-0.5, 0.25]
    assert kept.counts["rule"] == "a alone" and (kept.counts["boxes"], kept.counts["objects"]) == (3, 2)
    assert {name: row["boxes"] for name, row in kept.counts["files"].items()} == {"a": 2, "b": 1}


def test_each_image_without_an_answer_is_told_once_with_its_file():
    notes = fuse_predictions({"a": A, "b": B}, answers=AnswerSettings(scale=1000)).notes
    assert [note.partition(":")[0] for note in notes if "no answer" in note or "without an answer" in note] == [
        "a",
        "b",
    ]
    many = {"a": [answer(i, []) for i in range(8)], "b": [answer(0, [])]}
    (told,) = [note for note in fuse_predictions(many).notes if "no answer" in note]
    assert told.startswith("b: 7 of 8 images") and told.endswith(": 1, 2, 3, 4, 5, ...")


def test_fuse_takes_sizes_and_names_from_whichever_file_states_them_and_refuses_other_names(tmp_path):
    box = ("cat", [10, 20, 50, 40], 0.5)
    sized, bare = answer(1, [box], width=100, height=200, image="a.jpg"), answer("1", [box])
    moved = {**sized, "image": "photos/a.jpg"}  # texts may name an image by other folders; lists of boxes may not
    for first, second in ((sized, bare), (bare, sized), (sized, moved)):
        (record,) = fuse_predictions({"a": [first], "b": [second]}, answers=AnswerSettings(scale=1000)).records
        assert (record["image"], record["width"], record["height"]) == ("a.jpg", 100, 200)
    fused = fuse_predictions({"a": [{**ROW, "score": 0.5}]})
    fused.write(tmp_path / "FUSED.JSON")
    assert json.loads((tmp_path / "FUSED.JSON").read_text()) == [*fused.records]
    named = {"a": [{**ROW, "score": 0.5, "file_name": "a.jpg"}], "b": [{**ROW, "score": 0.5, "file_name": "b.jpg"}]}
    with pytest.raises(InputError, match=r"image_id 1 is 'a\.jpg' and 'b\.jpg'; number images alike"):
        fuse_predictions(named)


def test_labels_that_differ_in_case_and_hyphens_alone_are_one_as_first_spelled():
    lists = {
        name: [answer(1, [(label, [100, 100, 500, 500], 0.5)])] for name, label in (("a", "T-shirt"), ("b", "t shirt"))
    }
    (record,) = fuse_predictions(lists, answers=AnswerSettings(scale=1000)).records
    assert [(item["label"], item["confidence"]) for item in json.loads(record["text"])] == [("T-shirt", 0.5)]


def test_the_file_that_is_kept_alone_is_the_one_that_is_named_and_the_first_size_counts():
    lists = {name: [{**ROW, "score": score}] for name, score in (("a", 0.9), ("b", 0.25), ("c", 0.5))}
    for name, (row,) in lists.items():
        found = fuse_predictions(lists, alone=name)
        assert [*found.records] == [row] and found.counts["rule"] == f"{name} alone"
    sizes = {"a": answer(1, [], width=100, height=200), "b": answer(1, [], width=10, height=20)}
    (record,) = fuse_predictions({name: [row] for name, row in sizes.items()}).records
    assert (record["width"], record["height"]) == (100, 200)
    half = {"a": [answer(1, [], width=100, height=200), answer(2, [])], "b": [answer(2, [])]}
    assert not any("width" in record for record in fuse_predictions(half).records)  # all or none


def test_of_the_boxes_of_one_object_the_first_in_the_answers_gives_the_place():
    """Not the one of the highest score: an answer that was sorted stays so."""
    found = [("cat", 0, 0.2), ("dog", 300, 0.5), ("cat", 5, 0.9), ("bird", 800, 0.1)]
    rows = [
        {**ROW, "category_id": {"cat": 1, "dog": 2, "bird": 3}[k], "bbox": [x, 0, 100, 100], "score": s}
        for k, x, s in found
    ]
    for method, first in (("nms", (5, 0.9)), ("wbf", (pytest.approx(4.0909, abs=1e-3), pytest.approx(0.55)))):
        records = fuse_predictions({"a": rows}, method=method).records
        assert [row["category_id"] for row in records] == [1, 2, 3]
        assert (records[0]["bbox"][0], records[0]["score"]) == first


def test_whole_boxes_are_written_as_fractions_below_1():
    """An answer whose numbers are all 0 or 1 would be read as thousandths or pixels."""
    (record,) = fuse_predictions(
        {"a": [answer(1, [("cat", [0, 0, 1000, 1000], 0.5)])]}, answers=AnswerSettings(scale=1000)
    ).records
    assert json.loads(record["text"])[0]["bbox_2d"] == [0.0, 0.0, 0.999999, 0.999999]
    truth = coco((1, 1, [0, 0, 100, 100]))
    assert score(truth, [record])["mean_iou"] == pytest.approx(1, abs=1e-5)
