"""Conversations as other projects write them: boxes in markers, ids of images, and what is told without boxes."""

import json

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data import ReadingRules, load_annotated
from coord_data.formats.negatives import IN_THOUGHT, says_no_box, says_none
from coord_data.reading.read import read_source

TURNS = {"from": "human", "value": "<image>\nFind every cat."}
REF, BOX = ("<|object_ref_start|>", "<|object_ref_end|>"), ("<|box_start|>", "<|box_end|>")


def read(folder, record, **more):
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (100, 50)).save(folder / name)
    (folder / "t.jsonl").write_text(json.dumps(record) + "\n")
    return read_source(folder / "t.jsonl", on_bad_box="drop_box", **more).annotations


def found_in(annotations):
    return {(i.image, o.desc, *o.bbox) for i in annotations.instances for o in i.objects}


@pytest.mark.parametrize(
    "answer",
    [
        "<ref>cat</ref><box>[[100, 200, 300, 400]]</box>",
        "<ref>cat</ref><box>(100,200),(300,400)</box>",
        "<box>[100, 200, 300, 400]</box>",  # named in the question
        "Here: <|object_ref_start|>cat<|object_ref_end|><|box_start|>(100,200),(300,400)<|box_end|>.",
        "<|object_ref_start|>cat<|object_ref_end|><|box_start|><|coord_100|><|coord_200|><|coord_300|><|coord_400|>"
        "<|box_end|>",
    ],
)
def test_boxes_in_markers_are_thousandths_of_the_image(tmp_path, answer):
    question = {"from": "human", "value": "<image>Find <ref>cat</ref>, not as in <box>[[1, 1, 9, 9]]</box>"}
    record = {"image": "a.jpg", "conversations": [question, {"from": "gpt", "value": answer}]}
    assert found_in(read(tmp_path, record)) == {("a.jpg", "cat", 0.1, 0.2, 0.3, 0.4)}


@pytest.mark.parametrize(
    "answer",
    [
        "<think>Maybe <ref>dog</ref><box>[[1,2,3,4]]</box>, no.</think><ref>cat</ref><box>[[100,200,300,400]]</box>",
        '<think>[{"bbox_2d": [1,2,3,4], "label": "dog"}]?</think>[{"bbox_2d": [100,200,300,400], "label": "cat"}]',
        '[{"bbox_2d": [100,200,300,400], "label": "cat"}]<think>or {"bbox_2d": [1,2,3,4], "label": "dog"}</think>',
    ],
)
def test_boxes_in_a_thought_are_no_objects_and_told(tmp_path, answer):
    record = {"image": "a.jpg", "conversations": [TURNS, {"from": "gpt", "value": answer}]}
    annotations = read(tmp_path, record)
    assert found_in(annotations) == {("a.jpg", "cat", 0.1, 0.2, 0.3, 0.4)}
    assert annotations.notes[IN_THOUGHT] == 1


def test_tags_of_swift_in_a_thought_are_no_objects_and_told(tmp_path):
    answer = "<think>Maybe <ref-object><bbox>, no.</think><ref-object><bbox>"
    turns = [{"role": "user", "content": "<image>Find it."}, {"role": "assistant", "content": answer}]
    objects = {"ref": ["dog", "cat"], "bbox": [[1, 2, 3, 4], [10, 10, 30, 20]]}
    annotations = read(tmp_path, {"messages": turns, "images": ["a.jpg"], "objects": objects})
    assert found_in(annotations) == {("a.jpg", "cat", 0.1, 0.2, 0.3, 0.4)}
    assert annotations.notes[IN_THOUGHT] == 1


def test_a_name_holds_for_all_boxes_behind_it(tmp_path):
    answer = "<ref>cat</ref><box>[[0,0,100,100],[200,200,300,300]]</box><box>(500,500),(600,600)</box>"
    answer += "<ref>dog</ref><box>[[700,700,900,900]]</box>"
    record = {"images": ["a.jpg"], "messages": [{"role": "assistant", "content": answer}]}
    assert found_in(read(tmp_path, record)) == {
        ("a.jpg", "cat", 0.0, 0.0, 0.1, 0.1),
        ("a.jpg", "cat", 0.2, 0.2, 0.3, 0.3),
        ("a.jpg", "cat", 0.5, 0.5, 0.6, 0.6),
        ("a.jpg", "dog", 0.7, 0.7, 0.9, 0.9),
    }


@pytest.mark.parametrize(("box", "name"), [("<box>{}</box>", "<ref>{}</ref>"), ("<|box_start|>{}<|box_end|>", None)])
def test_a_name_behind_its_box_holds_for_that_box(tmp_path, box, name):
    one, two, three = (box.format(f"({n},{n}),({n + 100},{n + 100})") for n in (0, 200, 400))
    cat, dog = ((name or "<|object_ref_start|>{}<|object_ref_end|>").format(label) for label in ("cat", "dog"))
    turns = [
        {"role": "user", "content": "<image>Not as <ref>horse</ref><box>(1,1),(9,9)</box>"},
        {"role": "assistant", "content": f"<think>{two}{cat}</think>At {one} a {cat}, at {two}{three} each a {dog}."},
    ]
    found = read(tmp_path, {"images": ["a.jpg"], "messages": turns})
    objects = [(o.desc, *o.bbox) for i in found.instances for o in i.objects]
    assert objects == [("cat", 0, 0, 0.1, 0.1), ("dog", 0.2, 0.2, 0.3, 0.3), ("dog", 0.4, 0.4, 0.5, 0.5)]


