"""What an install does to a model and what it refuses; baking the offsets into the vocabulary."""

import pytest
import torch
import transformers
from offset_tiny import (
    IDS,
    OTHERS,
    TEXT_LAYERS,
    H,
    V,
    batch,
    logits,
    lora,
    peft_model,
    prepared,
    ready,
    shake,
    tables_of,
    tiny,
)
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from coord_adapter import (
    MODULE_NAME,
    bake_offsets,
    install,
    install_coord_offset_adapter,
    reattach_coord_offset_hooks,
    save_as_trainable_tokens,
)
from coord_adapter.format import GUARD_NAME
from coord_adapter.peft import deepspeed_keeps_master


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "empty"),
        ([1, 2, 1], r"repeat \[1\]"),
        ([-1], r"\[-1\] lie outside the 300 rows"),
        ([5, V], r"\[300\] lie outside"),
        (range(290, 310), r"\[300, 301, ... 309\] \(10 of them\)"),
        ([1.5, 3], r"whole numbers in one dimension, got \[1.5, 3\]"),
        (["<|coord_0|>"], "whole numbers"),
        (torch.ones(2, 3), "one dimension"),
    ],
)
def test_install_refuses_bad_ids(ids, message):
    model = tiny()
    with pytest.raises(ValueError, match=message):
        install_coord_offset_adapter(model, ids)
    assert not hasattr(model, MODULE_NAME)


def test_install_takes_ids_of_any_iterable():
    adapter = install_coord_offset_adapter(tiny(), torch.tensor([7, 3]))
    assert adapter.token_ids.tolist() == [7, 3]


def test_install_refuses_a_model_without_one_of_the_two_tables(monkeypatch):
    for lacking in ("get_input_embeddings", "get_output_embeddings"):
        model = tiny()
        monkeypatch.setattr(model, lacking, lambda: None)
        with pytest.raises(ValueError, match="no input or no output embeddings"):
            install_coord_offset_adapter(model, IDS)


def test_install_puts_the_guard_before_all_that_peft_merges_and_a_check_on_its_swap(monkeypatch):
    from peft.utils import hotswap

    monkeypatch.setattr(hotswap, "hotswap_adapter_from_state_dict", original := object())
    assert next(iter(prepared()._modules)) == GUARD_NAME
    assert hotswap.hotswap_adapter_from_state_dict is not original


def test_install_refuses_a_second_install_and_what_is_no_bare_model_with_a_head():
    for model, message in (
        (prepared(), "already"),
        (get_peft_model(tiny(), LoraConfig(target_modules=TEXT_LAYERS)), "wrapped by PEFT"),
        (tiny().model, "no input or no output embeddings"),
        (torch.nn.Linear(3, 3), "Linear is no model of transformers"),
    ):
        with pytest.raises(ValueError, match=message):
            install_coord_offset_adapter(model, IDS)


def test_install_refuses_an_embedding_that_scales_its_rows():
    class Scaled(torch.nn.Embedding):
        def forward(self, ids_BT):
            return 8 * super().forward(ids_BT)

    model = tiny()
    model.set_input_embeddings(Scaled(V, H))
    with pytest.raises(ValueError, match="Scaled, which does more"):
        install_coord_offset_adapter(model, IDS)


@pytest.mark.parametrize("tie_head", [True, False])
@pytest.mark.parametrize("kind", ["Gemma", "Gemma2", "Gemma3Text"])
def test_offsets_of_an_embedding_that_scales_are_those_of_changed_rows(kind, tie_head):
    """Gemma multiplies its rows by the root of the hidden size: baked, the model answers as with offsets."""
    sizes = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
    config = getattr(transformers, f"{kind}Config")(**sizes, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind.removesuffix('Text')}ForCausalLM")(config).eval()
    before = logits(model)
    install_coord_offset_adapter(model.requires_grad_(False), IDS, tie_head=tie_head)
    assert torch.equal(logits(model), before)
    expected = logits(shake(model))
    baked = logits(bake_offsets(model))
    assert (baked - expected).abs().max() < 1e-4 < (expected - before).abs().max()


