"""Decisions are applied exactly, to a new file of the same format, with a list of changes; faulty ones are refused."""

import json

import pytest
from coco_builder import coco

from coord_eval import InputError
from coord_eval.cli.main import main
from coord_eval.review import apply_decisions, review, write_review_exports

CAT = {"id": 3, "image_id": 1, "category_id": 1, "bbox": [10, 10, 40, 30], "area": 1000.0, "iscrowd": 0}
SEGMENTED = {"segmentation": [[10, 10, 50, 10, 50, 40]], "score": 0.5}


@pytest.fixture
def files(tmp_path):
    """COCO annotations of one image with three labels, and the same as instance lines."""
    rows = [
        CAT | SEGMENTED,
        CAT | {"id": 5, "category_id": 2, "bbox": [60, 10, 30, 30]},
        CAT | {"id": 6, "bbox": [5, 60, 20, 20]},
    ]
    document = coco(names=("cat", "dog"), images={1: "a.png", 2: "b.png"}) | {
        "info": {"year": 2026},
        "annotations": rows,
    }
    document["images"][0]["licence"] = "x"
    (tmp_path / "coco.json").write_text(json.dumps(document))
    objects = [
        {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.4], "note": "kept"},
        {"desc": "dog", "bbox": [0.6, 0.1, 0.9, 0.4]},
        {"desc": "cat", "bbox": [0.05, 0.6, 0.25, 0.8]},
    ]
    line = {"image": "a.png", "image_id": 1, "width": 100, "height": 100, "objects": objects, "source": "me"}
    untouched = '{"image":"b.png", "image_id":2,"width":100,"height":100,"objects":[]}'
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps(line) + "\n" + untouched + "\n")
    return {"coco": tmp_path / "coco.json", "lines": lines}


def decided(path, tmp_path, *choices, name="decisions.json"):
    """A file of decisions `(object, choice, proposal)`, as the page saves it."""
    found = review(path, [])
    kinds = {"name": "renamed", "answer": "mixed", "delete": "spurious"}
    rows = []
    for place, choice, proposal in choices:
        kind = "missing" if place is None else kinds.get(choice, "moved")
        said = None if proposal is None else {"desc": proposal[0], "bbox_xyxy": proposal[1], "score": 0.9}
        row = {"image_id": 1, "object": place, "answer": None, "kind": kind, "probability": 0.75, "proposal": said}
        rows.append(row | {"decision": choice})
    file = tmp_path / name
    ids = {"version": 1, "review": found.digest, "ground_truth": found.rests_on["ground_truth"]}
    file.write_text(json.dumps(ids | {"decisions": rows}))
    return file


CHOICES = (
    (0, "answer", ("dog", [12, 8, 56, 40])),
    (1, "keep", None),
    (2, "delete", None),
    (None, "add", ("cat", [70, 70, 120, 95])),
)


def test_decisions_change_coco_annotations_exactly(files, tmp_path):
    before = files["coco"].read_bytes()
    out = tmp_path / "new.json"
    correction = apply_decisions(decided(files["coco"], tmp_path, *CHOICES), files["coco"], out)
    assert files["coco"].read_bytes() == before
    old, new = json.loads(before), json.loads(out.read_text())
    assert {k: v for k, v in new.items() if k != "annotations"} == {k: v for k, v in old.items() if k != "annotations"}
    first, second, added = new["annotations"]
    assert first == CAT | {"category_id": 2, "bbox": [12, 8, 44, 32], "area": 1408, "score": 0.5}
    assert second == old["annotations"][1]
    assert added == {
        "id": 7, "image_id": 1, "category_id": 1, "bbox": [70, 70, 30, 25], "area": 750, "iscrowd": 0
    }  # fmt: skip
    changes = json.loads(correction.list.read_text())["changes"]
    assert [c["decision"] for c in changes] == ["answer", "delete", "add"]
    assert changes[0]["dropped_fields"] == ["segmentation"]
    assert changes[1]["before"]["id"] == 6 and changes[1]["after"] is None
    assert all("0.750" in c["why"] for c in changes)


def test_decisions_change_instance_lines_exactly(files, tmp_path):
    out = tmp_path / "new.jsonl"
    apply_decisions(decided(files["lines"], tmp_path, *CHOICES), files["lines"], out)
    first, second = out.read_text().splitlines()
    assert second == files["lines"].read_text().splitlines()[1]
    record = json.loads(first)
    assert record["source"] == "me"
    assert record["objects"] == [
        {"desc": "dog", "bbox": [0.12, 0.08, 0.56, 0.4], "note": "kept"},
        {"desc": "dog", "bbox": [0.6, 0.1, 0.9, 0.4]},
        {"desc": "cat", "bbox": [0.7, 0.7, 1.0, 0.95]},
    ]


