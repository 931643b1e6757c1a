"""Contradictions between settings: every rule of every list names settings that exist."""

import ast
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import coord_trainer
from coord_adapter import CoordOffsetConfig
from coord_codec import InputError
from coord_detect.settings.rules import Rule, first_contradiction
from coord_trainer.config.objective import CUSTOM_RULES
from coord_trainer.config.reference import config_keys
from coord_trainer.config.refused_arguments import OWNED_NAMES
from coord_trainer.config.run_config import check_run_config, load_run_config
from coord_trainer.config.sections import DATA_RULES, EVALUATION_RULES, RUN_RULES
from coord_trainer.config.swift_arguments import TRAINING_RULES, argument_table
from coord_trainer.config.without_effect import settings_without_effect

RULES = {
    "custom": CUSTOM_RULES,
    "data": DATA_RULES,
    "evaluation": EVALUATION_RULES,
    "run": RUN_RULES,
    "training": TRAINING_RULES,
}
SOFT = {"coord_soft_ce_w1": {"enabled": True}}
BOX = {"use_coordexp_loss": True, "use_geom_loss": True}


KNOWN = {key.name.replace("[]", "") for key in config_keys()}
KNOWN |= {name.rpartition(".")[0] for name in KNOWN}
KNOWN |= {f"training.{name}" for name in (*argument_table(), *OWNED_NAMES)}


