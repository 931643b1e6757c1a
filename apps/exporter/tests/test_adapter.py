"""Adapter folders: settings by PEFT's rules, and every damage named with nothing written."""

import json
import shutil

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key
from safetensors.torch import save_file
from tiny_checkpoint import ADAPTER_WEIGHTS, edit_json, edit_tensors, merge_quietly, offset_key, read_all, refused
from torch import nn

from coord_exporter import InputError, plan
from coord_exporter.adapter import LoraSettings, _integers, read_settings
from coord_exporter.checkpoint.read import TensorInfo, read_safetensors


def test_merge_accepts_the_unspoiled_fixture(files):
    merge_quietly(files / "base", files / "adapter", files.parent / "out")


def test_open_adapter_refuses_pickles(files):
    (files / "adapter" / ADAPTER_WEIGHTS).rename(files / "adapter" / "adapter_model.bin")
    refused(files, f"{ADAPTER_WEIGHTS}: missing")


@pytest.mark.parametrize("name", ["base", "adapter"])
def test_merge_refuses_missing_folder(files, name):
    shutil.rmtree(files / name)
    refused(files, f"{name}: expected an? .* folder, found nothing")


def put(name, value):
    return lambda tensors: tensors.update({name: value})


def fill(part, index, value):
    """Change values of the first tensor whose name has a part."""
    return lambda tensors: next(t for name, t in tensors.items() if part in name)[index].fill_(value)


def to_query(tensors):
    for name in [name for name in tensors if "self_attn.q_proj" in name]:
        tensors[name.replace("q_proj", "query")] = tensors.pop(name)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (fill("lora_B", (3, slice(1, 2)), float("nan")), "lora_B.weight: row 3 holds NaN or infinity"),
        (fill("lora_B", (3, slice(1, 2)), float("inf")), "lora_B.weight: row 3 holds NaN or infinity"),
        (put(offset_key("embed_offset"), torch.zeros(0, 64)), "embed_offset has 0 rows for 1000 token ids: .*ZeRO-3"),
        (
            put(offset_key("embed_offset"), torch.zeros(1000, 64, dtype=torch.int32)),
            "embed_offset: expected BF16, F16, F32, found I32",
        ),
        (
            put(offset_key("head_offset"), torch.zeros(1000, 64, dtype=torch.int32)),
            "head_offset: expected BF16, F16, F32, found I32",
        ),
        (put(offset_key("token_ids"), torch.zeros(1000)), "token_ids: expected whole numbers, found F32"),
        (lambda tensors: tensors.pop(offset_key("head_offset")), "offset tables lack head_offset"),
        (fill(".token_ids", slice(5, 6), 99999), "token id 99999 lies outside the 1280 rows"),
        (fill(".token_ids", slice(5, 6), -1), "token_ids: id -1 is outside the vocabulary"),
        (fill(".token_ids", slice(5, 7), 300), "token_ids: id 300 occurs twice"),
        (put("base_model.model.x.lora_E.weight", torch.ones(2)), "lora_E.weight: an unknown kind of factor"),
        (lambda tensors: tensors.pop(next(n for n in tensors if "lora_A" in n)), "a LoRA factor is missing"),
        (to_query, "2 of 14 adapted tensors are not in .*self_attn.query.weight; was the adapter trained on another"),
        (
            put("base_model.model.model.language_model.embed_tokens.weight", torch.ones(7, 64)),
            r"embed_tokens.weight is F32 \[7, 64\]",
        ),
    ],
)
def test_merge_refuses_tensors_that_cannot_be_merged(files, change, match):
    edit_tensors(files / "adapter", change)
    refused(files, match)


@pytest.mark.parametrize("name", ["vit.safetensors", "non_lora_state_dict.bin", "non_lora_trainables.bin", "head.pt"])
def test_open_adapter_refuses_weights_that_a_merge_would_lose(files, name):
    (files / "adapter" / name).write_bytes(b"weights")
    refused(files, f"{name}: weights beside the adapter's file")