def test_install_refuses_a_head_that_is_no_plain_product():
    class Scaled(torch.nn.Linear):
        def forward(self, hidden_BTH):
            return 8 * super().forward(hidden_BTH)

    model = tiny(False)
    model.lm_head.__class__ = Scaled
    with pytest.raises(ValueError, match="the output head is a Scaled, which does more than multiply by its weight"):
        install_coord_offset_adapter(model, IDS)
    packed = tiny(False)
    packed.lm_head.weight = torch.nn.Parameter(torch.zeros(V * H // 2, 1, dtype=torch.uint8), requires_grad=False)
    before = packed.get_input_embeddings().weight.clone()
    with pytest.raises(ValueError, match=r"the output head holds torch.uint8: .*leave it out of the quantization"):
        install_coord_offset_adapter(packed, IDS)
    assert torch.equal(packed.get_input_embeddings().weight, before)


def test_bake_refuses_a_head_quantized_since_before_it_changes_the_embedding():
    model = prepared(False)
    before = model.get_input_embeddings().weight.clone()
    model.lm_head.weight = torch.nn.Parameter(torch.zeros(V * H // 2, 1, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(ValueError, match=r"the output head holds torch\.uint8"):
        bake_offsets(model)
    assert torch.equal(model.get_input_embeddings().weight, before)


def test_install_refuses_an_unknown_dtype():
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        install_coord_offset_adapter(tiny(), IDS, dtype="int8")
    assert install_coord_offset_adapter(tiny(), IDS, dtype="bfloat16").embed_offset.dtype == torch.bfloat16


def test_dtype_auto_is_the_model_dtype_where_deepspeed_keeps_a_float32_master():
    pytest.importorskip("deepspeed", reason="the float32 master is DeepSpeed's")
    from transformers.integrations import HfDeepSpeedConfig

    settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
    keeps_master = HfDeepSpeedConfig({**settings, "bf16": {"enabled": True}})
    assert tables_of(prepared(dtype=torch.bfloat16)).embed_offset.dtype == torch.bfloat16
    assert tables_of(prepared(dtype=torch.float32)).embed_offset.dtype == torch.float32
    del keeps_master
    without = HfDeepSpeedConfig({**settings, "bf16": {"enabled": "auto"}})
    assert tables_of(prepared(dtype=torch.bfloat16)).embed_offset.dtype == torch.float32
    del without


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_install_keeps_logits_of_the_base_bitwise(combination, dtype):
    tied, tie_head = combination
    model = tiny(tied, dtype)
    before = logits(model)
    install_coord_offset_adapter(model, IDS, tie_head=tie_head)
    assert torch.equal(logits(model), before)


def test_install_freezes_the_vocabulary_and_trains_the_tables(combination):
    tied, tie_head = combination
    model = tiny(tied)
    model.train()
    install_coord_offset_adapter(model, IDS, tie_head=tie_head)
    model(**batch(), labels=batch()["input_ids"]).loss.backward()
    for layer in (model.get_input_embeddings(), model.lm_head):
        assert not layer.weight.requires_grad
        assert layer.weight.grad is None
    tables = dict(tables_of(model).named_parameters())
    assert set(tables) == ({"embed_offset"} if tie_head else {"embed_offset", "head_offset"})
    assert all(table.grad.abs().sum() > 0 for table in tables.values())


def test_install_keeps_names_and_values_of_the_base(combination):
    tied, tie_head = combination
    before = tiny(tied).state_dict()
    after = prepared(tied, tie_head).state_dict()
    ours = {key for key in after if key.startswith(f"{MODULE_NAME}.")}
    assert set(after) - ours == set(before)
    assert all(torch.equal(after[key], before[key]) for key in before)
    names = {key.removeprefix(f"{MODULE_NAME}.") for key in ours}
    assert names == {"token_ids", "embed_offset", "head_offset", "fingerprint", "format_version"}


def test_bake_gives_equal_logits_and_an_ordinary_model(tmp_path, combination):
    tied, tie_head = combination
    model = prepared(tied, tie_head)
    expected = logits(model)
    baked = bake_offsets(model)
    assert baked is model
    assert set(model.state_dict()) == set(tiny(tied).state_dict())
    configs = (model.config, model.config.text_config)
    assert [config.tie_word_embeddings for config in configs] == [tied and tie_head] * 2
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)
    model.save_pretrained(tmp_path)
    again = transformers.Qwen3VLForConditionalGeneration.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(again), expected, rtol=1e-4, atol=1e-4)
    hooked = [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]
    assert not hooked


def test_the_head_is_baked_and_written_where_the_body_alone_ran_before(tmp_path, combination):
    """Code that goes on from the body is lent moved rows in place of the head, which are not the ones to change."""
    tied, tie_head = combination
    model = prepared(tied, tie_head)
    expected = logits(model)
    model.model(torch.tensor([[1, 2, 3]]))
    assert model.get_output_embeddings() is not model.lm_head
    torch.testing.assert_close(logits(bake_offsets(model)), expected, rtol=1e-4, atol=1e-4)

    model = peft_model()
    save_as_trainable_tokens(model, tmp_path / "before")
    model.get_base_model().model(torch.tensor([[1, 2, 3]]))
    save_as_trainable_tokens(model, tmp_path / "after")
    before, after = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("before", "after"))
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_bake_allows_another_install():
    model = bake_offsets(prepared())
    install_coord_offset_adapter(model, IDS)
    assert hasattr(model, MODULE_NAME)
    shake(model)


def test_bake_refuses_a_model_that_peft_wraps_or_without_offsets():
    with pytest.raises(ValueError, match="merge_and_unload"):
        bake_offsets(peft_model())
    with pytest.raises(ValueError, match="merge_and_unload"):
        bake_offsets(peft_model().get_base_model())
    with pytest.raises(ValueError, match="merge_and_unload"):  # PEFT beside offsets that it does not wrap
        bake_offsets(get_peft_model(prepared(), LoraConfig(target_modules=TEXT_LAYERS)))
    with pytest.raises(ValueError, match="nothing to bake"):
        bake_offsets(tiny())


def test_bake_leaves_the_hooks_of_others_on_embedding_head_and_body():
    model, called = prepared(tie_head=False), []
    for layer in (model.get_input_embeddings(), model.lm_head, model.model):
        layer.register_forward_hook(lambda *_: called.append("after"))
        layer.register_forward_pre_hook(lambda *_: called.append("before"))
    bake_offsets(model)
    logits(model)
    assert sorted(called) == ["after"] * 3 + ["before"] * 3


@pytest.mark.slow
def test_bake_after_merge_and_unload_gives_equal_logits(tmp_path):
    model = peft_model(tied=False)
    expected = logits(model)
    merged = model.merge_and_unload()
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="bake_offsets"):
        merged.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())
    bake_offsets(merged).save_pretrained(tmp_path)
    again = type(merged).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(again), expected, rtol=1e-4, atol=1e-4)


