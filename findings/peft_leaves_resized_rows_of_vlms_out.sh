#!/usr/bin/env bash
# peft 0.20.0 (transformers 5.19.0, torch 2.15.0): `save_pretrained` of a LoRA adapter stores embeddings that were resized, with a warning, if the base is a
# language model, and leaves them out without a word if it is a vision-language model, since it looks for `vocab_size` at the top of config.json alone.
# Why it matters for boxes: rows that were set for coordinate tokens are gone after loading, and the model draws others for them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 transformers==5.19.0 peft==0.20.0 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import warnings

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Config, Qwen2ForCausalLM

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
OLD, NEW = 100, 10
text = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, vocab_size=OLD)
rope = {"rope_type": "default", "mrope_section": [1, 1, 2]}
vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=16, fullatt_block_indexes=[0])
MODELS = {
    "language model": (Qwen2ForCausalLM, Qwen2Config(**text)),
    "vision-language model": (
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLConfig(text_config={**text, "rope_parameters": rope}, vision_config=vision),
    ),
}


def resized(kind, base):
    """Return the base with rows for the new tokens."""
    model = kind.from_pretrained(base)
    model.resize_token_embeddings(OLD + NEW)
    return model


kept = {}
print(f"peft {peft.__version__}: {NEW} new rows are set, saved with an adapter, and loaded onto the base, resized again")
for name, (kind, config) in MODELS.items():
    base = name.replace(" ", "-")
    kind(config).save_pretrained(base)
    model = get_peft_model(resized(kind, base), LoraConfig(r=2, target_modules=["q_proj"]))
    with torch.no_grad():
        model.get_input_embeddings().weight[OLD:] = torch.arange(NEW)[:, None] / NEW
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.save_pretrained(f"{base}-lora")
    about = [str(warning.message) for warning in told if "embed" in str(warning.message)]
    rows = PeftModel.from_pretrained(resized(kind, base), f"{base}-lora").get_input_embeddings().weight[OLD:]
    kept[name] = torch.equal(rows, model.get_input_embeddings().weight[OLD:])
    print(f"{name}: rows kept: {kept[name]} (expected: True); told: {about}")
    assert bool(about) == kept[name]
assert kept == {"language model": True, "vision-language model": False}
PYTHON
