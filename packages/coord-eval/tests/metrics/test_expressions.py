"""Referring expressions: accuracy, and intervals that resample images with all their phrases."""

import json
import random

import numpy as np
import pytest

from coord_codec import Instance, Object
from coord_eval import AnswerSettings, InputError, parse_answer, score_expression_files, score_expressions
from coord_eval.cli.main import main

THOUSANDTHS = AnswerSettings(scale=1000)


def answers_and_images(phrases=40):
    generator = np.random.default_rng(5)
    right = generator.integers(0, 1001, phrases)
    texts = [f"<|box_start|>(0,0),({x},1000)<|box_end|>" for x in right]
    images = [f"{place}.jpg" for place in generator.integers(0, 9, phrases)]
    return [(0, 0, 1, 1)] * phrases, texts, images, right / 1000


def test_score_expressions_intervals_equal_those_of_copied_images():
    boxes, texts, images, iou = answers_and_images()
    found = score_expressions(boxes, map(parse_answer, texts), (0.5, 0.75), images=images, resamples=200, seed=3)
    names = list(dict.fromkeys(images))
    draws = np.random.default_rng(3).multinomial(len(names), [1 / len(names)] * len(names), 200)
    means = {"Acc@0.5": [], "Acc@0.75": [], "mean_iou": []}
    for counts in draws:
        copied = [
            value
            for name, count in zip(names, counts, strict=True)
            for _ in range(count)
            for value, image in zip(iou, images, strict=True)
            if image == name
        ]
        means["Acc@0.5"].append(np.mean([value >= 0.5 for value in copied]))
        means["Acc@0.75"].append(np.mean([value >= 0.75 for value in copied]))
        means["mean_iou"].append(np.mean(copied))
    assert found.intervals.keys() == {*means, "point_in_box"}
    for name, drawn in means.items():
        low, high = np.percentile(drawn, [2.5, 97.5]) - np.mean(drawn) + found.intervals[name]["value"]
        assert found.intervals[name]["low"] == pytest.approx(low, abs=1e-12)
        assert found.intervals[name]["high"] == pytest.approx(high, abs=1e-12)
    assert found.intervals["Acc@0.5"]["value"] == found.accuracy["0.5"]
    assert found.intervals["Acc@0.5"]["low"] < found.accuracy["0.5"] < found.intervals["Acc@0.5"]["high"]


@pytest.mark.slow
def test_score_expressions_resamples_images_and_not_phrases():
    boxes, texts, _, _ = answers_and_images()
    one_image = score_expressions(boxes, map(parse_answer, texts), images=["a"] * len(boxes))
    only = one_image.intervals["Acc@0.5"]
    assert only["low"] == pytest.approx(only["high"])
    assert score_expressions(boxes, map(parse_answer, texts), resamples=0).intervals == {}
    assert score_expressions([], []).intervals == {}
    several = np.arange(len(boxes)) % 9
    assert score_expressions(boxes, map(parse_answer, texts), images=several) == score_expressions(
        boxes, map(parse_answer, texts), images=several.tolist()
    )
    with pytest.raises(InputError, match="40 boxes and 1 image"):
        score_expressions(boxes, map(parse_answer, texts), images=["a"])


def test_score_expressions():
    half = "<|box_start|>(0,0),(500,1000)<|box_end|>"
    texts = ["<|box_start|>(0,0),(1000,1000)<|box_end|>", half + half, "I see no such thing."]
    boxes = [(0, 0, 1, 1), (0, 0, 1, 1), (0, 0, 1, 1)]
    found = score_expressions(boxes, map(parse_answer, texts), thresholds=(0.5, 0.75))
    assert found.accuracy == pytest.approx({"0.5": 2 / 3, "0.75": 1 / 3})
    assert found.mean_iou == pytest.approx(0.5)
    assert (found.phrases, found.without_box, found.several_boxes) == (3, 1, 1)
    assert score_expressions([], []).accuracy == {"0.5": 0.0}
    with pytest.raises(InputError, match="3 boxes and 0 answers"):
        score_expressions(boxes, [])


def phrase(image, desc, box, **more):
    return {"image": image, "width": 200, "height": 100, "objects": [{"desc": desc, "bbox": box}], **more}


