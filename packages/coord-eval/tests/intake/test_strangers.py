"""Answers in forms of others, with the right value that their README states."""

from pathlib import Path

import pytest

from coord_eval import AnswerSettings, parse_answer, score
from coord_eval.metrics.expressions import score_expression_files

STRANGERS = Path(__file__).resolve().parents[5] / "shared" / "data" / "edges" / "strangers"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not STRANGERS.is_dir(), reason="needs ../shared/data/edges/strangers"),
]


def scored(folder, name, truth="gt.json", **reading):
    answers = AnswerSettings(scale=1000, **reading)
    return score(STRANGERS / folder / truth, STRANGERS / folder / name, answers=answers)


@pytest.mark.parametrize("geometry", ["box", "oriented"])
@pytest.mark.parametrize("name", ["bbox_2d_8", "bbox_angle", "rbox_2d"])
def test_turned_boxes_are_those_of_the_ground_truth(name, geometry):
    found = scored("angle_beside_box", f"answers_{name}.jsonl", "gt.jsonl", geometry=geometry)
    assert found.coco["AP"] == pytest.approx(1.0)


def test_turned_boxes_in_hundredths_are_near_those_of_the_ground_truth():
    found = scored("angle_beside_box", "answers_geochat.jsonl", "gt.jsonl")
    assert found.coco["AP50"] == pytest.approx(1.0) and found.format["dropped"] == {}


def test_refusals_in_words_are_empty_answers():
    found = scored("refusals_in_words", "p.jsonl")
    assert (found.format["parsed"], found.format["empty"], found.format["dropped"]) == (3, 2, {})


def test_objects_of_several_images_are_noted():
    found = scored("several_images_in_answer", "p.jsonl")
    assert found.coco["AP"] == pytest.approx(1.0) and found.format["dropped"] == {"other_image": 2}


@pytest.mark.parametrize("name", ["openai_batch.jsonl", "swift_infer.jsonl"])
def test_records_of_servers_are_read(name):
    truth, predictions = STRANGERS / "refusals_in_words" / "gt.json", STRANGERS / "server_records" / name
    assert score(truth, predictions, answers=AnswerSettings(scale=1000)).format["empty"] == 1


def test_phrases_without_a_target():
    found = score_expression_files(
        STRANGERS / "no_target_null" / "gt.jsonl",
        STRANGERS / "no_target_null" / "p.jsonl",
        answers=AnswerSettings(scale=1000),
    )
    assert (found.n_acc, found.precision_f1) == (1.0, 1.0)
    assert any("four zeros" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("labels_in_lists/no_helmet.txt", ["helmet", "No helmet", "NO-Hardhat"]),
        ("labels_in_lists/quotes.csv.txt", ["'no entry' sign", '12" vinyl']),
        ("labels_in_lists/nested.txt", ["ship"]),
        ("keys_not_read/min_x.txt", ["bus"]),
        ("keys_not_read/obb_in_box_mode.txt", ["ship"]),
    ],
)
def test_labels_are_as_written(name, labels):
    answer = parse_answer((STRANGERS / name).read_text(), scale=1000, aspect=1.0)
    assert ([item.desc for item in answer], answer.dropped) == (labels, ())


def test_expressions_name_the_factor():
    folder = STRANGERS / "expressions_scale"
    found = score_expression_files(
        folder / "gt.jsonl", folder / "half_boxes.jsonl", answers=AnswerSettings(scale="pixels")
    )
    assert any("x times 2.000, y times 2.000" in note for note in found.notes)