def test_open_adapter_passes_over_the_state_of_a_training(files):
    names = "optimizer.pt optimizer_1.bin scheduler.pt scaler.pt rng_state_0.pth random_states_0.pt training_args.bin"
    for name in names.split():
        (files / "adapter" / name).write_bytes(b"state")
    merge_quietly(files / "base", files / "adapter", files.parent / "out")


@pytest.mark.parametrize("targets", [None, ["q_proj", "down_proj"], r".*(q|down)_proj"])
def test_merge_refuses_an_adapter_without_the_factors_of_a_layer_it_adapted(files, targets):
    def drop(tensors):
        for name in [name for name in tensors if "layers.1.mlp.down_proj" in name]:
            del tensors[name]

    if targets is not None:
        edit_json(files / "adapter" / "adapter_config.json", target_modules=targets)
    edit_tensors(files / "adapter", drop)
    refused(files, r"found none of 1, first model\.language_model\.layers\.1\.mlp\.down_proj")


@pytest.mark.slow
def test_merge_copies_layers_that_transformers_does_not_load(files):
    """Layers for predicting several tokens bear names of target modules; PEFT never sees them."""
    extra = {"mtp.layers.0.self_attn.q_proj.weight": torch.randn(64, 64)}
    save_file(read_all(files / "base") | extra, files / "base" / "model.safetensors", {"format": "pt"})
    edit_json(files / "adapter" / "adapter_config.json", target_modules=["q_proj"])
    merge_quietly(files / "base", files / "adapter", files.parent / "out")
    (name, value) = extra.popitem()
    assert torch.equal(read_all(files.parent / "out")[name], value)


def test_merge_takes_adapters_of_ms_swift_without_the_output_layer_of_multihead_attention(files, monkeypatch):
    class WithAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(64, 2)

    name = "model.visual.attention.out_proj"
    extra = {f"{name}.weight": torch.randn(64, 64)}
    save_file(read_all(files / "base") | extra, files / "base" / "model.safetensors", {"format": "pt"})
    edit_json(files / "adapter" / "adapter_config.json", target_modules=["q_proj", "out_proj"])
    model = nn.ModuleDict({"model": nn.ModuleDict({"visual": WithAttention()})})
    monkeypatch.setattr(plan, "empty_model", lambda base: model)
    merge_quietly(files / "base", files / "adapter", files.parent / "out")
    model["model"]["visual"].attention.out_proj = nn.Linear(64, 64)
    refused(files, f"found none of 1, first {name}", out=files.parent / "again")


SETTINGS = [
    ("peft_type", "IA3"),
    ("init_lora_weights", "pissa"),
    ("use_qalora", True),
    ("layer_replication", [[0, 1]]),
    ("target_parameters", "experts.w"),
    ("a_setting_of_next_year", 3),
    ("r", "many"),
    ("r", None),
    ("r", 7.5),
    ("r", True),
    ("lora_alpha", "16"),
    ("lora_alpha", [16]),
    ("rank_pattern", {"q_proj": 0}),
    ("rank_pattern", [["q_proj", 4]]),
    ("alpha_pattern", {"q_(proj": 1}),
    ("modules_to_save", "lm_head"),
    ("modules_to_save", [None]),
    ("trainable_token_indices", {"embed_tokens": "123"}),
    ("trainable_token_indices", [1.5]),
    ("use_dora", True),
    ("lora_bias", True),
    ("use_rslora", "false"),
    ("fan_in_fan_out", "no"),
    ("target_modules", [3]),
    ("exclude_modules", {"q_proj": 1}),
]


@pytest.mark.parametrize(("field", "value"), SETTINGS)
def test_read_settings_refuses_what_cannot_be_merged(files, field, value):
    edit_json(files / "adapter" / "adapter_config.json", **{field: value})
    refused(files, field)