def write(folder, rows, answers):
    for name, lines in (("truth.jsonl", rows), ("p.jsonl", answers)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


LEFT, RIGHT = [0.1, 0.1, 0.4, 0.5], [0.6, 0.1, 0.9, 0.5]


@pytest.fixture
def phrases(tmp_path, answer):
    """Two phrases about one image and one about another; the second answer is wrong, the third empty."""
    rows = [
        phrase("a.jpg", "left cup", LEFT, image_id=7),
        phrase("a.jpg", "right cup", RIGHT, image_id=7),
        phrase("b.jpg", "the dog", RIGHT, image_id=8),
    ]
    answers = [
        answer(7, ("left cup", LEFT), ("right cup", RIGHT)),
        answer(7, ("right cup", LEFT)),
        {"image_id": 8, "text": ""},
    ]
    write(tmp_path, rows, answers)
    return rows, answers


def command(tmp_path, *more):
    files = ["--ground-truth", str(tmp_path / "truth.jsonl"), "--predictions", str(tmp_path / "p.jsonl")]
    return main(["expressions", *files, *more])


@pytest.mark.parametrize("first", [("--iou", "0.5"), ("--iou=0.5",)])
def test_expressions_writes_and_prints(phrases, tmp_path, capsys, first):
    assert command(tmp_path, *first, "0.9", "--json", "--out", str(tmp_path / "o")) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads((tmp_path / "o" / "expressions.json").read_text())
    assert data["accuracy"] == pytest.approx({"0.5": 1 / 3, "0.9": 1 / 3})
    assert (data["phrases"], data["without_box"], data["several_boxes"]) == (3, 1, 1)
    assert command(tmp_path) == 0
    assert "Acc@0.5   0.3333" in capsys.readouterr().out


def test_score_expression_files_in_pixels(phrases, tmp_path):
    """Plain numbers of the image's size; left unnamed, the scale is assumed and noted."""
    rows, _ = phrases
    x1, y1, x2, y2 = (side * length for side, length in zip(LEFT, [200, 100] * 2, strict=True))
    text = f'[{{"bbox_2d": [{x1}, {y1}, {x2}, {y2}], "label": "left cup"}}]'
    answers = [{"image": "photos/a.jpg", "text": text}]
    truth = [Instance.model_validate(rows[0])]
    for scale in ("pixels", "infer"):
        assert score_expression_files(truth, answers, answers=AnswerSettings(scale=scale)).mean_iou == pytest.approx(
            1.0
        )
    assumed = score_expression_files(truth, answers)
    assert assumed.accuracy["0.5"] == 0.0
    assert any("assumed" in note for note in assumed.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows, answers: answers.pop(), "3 phrases and 2 answers"),
        (lambda rows, answers: answers.reverse(), r"line 1: about 8, but the phrase at this position is about 7"),
        (lambda rows, answers: answers[0].update(image="c.jpg"), r"about 'c.jpg', .* about 'a.jpg'"),
        (
            lambda rows, answers: rows[2]["objects"].append({"desc": "a cat", "bbox": LEFT}),
            r"phrase 3 \(b.jpg\): expected one phrase .* found 'the dog', 'a cat'",
        ),
        (lambda rows, answers: answers[1].pop("text"), "line 2: text"),
    ],
)
def test_score_expression_files_refuses_files_that_do_not_fit(phrases, tmp_path, change, message, capsys):
    rows, answers = phrases
    change(rows, answers)
    write(tmp_path, rows, answers)
    with pytest.raises(InputError, match=message):
        score_expression_files(tmp_path / "truth.jsonl", tmp_path / "p.jsonl")
    assert command(tmp_path) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_score_expression_files_refuses_a_results_list(phrases, tmp_path):
    with pytest.raises(InputError, match="expected answers as text"):
        score_expression_files(
            tmp_path / "truth.jsonl", [{"image_id": 7, "category_id": 1, "bbox": [1, 1, 2, 2], "score": 1}] * 3
        )


def test_expressions_threshold_out_of_range_exits_2(phrases, tmp_path):
    assert command(tmp_path, "--iou", "50") == 2


def test_files_pass_on_which_box_counts_the_images_and_the_thresholds():
    """Four phrases of one image, so that no resample differs; ids are compared as text."""
    lines = [Instance(image="a.jpg", image_id=7, objects=[Object(desc=f"cup {n}", bbox=LEFT)]) for n in range(4)]
    wrong, right = {"bbox_2d": [0, 0, 90, 90], "score": 0.5}, {"bbox_2d": [100, 100, 400, 500]}
    boxes = [[wrong, {**right, "score": score}] for score in (0.1, 0.9)]
    records = [{"image_id": "7", "text": json.dumps(own)} for own in (*boxes, *boxes)]
    for which, value in (("first", 0), ("best", 1), ("score", 0.5)):
        found = score_expression_files(lines, records, (0.5, 0.9), answers=THOUSANDTHS, which=which)
        assert (found.which, found.accuracy, found.several_boxes) == (which, {"0.5": value, "0.9": value}, 4)
        assert found.intervals["mean_iou"] == pytest.approx({"value": value, "low": value, "high": value})


