"""The commands for LVIS and for referring expressions as a user runs them."""

import json

import pytest

from coord_codec import Instance, encode_target
from coord_eval import InputError, score_expression_files, score_lvis
from coord_eval.cli import main

LVIS = {
    "images": [
        {"id": 1, "width": 100, "height": 100, "neg_category_ids": [2], "not_exhaustive_category_ids": []},
    ],
    "categories": [
        {"id": 1, "name": "cat", "frequency": "f"},
        {"id": 2, "name": "dog", "frequency": "r"},
    ],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20]}],
}
CAT, DOG = ("cat", [0.1, 0.1, 0.3, 0.3]), ("dog", [0.5, 0.5, 0.9, 0.9])


def said(*objects):
    instance = Instance(image="x.jpg", objects=[{"desc": desc, "bbox": box} for desc, box in objects])
    return encode_target(instance, markers="obj", order="given")


@pytest.fixture
def lvis_files(tmp_path):
    (tmp_path / "lvis.json").write_text(json.dumps(LVIS))
    record = {"image_id": 1, "text": said(CAT, DOG, ("unicorn", DOG[1])), "finish_reason": "stop"}
    (tmp_path / "p.jsonl").write_text(json.dumps(record) + "\n")
    return ["lvis", "--ground-truth", str(tmp_path / "lvis.json"), "--predictions", str(tmp_path / "p.jsonl")]


def test_lvis_of_answers_in_words(lvis_files, tmp_path, capsys):
    assert main([*lvis_files, "--out", str(tmp_path / "a" / "b"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads((tmp_path / "a" / "b" / "lvis.json").read_text())
    assert data["summary"]["AP"] == pytest.approx(1.0)
    assert (data["detections"], data["unknown"], data["score_source"]) == (3, 1, "constant")
    assert main(lvis_files) == 0
    printed = capsys.readouterr().out
    assert "AR@300   1.000" in printed
    assert "APr        n/a" in printed
    assert "1 boxes with a label that LVIS doesn't have, left out" in printed
    assert "ranked by constant" in printed


def test_lvis_of_results_equals_lvis_of_answers(lvis_files, tmp_path):
    box = {"image_id": 1, "score": 1.0}
    results = [
        {**box, "category_id": 1, "bbox": [10, 10, 20, 20]},
        {**box, "category_id": 2, "bbox": [50, 50, 40, 40]},
    ]
    words = score_lvis(tmp_path / "lvis.json", tmp_path / "p.jsonl")
    assert score_lvis(LVIS, results).summary == pytest.approx(words.summary)


def test_lvis_of_another_file_exits_2(lvis_files, tmp_path, capsys):
    data = {**LVIS, "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "lvis.json").write_text(json.dumps(data))
    assert main(lvis_files) == 2
    error = capsys.readouterr().err
    assert "expected r, c or f" in error or "category_id" in error
    assert "Traceback" not in error


def phrase(image, desc, box, **more):
    return {"image": image, "width": 200, "height": 100, "objects": [{"desc": desc, "bbox": box}], **more}


LEFT, RIGHT = [0.1, 0.1, 0.4, 0.5], [0.6, 0.1, 0.9, 0.5]


@pytest.fixture
def phrases(tmp_path):
    """Two phrases about one picture and one about another; the second answer is wrong, the third empty."""
    rows = [
        phrase("a.jpg", "left cup", LEFT, image_id=7),
        phrase("a.jpg", "right cup", RIGHT, image_id=7),
        phrase("b.jpg", "the dog", RIGHT, image_id=8),
    ]
    answers = [
        {"image_id": 7, "text": said(("left cup", LEFT), ("right cup", RIGHT))},
        {"image_id": 7, "text": said(("right cup", LEFT))},
        {"image_id": 8, "text": ""},
    ]
    for name, lines in (("truth.jsonl", rows), ("p.jsonl", answers)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return rows, answers


def command(tmp_path, *more):
    files = ["--ground-truth", str(tmp_path / "truth.jsonl"), "--predictions", str(tmp_path / "p.jsonl")]
    return main(["expressions", *files, *more])


def test_expressions(phrases, tmp_path, capsys):
    assert command(tmp_path, "--iou", "0.5", "0.9", "--json", "--out", str(tmp_path / "o")) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads((tmp_path / "o" / "expressions.json").read_text())
    assert data["accuracy"] == pytest.approx({"0.5": 1 / 3, "0.9": 1 / 3})
    assert (data["phrases"], data["without_box"], data["several_boxes"]) == (3, 1, 1)
    assert command(tmp_path) == 0
    assert "Acc@0.5   0.3333" in capsys.readouterr().out


def test_expressions_in_pixels(phrases, tmp_path):
    """Plain numbers of the picture's size; left unnamed, the scale is assumed and said."""
    rows, _ = phrases
    x1, y1, x2, y2 = (side * length for side, length in zip(LEFT, [200, 100] * 2, strict=True))
    text = f'[{{"bbox_2d": [{x1}, {y1}, {x2}, {y2}], "label": "left cup"}}]'
    answers = [{"image": "photos/a.jpg", "text": text}]
    truth = [Instance.model_validate(rows[0])]
    for scale in ("pixels", "infer"):
        assert score_expression_files(truth, answers, scale=scale).mean_iou == pytest.approx(1.0)
    assumed = score_expression_files(truth, answers)
    assert assumed.accuracy["0.5"] == 0.0
    assert any("assumed" in note for note in assumed.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows, answers: answers.pop(), "3 phrases and 2 answers"),
        (
            lambda rows, answers: answers.reverse(),
            r"line 1: about 8, where the phrase in its place is about 7",
        ),
        (lambda rows, answers: answers[0].update(image="c.jpg"), r"about 'c.jpg', .* about 'a.jpg'"),
        (
            lambda rows, answers: rows[2]["objects"].clear(),
            r"phrase 3 \(b.jpg\): expected one object, found 0",
        ),
        (lambda rows, answers: answers[1].pop("text"), "line 2, text"),
    ],
)
def test_files_that_do_not_fit(phrases, tmp_path, change, message, capsys):
    rows, answers = phrases
    change(rows, answers)
    for name, lines in (("truth.jsonl", rows), ("p.jsonl", answers)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=message):
        score_expression_files(tmp_path / "truth.jsonl", tmp_path / "p.jsonl")
    assert command(tmp_path) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_results_are_no_answers_to_phrases(phrases, tmp_path):
    with pytest.raises(InputError, match="expected answers in words"):
        score_expression_files(
            tmp_path / "truth.jsonl",
            [{"image_id": 7, "category_id": 1, "bbox": [1, 1, 2, 2], "score": 1}] * 3,
        )


@pytest.mark.parametrize("name", ["lvis", "expressions"])
def test_help_has_examples_and_bad_usage_exits_2(name, capsys):
    for words, code in (([name, "--help"], 0), ([name], 2), ([name, "--scale", "-1"], 2)):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == code
    assert f"  coord-eval {name} --ground-truth" in capsys.readouterr().out


def test_a_threshold_outside_its_range_exits_2(phrases, tmp_path):
    with pytest.raises(SystemExit) as left:
        command(tmp_path, "--iou", "50")
    assert left.value.code == 2
