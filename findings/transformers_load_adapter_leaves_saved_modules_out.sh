#!/usr/bin/env bash
# transformers 5.17.0 with peft 0.20.0: `model.load_adapter` of an adapter with `modules_to_save` loads its LoRA and leaves the saved modules as they are in the base: a
# trained head, or the trained rows of coordinate tokens, are missing, and the model answers. PEFT's own `PeftModel.from_pretrained` loads both (transformers from 5.18 on too).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 transformers==5.17.0 peft==0.20.0 numpy==2.4.6
venv/bin/python - 2>/dev/null <<'PYTHON'
import copy

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
base = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=False, **sizes)).eval()
ids = torch.arange(8)[None]

model = get_peft_model(copy.deepcopy(base), LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"])).eval()
with torch.no_grad():
    model.base_model.model.lm_head.modules_to_save["default"].weight += 1
    expected = model(ids).logits
    model.save_pretrained("adapter")

    by_peft = PeftModel.from_pretrained(copy.deepcopy(base), "adapter").eval()(ids).logits
    by_transformers = copy.deepcopy(base)
    by_transformers.load_adapter("adapter")
    found = by_transformers.eval()(ids).logits

print(f"transformers {transformers.__version__}, peft {peft.__version__}")
print("expected: the logits of the trained model, whichever library loads the adapter")
print(f"seen: PeftModel.from_pretrained differs by {(by_peft - expected).abs().max():.3f}")
print(f"seen: model.load_adapter differs by {(found - expected).abs().max():.3f}, from the base by {(found - base(ids).logits).abs().max():.3f}")
assert torch.allclose(by_peft, expected)
assert not torch.allclose(found, expected) and torch.allclose(found, base(ids).logits)
PYTHON
