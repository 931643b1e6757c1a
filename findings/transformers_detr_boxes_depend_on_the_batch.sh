#!/usr/bin/env bash
# transformers 5.19.0: `DetrImageProcessor` (and those of Deformable DETR, Grounding DINO and YOLOS) states boxes of training as fractions of the padded image,
# so that they depend on the other images of a batch, while its `post_process_object_detection` takes fractions of the image itself. The labels of a
# wide image beside a tall one come back at another height, and a model learns both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 transformers==5.19.0 numpy==2.4.6 pillow==13.0.0
venv/bin/python -W ignore - <<'PYTHON'
from types import SimpleNamespace

import torch
import transformers
from PIL import Image
from transformers import DetrImageProcessor

processor = DetrImageProcessor()
wide, tall = Image.new("RGB", (640, 480)), Image.new("RGB", (480, 640))
row = {"id": 1, "category_id": 1, "bbox": [40, 60, 200, 100], "area": 20000, "iscrowd": 0}


def boxes_of_the_first(images):
    """Return the box of the first image in pixels: labels made by the processor, read as predictions by the same."""
    stated = [{"image_id": n, "annotations": [{**row, "image_id": n}]} for n in range(len(images))]
    labels = processor(images=images, annotations=stated, return_tensors="pt")["labels"][0]
    perfect = SimpleNamespace(logits=torch.tensor([[[0.0, 9, 0]]]), pred_boxes=labels["boxes"][None])
    (found,) = processor.post_process_object_detection(perfect, target_sizes=[(480, 640)])
    return [round(value) for value in found["boxes"][0].tolist()]


alone, beside = boxes_of_the_first([wide]), boxes_of_the_first([wide, tall])
print(f"transformers {transformers.__version__}: labels of an image of 640 x 480, read back as perfect predictions")
print("expected: [40, 60, 240, 160]")
print(f"seen: alone {alone}, in a batch with an image of 480 x 640 {beside}")
assert alone == [40, 60, 240, 160] and beside == [40, 45, 240, 120]
PYTHON