def test_bake_after_merging_lora_on_the_vocabulary_gives_equal_logits():
    model = shake(get_peft_model(ready(False, tie_head=False), lora(target_modules=["lm_head", "embed_tokens"]))).eval()
    expected = logits(model)
    merged = bake_offsets(model.merge_and_unload())
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)
    moved = merged.lm_head.weight - tiny(False).lm_head.weight
    assert moved[OTHERS].abs().max() > 0.01  # LoRA moves every row, the offsets some of them on top


@pytest.mark.parametrize(
    ("dtype", "master", "resolved"),
    [
        ("auto", False, torch.float32),
        ("auto", True, torch.bfloat16),
        *(("float32", master, torch.float32) for master in (True, False)),
        ("float16", True, torch.float16),
    ],
)
def test_tables_are_as_narrow_as_the_model_only_with_a_float32_master(dtype, master, resolved, monkeypatch):
    monkeypatch.setattr(install, "deepspeed_keeps_master", lambda: master)
    assert install.resolve_dtype(dtype, torch.bfloat16) == resolved


@pytest.mark.parametrize(
    ("config", "keeps"),
    [
        (None, False),
        ({}, False),
        *(({name: {"enabled": value}}, value is True) for name in ("bf16", "fp16") for value in (True, False, "auto")),
        ({"bf16": {"enabled": False}, "fp16": {"enabled": True}}, True),
        ({"zero_optimization": {"enabled": True}}, False),
    ],
)
def test_deepspeed_keeps_a_master_in_either_half_precision_that_is_on(config, keeps, monkeypatch):
    monkeypatch.setattr("transformers.integrations.deepspeed.deepspeed_config", lambda: config)
    assert deepspeed_keeps_master() is keeps


def test_vocabulary_is_the_smaller_one_of_embedding_and_head():
    model = tiny(False)
    model.lm_head = torch.nn.Linear(H, V - 20, bias=False)
    assert install.vocabulary_rows(model) == V - 20
    with pytest.raises(ValueError, match=f"{V - 20} rows of the vocabulary"):
        install_coord_offset_adapter(model, [V - 20])
    model.lm_head = torch.nn.Linear(H, V + 20, bias=False)
    assert install.vocabulary_rows(model) == V


def test_reattached_tables_take_the_ids_of_a_vocabulary_that_grew():
    model = prepared()
    model.resize_token_embeddings(V + 20)
    reattach_coord_offset_hooks(model)
    later = prepared(ids=[3, 4]).state_dict()
    later[f"{MODULE_NAME}.token_ids"] = torch.tensor([3, V + 9])
    model.load_state_dict({name: tensor for name, tensor in later.items() if MODULE_NAME in name}, strict=False)
    assert tables_of(model).token_ids.tolist() == [3, V + 9]


def test_baked_model_has_none_of_the_attributes_of_one_with_offsets():
    model = prepared(tie_head=False)
    before = {*tiny().__dict__}
    assert {*model.__dict__} > before
    assert {*bake_offsets(model).__dict__} == before and not set(model._modules) ^ set(tiny()._modules)


def test_embedding_that_zero_3_has_partitioned_is_taken_at_its_word():
    class Scaled(torch.nn.Embedding):
        embed_scale = 8.0

        def forward(self, ids_BT):
            return 8 * super().forward(ids_BT)

    layer = Scaled(4, 3)
    assert install._only_scales(layer)
    layer.embed_scale = 7.0
    assert not install._only_scales(layer)
    for empty in (torch.empty(0), torch.empty(4, 3, device="meta")):
        layer.weight = torch.nn.Parameter(empty)
        assert install._only_scales(layer)
    assert not install._only_scales(torch.nn.Embedding(4, 3))