def test_settings_are_refused_where_they_change_the_weights(tmp_path):
    """Ways to draw the first factors that subtract from the base, and unknown settings that are set at all."""
    path, told = tmp_path / "adapter_config.json", {}
    inits = (True, False, None, "gaussian", "eva", "orthogonal", "olora", "pissa", "pissa_niter_4", "corda", "loftq")
    values = (None, False, 0, "", [], {}, True, 3, "x", [1], {"a": 1})
    for changes in [{"init_lora_weights": init} for init in inits] + [{"of_next_year": value} for value in values]:
        path.write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4} | changes))
        try:
            read_settings(path)
        except InputError as error:
            told[json.dumps(changes)] = next(iter(changes)) in str(error)
    refused = [{"init_lora_weights": init} for init in inits[6:]] + [{"of_next_year": value} for value in values[6:]]
    assert told == dict.fromkeys(map(json.dumps, refused), True)


def test_offsets_ids_are_read_with_the_signs_of_their_type(tmp_path):
    values = {"I64": [-1, 2**40], "I32": [-1, 2**31 - 1], "U8": [0, 255]}
    kinds = {"I64": torch.int64, "I32": torch.int32, "U8": torch.uint8}
    save_file(
        {name: torch.tensor(values[name], dtype=kind) for name, kind in kinds.items()}, tmp_path / "f.safetensors"
    )
    assert {t.name: [*_integers(t)] for t in read_safetensors(tmp_path / "f.safetensors").tensors} == values


def test_row_that_is_not_finite_is_named_in_each_block(files, monkeypatch):
    edit_tensors(files / "adapter", fill("lora_B", (3, slice(1, 2)), float("nan")))
    monkeypatch.setattr(
        TensorInfo, "blocks", lambda self: ((lo, min(lo + 2, self.rows)) for lo in range(0, self.rows, 2))
    )
    refused(files, "lora_B.weight: row 3 holds NaN or infinity")


@pytest.mark.parametrize("content", ["null", "[]", "3", '"text"', "[" * 100_000])
@pytest.mark.parametrize("name", ["adapter/adapter_config.json", "base/config.json"])
def test_merge_refuses_a_configuration_that_is_no_object(files, name, content):
    (files / name).write_text(content)
    refused(files, f"{name}: (expected a JSON object|JSON nested too deeply|not JSON)")


def test_factors_that_zero_3_left_in_parts_are_named(files):
    def empty(tensors):
        name = next(name for name in tensors if name.endswith("lora_B.weight"))
        tensors[name] = torch.zeros(0)

    edit_tensors(files / "adapter", empty)
    refused(files, r"lora_B.weight: expected values, found the shape \[0\]: DeepSpeed's ZeRO-3")


NAMES = [
    "model.layers.1",
    "model.layers.10",
    "model.layers.1.q_proj",
    "model.layers.11.q_proj",
    "q_proj",
    "model.q_proj.k_proj",
    "xq_proj",
]


PATTERNS = [
    "layers.1",
    "q_proj",
    r"layers\.1\.q_proj",
    r"1\.q_proj",
    "k_proj",
    "model.*q_proj",
    r"^model\.layers\.\d\.q_proj",
]


@example(name="model.layers.1", keys=["layers.1"])
@example(name="model.layers.10", keys=["layers.1"])
@given(name=st.sampled_from(NAMES), keys=st.lists(st.sampled_from(PATTERNS), unique=True))
def test_rank_pattern_matches_as_in_peft(name, keys):
    ranks = {key: i + 2 for i, key in enumerate(keys)}
    config = LoraSettings(None, r=1, lora_alpha=1.0, rank_pattern=ranks)
    assert config.rank(name) == ranks.get(get_pattern_key(ranks, name), 1)


@pytest.mark.parametrize("named", [["q_proj"], ["layers.1"], ["k_proj", "model.layers.1"], r".*q_proj", "q_proj", []])
@pytest.mark.parametrize("excluded", [None, ["q_proj"], ["1.q_proj"], r"model.*", "proj"])
def test_modules_are_targets_as_in_peft(named, excluded):
    config = LoraConfig(target_modules=named, exclude_modules=excluded)
    settings = LoraSettings(None, r=1, lora_alpha=1.0, target_modules=named, exclude_modules=excluded or ())
    for name in NAMES:
        assert settings.targets(name) is bool(check_target_module_exists(config, name)), name
