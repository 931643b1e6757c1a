"""Labels beside numbers: as written, or refused where the words are no name for certain."""

import pytest

from coord_eval import parse_answer

BOX = "[100, 200, 300, 400]"
OTHER = "[500, 20, 700, 90]"
NAMES = [
    *(
        "No helmet",
        "NO-Hardhat",
        "No finding",
        "M8 x 20 mm bolt",
        "2 x 4 lumber",
        "-40\u00b0C gauge",
        "'no entry' sign",
    ),
    *(
        '12" vinyl',
        "person; left",
        "person, left",
        "stop: ahead",
        "A/B switch",
        "Mr. Smith",
        "U.S. flag",
        "3-way valve",
    ),
    *(
        "R&D lab",
        "O'Brien",
        "C++ book",
        "class A amp",
        "50% off sign",
        "100% cotton shirt",
        "cat (left)",
        "[exit] sign",
    ),
    *("None", "NA", "no", "type-c cable", "No. 5 bottle", "trash can", "USB 3.0 port", "24/7 store", "0.5 mm pencil"),
    *("The North Face logo", "left: arrow", "position sensor", "label maker", "with_mask", "dog's bowl", "6' ladder"),
    *("\u201copen\u201d sign", "\u732b", "h 264 cable", "width: 5 mark", "cup of tea", "bird in a cage", "item #4"),
    *("I beam", "at sign", "of", "is", "tapestry", "dragon", "press box", "person 1", "bus 42", "1 x 1 tile", "#5 key"),
]
FORMS = [
    *("{name}: {box}", "- {name}: {box}", "1. {name}: {box}", "{name} {box}", "{box} {name}", "{box}: {name}"),
    *("**{name}**: {box}", "- **{name}** \u2014 {box}", "`{name}`: {box}", "{name} = {box}", "{name}{box}"),
    *("{name}: (100,200),(300,400)", "{name}({pairs})", "{name},{row}", "{row},{name}", "| {name} | {cells} |"),
    *("label: {name}, bbox: {box}", "- label: {name}\n  bbox: {box}", "name: {name}\nbox: {box}", "### {name}\n{box}"),
    *("{name}\n{box}", "{name}: x1=100, y1=200, x2=300, y2=400", "{name}:\n- x1: 100\n- y1: 200\n- x2: 300\n- y2: 400"),
    *("{name}: <bbox>100 200 300 400</bbox>", "{name} <|begin_of_box|>[[100,200,300,400]]<|end_of_box|>"),
    *("{name} (x1=100, y1=200, x2=300, y2=400)", "({quoted}, {box})", "[{quoted}, {row}]"),
    *("label,x1,y1,x2,y2\n{name},{row}", "| label | x1 | y1 | x2 | y2 |\n|---|---|---|---|---|\n| {name} | {cells} |"),
]


def text_of(form, name, box=BOX):
    numbers = box.strip("[]").split(", ")
    places = {"row": ",".join(numbers), "cells": " | ".join(numbers), "pairs": "{},{}),({},{}".format(*numbers)}
    return form.format(name=name, quoted=f"'{name}'", box=box, **places)


@pytest.mark.parametrize("form", FORMS)
def test_label_is_as_written_or_the_object_says_that_it_is_not(form):
    for name in NAMES:
        text = text_of(form, name)
        answer = parse_answer(text, scale=1000)
        told = answer.dropped or any(item.repairs for item in answer)
        assert [item.desc for item in answer] == [name] or told, text


@pytest.mark.parametrize("name", NAMES[:21])
@pytest.mark.parametrize("form", ["{name}: {box}", "- {name}: {box}", "{name},{row}", "{name}\n{box}"])
def test_label_of_a_list_is_as_written(form, name):
    if name == "stop: ahead" and "{name}:" not in form:  # a colon inside, and none before the numbers
        return
    answer = parse_answer(f"{text_of(form, name)}\n{text_of(form, 'dog', OTHER)}", scale=1000)
    assert ([item.desc for item in answer], answer.dropped) == ([name, "dog"], ())


@pytest.mark.parametrize("first", [f"- bbox: {BOX}", f"- bbox: {BOX}\n  id: 1", f"- id: 1\n  bbox: {BOX}"])
def test_item_of_a_list_without_a_label_takes_none_of_the_next(first):
    answer = parse_answer(f"{first}\n- label: dog\n  bbox: {OTHER}", scale=1000)
    assert [(item.desc, item.bins[0]) for item in answer] == [("", 100), ("dog", 500)]


SENTENCES = [
    f"There is a vase {BOX} on the table {OTHER}.",
    f"The cup is at {BOX} and it is on what you see at {OTHER}.",
    f"A cup {BOX} stands beside a plate {OTHER}",
    f"We see it in {BOX}.\nThe dog sits on the mat: {OTHER}",
    f"The ladder ({BOX}) leans against the wall ({OTHER}).",
    f"cup: {BOX} (it is broken)\nplate: {OTHER} - it is whole",
    f"\u041d\u0430 \u0444\u043e\u0442\u043e \u043a\u043e\u0442 {BOX} \u0438 \u043f\u0451\u0441 {OTHER}.",
]


@pytest.mark.parametrize("text", SENTENCES)
def test_several_objects_in_sentences_are_drops_with_their_span(text):
    answer = parse_answer(text, scale=1000)
    unmarked = [item for item in answer if not item.repairs]
    assert unmarked == [] and answer.dropped
    spans = [item.span for item in (*answer.objects, *answer.dropped)]
    assert all(any(a <= text.index(box) < b for a, b in spans) for box in (BOX, OTHER))


@pytest.mark.parametrize(
    "text",
    [
        f"It is located in {BOX}.",
        f"There is a vase {BOX} here.",
        f"The stool is at {BOX}.",
        f"The coordinates of the cat on the mat are: {BOX}",
        f"\u56fe\u4e2d\u6709\u4e00\u53ea\u732b,\u8fb9\u754c\u6846\u4e3a {BOX}\u3002",
        f"\u732b\u5728{BOX}",
        f"Las coordenadas del gato son: {BOX}",
        f"\u732b\u7684\u5750\u6807\u662f: {BOX}",
    ],
)
def test_only_object_of_a_sentence_has_no_label_and_says_so(text):
    (item,) = parse_answer(text)
    assert item.desc == "" and {"no_label", "label_from_sentence"} <= set(item.repairs)


@pytest.mark.parametrize(
    "text", [f"the red car: {BOX}", f"{BOX} - a red car", f"1. the red car {BOX}", f"(a) red car: {BOX}"]
)
def test_article_and_number_of_a_list_are_taken_off_and_marked(text):
    assert [(item.desc, item.repairs) for item in parse_answer(text)] == [("red car", ("label_trimmed",))]


def test_phrase_before_its_bracket_in_a_sentence_is_a_marked_label():
    answer = parse_answer("A man[0.22,0.21,0.56,0.83] beside a dog[0.4,0.37,0.58,0.75] on a bench.")
    assert [(item.desc, item.repairs) for item in answer] == [
        ("man", ("label_from_sentence",)),
        ("beside a dog", ("label_from_sentence",)),
    ]
