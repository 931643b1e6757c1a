#!/usr/bin/env bash
# transformers 5.19.0 (torch 2.15.0): which of two values of `tie_word_embeddings` holds, that at the top of config.json or that of
# `text_config`, and what a missing one means, differs from family to family: either one true (Qwen2.5-VL), the top one, absent is
# false (Qwen3-VL), the top one, absent is true (InternVL).
# Why it matters for boxes: a tool that has one rule loses the head of a detector. A head that is neither stored nor tied is filled
# with other random values on each load, with a warning alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6 transformers==5.19.0
venv/bin/python - <<'PY'
import copy
import torch, transformers
from transformers import AutoConfig

def tied(family, kind, top, inner):
    content = AutoConfig.for_model(family).to_dict()
    content["text_config"]["num_hidden_layers"] = 1
    content["text_config"].pop("layer_types", None)
    for part, value in ((content, top), (content["text_config"], inner)):
        part.pop("tie_word_embeddings", None)
        if value is not None:
            part["tie_word_embeddings"] = value
    with torch.device("meta"):
        model = kind(kind.config_class.from_dict(content))
    model.tie_weights()
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight

FAMILIES = {
    "qwen2_5_vl": transformers.Qwen2_5_VLForConditionalGeneration,
    "qwen3_vl": transformers.Qwen3VLForConditionalGeneration,
    "internvl": transformers.InternVLForConditionalGeneration,
}
PAIRS = [(False, True), (None, True), (None, None), (None, False)]
print(f"transformers {transformers.__version__}; tied for (top, text_config) = {PAIRS}")
found = {family: [tied(family, kind, *pair) for pair in PAIRS] for family, kind in FAMILIES.items()}
for family, row in found.items():
    print(f"{family:12} {row}")
assert found == {
    "qwen2_5_vl": [True, True, False, False],
    "qwen3_vl": [False, False, False, False],
    "internvl": [False, True, True, True],
}, "one rule would be expected for all"
PY
