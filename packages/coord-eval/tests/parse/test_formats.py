"""Which format an answer is in, what no format reads, and what is no answer at all."""

import json

import pytest

from coord_eval import AnswerSettings, TextFormat, parse_answer, register_format, score
from coord_eval.cli.main import main

CAT = '{"bbox_2d": [100, 200, 300, 400], "label": "cat"}'
UNKNOWN = "<where>cat</where> 100 200 300 400"
FLORENCE = "cat<loc_1><loc_2><loc_3><loc_4>"


def truth_of(count):
    return {
        "images": [{"id": i, "file_name": f"{i}.jpg", "width": 100, "height": 100} for i in range(count)],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "sign <loc_1><loc_2><loc_3><loc_4>"}],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 1, "bbox": [10, 20, 20, 20], "area": 400} for i in range(count)
        ],
    }


def answers_of(texts):
    return [{"image_id": i, "text": text} for i, text in enumerate(texts)]


@pytest.mark.parametrize("text", [UNKNOWN, "  [[1, 2, 3]] ", "A cat, 1 and 2.", "There is one.", '{"a": {"b": "c"}}'])
def test_parse_answer_drops_what_no_format_reads(text):
    answer = parse_answer(text)
    assert [(drop.reason, text[slice(*drop.span)]) for drop in answer.dropped] == [("unrecognised", text.strip())]
    assert answer.status == "failed"


@pytest.mark.parametrize("text", ["", " \n", "[]", "```json\n[]\n```", '{"objects": []}', "There is nothing: []"])
def test_parse_answer_of_nothing_is_empty(text):
    assert (parse_answer(text).status, parse_answer(text).dropped) == ("empty", ())


def test_parse_answer_drops_a_record_with_unknown_keys():
    text = f'[{CAT}, {{"a": 1, "b": 2, "c": 3, "d": 4}}]'
    answer = parse_answer(text)
    assert len(answer) == 1
    assert [(drop.reason, text[slice(*drop.span)]) for drop in answer.dropped] == [
        ("unrecognised", '{"a": 1, "b": 2, "c": 3, "d": 4}')
    ]


def test_score_counts_and_notes_unrecognised_answers():
    evaluation = score(truth_of(50), answers_of([UNKNOWN] * 50))
    assert evaluation.format["parsed"] == 0
    assert evaluation.format["dropped"] == {"unrecognised": 50}
    assert any("50 answers have no recognised format" in note and "<where>cat" in note for note in evaluation.notes)


@pytest.mark.parametrize(
    "text",
    [
        '{"bbox_2d": [100, 200, 300, 400]}',
        '{"bbox_2d": [100, 200, 300, 400], "label": " "}',
        "<|box_start|>(1,2),(3,4)<|box_end|>",
        "<obj_start><|coord_1|><|coord_2|><|coord_3|><|coord_4|><obj_end>",
        "<loc_1><loc_2><loc_3><loc_4>",
    ],
)
def test_no_label_is_counted_and_never_clean(text):
    (item,) = parse_answer(text).objects
    assert item.desc == ""
    assert item.repairs == ("no_label",)
    health = score(truth_of(1), answers_of([text]), answers=AnswerSettings(scale=1000)).format
    assert (health["clean"], health["repairs"]) == (0, {"no_label": 1})


@pytest.mark.parametrize("tag", ["think", "thinking", "THINK"])
@pytest.mark.parametrize(
    "text",
    [
        "<T>{other}</T>{cat}",
        "{other}</T>{cat}",
        "{cat}<T>{other}</T>",
        "{cat}\n<T>{other}</T>\n",
        "<T>{other} <T> </T>{other}</T>{cat}",
        "<T>{other}</T>{cat}<T>{other}</T>",
        "<T>{other}<T>{other}</T>{other}</T>{cat}",
    ],
)
def test_thoughts_never_count(tag, text):
    text = text.replace("T>", f"{tag}>").replace("{other}", CAT.replace("cat", "dog")).replace("{cat}", CAT)
    answer = parse_answer(text)
    assert [item.desc for item in answer] == ["cat"]
    assert text[slice(*answer.objects[0].span)] == CAT
    assert (answer.status, answer.truncated) == ("ok", False)