BOX_FIELDS = {
    "segmentation": [[10, 10, 50, 10, 50, 40]],
    "keypoints": [1, 2, 2],
    "num_keypoints": 1,
    "rotated_box": [1, 2, 3, 4, 5],
    "rotation": 0.25,
}


@pytest.mark.parametrize("choice", ["keep", "later", "box", "name", "answer", "delete"])
def test_each_choice_changes_only_what_it_says_and_tells_it(files, tmp_path, choice):
    """What is about the old box goes with it, everything else stays; the boxes of answers are cut at the image."""
    document = json.loads(files["coco"].read_text())
    document["annotations"][0] |= BOX_FIELDS
    files["coco"].write_text(json.dumps(document))
    old, is_box, is_name = document["annotations"][0], choice in ("box", "answer"), choice in ("name", "answer")
    decisions = decided(files["coco"], tmp_path, (0, choice, ("dog", [-2, 8, 56, 140])))
    correction = apply_decisions(decisions, files["coco"], tmp_path / "out.json")
    new = json.loads((tmp_path / "out.json").read_text())["annotations"]
    assert new[-2:] == document["annotations"][1:] and len(new) == 3 - (choice == "delete")
    expected = {k: v for k, v in old.items() if not (is_box and k in BOX_FIELDS)}
    expected |= {"category_id": 2} if is_name else {}
    expected |= {"bbox": [0, 8, 56, 92], "area": 56 * 92} if is_box else {}
    assert choice == "delete" or new[0] == expected
    listed = json.loads(correction.list.read_text())
    assert (correction.file, correction.list) == (tmp_path / "out.json", tmp_path / "out.json.changes.json")
    assert listed["ground_truth"] == {"file": "coco.json", "digest": review(files["coco"], []).rests_on["ground_truth"]}
    is_changed = choice not in ("keep", "later")
    assert correction.counts == {choice: 1, "changed": int(is_changed)} and listed["counts"] == {choice: 1}
    assert listed["review"] == json.loads(decisions.read_text())["review"] and len(listed["changes"]) == is_changed
    if is_changed:
        (change,) = listed["changes"]
        kind = {"name": "renamed", "answer": "mixed", "delete": "spurious"}.get(choice, "moved")
        after = {"id": 3, "desc": "dog" if is_name else "cat", "bbox": expected["bbox"]}
        assert change.pop("why") == f"{kind}, probability 0.750, decided by a person: {choice}"
        assert change == {
            "image_id": 1, "image": "a.png", "object": 0, "decision": choice, "kind": kind, "probability": 0.75,
            "before": {"id": 3, "desc": "cat", "bbox": [10, 10, 40, 30]},
            "after": None if choice == "delete" else after,
        } | ({"dropped_fields": [*BOX_FIELDS]} if is_box else {})  # fmt: skip


def named(desc, low, high, **more):
    """An object between two corners on the diagonal."""
    return {"desc": desc, "bbox": [low, low, high, high], **more}


CROWD = {"desc": "cow", "bbox": [0, 0, 0.5, 0.5], "area": 1250.0, "iscrowd": 1}
INSTANCES = [
    {"image": "c.png", "image_id": 7, "width": 100, "height": 50, "objects": [CROWD, named("cat", 0.5, 1, area=999.0)]},
    {"image": "a.png", "image_id": 3, "width": 200, "height": 100, "objects": [named("dog", 0, 0.5)]},
    {"image": "b.png", "image_id": 5, "width": 100, "height": 100, "objects": []},
]
"""Images in another order than that of their ids, one of them without an object, and a crowd region before a label."""
DOG_IN_B, CAT_IN_C = (2, None, "add", ("dog", [10, 10, 50, 50])), (0, None, "add", ("cat", [10, 5, 50, 25]))


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("is_list", [True, False])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([(0, 1, "box", ("dog", [10, 5, 60, 30]))], {0: (1, named("cat", 0.1, 0.6))}),
        ([(0, 1, "name", ("dog", [0, 0, 1, 1]))], {0: (1, named("dog", 0.5, 1, area=999.0))}),
        ([(1, 0, "answer", ("cat", [20, 10, 60, 30]))], {1: (0, named("cat", 0.1, 0.3))}),
        ([(1, 0, "delete", None)], {1: (0, None)}),
        ([DOG_IN_B], {2: (0, named("dog", 0.1, 0.5))}),
        ([DOG_IN_B, CAT_IN_C, (1, 0, "keep", None)], {0: (2, named("cat", 0.1, 0.5)), 2: (0, named("dog", 0.1, 0.5))}),
    ],
)
def test_instances_are_changed_where_they_stand_whatever_their_order(tmp_path, has_ids, is_list, changes, expected):
    records = [{k: v for k, v in row.items() if has_ids or k != "image_id"} for row in INSTANCES]
    file, out = tmp_path / f"truth.{'json' if is_list else 'jsonl'}", tmp_path / "new.txt"
    lines = [f"  {json.dumps(row)}  " for row in records]  # spaces that no decision touches stay
    file.write_text(json.dumps(records) if is_list else "".join(f"{line}\n" for line in lines))
    found, rows = review(file, []), []
    for image, place, choice, proposal in changes:
        kind = "missing" if place is None else {"box": "moved", "name": "renamed"}.get(choice, "mixed")
        said = proposal and {"desc": proposal[0], "bbox_xyxy": proposal[1]}
        key = INSTANCES[image]["image_id"] if has_ids else image
        label = None if place is None else INSTANCES[image]["objects"][place]["desc"]
        row = {"image_id": key, "object": place, "decision": choice, "kind": kind, "probability": 0.5, "proposal": said}
        rows.append(row | {"label": label and {"desc": label, "bbox_xyxy": [0, 0, 1, 1]}})
    ids = {"version": 1, "review": found.digest, "ground_truth": found.rests_on["ground_truth"]}
    (tmp_path / "decisions.json").write_text(json.dumps(ids | {"decisions": rows}))
    apply_decisions(tmp_path / "decisions.json", file, out)
    written = json.loads(out.read_text()) if is_list else [json.loads(line) for line in out.read_text().splitlines()]
    for n, record in enumerate(records):
        objects = [dict(item) for item in record["objects"]]
        if n in expected:
            place, value = expected[n]
            objects[place : place + 1] = [] if value is None else [value]
        assert written[n] == {**record, "objects": objects}
        assert is_list or n in expected or out.read_text().splitlines()[n] == lines[n]


