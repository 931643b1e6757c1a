"""What reaches ms-swift: its arguments, DeepSpeed's settings, the groups of an optimizer."""

import copy
from pathlib import Path

import pytest
from tiny_run import tiny_config

from coord_codec import InputError
from coord_trainer.swift.pipeline import _PlannedTrainer, read_deepspeed, spell_out, swift_arguments

ARGUMENTS = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "max_grad_norm": 0.5}


def test_spell_out_writes_batch_sizes_and_clipping():
    found = spell_out({"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}, ARGUMENTS, ranks=4)
    assert found["train_batch_size"] == 24 and found["train_micro_batch_size_per_gpu"] == 2
    assert found["gradient_clipping"] == 0.5  # a silent configuration would clip at 1.0
    assert found["zero_optimization"] == {"stage": 2} and found["zero_force_ds_cpu_optimizer"] is False
    with pytest.raises(InputError, match=r"gradient_clipping to 1.0.*max_grad_norm"):
        spell_out({"gradient_clipping": 1.0}, ARGUMENTS, ranks=1)


def test_read_deepspeed_takes_a_preset_a_file_or_a_mapping(tmp_path):
    (tmp_path / "own.json").write_text('{"a": 1}')
    assert read_deepspeed("zero2")["zero_optimization"]["stage"] == 2
    assert read_deepspeed(str(tmp_path / "own.json")) == {"a": 1}
    assert read_deepspeed({"a": 2}) == {"a": 2}
    with pytest.raises(InputError, match="zero2, "):
        read_deepspeed("zero4")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(InputError, match=r"a JSON file or a mapping, .*list\.json: expected an object, found list"):
        read_deepspeed(str(tmp_path / "list.json"))


@pytest.mark.parametrize(
    ("name", "agrees", "contradicts"),
    [
        ("train_micro_batch_size_per_gpu", 2, (1, 3)),
        ("gradient_accumulation_steps", 3, (2, 4)),
        ("train_batch_size", 24, (6, 8, 48)),
        ("gradient_clipping", 0.5, (0.0, 1.0)),
    ],
)
def test_what_a_deepspeed_configuration_states_has_to_agree(name, agrees, contradicts):
    assert spell_out({name: agrees}, ARGUMENTS, ranks=4) == spell_out({name: "auto"}, ARGUMENTS, ranks=4)
    for stated in contradicts:
        with pytest.raises(InputError, match=rf"sets {name} to {stated}, but training\..* makes it {agrees}"):
            spell_out({name: stated}, ARGUMENTS, ranks=4)


SAID = {
    "output_dir": "run/checkpoints",
    "model": "base",
    "model_type": "entry",
    "seed": 5,
    "data_seed": 5,
    "strict": True,
}
SAID |= {"fp16": False, "bf16": False, "torch_dtype": "float32", "attn_impl": "sdpa", "eval_strategy": "no"}
SAID |= {"val_dataset": [], "dataset": ["unused"], "split_dataset_ratio": 0.0, "use_cpu": True, "ddp_backend": None}
SAID |= {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 8, "gradient_accumulation_steps": 2}
SAID |= {"max_grad_norm": 1.0, "tuner_type": "full", "report_to": ["tensorboard"], "save_strategy": "steps"}
SAID |= {"freeze_vit": False, "freeze_aligner": False, "gradient_checkpointing": False, "logging_steps": 1}
SAID |= {"dataloader_num_workers": 0, "lazy_tokenize": True, "add_version": False, "check_model": False}
OFFSETS = {"coord_offset": {"enabled": True}, "coord_objective": {"use_coord_ce": True}}


@pytest.mark.parametrize(
    ("sections", "ranks", "evaluates", "changed"),
    [
        ({}, 1, False, {}),
        ({}, 4, False, {"gradient_accumulation_steps": 1, "ddp_backend": "gloo"}),
        ({"training": {"per_device_train_batch_size": 3}}, 1, False,
         {"per_device_train_batch_size": 3, "per_device_eval_batch_size": 3, "gradient_accumulation_steps": 6}),
        ({"training": {"per_device_train_batch_size": 3}}, 2, False,
         {"per_device_train_batch_size": 3, "per_device_eval_batch_size": 3, "gradient_accumulation_steps": 3,
          "ddp_backend": "gloo"}),
        ({"training": {"per_device_train_batch_size": 20, "per_device_eval_batch_size": 2}}, 1, False,
         {"per_device_train_batch_size": 20, "per_device_eval_batch_size": 2, "gradient_accumulation_steps": 1}),
        ({}, 1, True, {"eval_strategy": "steps", "val_dataset": ["unused"]}),
        ({"training": {"eval_strategy": "epoch"}}, 1, True, {"eval_strategy": "epoch", "val_dataset": ["unused"]}),
        ({"model": {"dtype": "bfloat16"}}, 1, False, {"torch_dtype": "bfloat16", "bf16": True}),
        ({"model": {"dtype": "float16"}, "training": {"tuner_type": "lora"}}, 1, False,
         {"torch_dtype": "float16", "fp16": True, "tuner_type": "lora"}),
        ({"custom": OFFSETS}, 1, False, {"tuner_type": "lora", "optimizer": "multimodal_coord_offset"}),
        ({"custom": OFFSETS, "training": {"optimizer": "lorap"}}, 1, False,
         {"tuner_type": "lora", "optimizer": "lorap"}),
        ({"training": {"optimizer": "multimodal_coord_offset"}}, 1, False, {"optimizer": "multimodal"}),
        ({"training": {"max_grad_norm": 0.0, "freeze_vit": True, "report_to": []}}, 1, False,
         {"max_grad_norm": 0.0, "freeze_vit": True, "report_to": []}),
    ],
)  # fmt: skip
def test_arguments_are_our_defaults_the_settings_and_what_other_sections_say(
    monkeypatch, sections, ranks, evaluates, changed
):
    if ranks > 1:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", str(ranks))
    config = tiny_config(**{"run": {"seed": 5}} | sections)
    found = swift_arguments(config, Path("run"), "base", "entry", evaluates)
    wanted = SAID | changed
    assert {name: found.get(name) for name in wanted} == wanted
    assert ("optimizer" in found) is ("optimizer" in wanted)


RATES = {"learning_rate": 1e-3, "vit_lr": 1e-4, "aligner_lr": 2e-4, "weight_decay": 0.1}


@pytest.fixture
def groups(opened_run):
    """Build the groups of an optimizer of the registry for the tiny model: rate, decay and parameters of each."""
    from peft import LoraConfig, get_peft_model

    from coord_adapter import CoordOffsetConfig, install_coord_offset_adapter, offset_parameters, with_offset_modules
    from coord_trainer.swift.pipeline import optimizers_map

    run = opened_run[1]

    def build(name, offset=None, frozen=(), **rates):
        model = copy.deepcopy(run.model)
        for part in frozen:
            model.get_submodule(part).requires_grad_(False)
        if offset is not None:
            install_coord_offset_adapter(model, list(run.vocab.ids), tie_head=offset.get("tie_head", True))
            settings = with_offset_modules({"r": 2, "target_modules": ["q_proj", "qkv", "linear_fc1"]})
            meta, info = model.model_meta, getattr(model, "model_info", None)
            model = get_peft_model(model, LoraConfig(**settings))
            model.model_meta, model.model_info = meta, info
        arguments = copy.copy(run.pipeline.args.training_args)
        for key, value in {"optimizer": name, **RATES, **rates}.items():
            setattr(arguments, key, value)
        section = CoordOffsetConfig(enabled=offset is not None, **offset or {})
        built = optimizers_map[name](arguments, _PlannedTrainer(model, arguments, section)).create_optimizer()
        tables = {id(table) for tables in offset_parameters(model).values() for table in tables}
        found = {}
        for group in built.param_groups:
            for p in group["params"]:
                kind = "offset" if id(p) in tables else "other"
                found.setdefault((kind, round(group["lr"], 8), group["weight_decay"]), []).append(p.numel())
        trained = [p for p in model.parameters() if p.requires_grad]
        assert sum(map(len, found.values())) == len(trained)  # each once
        return built, {key: len(values) for key, values in found.items()}

    return build


@pytest.mark.parametrize("name", ["default", "multimodal", "multimodal_coord_offset", "lorap"])
@pytest.mark.parametrize(
    "section", [{"embed_lr": 3e-4, "weight_decay": 0.05}, {"tie_head": False, "embed_lr": 3e-4, "head_lr": 6e-4}]
)
def test_offsets_have_the_rates_of_their_section_under_every_optimizer(groups, name, section):
    parts = {} if name.startswith("multimodal") else {"vit_lr": None, "aligner_lr": None}
    _, found = groups(name, section, **parts)
    offsets = {key[1:] for key in found if key[0] == "offset"}
    decay = section.get("weight_decay", 0.0)
    assert offsets == {(section[rate], decay) for rate in ("embed_lr", "head_lr") if rate in section}
    rates = {key[1] for key in found if key[0] == "other"}
    assert rates >= ({1e-3, 1e-4, 2e-4} if name.startswith("multimodal") else {1e-3})


@pytest.mark.slow
def test_rates_of_parts_that_are_frozen_are_refused_by_name(groups):
    assert {key[1] for key in groups("multimodal")[1]} == {1e-3, 1e-4, 2e-4}
    for key, parts in (
        ("vit_lr", ["model.visual"]),
        ("aligner_lr", ["model.visual.merger", "model.visual.deepstack_merger_list"]),
    ):
        other = {"vit_lr": None, "aligner_lr": None} if key == "vit_lr" else {}
        for rate in (RATES[key], 0.0):
            with pytest.raises(
                InputError, match=rf"training\.{key} is {rate}, but no trained parameter lies in .*visual"
            ):
                groups("multimodal", frozen=parts, **other | {key: rate})
        assert groups("multimodal", frozen=parts, **other | {key: None})[1]


def test_muon_takes_the_groups_of_the_default_optimizer(groups):
    built, found = groups("muon", vit_lr=None, aligner_lr=None)
    assert type(built).__name__ == "MuonAdamW" and {group["muon"] for group in built.param_groups} >= {0, 1}
    assert found.keys() == groups("default", vit_lr=None, aligner_lr=None)[1].keys()