def test_faults_of_marked_boxes_are_listed(tmp_path):
    answer = "<box>[[0,0,100,100]]</box><ref>cat</ref><box>here</box><box>[[1,2,3]]</box><box>[[1,2,300,400]]</box>"
    found = read(tmp_path, {"image": "a.jpg", "conversations": [TURNS, {"from": "gpt", "value": answer}]})
    assert found_in(found) == {("a.jpg", "cat", 0.001, 0.002, 0.3, 0.4)}
    assert [p.message.partition(",")[0] for p in found.problems][:1] == ["expected a description"]
    assert sum("four numbers between markers, found" in p.message for p in found.problems) == 2


@pytest.mark.parametrize("answer", ["The cat sleeps.", "cat <loc_100><loc_200><loc_300><loc_400>"])
def test_conversations_without_boxes_are_named_as_such(tmp_path, answer):
    with pytest.raises(InputError, match=r"conversations without boxes that are read .*bbox_2d.*<box>.*text alone"):
        read(tmp_path, {"image": "a.jpg", "conversations": [TURNS, {"from": "gpt", "value": answer}]})


def swift(boxes, refs, ids, text, images=("a.jpg",)):
    turns = [{"role": "user", "content": "<image>Find"}, {"role": "assistant", "content": text}]
    return {"messages": turns, "images": list(images), "objects": {"ref": refs, "bbox": boxes, "image_id": ids}}


@pytest.mark.parametrize("ids", [[0, 0], [7, 7], ["img-7"], []])
def test_the_image_of_a_record_may_have_any_id(tmp_path, ids):
    record = swift([[10, 10, 50, 40], [0, 0, 20, 20]], ["cat", "dog"], ids, "<ref-object><bbox><ref-object><bbox>")
    assert found_in(read(tmp_path, record)) == {("a.jpg", "cat", 0.1, 0.2, 0.5, 0.8), ("a.jpg", "dog", 0, 0, 0.2, 0.4)}


def test_names_without_a_tag_belong_to_the_boxes_of_their_places(tmp_path):
    boxes = [[10, 10, 50, 40], [0, 0, 20, 20]]
    found = read(tmp_path, swift(boxes, ["cat", "dog"], [1, 0], "<bbox><bbox>", ("a.jpg", "b.jpg")))
    assert found_in(found) == {("b.jpg", "cat", 0.1, 0.2, 0.5, 0.8), ("a.jpg", "dog", 0, 0, 0.2, 0.4)}
    for refs in ([], ["cat"]):
        (one, two) = read(tmp_path, swift(boxes, refs, [1, 0], "<bbox><bbox>", ("a.jpg", "b.jpg"))).problems
        assert f"objects.ref has {len(refs)} names for 2 boxes" in one.message and "for each box" in two.message


def test_panoptic_coco_is_named(tmp_path):
    segment = {"id": 5, "category_id": 1, "bbox": [20, 10, 40, 30], "area": 100, "iscrowd": 0}
    document = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 50}],
        "annotations": [{"image_id": 1, "file_name": "a.png", "segments_info": [segment]}],
        "categories": [{"id": 1, "name": "cat", "isthing": 1}],
    }
    (problem,) = read(tmp_path, document, format="coco").problems
    assert problem.field == "annotations[0]" or "segments_info" in str(problem)
    assert "panoptic COCO" in problem.message and "instances_*.json" in problem.message


@pytest.mark.parametrize(
    "name",
    ["/data/upload/3/1a2b-a.jpg", "http://localhost:8080/data/upload/3/a.jpg", "/data/local-files/?d=photos%2Fa.jpg"],
)
def test_a_path_on_the_server_of_label_studio_is_named(tmp_path, name):
    (tmp_path / "t.jsonl").write_text(json.dumps({"image": name, "objects": []}) + "\n")
    with pytest.raises(InputError, match="a path on the server of Label Studio: export the project with its images"):
        load_annotated(tmp_path / "t.jsonl", ReadingRules(allow_outside=True))


def test_image_that_the_question_of_qwen_vl_names_is_found(tmp_path):
    question = {"from": "user", "value": "Picture 1: <img>a.jpg</img>\nFind the cat."}
    turns = [question, {"from": "assistant", "value": "<ref>cat</ref><box>(100,200),(300,400)</box>"}]
    found = read(tmp_path, {"id": "1", "conversations": turns})
    assert found_in(found) == {("a.jpg", "cat", 0.1, 0.2, 0.3, 0.4)}


NO_BOX = [None, [], "none", "[]", "There is no dog.", [0, 0, 0, 0], [0.0, -0.0], [None, 0]]
SOME_BOX = [False, 0, [False] * 4, [""] * 4, [[]], ["none"], [0, 0, 0, 1], {}, "0 0 5 5", "no 3"]


def test_only_nothing_and_zeros_state_that_there_is_no_box():
    assert [says_no_box(value) for value in (*NO_BOX, *SOME_BOX)] == [True] * len(NO_BOX) + [False] * len(SOME_BOX)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *[(text, True) for text in ("", "N/A", "nothing", "NULL", "{ }", "```json\n[]\n```", "'none'", "None!")],
        *[(f"There {verb} dogs here", True) for verb in ("are no", "is no", "were not any", "was no")],
        *[(f"No dog {end}.", True) for end in ("found", "is present", "in the image", "can be seen")],
        *[(f"{start} any dog", True) for start in ("I cannot see", "can not find", "I don't see", "did not detect")],
        *[(text, False) for text in ("No", "No, it is red.", "none of them 3", "There is no dog at <box>", "[1]")],
        *[(text, False) for text in ("There are two dogs", "I cannot say", "no [1, 2] found", "a dog, none else")],
    ],
)
def test_words_of_an_answer_say_that_there_is_no_object(text, says):
    assert says_none(text) is says
