"""Labels that are judged: which, in what text, and when an earlier judgement still counts."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from PIL import Image

from coord_codec import Instance, encode_target
from coord_detect.answers.records import ImageSource
from coord_eval.review import LabelLikelihood
from coord_trainer.config.sections import DataSection
from coord_trainer.review.folds import Fold, _planned
from coord_trainer.review.forcing import ForcedAnswer
from coord_trainer.review.judging import JudgedRecord, judge, of_fold
from coord_trainer.review.label_text import label_order, write_labels

OBJECTS = [
    {"desc": "cat 7", "bbox": [0.5, 0.6, 0.9, 0.95]},
    {"desc": 'a "dog"', "bbox": [0.1, 0.2, 0.4, 0.5]},
    {"desc": "crowd", "bbox": [0, 0, 1, 1], "iscrowd": True},
    {"desc": "cat 7", "bbox": [0.2, 0.1, 0.4, 0.3]},
]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, ([3, 1, 0], 0)),  # from the top
        ({"order": "given"}, ([0, 1, 3], 0)),
        ({"order": "random"}, ([0, 1, 3], 0)),
        ({"order": "size"}, ([0, 1, 3], 0)),
        ({"max_objects": 3}, ([3, 1, 0], 0)),
        ({"max_objects": 2}, ([3, 1], 1)),
        ({"max_objects": 1, "order": "given"}, ([0], 2)),
    ],
)
def test_labels_are_in_the_order_of_an_answer_without_crowds_up_to_the_most(data, expected):
    assert label_order(Instance(image="a", objects=OBJECTS), DataSection(**data)) == expected


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("data", [{"markers": "qwen"}, {"markers": "obj"}, {"style": "json"}])
def test_parts_of_the_text_are_names_and_coordinates(data, tokens):
    """Digits of a name are no coordinates, and quotes in JSON are escaped."""
    instance, section = Instance(image="a", objects=OBJECTS), DataSection(**data)
    for indices in ([], [1], [3, 1, 0]):
        written = write_labels(instance, indices, section, tokens)
        alone = instance.model_copy(update={"objects": tuple(instance.objects[i] for i in indices)})
        assert written.text == section.target_text(alone, tokens)
        assert [label.index for label in written.labels] == indices
        for label in written.labels:
            name = written.text[slice(*label.name)]
            target = instance.objects[label.index]
            assert (json.loads(f'"{name}"') if section.style == "json" else name) == target.desc
            numbers = [written.text[slice(*span)].strip("<|>cord_") for span in label.coordinates]
            expected = [min(round(1000 * value), 999) for value in target.bbox]
            assert [int(number) for number in numbers] == expected


class Forcing:
    """Likelihoods by rule; fails with batches that have an image of another size."""

    names = frozenset({"cat", "dog"})

    def __init__(self, batch=2):
        self.config = SimpleNamespace(evaluation=SimpleNamespace(batch_size=batch))
        self.asked = []

    def __call__(self, images, instances, ids):
        self.asked.append(list(ids))
        if any(image.width != 4 for image in images):
            raise ValueError("too wide\nmore")
        return [ForcedAnswer((LabelLikelihood(i, 0),), beyond=2, end_logprob=-1.0) for i in ids]


@pytest.fixture
def records(tmp_path):
    """Five images, of which the second has another size and the fourth is none."""
    found = []
    for number in range(5):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (5 if number == 1 else 4, 4)).save(path)
        instance = Instance(image=path.name, width=4, height=4, objects=OBJECTS[:1])
        found.append(JudgedRecord(ImageSource(path, path.name, number), instance, number))
    (tmp_path / "3.png").write_text("no image")
    return found


def test_images_at_fault_alone_are_not_judged_and_an_equal_call_judges_nothing_anew(tmp_path, records):
    out = tmp_path / "out"
    out.mkdir()
    found = judge(forcing := Forcing(), records, out, {"weights": "w"})
    assert [one.image_id for one in found.likelihoods] == [0, 2, 4] and (found.beyond, found.unread) == (6, 2)
    assert forcing.asked == [[0, 1], [0], [1], [2], [4]]
    assert {one.fold for one in of_fold(found, 3).likelihoods} == {3}
    assert judge(again := Forcing(), records, out, {"weights": "w"}) == found and again.asked == []


@pytest.mark.parametrize("change", ["weights", "names", "label", "crowd", "box", "file", "order"])
def test_each_fact_that_a_judgement_rests_on_makes_it_anew(tmp_path, records, change):
    out = tmp_path / "out"
    out.mkdir()
    judge(Forcing(), records, out, {"weights": "w"})
    forcing, values = Forcing(), {"weights": "other" if change == "weights" else "w"}
    if change == "names":
        forcing.names = frozenset({"cat"})
    if change in ("label", "crowd", "box"):
        changed = {"label": {"desc": "x"}, "crowd": {"iscrowd": True}, "box": {"bbox": [0, 0, 1, 1]}}[change]
        instance = Instance(image="0.png", width=4, height=4, objects=[OBJECTS[0] | changed])
        records = [replace(records[0], instance=instance), *records[1:]]
    if change == "file":
        Image.new("RGB", (4, 4), "red").save(records[0].source.path)
    if change == "order":
        records = records[::-1]
    judge(forcing, records, out, values)
    assert sorted({number for batch in forcing.asked for number in batch}) == [0, 1, 2, 4]


def test_run_of_a_fold_trains_on_the_others_and_scores_nothing(tmp_path, records):
    from coord_trainer.config.run_config import check_run_config

    values = {"custom": {"coord_soft_ce_w1": {"enabled": True}}, "training": {"max_steps": 3}, "run": {"seed": 5}}
    values["data"] = {"annotations": "a.json", "heldout_annotations": "b.json", "limit": 3, "prompt": "Where?"}
    values["evaluation"] = {"ap_steps": 2, "ap_patience": 1, "max_new_tokens": 9}
    fold = Fold(1, tuple(records[:2]), tmp_path / "folds" / "1")
    run = _planned(fold, records[2:], check_run_config(values, "test"), tmp_path)
    taught = [json.loads(line)["image"] for line in (fold.folder / "annotations.jsonl").read_text().splitlines()]
    assert taught == ["2.png", "3.png", "4.png"]
    data, evaluation = run.config.data, run.config.evaluation
    assert (data.annotations, data.images) == (fold.folder / "annotations.jsonl", tmp_path)
    assert (data.heldout_annotations, data.limit, data.prompt) == (None, None, "Where?")
    assert (evaluation.images, evaluation.ap_steps, evaluation.ap_patience) == ("none", None, None)
    assert (evaluation.max_new_tokens, run.config.run.seed, run.config.run.resume) == (9, 5, False)
    assert run.folder == run.config.run.dir == fold.run


def test_text_of_all_labels_is_that_of_training():
    """Whatever its parts, what is judged is what a model was taught."""
    instance = Instance(image="a", objects=[o for o in OBJECTS if not o.get("iscrowd")])
    indices, _ = label_order(instance, DataSection())
    assert write_labels(instance, indices, DataSection(), True).text == encode_target(instance)
