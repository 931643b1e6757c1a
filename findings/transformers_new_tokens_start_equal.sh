#!/usr/bin/env bash
# transformers 5.19.0 (torch 2.15.0): the rows that `resize_token_embeddings` adds lie a billion times closer together (in variance) than the rows they
# imitate: in bfloat16 1,000 new rows are less than 200 different ones, and a model has a few logits for all of them.
# Why it matters for boxes: 1,000 coordinate tokens start as one point, and have to be pulled apart by training from rounding errors alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 transformers==5.19.0 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import torch
import transformers
from transformers import Qwen2Config, Qwen2ForCausalLM

transformers.logging.set_verbosity_error()
OLD, NEW = 2000, 1000
sizes = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
torch.manual_seed(0)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=OLD, tie_word_embeddings=True, **sizes))
with torch.no_grad():
    model.get_input_embeddings().weight.add_(0.01 * torch.randn(64))  # rows of trained models have a mean, too
model = model.to(torch.bfloat16)
model.resize_token_embeddings(OLD + NEW)
old, new = model.get_input_embeddings().weight.detach().float().split([OLD, NEW])
rows = len(torch.unique(new, dim=0))
spread = float(new.std(0).mean() / old.std(0).mean())
logits = len(torch.unique(model(torch.tensor([[1, 2, 3]])).logits[0, -1, OLD:].float()))
print(f"transformers {transformers.__version__}: {NEW} new tokens of a model in bfloat16")
print(f"expected: {NEW} different rows, which spread as the old ones do")
print(f"seen: {rows} different rows, {spread:.1e} of the spread, and {logits} different logits")
assert rows < 200 and spread < 1e-4 and logits < 10
PYTHON
