#!/usr/bin/env bash
# transformers 5.19.0 (torch 2.15.0): `AutoModelForImageTextToText` maps ShieldGemma 2 to Gemma 3's class and loads none of the language
# model that either class has saved: its rule of renaming is that of the classifier. The weights are drawn anew, with a warning alone.
# Why it matters for boxes: a detector that is tuned from such a checkpoint starts from, and is saved over, random weights.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6 transformers==5.19.0
venv/bin/python - <<'PY'
import torch, transformers
from transformers import AutoModelForImageTextToText, Gemma3ForConditionalGeneration, ShieldGemma2Config
from transformers import ShieldGemma2ForImageClassification

transformers.logging.set_verbosity_error()
layers = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
text = layers | dict(vocab_size=64, num_key_value_heads=1, head_dim=8, layer_types=["full_attention"])
vision = layers | dict(image_size=28, patch_size=14, vision_use_head=False)
config = ShieldGemma2Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, yes_token_index=1, no_token_index=2)
torch.manual_seed(0)
found = {}
for kind in (ShieldGemma2ForImageClassification, Gemma3ForConditionalGeneration):
    model = kind(config)
    model.save_pretrained(kind.__name__)
    with torch.no_grad():
        saved = model.get_input_embeddings().weight.clone()
    loaded, info = AutoModelForImageTextToText.from_pretrained(kind.__name__, output_loading_info=True)
    lost = [name for name in info["missing_keys"] if "language_model" in name]
    same = torch.equal(loaded.get_input_embeddings().weight, saved)
    own = len(kind.from_pretrained(kind.__name__, output_loading_info=True)[1]["missing_keys"])
    found[kind.__name__] = bool(lost) and not same
    print(f"transformers {transformers.__version__}: saved by {kind.__name__}: AutoModelForImageTextToText lacks {len(lost)} tensors "
          f"of the language model, embedding equal: {same}; {kind.__name__} itself lacks {own} (expected: 0, True, 0)")
assert all(found.values()), found
PY
