#!/usr/bin/env bash
# peft 0.20.0 (transformers 5.19.0, torch 2.15.0): `hotswap_adapter` swaps LoRA alone. Where the new adapter has `modules_to_save` it ends
# in the bare `KeyError` of a set; where only the old one has them, the old modules stay beside the new LoRA without a word.
# Why it matters for boxes: a server that swaps a detector for another keeps the first one's rows of coordinate tokens.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6 transformers==5.19.0 peft==0.20.0
venv/bin/python - <<'PY'
import warnings
import peft, torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils.hotswap import hotswap_adapter
from transformers import Qwen2Config, Qwen2ForCausalLM

SIZES = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)

def base():
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=50, tie_word_embeddings=False, **SIZES))

def save(name, saved, seed):
    model = get_peft_model(base(), LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=saved))
    torch.manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.add_(torch.randn(value.shape))
    model.save_pretrained(name)

save("with-head", ["lm_head"], 1)
save("plain", None, 2)
ids = torch.tensor([[1, 2, 3]])

def head_of(folder):
    return PeftModel.from_pretrained(base(), folder).get_output_embeddings()(torch.ones(1, 16))

model = PeftModel.from_pretrained(base(), "with-head")
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    hotswap_adapter(model, "plain", adapter_name="default", torch_device="cpu")
about = [str(w.message) for w in told if "lm_head" in str(w.message) or "modules_to_save" in str(w.message)]
kept = torch.equal(model.get_output_embeddings()(torch.ones(1, 16)), head_of("with-head"))
expected = torch.equal(model.get_output_embeddings()(torch.ones(1, 16)), head_of("plain"))
print(f"peft {peft.__version__}: with-head -> plain: the head is still with-head's: {kept}, plain's: {expected}, told: {about}")
model = PeftModel.from_pretrained(base(), "plain")
try:
    hotswap_adapter(model, "with-head", adapter_name="default", torch_device="cpu")
    error = None
except Exception as raised:
    error = raised
print(f"plain -> with-head: {error!r} (expected: a sentence)")
model = get_peft_model(base(), LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"]))
try:
    hotswap_adapter(model, "with-head", adapter_name="default", torch_device="cpu")
    error = None
except Exception as raised:
    error = raised
print(f"with-head -> with-head: {error!r} (expected: the head is swapped, or a sentence)")
assert kept and not expected and not about and type(error) is KeyError
PY