@pytest.mark.parametrize("tag", ["think", "thinking"])
@pytest.mark.parametrize("head", ["", CAT])
def test_unclosed_thought_is_dropped(tag, head):
    answer = parse_answer(f"{head}<{tag}>{CAT.replace('cat', 'dog')}")
    assert [item.desc for item in answer] == ["cat"] * bool(head)
    assert [drop.reason for drop in answer.dropped] == ["unclosed_thought"]
    assert answer.truncated


@pytest.mark.parametrize(
    ("label", "format"),
    [(f"sign {word}", "json") for word in ("<loc_1>", "<loc0001>", "<obj_start>", "<|box_start|>", FLORENCE)],
)
def test_auto_is_not_decided_by_a_word_of_a_label(label, format):
    answer = parse_answer(CAT.replace("cat", label))
    assert (answer.format, [item.desc for item in answer]) == (format, [label])


def test_auto_takes_markers_with_brackets_in_the_description():
    answer = parse_answer("<obj_start>cat [1] {2}<|coord_1|><|coord_2|><|coord_3|><|coord_4|><obj_end>")
    assert (answer.format, answer.objects[0].desc) == ("obj", "cat [1] {2}")


def test_auto_takes_the_format_of_the_whole_set():
    """Cut off before its first box is complete, the last answer has one box in Florence-2's tokens, in its label."""
    cut = f'{{"label": "{FLORENCE}", "bbox_2d": [1, 2'
    assert parse_answer(cut).format == "florence2"
    florence = [FLORENCE, FLORENCE, "cat [1]<loc_1><loc_2><loc_3><loc_4>"]
    assert set(score(truth_of(3), answers_of(florence)).format["formats"]) == {"florence2"}
    both = CAT.replace("cat", FLORENCE * 2)
    assert parse_answer(both).format == "florence2"
    found = score(truth_of(3), answers_of([CAT, CAT, both]), answers=AnswerSettings(scale=1000))
    assert found.format["formats"] == {"json": 3}


def test_images_without_an_answer_are_said_everywhere(tmp_path, capsys):
    (tmp_path / "truth.json").write_text(json.dumps(truth_of(30)))
    (tmp_path / "answers.jsonl").write_text(json.dumps(answers_of([CAT])[0]))
    paths = ["--ground-truth", str(tmp_path / "truth.json"), "--predictions", str(tmp_path / "answers.jsonl")]
    assert main(["score", *paths, "--out", str(tmp_path)]) == 0
    said = "29 of 30 images are without an answer"
    assert said in capsys.readouterr().out
    report = (tmp_path / "report.html").read_text()
    assert said in report
    assert "<td>images without an answer</td><td class=n>29</td>" in report
    found = json.loads((tmp_path / "evaluation.json").read_text())
    assert found["counts"]["images_without_answer"] == 29
    assert any(said in note for note in found["notes"])
    assert not any("without an answer" in note for note in score(truth_of(1), answers_of([CAT])).notes)
    assert score(truth_of(30), []).notes[0] == "the predictions are empty: 30 images are without an answer"


def test_register_format_in_ten_lines(registry):
    register_format(
        TextFormat(
            name="at",
            example="cat @ y=20 x=10 h=20 w=20;",
            pattern=r"(?P<label>[^@;]*)@(?P<box>[^@;]*)(?P<end>;|)",
            order="yxyx",
            scale=100,
            opening="@",
        )
    )
    answer = parse_answer("cat @ 20, 10, 40, 30; dog @ 1, 2, 3")
    assert (answer.format, [(item.desc, item.box) for item in answer]) == ("at", [("cat", (0.1, 0.2, 0.3, 0.4))])
    assert [drop.reason for drop in answer.dropped] == ["truncated"]
    found = score(truth_of(2), answers_of(["cat @ 20, 10, 40, 30;"] * 2))
    assert (found.format["formats"], found.notes) == (
        {"at": 2},
        ("no token probabilities: all boxes have the same score",),
    )
    assert found.coco["AP"] == pytest.approx(1)


