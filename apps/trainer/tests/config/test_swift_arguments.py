"""The table of ms-swift's arguments: equal to the installed ms-swift's, and what becomes of each value."""

import dataclasses
import fnmatch
import inspect
import json
import types
import typing
from pathlib import Path

import pytest
import yaml

from coord_codec import InputError
from coord_trainer.config.refused_arguments import OWNED_NAMES, REFUSED_NAMES, refused_families
from coord_trainer.config.run_config import RunConfig, check_run_config
from coord_trainer.config.swift_arguments import _SCHEDULER_NEEDS, DEEPSPEED_PRESETS, SCHEDULER_KEYWORDS, argument_table

SOFT = {"coord_soft_ce_w1": {"enabled": True}}


def training(**values):
    return check_run_config({"custom": SOFT, "training": values}, "test").training


def spelled(hint):
    """Return a type annotation in the table's notation."""
    names, optional = [], [False]

    def add(part):
        if part is type(None):
            optional[0] = True
        elif typing.get_origin(part) in (typing.Union, types.UnionType):
            for one in typing.get_args(part):
                add(one)
        elif typing.get_origin(part) is typing.Literal:
            for one in typing.get_args(part):
                add(type(one))
        else:
            kind = typing.get_origin(part) or part
            text = isinstance(kind, type) and issubclass(kind, (str, Path))
            names.append("str" if text else kind.__name__ if kind in (bool, int, float, list, dict) else "object")

    add(hint)
    return "|".join(dict.fromkeys(names)) + "?" * optional[0]


@pytest.fixture(scope="module")
def fields():
    """Each argument of the installed ms-swift: its type, and the choices that the annotation or the field gives."""
    arguments = pytest.importorskip("swift.arguments").SftArguments
    hints = typing.get_type_hints(arguments)
    from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType
    from transformers.training_args import OptimizerNames

    enums = {
        "optim": OptimizerNames,
        "lr_scheduler_type": SchedulerType,
        "save_strategy": SaveStrategy,
        "eval_strategy": IntervalStrategy,
        "logging_strategy": IntervalStrategy,
    }
    found = {}
    for field in dataclasses.fields(arguments):
        if field.init:
            literal = [
                str(value)
                for part in (hints[field.name], *typing.get_args(hints[field.name]))
                if typing.get_origin(part) is typing.Literal
                for value in typing.get_args(part)
                if value is not None
            ]
            choices = literal or [str(one.value) for one in enums.get(field.name, ())]
            found[field.name] = spelled(hints[field.name]), set(choices)
    return found


def test_each_argument_of_ms_swift_has_one_class(fields):
    exact = [*argument_table(), *OWNED_NAMES, *(name for name in REFUSED_NAMES if "*" not in name)]
    assert len(exact) == len(set(exact)) and set(exact) <= set(fields)
    by_family = set(fields) - set(exact)
    assert {name: len(refused_families(name)) for name in by_family} == dict.fromkeys(by_family, 1)
    families = {name for name in REFUSED_NAMES if "*" in name}
    assert not [family for family in families if not fnmatch.filter(by_family, family)]


def test_forwarded_arguments_have_the_types_of_ms_swift(fields):
    assert {name: row.type for name, row in argument_table().items()} == {n: fields[n][0] for n in argument_table()}


def test_table_offers_choices_that_ms_swift_has(fields):
    from swift.optimizers import optimizers_map

    from coord_adapter.optimizer import param_group_names

    for name, row in argument_table().items():
        if fields[name][1]:
            assert set(row.choices) <= fields[name][1], name
            assert row.choices, f"{name}: ms-swift has the choices {fields[name][1]}, the table none"
    offered = set(argument_table()["optimizer"].choices)
    assert offered == (set(optimizers_map) | set(param_group_names())) - {"galore", "muonclip"}


def test_what_an_argument_needs_is_forwarded_and_what_owns_one_is_a_key():
    for row in argument_table().values():
        assert not row.needs or row.needs.partition("=")[0] in argument_table(), row.name
    for keys in OWNED_NAMES.values():
        for key in keys.split(" and "):
            section, name, *_ = key.split(".")
            assert name in RunConfig.model_fields[section].annotation.model_fields, key


