"""Decisions around a training that need no model: workers, ends, what a family cannot do, the best checkpoint."""

import json

import pytest
import torch

from coord_codec import InputError
from coord_detect.families.registry import FAMILIES
from coord_trainer import training_stage
from coord_trainer.config.run_config import check_run_config
from coord_trainer.data.levels import LevelCoder
from coord_trainer.data.samples import _array, _tensor
from coord_trainer.data.shapes import _paint
from coord_trainer.model.memory import LiveBytes

SOFT = {"coord_soft_ce_w1": {"enabled": True}}


def config(**sections):
    return check_run_config({"custom": SOFT} | sections, "test")


class Samples(list):
    """Samples of which so many objects were left out."""

    def __init__(self, count, kept, dropped_objects=0):
        super().__init__(range(count))
        self.kept, self.dropped_objects = kept, dropped_objects


@pytest.mark.parametrize(
    ("training", "kept", "cores", "ranks", "workers"),
    [
        ({}, True, 8, 1, None),
        ({"dataloader_num_workers": 0}, False, 8, 1, None),
        ({}, False, 8, 1, 4),
        ({}, False, 3, 1, 3),
        ({}, False, 8, 4, 2),
        ({}, False, 1, 4, 1),
        ({}, False, None, 1, 1),
    ],
)
def test_images_are_encoded_by_so_many_processes(monkeypatch, capsys, training, kept, cores, ranks, workers):
    monkeypatch.setattr(training_stage.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(training_stage, "world_size", lambda: ranks)
    for dropped in (0, 3):
        found = training_stage._report_samples(config(training=training), Samples(9, kept, dropped))
        told = capsys.readouterr().out
        assert found == workers and ("encoded during training" in told) is (workers is not None)
        assert ("3 objects beyond data.max_objects" in told) is bool(dropped)
        assert ("the last 1 training image is left out" in told) is (9 % ranks == 1)


@pytest.mark.parametrize(
    ("training", "patience", "ended"),
    [
        ({"max_steps": 10}, None, True),
        ({"max_steps": 11}, None, False),
        ({"num_train_epochs": 2}, None, True),
        ({"num_train_epochs": 3}, None, False),
        ({"max_steps": 11}, 1, True),
        ({"max_steps": 11}, 2, False),
    ],
)
def test_training_that_has_ended_is_not_taken_up_again(tmp_path, training, patience, ended):
    history = [{"step": step, "eval_AP": value} for step, value in ((5, 0.5), (10, 0.4))]
    state = {"global_step": 10, "max_steps": 10, "num_train_epochs": 2, "log_history": history}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    evaluation = {} if patience is None else {"ap_steps": 5, "ap_patience": patience}
    assert training_stage._has_ended(config(training=training, evaluation=evaluation), tmp_path) is ended


LORA = {"tuner_type": "lora", "target_modules": ["all-linear"], "aligner_lr": 0.1, "optimizer": "multimodal"}


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"data": {"packing": True}}, "data.packing"),
        ({"data": {"min_pixels": 1024}}, "data.min_pixels"),
        ({"data": {"max_pixels": 1024}}, "data.max_pixels"),
        ({"training": LORA}, "training.aligner_lr"),
        ({"training": LORA | {"tuner_type": "full", "target_modules": None}}, None),
        ({"data": {"max_side_ratio": 5.5}}, "data.max_side_ratio"),
        ({"data": {"max_side_ratio": None}}, "data.max_side_ratio"),
        ({"data": {"max_side_ratio": 5.0}}, None),
        ({}, None),
    ],
)
def test_family_refuses_what_it_cannot_do_and_nothing_else(sections, told):
    from dataclasses import replace

    from coord_trainer.swift.open_run import _refuse_impossible

    able = replace(FAMILIES["qwen3_vl"], cannot={}, max_side_ratio=None)
    unable = replace(able, cannot=dict.fromkeys(("packing", "pixels", "merger"), "of a reason"), max_side_ratio=5)
    given = config(**sections)
    _refuse_impossible(given, able)
    if told is None:
        _refuse_impossible(given, unable)
    else:
        with pytest.raises(InputError, match=told):
            _refuse_impossible(given, unable)


def test_bytes_that_are_freed_count_no_longer_and_each_storage_once():
    with LiveBytes("cpu") as live:
        one = torch.zeros(1000, dtype=torch.uint8)
        view = one[10:]
        assert live.now == live.peak == 1000
        other = one + 1
        assert live.now == 2000
        del one, other
        assert live.now == 1000  # the view holds the first
        del view
        assert (live.now, live.peak) == (0, 2000)
        live.count(torch.zeros(5, device="meta"))
        live.count("text")
        assert live.now == 0


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(0),
        torch.zeros(0, 3),
        torch.arange(5000.0),
        torch.arange(3),
        torch.ones(2).double(),
        torch.ones(2).bfloat16(),
        [1, 2],
        "text",
    ],
)
def test_value_of_a_sample_that_is_not_coded_comes_back_as_it_was(value):
    kept = _array(value, LevelCoder())
    back = kept if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 else _tensor(kept)
    if isinstance(value, torch.Tensor):
        assert back.dtype == value.dtype and torch.equal(back, value)
    else:
        assert back is value


def test_each_shape_is_painted_as_its_name_says():
    """Corners of the box: a square fills all four, a triangle the lower ones, a circle none."""
    from PIL import Image, ImageDraw

    for shape, filled in (("square", [1, 1, 1, 1]), ("triangle", [0, 0, 1, 1]), ("circle", [0, 0, 0, 0])):
        canvas = Image.new("1", (40, 40))
        _paint(ImageDraw.Draw(canvas), shape, [10, 10, 31, 31], 1)
        corners = [canvas.getpixel(place) for place in ((10, 10), (30, 10), (10, 30), (30, 30))]
        assert [bool(pixel) for pixel in corners] == [bool(pixel) for pixel in filled], shape
        assert canvas.getpixel((20, 20)) and canvas.getbbox() == (10, 10, 31, 31), shape
