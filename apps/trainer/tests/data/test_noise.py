"""Noise objects: where they stand in a target, what of them is learnt, and what becomes of them in answers."""

import json
import re

import pytest
import torch

from coord_codec import InputError, Instance
from coord_trainer.answers.score import score_predictions
from coord_trainer.answers.token_limit import token_limit
from coord_trainer.config.decoding import Decoding
from coord_trainer.config.run_config import check_run_config
from coord_trainer.config.sections import DataSection
from coord_trainer.data.noise import NOISE, noise_objects
from coord_trainer.data.targets import TargetWriter
from coord_trainer.model.token_statistics import StepRecorder
from coord_trainer.swift.open_run import sample_set

OBJECTS = [{"desc": "dog", "bbox": [0.5, 0.5, 1, 1]}, {"desc": "cat", "bbox": [0, 0, 0.5, 0.5]}]
IMAGE = Instance(image="a.jpg", width=10, height=10, image_id=3, objects=OBJECTS)


def writer(**settings):
    return TargetWriter(DataSection(markers="obj", **settings), True, 0, None, ("cat", "dog"))


@pytest.mark.parametrize(("fill", "noise"), [(None, 0), (1, 0), (2, 0), (5, 3)])
@pytest.mark.parametrize("order", ["top_left", "random"])
def test_noise_fills_the_end_of_a_target(fill, noise, order):
    plain = writer(order=order).text(IMAGE, 7)
    text = writer(order=order, noise_objects=fill).text(IMAGE, 7)
    assert text.startswith(plain)
    assert re.findall(r"<obj_start>([^<]*)<", text.removeprefix(plain)) == [NOISE] * noise
    assert writer(noise_objects=5).text(IMAGE, 7) == writer(noise_objects=5).text(IMAGE, 7)
    assert writer(noise_objects=5).text(IMAGE, 7) != writer(noise_objects=5).text(IMAGE, 8)


def test_noise_boxes_are_everywhere_and_of_every_size():
    boxes = torch.tensor([found.bbox for found in noise_objects(2000, 0)])
    sides, centres = boxes[:, 2:] - boxes[:, :2], (boxes[:, :2] + boxes[:, 2:]) / 2
    assert boxes.min() >= 0 and boxes.max() <= 1 and sides.min() > 0.01
    assert sides.min() < 0.03 and sides.max() > 0.97
    assert centres.mean(dim=0).tolist() == pytest.approx([0.5, 0.5], abs=0.02)


def with_noise(config, fill):
    return config.model_copy(update={"data": config.data.model_copy(update={"noise_objects": fill})})


def test_of_noise_the_label_is_learnt_and_not_the_place(opened_run):
    config, opened, train, plain = opened_run
    samples, fill = sample_set(with_noise(config, 4), opened, train), 4
    tokenizer, vocab = opened.processor.tokenizer, opened.vocab
    for index in range(8):
        before, sample = plain.sample(index, 0), samples.sample(index, 0)
        real = len(before["coord_layout"].objects)
        learnt = [t for t, label in zip(sample["input_ids"], sample["labels"], strict=True) if label != -100]
        hidden = [t for t, label in zip(sample["input_ids"], sample["labels"], strict=True) if label == -100]
        said = re.findall(r"<obj_start>([^<]*)<", tokenizer.decode(learnt))
        assert said.count(NOISE) == fill - real > 0 and said[real:] == [NOISE] * (fill - real)
        assert sum(token in vocab.ids for token in learnt) == 4 * real
        assert sum(token in vocab.ids for token in hidden) == 4 * (fill - real)
        assert sample["coord_layout"].objects == before["coord_layout"].objects
        assert sample["coord_layout"].coord_positions == before["coord_layout"].coord_positions
    slots = opened.collate([samples.sample(index, 0) for index in range(8)])["coord_slots"]
    wanted = opened.collate([plain.sample(index, 0) for index in range(8)])["coord_slots"]
    assert torch.equal(slots.boxes_M4, wanted.boxes_M4) and (slots.skipped, slots.fallbacks) == (0, 0)