def test_register_format_of_a_json_key(registry):
    register_format(TextFormat(name="mine", example='{"rect": [y1, x1, h, w]}', keys=("rect",), order="xywh"))
    (item,) = parse_answer('{"rect": [100, 200, 200, 200], "label": "cat"}').objects
    assert item.box == pytest.approx((0.1, 0.2, 0.3, 0.4))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "json", "pattern": "(?P<box>.)"}, "of this name already"),
        ({"pattern": "(?P<box>"}, "pattern"),
        ({"pattern": "[0-9]"}, "group"),
        ({"pattern": "(?P<box>.)", "order": "yx"}, "order"),
        ({}, "expected one of pattern, markers and keys"),
    ],
)
def test_register_format_refuses(settings, message):
    with pytest.raises(ValueError, match=message):
        register_format(TextFormat(**{"name": "mine", "example": "", **settings}))


def test_a_named_scale_goes_before_that_of_the_format_except_for_tokens():
    text = "<ref>cat</ref><box>[[100, 200, 300, 400]]</box>"
    assert parse_answer(text, scale=500).objects[0].box == (0.2, 0.4, 0.6, 0.8)
    assert (parse_answer(text).scale, parse_answer(text).scale_assumed) == ((1000, 1000), False)
    tokens = "<ref>cat</ref><box><100><200><300><400></box>"
    assert parse_answer(tokens, scale=500).objects[0].box == (0.1, 0.2, 0.3, 0.4)


def test_fractions_of_a_side_are_no_assumption():
    answer = parse_answer('{"bbox": [0.1, 0.2, 0.3, 1], "label": "cat"}')
    assert (answer.objects[0].box, answer.scale, answer.scale_assumed) == ((0.1, 0.2, 0.3, 1.0), (1.0, 1.0), False)


@pytest.mark.parametrize("other", ["<ref>a < b</ref><box>(1,2),(3,4)</box>", "<ref>a</b></ref><box>[[1,2,3,4]]</box>"])
def test_labels_may_hold_angle_brackets(other):
    assert [item.desc for item in parse_answer(other)] in (["a < b"], ["a</b>"])


@pytest.mark.parametrize(
    ("text", "kept", "reasons"),
    [
        ("<ref>cat</ref><box>[[1,2,3,4],[5,6,7", 1, ["truncated"]),
        ("<ref>cat</ref><box>[[1,2,3,4", 0, ["truncated"]),
        ("<ref>cat</ref><box>[[1,2,3", 0, ["truncated"]),
        ("<ref>cat</ref>", 0, ["unrecognised"]),
        ("<ref>cat</ref><box>[[1,2,3,4]]</box><ref>do", 1, ["truncated"]),
        ("<ref>dog</ref> and <ref>cat</ref><box>[[1,2,3,4]]</box>", 1, ["no_coordinates"]),
        ("<ref>cat</ref><box>[[1,2,3]]</box>", 0, ["wrong_arity"]),
        ("<ref>cat</ref><box>none</box>", 0, []),
        (f"{'<|object_ref_start|>man<|object_ref_end|><|box_start|>'}<1><2><3><4>,<5><6><7>", 1, ["truncated"]),
        ('<points x1="', 0, ["truncated"]),
    ],
)
def test_pattern_formats_cut_off_or_faulty(text, kept, reasons):
    answer = parse_answer(text)
    assert (len(answer), [drop.reason for drop in answer.dropped]) == (kept, reasons)
    assert answer.truncated is ("truncated" in reasons)