def test_a_box_without_a_score_is_the_last_by_score():
    boxes = [([0, 0, 90, 90], None), ([100, 100, 300, 300], 0.0)]
    text = json.dumps([{"bbox_2d": box} | ({} if score is None else {"score": score}) for box, score in boxes])
    found = score_expressions([(0.1, 0.1, 0.3, 0.3)], [parse_answer(text, scale=1000)], which="score", resamples=0)
    assert found.mean_iou == 1


def test_expression_answers_in_another_order_are_joined_by_the_phrase_that_they_name():
    phrases = {"left cup": [0.1, 0.1, 0.3, 0.3], "right cup": [0.6, 0.6, 0.9, 0.9]}
    lines = [
        Instance(image="a.jpg", width=100, height=100, objects=[{"desc": name, "bbox": box}])
        for name, box in phrases.items()
    ]
    records = [
        {"image": "a.jpg", "text": json.dumps([{"bbox_2d": [round(1000 * v) for v in box], "label": name}])}
        for name, box in phrases.items()
    ]
    moved = score_expression_files(lines, records[::-1], answers=THOUSANDTHS)
    assert moved.accuracy == {"0.5": 1.0}
    assert moved.notes[0].startswith("2 answers stood in another order")
    given = score_expression_files(lines, records, answers=THOUSANDTHS)
    assert (given.accuracy, given.notes) == ({"0.5": 1.0}, ())


def test_expression_points_count_if_they_lie_in_the_box():
    """ScreenSpot's measure: a point has no IoU worth the name, and is right inside the box."""
    texts = ['[{"point_2d": [200, 200], "label": "cup"}]', '[{"point_2d": [900, 900], "label": "cup"}]']
    scores = score_expressions([(0.1, 0.1, 0.3, 0.3)] * 2, [parse_answer(text, scale=1000) for text in texts])
    assert (scores.point_in_box, scores.accuracy) == (0.5, {"0.5": 0.0})
    assert scores.intervals["point_in_box"]["value"] == 0.5


def test_phrases_with_no_and_several_targets_are_scored_as_in_grefcoco(tmp_path, answer):
    """Two of four phrases without a target are right, one of three with two targets, one of one with one."""
    pair = {"objects": [{"desc": "cups", "bbox": LEFT}, {"desc": "cups", "bbox": RIGHT}]}
    rows = [phrase("a.jpg", "the dog", LEFT, image_id=7)]
    rows += [{**phrase("a.jpg", "", LEFT, image_id=7), "objects": []}] * 4
    rows += [{**phrase("b.jpg", "", LEFT, image_id=8), **pair}] * 3
    left, right = ("cups", LEFT), ("cups", RIGHT)
    broken = {"image_id": 7, "text": '[{"bbox_2d": [1, 2, 3], "label": "dog"}]'}
    answers = [answer(7, ("dog", LEFT))]
    answers += [{"image_id": 7, "text": "There is none."}, {"image_id": 7, "text": "[]"}, answer(7, left), broken]
    answers += [answer(8, right, left), answer(8, left), answer(8, left, left)]
    write(tmp_path, rows, answers)
    found = score_expression_files(tmp_path / "truth.jsonl", tmp_path / "p.jsonl")
    assert (found.no_target, found.several_targets, found.phrases) == (4, 3, 8)
    assert (found.n_acc, found.precision_f1) == (2 / 4, (1 + 2 + 1) / 8)
    assert (found.accuracy, found.without_box) == ({"0.5": 1.0}, 0)
    assert {"n_acc", "precision_f1"} <= found.intervals.keys() and found.several_boxes == 0
    assert command(tmp_path) == 0
    without = score_expressions([[], [LEFT, RIGHT], LEFT], [parse_answer("[]")] * 3, resamples=0)
    assert without.without_box == 2  # to a phrase without a target it is right
    # One box near both targets is that of one of them.
    near, both = [0, 0, 0.4, 0.45], json.dumps([{"bbox_2d": [0, 0, 400, 500]}, {"bbox_2d": [600, 600, 700, 700]}])
    one = score_expressions([[[0, 0, 0.4, 0.5], near]], [parse_answer(both, scale=1000)], resamples=0)
    assert (one.precision_f1, one.several_targets) == (0, 1)


def test_phrases_with_one_target_each_have_no_grefcoco_measures():
    found = score_expressions([LEFT, [RIGHT]], [parse_answer("[]")] * 2)
    assert (found.n_acc, found.precision_f1, found.without_box) == (None, None, 2)
    with pytest.raises(InputError, match="phrase 1: expected x1, y1, x2, y2"):
        score_expressions([[0.1, 0.2, 0.3]], [parse_answer("[]")])


