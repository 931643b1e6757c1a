#!/usr/bin/env bash
# transformers 5.19.0: `smart_resize` of the Qwen-VL processors rounds each side to a multiple of 28 with Python's `round`, which takes halves to the even
# number: 70 x 98 (2.5 and 3.5 patches) becomes 56 x 112, although the aspect is said to be "maintained as closely as possible"; 84 x 112 and 56 x 84 are
# closer. An object twice as high as wide is 2.9 times as high, and a box in pixels of the resized image is far off where one scale is taken for both sides.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check transformers==5.19.0 pillow==13.0.0 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import transformers
from PIL import Image
from transformers import Qwen2VLImageProcessorPil

processor = Qwen2VLImageProcessorPil()
print(f"transformers {transformers.__version__}")
print("expected: 70 x 98 has nearly the same aspect afterwards, as 84 x 112 or 56 x 84 would")
seen = {}
for size in ((69, 97), (70, 98), (71, 99)):
    ((_, high, wide),) = processor(images=[Image.new("RGB", size)], return_tensors="np")["image_grid_thw"].tolist()
    seen[size] = wide * 14, high * 14
    stretched = (seen[size][1] / size[1]) / (seen[size][0] / size[0])
    print(f"seen: {size} becomes {seen[size]}, stretched in height by {stretched:.2f}")
assert seen == {(69, 97): (56, 84), (70, 98): (56, 112), (71, 99): (84, 112)}
PYTHON
