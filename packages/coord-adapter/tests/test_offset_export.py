"""Out of this package: a vanilla PEFT adapter, and rows baked into the vocabulary."""

import json
import subprocess
import sys

import pytest
import torch
from offset_tiny import IDS, batch, logits, lora, peft_model, prepared, shake, tiny
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import Qwen3VLForConditionalGeneration

from coord_adapter import MODULE_NAME, bake_offsets, install_coord_offset_adapter, save_as_trainable_tokens

EXPORTABLE = [(True, True), (False, True), (False, False)]
NAMES = ["base_tied-head_tied", "base_untied-head_tied", "base_untied-head_own"]


@pytest.mark.parametrize(("tied", "tie_head"), EXPORTABLE, ids=NAMES)
def test_a_vanilla_adapter_gives_equal_logits_merged_or_not(tmp_path, tied, tie_head):
    model = peft_model(tied, tie_head)
    expected = logits(model)
    save_as_trainable_tokens(model, tmp_path / "vanilla")
    vanilla = PeftModel.from_pretrained(tiny(tied), tmp_path / "vanilla").eval()
    torch.testing.assert_close(logits(vanilla), expected, rtol=1e-4, atol=1e-4)
    merged = vanilla.merge_and_unload()
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    again = Qwen3VLForConditionalGeneration.from_pretrained(tmp_path / "merged").eval()
    torch.testing.assert_close(logits(again), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits(model), expected)


def test_a_vanilla_adapter_loads_where_this_package_is_not_imported(tmp_path):
    model = peft_model()
    tiny().save_pretrained(tmp_path / "base")
    save_as_trainable_tokens(model, tmp_path / "vanilla")
    torch.save({**batch(), "expected": logits(model)}, tmp_path / "case.pt")
    code = f"""
import sys, torch
from peft import PeftModel
from transformers import Qwen3VLForConditionalGeneration
case = torch.load({str(tmp_path / "case.pt")!r})
base = Qwen3VLForConditionalGeneration.from_pretrained({str(tmp_path / "base")!r})
model = PeftModel.from_pretrained(base, {str(tmp_path / "vanilla")!r}).eval()
with torch.no_grad():
    made = model(input_ids=case["input_ids"], attention_mask=case["attention_mask"]).logits
torch.testing.assert_close(made, case["expected"], rtol=1e-4, atol=1e-4)
assert not [name for name in sys.modules if name.startswith("coord_")]
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_the_vanilla_file_names_nothing_of_ours(tmp_path):
    save_as_trainable_tokens(peft_model(tied=False, modules_to_save=["merger"]), tmp_path / "vanilla")
    config = json.loads((tmp_path / "vanilla" / "adapter_config.json").read_text())
    assert config["trainable_token_indices"] == {"embed_tokens": IDS, "lm_head": IDS}
    assert config["modules_to_save"] == ["merger"]
    assert config["auto_mapping"]["base_model_class"] == "Qwen3VLForConditionalGeneration"
    names = load_file(tmp_path / "vanilla" / "adapter_model.safetensors")
    assert not [name for name in names if "coord_offset" in name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vanilla"]


def test_the_vanilla_adapter_of_a_bfloat16_base_differs_by_rounding_only(tmp_path):
    model = peft_model(tied=False, dtype=torch.bfloat16)
    save_as_trainable_tokens(model, tmp_path / "vanilla")
    vanilla = PeftModel.from_pretrained(tiny(False, torch.bfloat16), tmp_path / "vanilla").eval()
    expected = logits(model).float()
    assert (logits(vanilla).float() - expected).abs().max() < 2**-5 * expected.abs().max()


def test_what_cannot_be_expressed_is_refused(tmp_path):
    with pytest.raises(ValueError, match="bake_offsets"):
        save_as_trainable_tokens(peft_model(True, False), tmp_path / "vanilla")
    with pytest.raises(ValueError, match="no active PEFT adapter"):
        save_as_trainable_tokens(prepared(), tmp_path / "vanilla")
    base = tiny(False)
    install_coord_offset_adapter(base, IDS)
    with pytest.raises(ValueError, match="carry LoRA"):
        save_as_trainable_tokens(get_peft_model(base, lora(target_modules=["lm_head"])), tmp_path / "vanilla")
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="mine"):
        save_as_trainable_tokens(peft_model(), tmp_path / "mine")


def test_baked_rows_give_equal_logits_and_an_ordinary_model(tmp_path, combination):
    tied, tie_head = combination
    model = prepared(tied, tie_head)
    expected = logits(model)
    baked = bake_offsets(model)
    assert baked is model
    assert set(model.state_dict()) == set(tiny(tied).state_dict())
    assert model.config.tie_word_embeddings is (tied and tie_head)
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)
    model.save_pretrained(tmp_path)
    again = Qwen3VLForConditionalGeneration.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(again), expected, rtol=1e-4, atol=1e-4)
    hooked = [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]
    assert not hooked


def test_a_baked_model_can_be_prepared_again():
    model = bake_offsets(prepared())
    install_coord_offset_adapter(model, IDS)
    assert hasattr(model, MODULE_NAME)
    shake(model)


def test_baking_asks_for_merging_first():
    with pytest.raises(ValueError, match="merge_and_unload"):
        bake_offsets(peft_model())
    with pytest.raises(ValueError, match="merge_and_unload"):
        bake_offsets(peft_model().get_base_model())
    with pytest.raises(ValueError, match="nothing to bake"):
        bake_offsets(tiny())
