"""One wrong character in a right answer of three boxes: a box that is lost is a drop."""

import json
import string

import pytest

from coord_eval import parse_answer
from coord_eval.parse.unread import unread_numbers

BOXES = {"pen": (100, 200, 300, 540), "cup": (420, 310, 520, 470), "dog": (50, 600, 250, 900)}


def listed(box):
    return f"[{', '.join(map(str, box))}]"


def pairs(box):
    return f"({box[0]},{box[1]}),({box[2]},{box[3]})"


def of_each(write, joint="\n", head="", tail=""):
    return head + joint.join(write(label, box) for label, box in BOXES.items()) + tail


TEXTS = {
    "json": of_each(lambda label, box: f'{{"bbox_2d": {listed(box)}, "label": "{label}"}}', ", ", "[", "]"),
    "json by label": of_each(lambda label, box: f'"{label}": [{listed(box)}]', ", ", "{", "}"),
    "json of sides": of_each(
        lambda label, box: (
            f'{{"name": "{label}", "box": {{"x1": {box[0]}, "y1": {box[1]}, "x2": {box[2]}, "y2": {box[3]}}}}}'
        ),
        ", ",
        '{"objects": [',
        "]}",
    ),
    "table": of_each(
        lambda label, box: f"| {label} | {' | '.join(map(str, box))} |",
        head="| Label | x1 | y1 | x2 | y2 |\n|---|---|---|---|---|\n",
    ),
    "list": of_each(lambda label, box: f"- {label}: {listed(box)}"),
    "yaml": of_each(lambda label, box: f"- label: {label}\n  bbox: {listed(box)}"),
    "csv": of_each(lambda label, box: f"{label},{','.join(map(str, box))}", head="label,x1,y1,x2,y2\n"),
    "csv, label last": of_each(lambda label, box: f"{','.join(map(str, box))},{label}", head="x1,y1,x2,y2,label\n"),
    "qwen": of_each(
        lambda label, box: f"<|object_ref_start|>{label}<|object_ref_end|><|box_start|>{pairs(box)}<|box_end|>", ""
    ),
    "obj": of_each(lambda label, box: f"<obj_start>{label}{''.join(f'<|coord_{k}|>' for k in box)}<obj_end>", ""),
    "internvl": of_each(lambda label, box: f"<ref>{label}</ref><box>[{listed(box)}]</box>", ""),
    "florence2": of_each(lambda label, box: label + "".join(f"<loc_{k}>" for k in box), ""),
    "isaac": of_each(
        lambda label, box: f'<point_box mention="{label}"> ({box[0]},{box[1]}) ({box[2]},{box[3]}) </point_box>', ""
    ),
}


def damaged(text):
    """Yield the text with one character left out, doubled, exchanged with its neighbour or replaced, or one more."""
    for i, mark in enumerate(text):
        yield from (text[:i] + text[i + 1 :], text[:i] + mark * 2 + text[i + 1 :])
        yield text[:i] + text[i + 1 : i + 2] + mark + text[i + 2 :]
        for other in string.punctuation + " \n0x":
            yield from (text[:i] + other + text[i + 1 :], text[:i] + other + text[i:])


@pytest.mark.parametrize("form", TEXTS)
def test_undamaged_answer_has_its_boxes_and_no_drop(form):
    answer = parse_answer(TEXTS[form])
    assert ([item.desc for item in answer], answer.dropped, answer.truncated) == (list(BOXES), (), False)


@pytest.mark.slow
@pytest.mark.drawn(4)
@pytest.mark.parametrize("form", TEXTS)
def test_box_lost_to_one_character_is_said(form, fuzz):
    texts = list(damaged(TEXTS[form]))
    for text in fuzz.draw.sample(texts, len(fuzz.times(len(texts)))):
        answer = parse_answer(text)
        assert len(answer) >= 3 or answer.dropped or answer.truncated, text
        spans = [item.span for item in (*answer.objects, *answer.dropped)]
        assert unread_numbers(text, 0, len(text), spans) == [], text


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (f'[{{"bbox_2d": {listed(BOXES["pen"])}, "label": "pen"}}]\nAlso: cup {listed(BOXES["cup"])}', ["pen", "cup"]),
        (
            f'<ref>pen</ref><box>{pairs(BOXES["pen"])}</box>\n[{{"bbox": {listed(BOXES["cup"])}, "label": "cup"}}]',
            ["pen", "cup"],
        ),
        ('[{\\"bbox_2d\\": [1, 2, 30, 40], \\"label\\": \\"pen\\"}]', ["pen"]),
        ("[{&quot;bbox_2d&quot;: [1, 2, 30, 40], &quot;label&quot;: &quot;pen&quot;}]", ["pen"]),
        *(
            (f"{asked}Is it [1, 2, 3, 4]?{answered}pen: [1, 2, 30, 40]", ["pen"])
            for asked, answered in (
                ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
                ("user\n", "\nassistant\n"),
                ("USER: ", " ASSISTANT: "),
                ("[INST] ", " [/INST] "),
                ("### Instruction:\n", "\n\n### Response:\n"),
                ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
            )
        ),
        (json.dumps(json.dumps(json.dumps([{"bbox_2d": [1, 2, 30, 40], "label": 'a "red" pen'}]))), ['a "red" pen']),
        ('{"text": "pen: [1, 2, 30, 40]\\ncup: [5, 6, 70, 80]"}', ["pen", "cup"]),
        ("[{&#39;bbox_2d&#39;: [1, 2, 30, 40], &#39;label&#39;: &#39;pen&#39;}]", ["pen"]),
        ("<answer>&lt;ref&gt;pen&lt;/ref&gt;&lt;box&gt;(1,2),(30,40)&lt;/box&gt;</answer>", ["pen"]),
        ('"[{""bbox_2d"": [1, 2, 30, 40], ""label"": ""a """"red"""" pen""}]"', ['a "red" pen']),
        ('label,x1,y1,x2,y2\n"a ""red"" pen",1,2,30,40', ['a "red" pen']),
    ],
)
def test_answer_in_several_forms_or_wrapped(text, labels):
    answer = parse_answer(text)
    assert ([item.desc for item in answer], answer.dropped) == (labels, ())