def test_scheduler_keywords_are_those_of_transformers():
    from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION as FUNCTIONS

    common = {"optimizer", "num_warmup_steps", "num_training_steps", "last_epoch"}
    for name in argument_table()["lr_scheduler_type"].choices:
        theirs = set(inspect.signature(FUNCTIONS[name]).parameters) - common
        assert set(SCHEDULER_KEYWORDS.get(name, ())) == theirs, name


def test_deepspeed_presets_are_ms_swifts():
    swift = pytest.importorskip("swift")
    assert all((Path(swift.__file__).parent / "config" / f"{name}.json").is_file() for name in DEEPSPEED_PRESETS)


@pytest.mark.slow
def test_refused_and_owned_arguments_are_named_with_the_reason(fields):
    for name in set(fields) - set(argument_table()):
        with pytest.raises(InputError) as caught:
            training(**{name: 1})
        message = str(caught.value)
        reasons = [OWNED_NAMES.get(name) or REFUSED_NAMES.get(name), *refused_families(name)]
        assert message.startswith(f"test: training.{name} is ") and "\n" not in message
        assert next(filter(None, reasons)) in message
        assert training(**{name: None}) == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"learning_rate": float("nan")}, "a number"),
        ({"learning_rate": 10**400}, "a number"),
        ({"learning_rate": -1}, "0.."),
        ({"learning_rate": "fast"}, "'fast'"),
        ({"learning_rate": True}, "a number"),
        ({"learning_rate": [1e-3]}, "a number"),
        ({"max_steps": 0}, "1.. or -1"),
        ({"max_steps": 2.5}, "a whole number"),
        ({"num_train_epochs": 0}, ">0"),
        ({"warmup_ratio": 1.5}, "0..1"),
        ({"warmup_steps": 5, "warmup_ratio": 0.1}, "training.warmup_ratio is 0.1 and training.warmup_steps is 5"),
        ({"adam_beta2": 1.0}, "0..<1"),
        ({"per_device_train_batch_size": 0}, "1.."),
        ({"dataloader_num_workers": -1}, "0.."),
        ({"optim": "adam"}, "adamw_torch"),
        ({"optimizer": "galore"}, "multimodal_coord_offset"),
        ({"lr_scheduler_type": "cosin"}, "cosine_with_min_lr"),
        ({"save_strategy": False}, "expected one of steps, epoch, found False, which is how YAML reads no and off"),
        ({"tuner_type": "adalora"}, "full, lora"),
        ({"truncation_strategy": "split"}, "delete, left, right"),
        ({"report_to": ["tensorbord"]}, "tensorboard"),
        ({"gradient_checkpointing": "yes"}, "true or false"),
        ({"run_name": 5}, "text"),
        ({"freeze_parameters": {"a": 1}}, "a list"),
        ({"max_shard_size": "big"}, "5GB"),
        ({"deepspeed": "zero4"}, "zero2"),
        ({"deepspeed": 2}, "a mapping or text"),
        ({"lr_scheduler_kwargs": "half"}, "a mapping"),
        ({"lr_scheduler_kwargs": {"num_cycle": 2}}, "num_cycles"),
        ({"lr_scheduler_type": "linear", "lr_scheduler_kwargs": {"power": 2}}, "nothing"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "min_lr"),
        ({"use_liger_kernel": True}, "liger_kernel"),
        ({"optim": "adamw_8bit"}, "bitsandbytes"),
        ({"report_to": "wandb"}, "wandb"),
        ({"lora_rank": 8}, "training.tuner_type: lora"),
        ({"use_dora": True, "tuner_type": "full"}, "training.tuner_type: lora"),
        ({"freeze_parameters": ["a"], "tuner_type": "lora"}, "training.tuner_type: full"),
        ({"vit_gradient_checkpointing": True}, "training.gradient_checkpointing"),
        ({"dataloader_prefetch_factor": 2}, "training.dataloader_num_workers"),
        ({"lorap_lr_ratio": 16, "tuner_type": "lora"}, "training.optimizer: lorap"),
        ({"vit_lr": 1e-4, "optimizer": "default"}, "multimodal"),
        ({"optimizer": "muon", "tuner_type": "lora"}, "set training.tuner_type: full"),
        ({"optimizer": "muon", "optim": "sgd"}, "set training.optim: adamw_torch"),
        ({"optimizer": "muon", "deepspeed": "zero2"}, "set training.deepspeed: null"),
        ({"early_stop_interval": 3, "eval_strategy": "no"}, "eval_strategy"),
        ({"target_regex": "q$", "target_modules": ["q"], "tuner_type": "lora"}, "target_regex"),
        ({"learning_rat": 1}, "did you mean learning_rate?"),
    ],
    ids=json.dumps,
)
def test_wrong_training_settings_are_one_line_that_names_the_key(given, told):
    with pytest.raises(InputError) as caught:
        training(**given)
    message = str(caught.value)
    assert message.startswith("test: training.") and "\n" not in message
    assert told in message and any(f"training.{name}" in message for name in given)


