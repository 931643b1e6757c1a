"""Families of models, whose stored names may differ from those of their modules: merged, they answer as under PEFT."""

import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from tiny_checkpoint import read_all, shake

from coord_adapter import install_coord_offset_adapter, with_offset_modules
from coord_exporter import merge

TEXT = {
    "vocab_size": 128, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "initializer_range": 0.2,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
QWEN2 = {"depth": 1, "hidden_size": 32, "num_heads": 2, "patch_size": 14}
QWEN3 = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32}
QWEN3 |= {"patch_size": 16, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
CLIP = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
EXPERTS = {"moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1}


def rope(*sections):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections)}}


FAMILIES = {
    "Llama": (TEXT, None),
    "Gemma2": (TEXT, None),  # it scales its embedding
    "Qwen2VL": (TEXT | rope(1, 1, 2), QWEN2 | {"embed_dim": 32, "mlp_ratio": 2}),
    "Qwen2_5_VL": (
        TEXT | rope(1, 1, 2),
        QWEN2 | {"intermediate_size": 48, "out_hidden_size": 32, "fullatt_block_indexes": [0]},
    ),
    "Qwen3VL": (TEXT | rope(2, 1, 1), QWEN3),
    "Qwen3VLMoe": (TEXT | rope(2, 1, 1) | EXPERTS, QWEN3),
    "InternVL": (TEXT | {"model_type": "qwen2"}, CLIP | {"image_size": [28, 28], "patch_size": [14, 14]}),
    "Llava": (
        TEXT | {"model_type": "llama"},
        CLIP | {"model_type": "clip_vision_model", "image_size": 28, "patch_size": 14, "projection_dim": 32},
    ),
}


def make(name, tied, folder, published=False, dtype="float32"):
    text, vision = FAMILIES[name]
    torch.manual_seed(0)
    parts = {"text_config": text | {"tie_word_embeddings": tied}, "vision_config": vision} if vision else text
    config = getattr(transformers, f"{name}Config")(**parts, tie_word_embeddings=tied)
    kind = getattr(transformers, f"{name}For{'ConditionalGeneration' if vision else 'CausalLM'}")
    kind(config).to(getattr(torch, dtype)).save_pretrained(folder)
    if published:  # the layout of the published mixtures: experts as [inputs, outputs]
        tensors = read_all(folder)
        experts = {name: tensor.mT.contiguous() for name, tensor in tensors.items() if ".experts." in name}
        save_file(tensors | experts, folder / "model.safetensors", metadata={"format": "pt"})
    return kind


def greedy(model, ids):
    settings = transformers.GenerationConfig(max_new_tokens=16, min_new_tokens=16, do_sample=False)
    with torch.inference_mode():
        return model.eval().generate(input_ids=ids, generation_config=settings)[0].tolist()


@pytest.mark.drawn(3)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("place", "name"), [*enumerate([*FAMILIES, "Qwen3VLMoe as published"])], ids=str)
def test_merge_of_a_family_gives_the_tokens_of_peft(tmp_path, place, name):
    """Every second of them ties embedding and head."""
    name, _, published = name.partition(" as ")
    tied = place % 2 == 1
    kind = make(name, tied, tmp_path / "base", bool(published))
    lora = {"r": 4, "lora_alpha": 12, "target_modules": "all-linear", "lora_dropout": 0.0}
    if name == "Qwen3VLMoe":
        lora |= {"target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"]}
    lora |= {"modules_to_save": ["lm_head"]} if not tied else {"trainable_token_indices": {"embed_tokens": [3, 90]}}
    model = shake(get_peft_model(kind.from_pretrained(tmp_path / "base"), LoraConfig(**lora)), std=0.1)
    model.save_pretrained(tmp_path / "adapter")
    report = merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out", verify=True, quiet=True)
    assert report.verification["compared"] == report.changed

    ids = torch.randint(6, 128, (1, 12), generator=torch.Generator().manual_seed(1))
    expected = greedy(PeftModel.from_pretrained(kind.from_pretrained(tmp_path / "base"), tmp_path / "adapter"), ids)
    merged, info = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert greedy(merged, ids) == expected != greedy(kind.from_pretrained(tmp_path / "base"), ids)


@pytest.mark.slow
@pytest.mark.drawn(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["Llava", "InternVL", "Gemma2"])
def test_two_tables_on_a_tied_base_are_verified_whatever_the_name_of_its_head(tmp_path, name):
    """The new head is stored beside its embedding, under a name that the base does not have."""
    kind = make(name, True, tmp_path / "base", dtype="bfloat16")
    base = kind.from_pretrained(tmp_path / "base")
    install_coord_offset_adapter(base, range(100, 120), tie_head=False)
    lora = {"r": 4, "target_modules": "all-linear", "lora_dropout": 0.0}
    shake(get_peft_model(base, LoraConfig(**with_offset_modules(lora))), std=0.1).save_pretrained(tmp_path / "adapter")
    report = merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out", verify=True, quiet=True)
    assert report.untied and report.verification["compared"] == report.changed
    merged, info = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert merged.get_output_embeddings().weight is not merged.get_input_embeddings().weight


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "today", "before"), [
    ("Qwen2VL", "model.language_model.", "model."),
    ("Llava", "model.language_model.", "language_model.model."),
])  # fmt: skip
def test_adapter_with_names_of_before_transformers_4_52_is_merged_and_verified(tmp_path, name, today, before):
    kind = make(name, False, tmp_path / "base")
    lora = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "down_proj"], "lora_dropout": 0.0}
    shake(get_peft_model(kind.from_pretrained(tmp_path / "base"), LoraConfig(**lora)), std=0.1).save_pretrained(
        tmp_path / "adapter"
    )
    merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "expected", verify=True, quiet=True)
    old = {key.replace(f"base_model.model.{today}", f"base_model.model.{before}"): value
           for key, value in read_all(tmp_path / "adapter").items()}  # fmt: skip
    save_file(old, tmp_path / "adapter" / "adapter_model.safetensors", metadata={"format": "pt"})
    assert any(key.startswith(f"base_model.model.{before}layers") for key in old)
    merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out", verify=True, quiet=True)
    found, expected = read_all(tmp_path / "out"), read_all(tmp_path / "expected")
    assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in found)
