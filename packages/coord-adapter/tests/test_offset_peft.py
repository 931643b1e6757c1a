"""Under PEFT and swift: wrapping, switching, copying, several adapters."""

import copy
import pickle

import pytest
import torch
from offset_tiny import (
    IDS,
    OTHERS,
    TEXT_LAYERS,
    batch,
    logits,
    lora,
    peft_model,
    prepared,
    shake,
    tables_of,
    tiny,
)
from peft import LoraConfig, get_model_status, get_peft_model

from coord_adapter import MODULE_NAME, bake_offsets, install_coord_offset_adapter


def only_lora(model, dora=False):
    """The same base and LoRA weights with the offsets taken out of the way."""
    reference = get_peft_model(tiny(True), LoraConfig(r=4, target_modules=TEXT_LAYERS, use_dora=dora))
    weights = {key: value for key, value in model.state_dict().items() if "lora" in key}
    assert not reference.load_state_dict(weights, strict=False).unexpected_keys
    return reference.eval()


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_lora_and_offsets_add_up(dora):
    model = peft_model(use_dora=dora)
    reference = only_lora(model, dora)
    adapter = tables_of(model)
    with torch.no_grad():
        weight = reference.get_input_embeddings().weight
        weight[IDS] += adapter.embed_offset  # tied: moves embedding and head
    torch.testing.assert_close(logits(model), logits(reference), rtol=1e-4, atol=1e-4)


def test_a_fresh_adapter_under_peft_is_the_base_bit_for_bit(combination):
    tied, tie_head = combination
    base = tiny(tied, torch.bfloat16)
    before = logits(base)
    install_coord_offset_adapter(base, IDS, tie_head=tie_head)
    assert torch.equal(logits(get_peft_model(base, lora()).eval()), before)


def test_disable_adapter_gives_the_base_bit_for_bit(combination):
    tied, tie_head = combination
    model = peft_model(tied, tie_head)
    active = logits(model)
    with model.disable_adapter():
        assert torch.equal(logits(model), logits(tiny(tied)))
    assert torch.equal(logits(model), active)
    assert not torch.equal(active, logits(tiny(tied)))


def test_offsets_trained_before_wrapping_are_disabled_too():
    bare = prepared()
    expected = logits(bare)
    model = get_peft_model(bare, lora()).eval()
    assert torch.equal(logits(model), expected)
    with model.disable_adapter():
        assert torch.equal(logits(model), logits(tiny()))


def test_peft_trains_lora_and_offsets_and_nothing_else(combination):
    tied, tie_head = combination
    model = peft_model(tied, tie_head).train()
    model(**batch(), labels=batch()["input_ids"]).loss.backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    prefix = f"base_model.model.{MODULE_NAME}.modules_to_save.default"
    offsets = {f"{prefix}.embed_offset"} | (set() if tie_head else {f"{prefix}.head_offset"})
    assert {name for name in trained if "lora_" not in name} == offsets
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trained


def test_set_adapter_switches_between_different_id_sets(tmp_path):
    peft_model(ids=IDS[:10]).save_pretrained(tmp_path / "ten")
    model = peft_model(ids=IDS)
    first = logits(model)
    model.load_adapter(tmp_path / "ten", "ten")
    model.set_adapter("ten")
    assert tables_of(model).token_ids.tolist() == IDS[:10]
    assert torch.equal(logits(model), logits(peft_model(ids=IDS[:10])))
    model.set_adapter("default")
    assert torch.equal(logits(model), first)


def test_an_adapter_without_offsets_leaves_the_vocabulary_alone():
    model = peft_model()
    model.add_adapter("plain", LoraConfig(r=4, target_modules=TEXT_LAYERS))
    model.set_adapter("plain")
    assert torch.equal(logits(model), logits(tiny()))
    model.delete_adapter("plain")
    model.set_adapter("default")
    assert torch.equal(logits(model), logits(peft_model()))


def test_a_deep_copy_uses_its_own_tables():
    for model in (prepared(), peft_model()):
        twin = copy.deepcopy(model)
        before = logits(model)
        with torch.no_grad():
            tables_of(twin).embed_offset.mul_(-3)
        assert torch.equal(logits(model), before)
        assert not torch.equal(logits(twin), before)
        with torch.no_grad():
            tables_of(model).embed_offset.zero_()
        assert not torch.equal(logits(twin), logits(model))


def test_a_pickled_model_keeps_its_hooks():
    for model in (prepared(), peft_model()):
        twin = pickle.loads(pickle.dumps(model))
        before = logits(model)
        assert torch.equal(logits(twin), before)
        with torch.no_grad():
            tables_of(model).embed_offset.zero_()
        assert torch.equal(logits(twin), before)


def test_lora_on_embedding_and_head_merges_exactly():
    base = tiny(False)
    install_coord_offset_adapter(base, IDS, tie_head=False)
    model = shake(get_peft_model(base, lora(target_modules=["lm_head", "embed_tokens"]))).eval()
    expected = logits(model)
    merged = bake_offsets(model.merge_and_unload())
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)
    moved = merged.lm_head.weight - tiny(False).lm_head.weight
    assert moved[OTHERS].abs().max() > 0.01  # LoRA moves every row, the offsets some of them on top


def test_peft_counts_and_reports_the_adapter():
    status = get_model_status(peft_model())
    assert status.available_adapters == ["default"]
    assert status.enabled is True
    assert status.trainable_params == sum(p.numel() for p in peft_model().parameters() if p.requires_grad)


def test_swift_prepares_and_reloads_it(tmp_path):
    swift = pytest.importorskip("swift.tuners")
    base = tiny()
    install_coord_offset_adapter(base, IDS, fingerprint="f00d")
    config = swift.LoraConfig(
        r=4, target_modules=TEXT_LAYERS, modules_to_save=[MODULE_NAME], task_type="CAUSAL_LM"
    )
    model = shake(swift.Swift.prepare_model(base, config)).eval()
    expected = logits(model)
    model.save_pretrained(str(tmp_path))
    again = tiny()
    install_coord_offset_adapter(again, IDS, fingerprint="f00d")
    assert torch.equal(logits(swift.Swift.from_pretrained(again, str(tmp_path)).eval()), expected)
    with pytest.raises(ValueError, match="coord_offset_guard"):
        swift.Swift.from_pretrained(tiny(), str(tmp_path))