@pytest.mark.slow
def test_every_key_that_a_text_names_exists():
    source = Path(coord_trainer.__file__).parent
    named = re.compile(r"(?<![\w./-])(?:run|data|custom|training|evaluation)\.(?!json)[a-z_0-9.]*[a-z_0-9](?![\w-])")
    texts = [
        (file.name, node.value)
        for file in source.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert {(place, key) for place, text in texts for key in named.findall(text) if key not in KNOWN} == set()


@pytest.mark.parametrize("section", RULES)
def test_rules_of_a_section_name_settings_that_exist_and_one_of_its_own(section):
    for rule in RULES[section]:
        assert set(rule.keys) <= KNOWN, rule
        assert any(key.split(".")[0] in (section, "training") for key in rule.keys), rule


@pytest.mark.parametrize("section", RULES)
def test_default_configuration_breaks_no_rule(section):
    assert first_contradiction(check_run_config({"custom": SOFT}, "test"), RULES[section]) is None


def test_message_shows_every_key_with_its_value():
    rule = Rule(lambda c: c.a.b > 1, ("a.b", "a.c", "training.d"), "change one")
    config = SimpleNamespace(a=SimpleNamespace(b=2, c=None), training={"d": True})
    assert first_contradiction(config, [], [rule]) == "a.b is 2 but a.c is not set but training.d is true: change one"


@pytest.mark.parametrize(
    ("sections", "keys"),
    [
        (
            {"training": {"use_dora": True, "tuner_type": "lora", "target_modules": ["lm_head"]}},
            ("training.use_dora", "training.target_modules"),
        ),
        ({"model": {"dtype": "float16"}}, ("model.dtype", "training.tuner_type")),
        (
            {"evaluation": {"speed": "exact"}, "custom": {"coord_tokens": {"enabled": False}}},
            ("evaluation.speed", "custom.coord_tokens.enabled"),
        ),
        (
            {"evaluation": {"speed": "exact"}, "model": {"attention": "flash_attention_2"}},
            ("evaluation.speed", "model.attention"),
        ),
        ({"data": {"annotations": "a.json"}}, ("evaluation.images", "data.heldout_annotations")),
        (
            {"custom": SOFT | {"coord_offset": {"enabled": True}}, "training": {"tuner_type": "full"}},
            ("custom.coord_offset.enabled", "training.tuner_type"),
        ),
        (
            {"custom": {"coord_tokens": {"enabled": False}, "coord_offset": {"enabled": True}}},
            ("coord_tokens.enabled", "coord_offset.enabled"),
        ),
        ({"custom": {"coord_objective": BOX | {"lambda_coord": 0}}}, ("coord_tokens.enabled", "lambda_coord")),
        (
            {"custom": {"coord_objective": BOX | {"alpha_l1": 0, "beta_giou": 0}}},
            ("use_geom_loss", "alpha_l1", "beta_giou"),
        ),
        ({"custom": {"coord_soft_ce_w1": {"enabled": True, "w1_weight": math.inf}}}, ("w1_weight",)),
        (
            {"evaluation": {"decoding": {"grammar": "names"}}, "custom": {"coord_tokens": {"enabled": False}}},
            ("evaluation.decoding", "custom.coord_tokens.enabled"),
        ),
        ({"training": {"max_steps": 3, "num_train_epochs": 2}}, ("training.max_steps", "training.num_train_epochs")),
        (
            {"run": {"gradient_norms": True}, "training": {"gradient_checkpointing": True}},
            ("run.gradient_norms", "training.gradient_checkpointing"),
        ),
        (
            {"run": {"gradient_norms": True}, "training": {"deepspeed": "zero3"}},
            ("run.gradient_norms", "training.deepspeed"),
        ),
        (
            {"training": {"freeze_llm": True, "freeze_vit": True, "freeze_aligner": True}},
            ("training.freeze_llm", "training.freeze_vit", "training.freeze_aligner"),
        ),
        (
            {"training": {"early_stop_interval": 3}, "evaluation": {"images": "none"}},
            ("training.early_stop_interval", "evaluation.images"),
        ),
        ({"training": {"save_strategy": "no"}}, ("training.save_strategy", "steps, epoch")),
    ],
)
def test_broken_rule_is_refused_by_its_keys(sections, keys):
    with pytest.raises(InputError) as caught:
        check_run_config({"custom": SOFT} | sections, "test")
    assert all(key in str(caught.value) for key in keys)


OBJECTIVE = "custom.coord_objective"
OFFSETS = {
    "ids": [3],
    "allow_wildcard": True,
    "tie_head": False,
    "embed_lr": 1e-3,
    "head_lr": 1e-3,
    "weight_decay": 0.5,
    "dtype": "bfloat16",
}
"""A value other than the default for every field of the offsets but the switch."""


@pytest.mark.parametrize(
    ("sections", "keys"),
    [
        *(
            (
                {"custom": SOFT | {"coord_objective": {name: value}}},
                (f"{OBJECTIVE}.{name}", f"{OBJECTIVE}.use_geom_loss"),
            )
            for name, value in {
                "lambda_coord": 0.2,
                "alpha_l1": 2,
                "beta_giou": 2,
                "expectation_temperature": 2,
                "matching": "hungarian",
            }.items()
        ),
        (
            {"custom": SOFT | {"coord_objective": {"shape_boxes": True}}, "data": {"geometry": "polygon"}},
            (f"{OBJECTIVE}.shape_boxes", f"{OBJECTIVE}.use_geom_loss"),
        ),
        (
            {"custom": {"coord_objective": BOX | {"lambda_coord_ce": 2}}},
            (f"{OBJECTIVE}.lambda_coord_ce", "use_coord_ce"),
        ),
        ({"custom": {"coord_objective": BOX | {"term_options": {"soft_ce": {}}}}}, (f"{OBJECTIVE}.term_options",)),
        ({"custom": {"coord_objective": BOX, "coord_soft_ce_w1": {"w1_weight": 2}}}, ("coord_soft_ce_w1.w1_weight",)),
        ({"custom": {"coord_soft_ce_w1": {"enabled": True, "target_sigma": 100}}}, ("target_sigma", "target_truncate")),
        *(
            ({"custom": SOFT | {"coord_offset": {name: value}}}, (f"coord_offset.{name}", "coord_offset.enabled"))
            for name, value in OFFSETS.items()
        ),
        (
            {"custom": SOFT | {"coord_offset": {"enabled": True, "head_lr": 1e-3}}},
            ("coord_offset.head_lr", "coord_offset.tie_head"),
        ),
        ({"training": {"optimizer": "multimodal_coord_offset"}}, ("training.optimizer", "custom.coord_offset.enabled")),
        ({"evaluation": {"views": ["mirror"], "images": "none"}}, ("evaluation.views", "evaluation.images")),
        (
            {"training": {"warmup_steps": 20, "max_steps": 10}},
            ("training.warmup_steps is 20", "training.max_steps is 10"),
        ),
        ({"training": {"learning_rate": 0}}, ("training.learning_rate is 0",)),
        ({"training": {"vit_lr": 0.0, "optimizer": "multimodal"}}, ("training.vit_lr",)),
    ],
)
def test_setting_without_effect_is_told_by_its_keys(sections, keys):
    (line,) = settings_without_effect(check_run_config({"custom": SOFT} | sections, "test"))
    assert all(key in line for key in keys)


def test_learning_rate_may_be_reached_at_the_last_step():
    sections = {"custom": SOFT, "training": {"warmup_steps": 10, "max_steps": 10}}
    assert settings_without_effect(check_run_config(sections, "test")) == []


def test_every_field_of_the_offsets_is_tried():
    assert OFFSETS.keys() == CoordOffsetConfig.model_fields.keys() - {"enabled"}


@pytest.mark.parametrize("name", ["adam_beta1", "adam_beta2", "adam_epsilon"])
def test_argument_of_single_optimizers_is_told_where_transformers_does_not_pass_it_on(name):
    Trainer = pytest.importorskip("transformers").Trainer
    from transformers import TrainingArguments

    tried = 0
    for optim in argument_table()["optim"].values.split(", "):
        try:
            with_it, without = (
                Trainer.get_optimizer_cls_and_kwargs(TrainingArguments(optim=optim, use_cpu=True, **given))[1]
                for given in ({name: 0.5}, {})
            )
        except (ImportError, ValueError):  # a library that is not installed
            continue
        tried += 1
        config = check_run_config({"custom": SOFT, "training": {name: 0.5}}, "test")
        config = config.model_copy(update={"training": {name: 0.5, "optim": optim}})
        assert bool(settings_without_effect(config)) == (with_it == without), optim
    assert tried > 4


def test_settings_of_the_groups_that_are_compared_have_an_effect():
    configs = Path(__file__).parents[4] / "configs"
    for file in (configs / "phase1").glob("*.yaml"):
        config = load_run_config(file, [], base=configs / "base" / "shapes.yaml")
        assert settings_without_effect(config) == [], file


@pytest.mark.parametrize(
    ("name", "optim", "told"),
    [("adam_epsilon", "lion_8bit", True), ("adam_beta1", "lion_8bit", False), ("adam_epsilon", "adamw_8bit", False),
     ("adam_beta2", "sgd", True), ("adam_beta2", "paged_lion_32bit", False)],
)  # fmt: skip
def test_arguments_of_optimizers_whose_library_may_be_missing_are_told_too(name, optim, told):
    config = check_run_config({"custom": SOFT, "training": {name: 0.5}}, "test")
    config = config.model_copy(update={"training": {name: 0.5, "optim": optim}})
    assert bool(settings_without_effect(config)) is told