@pytest.mark.parametrize(("ids", "free"), [([3, 20, 6], 21), (["a", 4, "b"], 5), (["a", "b", "c"], 1)])
def test_added_labels_get_numbers_that_are_free_in_the_order_of_the_images(files, tmp_path, ids, free):
    document = json.loads(files["coco"].read_text())
    for row, number in zip(document["annotations"], ids, strict=True):
        row["id"] = number
    files["coco"].write_text(json.dumps(document))
    added = [(2, ("dog", [1, 2, 30, 40])), (1, ("cat", [5, 6, 10, 20])), (1, ("dog", [5, 6, 10, 20]))]
    file = decided(files["coco"], tmp_path, *((None, "add", proposal) for _, proposal in added))
    decisions = json.loads(file.read_text())
    for row, (image, _) in zip(decisions["decisions"], added, strict=True):
        row["image_id"] = image
    file.write_text(json.dumps(decisions))
    apply_decisions(file, files["coco"], tmp_path / "out.json")
    new = json.loads((tmp_path / "out.json").read_text())["annotations"][3:]
    assert [(row["id"], row["image_id"], row["category_id"], row["bbox"], row["area"]) for row in new] == [
        (free, 1, 1, [5, 6, 5, 14], 70), (free + 1, 1, 2, [5, 6, 5, 14], 70), (free + 2, 2, 2, [1, 2, 29, 38], 29 * 38)
    ]  # fmt: skip


MISSING, OF_LABELS = {"object": None, "kind": "missing"}, ("box", "name", "answer", "delete")


