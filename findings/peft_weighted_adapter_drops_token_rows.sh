#!/usr/bin/env bash
# peft 0.20.0 (transformers 5.19.0, torch 2.15.0): `add_weighted_adapter` of two LoRA adapters with `trainable_token_indices` makes an
# adapter without any of their trained rows, and says nothing; LoRA alone is combined.
# Why it matters for boxes: coordinate tokens are such rows. The combined detector has the base's rows for them, and draws none.
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
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(0)
sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=50, tie_word_embeddings=True, **sizes))
def config():
    return LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [40, 41]})
model = get_peft_model(model, config(), adapter_name="one")
model.add_adapter("two", config())
with torch.no_grad():
    for name, value in model.named_parameters():
        if "trainable_tokens_delta" in name:
            value.add_(1.0)
ids = torch.tensor([[40, 41, 40]])
def rows(adapter):
    model.set_adapter(adapter)
    return model.get_input_embeddings()(ids).detach()
base = rows("one") - 1
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    model.add_weighted_adapter(["one", "two"], [0.5, 0.5], "sum", combination_type="linear")
    combined = rows("sum")
about = [str(w.message) for w in told if "token" in str(w.message).lower()]
print(f"peft {peft.__version__}: the rows of either adapter differ from the base's by 1.0")
print(f"rows of the combination differ by {float((combined - base).abs().max()):.2f} (expected 1.0), warnings about tokens: {about}")
assert torch.allclose(rows("one") - base, torch.ones(1)) and torch.allclose(combined, base, atol=1e-5) and not about
PY
