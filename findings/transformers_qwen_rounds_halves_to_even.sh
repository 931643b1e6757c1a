#!/usr/bin/env bash
# transformers 5.19.0: the resize of the Qwen-VL processors takes half a patch of 28 pixels to the even number, down on one side and up on the other:
# 70 x 98 becomes 56 x 112, a stretch of 1.43 in height, where 84 x 112 would have 0.95. The effect is of small images: 294 x 322 is stretched by 1.10, 798 x
# 826 by 1.04. A box in pixels of the resized image is off by that where one scale is taken for both sides.
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
print("expected: sides that are half a patch apart from their neighbours go the same way")
seen, stretched = {}, {}
for size in ((69, 97), (70, 98), (71, 99), (294, 322), (798, 826)):
    ((_, high, wide),) = processor(images=[Image.new("RGB", size)], return_tensors="np")["image_grid_thw"].tolist()
    seen[size] = wide * 14, high * 14
    stretched[size] = (seen[size][1] / size[1]) / (seen[size][0] / size[0])
    print(f"seen: {size} becomes {seen[size]}, stretched in height by {stretched[size]:.2f}")
assert seen[70, 98] == (56, 112) and seen[69, 97] == (56, 84) and seen[71, 99] == (84, 112)
assert [round(stretched[size], 2) for size in ((70, 98), (294, 322), (798, 826))] == [1.43, 1.10, 1.04]
PYTHON
