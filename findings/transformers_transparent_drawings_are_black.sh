#!/usr/bin/env bash
# transformers 5.19.0: the image processors of Qwen2-VL, Gemma 3 and Pixtral drop the alpha channel, and what is transparent becomes the colour stored
# behind it, mostly black; that of Mllama lays the image on white. A drawing of black lines on a transparent ground, as diagrams and icons are, reaches the
# first three as one even black, so that a model boxes what it cannot see.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check transformers==5.19.0 pillow==13.0.0 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import numpy as np
import transformers
from PIL import Image, ImageDraw

drawing = Image.new("RGBA", (112, 112), (0, 0, 0, 0))
ImageDraw.Draw(drawing).rectangle((20, 20, 90, 90), outline=(0, 0, 0, 255), width=6)
print(f"transformers {transformers.__version__}: a black rectangle on a transparent ground, as each processor hands it to its model")
print("expected: lines and ground differ")
values = {}
for family in ("Qwen2VL", "Gemma3", "Pixtral", "Mllama"):
    processor = getattr(transformers, f"{family}ImageProcessorPil")()
    pixels = processor(images=[drawing], do_normalize=False, return_tensors="np")["pixel_values"]
    values[family] = float(pixels.min()), float(pixels.max())
    print(f"seen by {family}: pixels from {values[family][0]} to {values[family][1]}")
assert values == {"Qwen2VL": (0, 0), "Gemma3": (0, 0), "Pixtral": (0, 0), "Mllama": (0, 1)}
PYTHON