def test_words_about_an_object_that_is_known_add_none():
    answer = parse_answer('[{"bbox_2d": [1, 2, 30, 40], "label": "pen"}]\nSo the pen is at [1, 2, 30, 40].')
    assert (len(answer), answer.dropped) == (1, ())


@pytest.mark.parametrize(
    "text",
    [
        "First: pen [10, 20, 30, 40], cup [5, 6, 70, 80]\nFinal answer: pen [1, 2, 30, 40]",
        "I considered [10, 20, 30, 40] and [5, 6, 70, 80]. Final answer: pen [1, 2, 30, 40]",
        "pen [10, 20, 30, 40]\nCorrected answer: cup [5, 6, 70, 80]\nFinal answer: pen [1, 2, 30, 40]",
        "pen: [10, 20, 30, 40], cup: [5, 6, 70, 80]<|im_end|>\n<|im_start|>assistant\npen: [1, 2, 30, 40]",
        "pen: [10, 20, 30, 40]\ncup: [5, 6, 70, 80]<|im_end|>\n<|im_start|>user\nA [1, 2, 3, 4]?<|im_end|>\n"
        "<|im_start|>assistant\npen: [1, 2, 30, 40]",
    ],
)
def test_each_earlier_box_than_those_of_the_final_answer_is_a_drop(text):
    answer = parse_answer(text)
    assert [item.bins for item in answer] == [(1, 2, 30, 40)]
    assert [drop.reason for drop in answer.dropped] == ["withdrawn", "withdrawn"]


@pytest.mark.parametrize(
    ("text", "kept", "reasons"),
    [
        ('{"labels": ["pen"], "bboxes": [[1, 2, 30, 40], [5, 6, 70, 80]]}', 2, ["ambiguous"]),
        ("A box in the form [x1, y1, x2, y2] such as [0, 0, 100, 100] is needed.", 0, ["ambiguous"]),
        ('[{"box_2d": [1, 2, 30, 40], "label": "pen"}, {"bo_2d": [5, 6, 70, 80], "label": "cup"}]', 1, ["ambiguous"]),
        ("dict(label='pen, box=(1, 2, 30, 40)), dict(label='cup', x=5, y=6)", 1, ["unread_numbers"]),
        ("pen: [1, 2, 30, 40]\n- label: cup, box: [5, 6,=70, 80]\nend", 1, ["stray_text", "unread_numbers"]),
        (
            "<tr><th>x1</th><th>y1</th><th>x2</th><th>y2</th></tr><tr><td>1</td><td>2</td><td>30</td><td>40</td></tr>"
            "<tr<>td>5</td><td>6</td><td>70</td><td>80</td></tr>",
            1,
            ["unread_numbers"],
        ),
        ("<text><loc_1><loc_2><loc_30><loc_40>a</text><te-t><loc_5><loc_6><loc_70><loc_80>", 1, ["unread_numbers"]),
        ("<o label='a' x1='1' y1='2' x2='3' y2='4'/>\n" * 2 + "<o x1='5' y1='6' x2='7' y2='8'/>", 3, []),
        (
            '[{"bbox": [0.1, 0.2, 0.3, 0.4], "label": "pen"}, {"bbox": [1, 2, 30, 40], "label": "cup"}]',
            1,
            ["ambiguous"],
        ),
    ],
)
def test_what_can_mean_two_things_is_a_drop(text, kept, reasons):
    answer = parse_answer(text, scale=1000)
    assert (len(answer), [drop.reason for drop in answer.dropped]) == (kept, reasons)


def test_tokens_below_a_tag_of_another_format_are_counted_beside_those_that_follow():
    answer = parse_answer("<te-t><loc_1><loc_2><loc_3><loc_4>cat<loc_5><loc_6><loc_70><loc_80>")
    assert [(item.desc, item.first_coord_index) for item in answer] == [("cat", 4)]
    assert ([drop.reason for drop in answer.dropped], answer.coord_count) == (["stray_text"], 8)