def test_right_training_settings_come_in_their_type():
    given = yaml.safe_load(
        "{learning_rate: 1e-4, max_steps: 1e3, save_steps: 0.25, eval_strategy: no, report_to: tensorboard, "
        "max_grad_norm: 0, lr_scheduler_kwargs: {num_cycles: 2}, deepspeed: null, use_hf: true, max_shard_size: 5GB}"
    )
    found = training(**given)
    assert found == {
        "learning_rate": 1e-4,
        "max_steps": 1000,
        "save_steps": 0.25,
        "eval_strategy": "no",
        "report_to": ["tensorboard"],
        "max_grad_norm": 0,
        "lr_scheduler_kwargs": {"num_cycles": 2},
        "use_hf": True,
        "max_shard_size": "5GB",
    }
    assert type(found["max_steps"]) is int and training(max_steps=-1) == {"max_steps": -1}
    lora = {"tuner_type": "lora", "init_weights": True, "target_modules": "all-linear", "lora_rank": 4}
    assert training(**lora) == lora | {"init_weights": "true", "target_modules": ["all-linear"]}


def test_lora_settings_act_with_offsets_alone():
    config = check_run_config({"custom": {"coord_offset": {"enabled": True}}, "training": {"lora_rank": 4}}, "test")
    assert config.training == {"lora_rank": 4}


