#!/usr/bin/env bash
# transformers 5.19.0: `Florence2Processor.post_process_generation` strips every character that is not ASCII from the labels of detections: "cafe" written with
# an accent is "caf", a label in Chinese is empty, and two classes may become one. It rounds boxes down to whole pixels as well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 transformers==5.19.0 numpy==2.4.6 pillow==13.0.0
venv/bin/python -W ignore - <<'PYTHON'
import transformers
from tokenizers import Tokenizer, models
from transformers import CLIPImageProcessor, Florence2Processor, PreTrainedTokenizerFast

words = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3, "<image>": 4}, unk_token="<unk>"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>")
tokenizer.image_token, tokenizer.image_token_id = "<image>", 4
rules = {"description_with_bboxes": {}}
processor = Florence2Processor(CLIPImageProcessor(), tokenizer, post_processor_config=rules)
stated = ("cat", "café", "猫", "犬")
box = "<loc_100><loc_200><loc_500><loc_600>"
answer = "".join(f"{label}{box}" for label in stated)
found = processor.post_process_generation(text=answer, task="<OD>", image_size=(640, 480))["<OD>"]
print(f"transformers {transformers.__version__}")
print(f"expected: {list(stated)}, and a first box of [64.32, 96.24, 320.32, 288.24]")
print(f"seen: {found['labels']}, {found['bboxes'][0]}")
assert found["labels"] == ["cat", "caf", "", ""] and found["bboxes"][0] == [64, 96, 320, 288]
PYTHON