def test_a_class_called_noise_is_refused():
    with pytest.raises(InputError, match=r"data.noise_objects is 3 but a class of the data is called 'noise'"):
        TargetWriter(DataSection(noise_objects=3), True, 0, None, ("cat", "noise"))


COORDS = {"coord_tokens": {"enabled": True}, "coord_soft_ce_w1": {"enabled": True}}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"data": {"noise_objects": 31}}, "data.noise_objects is 31 but data.max_objects is 30"),
        ({"data": {"noise_objects": 3}, "custom": {"coord_tokens": {"enabled": False}}}, "digits of noise boxes"),
        ({"data": {"noise_objects": 3}, "training": {"truncation_strategy": "left"}}, "truncation_strategy is left"),
        ({"evaluation": {"decoding": {"grammar": "names", "filled": True}}}, "data.noise_objects is not set"),
        ({"data": {"noise_objects": 3, "preload": True}}, "data.preload is true but data.noise_objects is 3"),
    ],
)
def test_settings_that_do_not_go_with_noise_are_refused(settings, told):
    with pytest.raises(InputError, match=re.escape(told)):
        check_run_config({"custom": COORDS, **settings}, "test")


def test_room_for_answers_holds_the_noise(opened_run):
    config, opened, *_ = opened_run
    tokenizer = opened.processor.tokenizer
    one = token_limit(with_noise(config, 9), tokenizer, ["x"]) - token_limit(with_noise(config, 8), tokenizer, ["x"])
    assert one == len(tokenizer("<obj_start>x<|coord_1|><|coord_2|><|coord_3|><|coord_4|><obj_end>")["input_ids"])


def test_noise_in_answers_is_left_out_and_counted(opened_run):
    config, _, train, _ = opened_run
    writer = TargetWriter(with_noise(config, 4).data, True, 0, None)
    records = [
        {"image_id": i.image_id, "image": i.image, "text": writer.text(i), "finish_reason": "stop"}
        for i in train.instances
    ]
    free = Decoding()
    found = score_predictions(with_noise(config, 4), records, train, free).to_dict()
    objects = sum(len(i.objects) for i in train.instances)
    assert found["format"]["dropped"]["ignored_label"] == 4 * len(records) - objects > 0
    assert found["counts"]["detections"] == objects and found["coco"]["AP"] > 0.95
    assert found["format"]["parsed"] == len(records)
    plain = score_predictions(config, records, train, free).to_dict()
    assert plain["counts"]["unknown_label_detections"] == 4 * len(records) - objects


def test_filled_answers_are_ranked_by_what_the_model_would_have_said():
    """The grammar leaves one token; its probability is the one before the grammar."""
    scores = torch.tensor([[0.0, 2.0, 1.0]])

    def only_the_last(ids, given):
        return given.masked_fill(torch.tensor([[True, True, False]]), -torch.inf)

    for free, expected in ((True, scores.log_softmax(dim=1)[0, 2]), (False, torch.tensor(0.0))):
        recorder = StepRecorder(None, only_the_last, free_scores=free)
        assert recorder(torch.zeros(1, 1, dtype=torch.long), scores).argmax() == 2
        torch.testing.assert_close(recorder.log_p[0][0], expected)


def test_card_tells_of_noise_and_stays_as_it_was_without(tmp_path):
    from coord_trainer.model.card import follow_card, make_card, read_card

    config = check_run_config({"custom": COORDS, "data": {"noise_objects": 6}}, "test")
    make_card(config, {}, "abc").write(tmp_path)
    assert json.loads((tmp_path / "coordexp.json").read_text())["noise_objects"] == 6
    asked = check_run_config({"custom": COORDS}, "test")
    assert follow_card(asked, read_card(tmp_path), tmp_path).data.noise_objects == 6
    make_card(asked, {}, "abc").write(tmp_path)
    assert json.loads((tmp_path / "coordexp.json").read_text())["noise_objects"] is None