LORA = {"tuner_type": "lora"}
RIGHT = [
    # A scheduler has one of what it needs, and may have each of what it takes.
    *({"lr_scheduler_type": name, "lr_scheduler_kwargs": {need: 0.1}}
      for name, needs in _SCHEDULER_NEEDS.items() for need in needs),
    *({"lr_scheduler_type": name, "lr_scheduler_kwargs": {_SCHEDULER_NEEDS.get(name, (key,))[0]: 0.1, key: 0.2}}
      for name, keys in SCHEDULER_KEYWORDS.items() for key in keys),
    {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": '{"power": 2}'}, {"lr_scheduler_kwargs": {}},
    {"lr_scheduler_type": "linear"},
    # Borders, each on the side that is allowed
    {"adam_beta1": 0}, {"adam_beta2": 0.999}, {"warmup_ratio": 0}, {"warmup_ratio": 1}, {"max_steps": 1},
    {"num_train_epochs": 0.01}, {"save_total_limit": 1}, {"dataloader_num_workers": 0}, {"weight_decay": 0},
    {**LORA, "lora_dropout": 0}, {**LORA, "lora_rank": 1},
    # What is switched off needs nothing.
    {"use_dora": False}, {"vit_gradient_checkpointing": False}, {"dataloader_persistent_workers": False},
    {"lora_dropout": 0.0}, {"warmup_ratio": 0, "warmup_steps": 5}, {"warmup_ratio": 0.5, "warmup_steps": 0},
    # What is needed is there.
    {"vit_lr": 1e-4, "optimizer": "multimodal"}, {"vit_lr": 1e-4, "optimizer": "multimodal_coord_offset"},
    {"optimizer": "muon"}, {"optimizer": "muon", "optim": "adamw_torch_fused"},
    {"optimizer": "muon", "tuner_type": "full"}, {**LORA, "optimizer": "lorap", "lorap_lr_ratio": 2},
    {"vit_gradient_checkpointing": True, "gradient_checkpointing": True},
    {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 2},
    {"early_stop_interval": 1, "eval_strategy": "steps"}, {"early_stop_interval": 1}, {**LORA, "target_regex": "q$"},
    {**LORA, "target_modules": ["q", "v"]}, {"max_shard_size": "500MB"}, {"max_shard_size": "1.5GiB"},
    {"max_shard_size": "20KB"}, {"report_to": ["none"]}, {"report_to": []}, {"report_to": ["tensorboard"]},
    {"save_strategy": "epoch"},
]  # fmt: skip


@pytest.mark.parametrize("given", RIGHT, ids=json.dumps)
def test_right_settings_are_taken_as_they_are(given):
    assert training(**given) == given


@pytest.mark.parametrize(
    ("given", "told", "untold"),
    [
        ({"learning_rat": None}, "learning_rat", None),  # a null key that does not exist is a mistake too
        ({"max_steps": -2}, "1.. or -1", None),
        ({"num_train_epochs": -1}, ">0", None),
        ({"adam_beta1": -0.1}, "0..<1", None),
        ({"warmup_ratio": -0.1}, "0..1", None),
        ({**LORA, "lora_dropout": 1.0}, "0..<1", None),
        ({**LORA, "lora_alpha": 0}, ">0", None),
        ({"max_steps": True}, "a whole number", None),
        ({"max_steps": "1e400"}, "a whole number", None),
        ({"learning_rate": float("inf")}, "a number", None),
        ({"freeze_parameters": [{"a": 1}]}, "a list", None),
        ({"optim": "muon"}, "that is a value of training.optimizer", None),
        ({"optim": "no"}, "one of adamw_torch", "that is a value"),
        ({"optim": "none"}, "one of adamw_torch", "that is a value"),  # of several arguments
        ({"optim": ["steps"]}, "one of adamw_torch", "that is a value"),
        ({"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"num_cycles": 1}}, "min_lr or ", None),
        ({"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_cycles": 1}}, "num_decay", None),
        ({"lr_scheduler_kwargs": "[1]"}, "a mapping", None),
        ({"max_shard_size": "5GBx"}, "5GB", None),
        ({"max_shard_size": "x5GB"}, "5GB", None),
        ({**LORA, "vit_lr": 1e-4, "optimizer": "lorap"}, "optimizer: lorap", None),
        ({"aligner_lr": 1e-4, "optimizer": "muon"}, "optimizer: muon", None),
        ({"aligner_lr": 0.0, "optimizer": "default"}, "aligner_lr", None),
        ({"optim": "paged_adamw_32bit"}, "bitsandbytes", None),
        ({"optim": "lion_32bit"}, "bitsandbytes", None),
        ({"optim": "lion_8bit"}, "bitsandbytes", None),
        ({"optim": "adamw_bnb_8bit"}, "bitsandbytes", None),
        ({"report_to": ["tensorboard", "mlflow"]}, "needs the package mlflow", "tensorboard,"),
        ({"deepspeed": "gone.json"}, "a JSON file or a mapping", None),
        ({**LORA, "quant_method": "bnb"}, "training.quant_bits", None),
        ({**LORA, "quant_method": "bnb", "quant_bits": 4, "deepspeed": {"zero_optimization": {"stage": 3}}},
         "use stage 2", None),
    ],
    ids=lambda value: json.dumps(value)[:60],
)  # fmt: skip
def test_wrong_neighbours_of_right_settings_are_told(given, told, untold, monkeypatch):
    if "bitsandbytes" in told or "mlflow" in told:
        module = "coord_trainer.config.swift_arguments.find_spec"
        monkeypatch.setattr(module, lambda name: None if name in ("bitsandbytes", "mlflow") else 1)
    with pytest.raises(InputError) as caught:
        training(**given)
    assert told in str(caught.value) and (untold is None or untold not in str(caught.value))


def test_every_mistake_has_a_line_of_its_own():
    with pytest.raises(InputError) as caught:
        training(max_steps=0, learning_rat=1, optim="adam", warmup_ratio=0.5)
    assert len(str(caught.value).splitlines()) == 3
