#!/usr/bin/env bash
# kornia 0.9.0: `AugmentationSequential` maps corners as centres of pixels, so that a box given as `bbox_xyxy` is one pixel off after a flip, 79 to 89 where
# the image has it at 80 to 90; the same box as `bbox_xywh` is right. Resized to half, 10 becomes 4.95 with either key. Labels move against their pixels
# by the key they are passed with, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 kornia==0.9.0 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import kornia
import torch
from kornia.augmentation import AugmentationSequential, RandomHorizontalFlip, Resize

image = torch.zeros(1, 3, 80, 100)
image[..., 10:20, 10:20] = 1


def augmented(step, key, box):
    """Return the columns of the object in the image, as first and end, and its box."""
    pixels, boxes = AugmentationSequential(step, data_keys=["input", key])(image, torch.tensor([[box]]))
    columns = pixels[0, 0].amax(0).gt(0.5).nonzero().flatten()
    return [int(columns[0]), int(columns[-1]) + 1], [round(value, 2) for value in boxes[0, 0].tolist()]


columns, corners = augmented(RandomHorizontalFlip(p=1), "bbox_xyxy", [10.0, 10, 20, 20])
_, sides = augmented(RandomHorizontalFlip(p=1), "bbox_xywh", [10.0, 10, 10, 10])
halves, half = augmented(Resize((40, 50), p=1), "bbox_xyxy", [10.0, 10, 20, 20])
print(f"kornia {kornia.__version__}")
print(f"expected after a flip: columns {columns}, as the image has them")
print(f"seen: as bbox_xyxy {corners}, as bbox_xywh {sides}")
print(f"resized to half: expected columns {halves}; seen: {half}")
assert columns == [80, 90] and corners == [79, 10, 89, 20] and sides == [80, 10, 10, 10]
assert halves == [5, 10] and half == [4.95, 4.94, 9.9, 9.87]
PYTHON