@pytest.mark.parametrize(
    ("choice", "change", "message"),
    [
        ("box", {"proposal": {"desc": "dog", "bbox_xyxy": [100, 5, 120, 9]}}, "lies outside image 1"),
        ("box", {"proposal": {"desc": "dog", "bbox_xyxy": [5, 5, 9, 5]}}, "x1 < x2 and y1 < y2"),
        ("name", {"label": {"desc": "dog", "bbox_xyxy": [0, 0, 1, 1]}}, "expected 'dog' as object 0 .*, found 'cat'"),
        ("name", {"object": 3}, "found no such label"),
        ("name", {"image_id": 9}, r"decisions\[0\]: image_id: 9 is not in the ground truth"),
        ("name", {"object": None}, "expected null for a missing label and an index for others"),
        ("name", {"kind": "missing"}, "expected null for a missing label and an index for others"),
        ("name", {"kind": "odd"}, "kind: expected one of renamed"),
        ("add", {}, "'add' cannot be done to this label, which is object 0"),
        *((choice, MISSING, f"'{choice}' cannot be done to this label, which is missing") for choice in OF_LABELS),
    ],
)
def test_decisions_that_fit_no_label_are_refused(files, tmp_path, choice, change, message):
    file = decided(files["coco"], tmp_path, (0, choice, ("dog", [12, 8, 56, 40])))
    decisions = json.loads(file.read_text())
    decisions["decisions"][0] |= change
    file.write_text(json.dumps(decisions))
    with pytest.raises(InputError, match=message):
        apply_decisions(file, files["coco"], tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=9), "version"),
        (lambda d: d.update(ground_truth="0" * 64), "other annotations"),
        (lambda d: d["decisions"][0].update(decision="eat"), "decision"),
        (lambda d: d["decisions"][0].update(object=7), "no such label"),
        (lambda d: d["decisions"][0].update(proposal=None), "proposal"),
        (lambda d: d["decisions"][0]["proposal"].update(desc="zebra"), "'zebra' is no category"),
        (lambda d: d["decisions"][0]["proposal"].update(bbox_xyxy=[5, 5, 5, 9]), "x1 < x2"),
        (lambda d: d["decisions"].append(d["decisions"][0]), "keep one"),
    ],
)
def test_faulty_decisions_exit_2_in_one_line_and_write_nothing(files, tmp_path, capsys, change, message):
    file = decided(files["coco"], tmp_path, *CHOICES)
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    out = str(tmp_path / "new" / "n.json")
    assert main(["review", "apply", str(file), "--ground-truth", str(files["coco"]), "--out", out]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
    assert not list(tmp_path.glob("n.json*"))


def test_nothing_is_written_over_a_file(files, tmp_path):
    file = decided(files["coco"], tmp_path, *CHOICES)
    with pytest.raises(InputError, match="exists"):
        apply_decisions(file, files["coco"], files["coco"])
    (tmp_path / "new.json.changes.json").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        apply_decisions(file, files["coco"], tmp_path / "new.json")


def test_command_writes_lines_facts_and_page(spoilt, said, tmp_path, capsys):
    truth, predictions = tmp_path / "g.json", tmp_path / "p.json"
    truth.write_text(json.dumps(spoilt[0]))
    predictions.write_text(json.dumps(said))
    out = tmp_path / "out"
    words = ["review", "--ground-truth", str(truth), "--predictions", str(predictions), "--out", str(out)]
    assert main([*words, "--count", "5"]) == 0
    assert "labels judged" in capsys.readouterr().out
    lines = [json.loads(line) for line in (out / "review.jsonl").read_text().splitlines()]
    found = review(truth, predictions)
    assert [line["probability"] for line in lines] == [f.probability for f in found.findings]
    needed = {"image", "image_id", "object", "answer", "kind", "probability", "label", "proposal"}
    assert needed <= lines[0].keys() and needed <= found.to_line(found.findings[0]).keys()
    renamed = next(line for line in lines if line["kind"] == "renamed")
    pixels = [v * side for v, side in zip(renamed["proposal"]["bbox"], (600, 400, 600, 400), strict=True)]
    assert pixels == pytest.approx(renamed["proposal"]["bbox_xyxy"])
    facts = json.loads((out / "review.json").read_text())
    assert facts["review"] == found.digest and len(facts["judged"]) == len(spoilt[0]["annotations"])
    assert (out / "review.html").read_text().count('class="case"') == 5
    assert main(["review", "--out", str(out)]) == 2
    assert "--ground-truth is missing" in capsys.readouterr().err


SHAPES = [
    {"type": "polygon", "coordinates": [0.1, 0.1, 0.5, 0.1, 0.5, 0.4]},
    {"type": "oriented", "coordinates": [0.6, 0.1, 0.9, 0.2, 0.85, 0.4, 0.55, 0.3]},
    {"type": "point", "coordinates": [0.2, 0.7]},
]


@pytest.mark.parametrize("shape", SHAPES, ids=[shape["type"] for shape in SHAPES])
def test_shapes_are_renamed_and_deleted_but_never_replaced_by_boxes(tmp_path, shape):
    objects = [{"desc": "cat", "geometry": shape}, {"desc": "dog", "geometry": SHAPES[0]}]
    file = tmp_path / "shapes.jsonl"
    line = {"image": "a.png", "image_id": 1, "width": 100, "height": 100, "objects": objects}
    file.write_text(json.dumps(line) + "\n")
    proposal = ("cow", [12, 8, 56, 40])
    apply_decisions(decided(file, tmp_path, (0, "name", proposal), (1, "delete", None)), file, tmp_path / "new.jsonl")
    (kept,) = json.loads((tmp_path / "new.jsonl").read_text())["objects"]
    assert kept["desc"] == "cow" and kept["geometry"]["type"] == shape["type"]
    assert kept["geometry"]["coordinates"] == pytest.approx(shape["coordinates"])
    for choice in ((0, "box", proposal), (0, "answer", proposal), (None, "add", proposal)):
        with pytest.raises(InputError, match=r"drawn as .*only a box"):
            apply_decisions(decided(file, tmp_path, choice), file, tmp_path / "other.jsonl")
    found = review(file, [])
    assert any("judged by their bounding boxes" in note for note in found.notes)
    with pytest.raises(InputError, match="drawn as"):
        write_review_exports(found, tmp_path, ["coco"])
    assert not list(tmp_path.glob("*other*")) and not (tmp_path / "coco.json").exists()
