"""The objective of a configuration: each setting acts, and switches that are off leave nothing behind."""

import json

import pytest

from coord_codec import InputError
from coord_trainer.config.objective import CoordObjectiveConfig, CoordSoftCeW1Config
from coord_trainer.config.run_config import check_run_config
from coord_trainer.config.swift_arguments import shards_weights, trains_in_full
from coord_trainer.config.without_effect import settings_without_effect

SOFT = {"enabled": True}
BOX = {"use_coord_ce": True, "use_coordexp_loss": True, "use_geom_loss": True}
OTHER = {
    "coord_soft_ce_w1": {
        **dict.fromkeys(("soft_ce_weight", "w1_weight", "gate_weight"), 0.25),
        "temperature": 2.0,
        "target_sigma": 3.0,
        "target_truncate": 7,
    },
    "coord_objective": {
        **dict.fromkeys(("lambda_coord", "lambda_coord_ce", "alpha_l1", "beta_giou"), 0.25),
        "expectation_temperature": 2.0,
        "label_smoothing": 0.1,
        "extra_weights": {"soft_ce": 0.5},
        "term_options": {"soft_ce": {"a": 1}},
        "matching": "hungarian",
        "shape_boxes": True,
    },
}
SWITCHES = {"enabled", *BOX}
UNCHANGED = {"extra_weights", "term_options", "shape_boxes"}  # test_plugins and test_geometry see these act


def custom(**sections):
    return check_run_config({"custom": sections}, "test").custom


def test_every_setting_of_the_objective_acts_on_it_and_on_nothing_else():
    for section, kind in (("coord_soft_ce_w1", CoordSoftCeW1Config), ("coord_objective", CoordObjectiveConfig)):
        assert OTHER[section].keys() | SWITCHES >= kind.model_fields.keys()
        for name in OTHER[section].keys() - UNCHANGED:
            plain = {"coord_soft_ce_w1": SOFT, "coord_objective": BOX}
            other = plain | {section: {**plain[section], name: OTHER[section][name]}}
            before, after = custom(**plain).objective.model_dump(), custom(**other).objective.model_dump()
            changed = {key for key in before if before[key] != after[key]}
            assert len(changed) == 1, (name, changed)


@pytest.mark.parametrize(
    ("sections", "weights"),
    [
        ({"coord_soft_ce_w1": SOFT}, {"soft_ce_weight": 1, "w1_weight": 1, "gate_weight": 1}),
        ({"coord_soft_ce_w1": SOFT | {"w1_weight": 0}}, {"soft_ce_weight": 1, "gate_weight": 1}),
        ({"coord_objective": {"use_coord_ce": True, "lambda_coord_ce": 3}}, {"coord_ce_weight": 3}),
        ({"coord_objective": BOX | {"lambda_coord": 2}}, {"coord_ce_weight": 1, "box_weight": 2}),
        ({"coord_offset": {"enabled": True}}, {"coord_ce_weight": 1}),  # as plain fine-tuning
        ({"coord_offset": {"enabled": True}, "coord_soft_ce_w1": SOFT},
         {"soft_ce_weight": 1, "w1_weight": 1, "gate_weight": 1}),
        ({"coord_tokens": {"enabled": False}}, {}),
    ],
)  # fmt: skip
def test_switches_decide_which_weights_are_not_0(sections, weights):
    found = custom(**sections)
    assert {name: weight for name, weight in found.weights.items() if weight} == weights
    assert found.trains_coordinates is bool(weights)


@pytest.mark.parametrize(
    "sections",
    [
        {"coord_offset": {"enabled": False}},
        {"coord_offset": {"enabled": True}, "coord_objective": {}},
        {"coord_offset": {"enabled": True}, "coord_soft_ce_w1": {"enabled": False}},
        {"coord_offset": {"enabled": True}, "coord_tokens": {"enabled": False}},
        {"coord_objective": {"use_coord_ce": True, "lambda_coord_ce": 0}},
        {"coord_objective": {"use_geom_loss": True}},
        {"coord_objective": {"use_coordexp_loss": True}},
        {"coord_tokens": {"skip_bbox_norm": False}, "coord_soft_ce_w1": SOFT},
        "text",
    ],
)
def test_what_trains_no_coordinate_or_contradicts_itself_is_refused(sections):
    with pytest.raises(InputError, match="custom"):
        check_run_config({"custom": sections}, "test")


def test_a_cut_that_is_switched_off_is_told_once():
    """Targets that are not computed are not cut off either; at the border they still fall."""
    off = {"coord_objective": {"use_coord_ce": True}, "coord_soft_ce_w1": {"target_sigma": 100}}
    (line,) = settings_without_effect(check_run_config({"custom": off}, "test"))
    assert "coord_soft_ce_w1.enabled" in line
    for sigma, told in ((16, 0), (16.5, 1)):
        on = {"coord_soft_ce_w1": SOFT | {"target_sigma": sigma}}
        assert len(settings_without_effect(check_run_config({"custom": on}, "test"))) == told


@pytest.mark.parametrize(
    ("deepspeed", "shards"),
    [
        (None, False),
        ("zero2", False),
        ("zero3", True),
        ("zero3_offload", True),
        ({}, False),
        ({"zero_optimization": None}, False),
        ({"zero_optimization": {"stage": 2}}, False),
        ({"zero_optimization": {"stage": 3}}, True),
    ],
)
def test_stage_3_is_seen_in_each_form(tmp_path, deepspeed, shards):
    assert shards_weights(deepspeed) is shards
    if isinstance(deepspeed, dict):
        (tmp_path / "zero3_of_mine.json").write_text(json.dumps(deepspeed))
        assert shards_weights(str(tmp_path / "zero3_of_mine.json")) is shards


@pytest.mark.parametrize(
    ("training", "offsets", "in_full"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"tuner_type": "lora"}, False, False),
        ({"tuner_type": "lora"}, True, False),
        ({"tuner_type": "full"}, False, True),
    ],
)
def test_offsets_make_lora_the_default(training, offsets, in_full):
    custom = {"coord_soft_ce_w1": SOFT, "coord_offset": {"enabled": offsets}}
    assert trains_in_full(check_run_config({"custom": custom, "training": training}, "test")) is in_full
