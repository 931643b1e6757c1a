#!/usr/bin/env bash
# ms-swift 4.6.0 with peft 0.20.0: importing from `swift.tuners` replaces a method of PEFT's own `LoraModel`, so that `get_peft_model`, called directly and with the same
# configuration, leaves out the output layer of every `nn.MultiheadAttention` that it adapted before. An adapter therefore depends on what was imported when it was made:
# the vision towers of SigLIP (Gemma 3, PaliGemma) have such a layer, and a merge or a comparison finds its factors in one file and not in the other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 transformers==5.19.0 peft==0.20.0 ms-swift==4.6.0 modelscope==1.40.2 accelerate==1.15.0 numpy==2.4.6
cat >adapted.py <<'PYTHON'
import sys

import torch
from peft import LoraConfig, get_peft_model

if sys.argv[1] == "swift":
    from swift.tuners import Swift  # nothing of it is called


class Tower(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2)
        self.fc = torch.nn.Linear(8, 8)


model = get_peft_model(Tower(), LoraConfig(r=2, target_modules=["out_proj", "fc"]))
print(sorted({name.split(".lora_")[0].removeprefix("base_model.model.") for name, _ in model.named_parameters() if ".lora_" in name}))
PYTHON
venv/bin/pip list 2>/dev/null | grep -E "^(ms_swift|peft|torch|transformers) "
echo "expected: the same layers adapted, whatever else is imported"
alone=$(venv/bin/python adapted.py alone 2>/dev/null | tail -n 1)
beside=$(venv/bin/python adapted.py swift 2>/dev/null | tail -n 1)
echo "seen with peft alone: $alone"
echo "seen after the import of swift.tuners: $beside"
[ "$alone" = "['attention.out_proj', 'fc']" ]
[ "$beside" = "['fc']" ]