@pytest.mark.parametrize("phrases", [24, 8, 7])
@pytest.mark.parametrize(
    ("write", "geometry", "factor", "count"),
    [
        (lambda box: f"click(x={box[0] ** 3 % 1009}, y={(box[1] + box[3]) / 2})", "point", "points as", 0),
        (lambda box: f"click(x={box[0] + box[2]}, y={box[1] + box[3]})", "point", "times 0.500", 2),
        (lambda box: f"click(x={(box[1] + box[3]) / 2}, y={(box[0] + box[2]) / 2})", "point", "y before x", 1),
        (lambda box: json.dumps([{"bbox_2d": [side / 2 for side in box], "label": "it"}]), "box", "times 2.000", 2),
        (lambda box: json.dumps({"bbox_2d": [box[k] for k in (1, 0, 3, 2)]}), "box", "as yxyx", 1),
    ],
)
def test_scale_of_answers_that_fit_nothing_is_named(write, geometry, factor, count, phrases):
    """Of eight answers or more; points whose x is anything fit in no way."""
    draw, count = random.Random(0), count if phrases >= 8 else 0
    number, phrases, answers = phrases, [], []
    for i in range(number):
        x, y = draw.randrange(20, 1300), draw.randrange(20, 800)
        box = [x, y, x + draw.randrange(40, 100), y + draw.randrange(20, 60)]
        sides = (1440, 900, 1440, 900)
        bbox = [value / side for value, side in zip(box, sides, strict=True)]
        phrases.append(Instance(image=f"{i}.png", width=1440, height=900, objects=[Object(desc="it", bbox=bbox)]))
        answers.append({"image": f"{i}.png", "text": write(box)})
    found = score_expression_files(phrases, answers, answers=AnswerSettings(scale="pixels", geometry=geometry))
    assert [note.count(factor) for note in found.notes if note.startswith("diagnosis")] == [count] * bool(count)


def test_what_is_dropped_of_answers_is_told_by_reason():
    phrases = [Instance(image="a.jpg", objects=[Object(desc="it", bbox=LEFT)])] * 2
    texts = ['[{"bbox_2d": [100, 100, 300, 300], "deleted": true}]', '[{"bbox_2d": [1, 2, 3]}]']
    found = score_expression_files(phrases, [{"image": "a.jpg", "text": text} for text in texts], answers=THOUSANDTHS)
    assert any("2 pieces" in note and "1 deleted" in note and "1 wrong_arity" in note for note in found.notes)


def test_which_of_several_boxes_counts():
    boxes = [([0, 0, 90, 90], None), ([100, 100, 300, 300], 0.2), ([5, 5, 9, 9], 0.9)]
    text = json.dumps([{"bbox_2d": box, "score": score} for box, score in boxes])
    answers = [parse_answer(text, scale=1000)]
    found = {
        w: score_expressions([(0.1, 0.1, 0.3, 0.3)], answers, which=w, resamples=0) for w in ("first", "best", "score")
    }
    assert {w: scores.mean_iou for w, scores in found.items()} == {"first": 0, "best": 1, "score": 0}
    assert {w: scores.point_in_box for w, scores in found.items()} == {"first": 0, "best": 1, "score": 0}
    with pytest.raises(InputError, match="which"):
        score_expressions([(0.1, 0.1, 0.3, 0.3)], answers, which="last")


@pytest.mark.parametrize(
    "text",
    [
        "There is a cup at [100, 100, 300, 300] and another one at [500, 500, 600, 600].",
        "It is at [100, 100, 300, 300]; not at [1, 1, 2, 2]",
        '{"what": "cup", "where": [100, 100, 300, 300]}',
    ],
)
def test_labels_of_answers_to_expressions_do_not_count(text):
    phrase = Instance(image="a.jpg", objects=[Object(desc="cup", bbox=(0.1, 0.1, 0.3, 0.3))])
    scores = score_expression_files([phrase], [{"image": "a.jpg", "text": text}], answers=THOUSANDTHS)
    assert (scores.accuracy["0.5"], scores.without_box) == (1, 0)


@pytest.mark.parametrize(
    ("x", "y", "scale"), [(0.2, 0.25, None), (200, 250, 1000), (128, 120, "pixels"), (0.2, 0.25, 1)]
)
@pytest.mark.parametrize("text", ["({x}, {y})", "click(x={x}, y={y})", "<point>{x} {y}</point>", "{x}, {y}"])
def test_points_in_fractions_thousandths_and_pixels(x, y, scale, text):
    box = Object(desc="cup", bbox=(0.1, 0.1, 0.3, 0.3))
    phrase = Instance(image="a.jpg", width=640, height=480, objects=[box])
    scores = score_expression_files(
        [phrase],
        [{"image": "a.jpg", "text": text.format(x=x, y=y)}],
        answers=AnswerSettings(scale=scale, geometry="point"),
    )
    assert scores.point_in_box == 1
