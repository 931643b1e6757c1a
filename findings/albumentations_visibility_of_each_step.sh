#!/usr/bin/env bash
# albumentations 2.0.8: `min_visibility` compares a box with what the step before left of it, not with the object. Two crops that each halve an object pass
# a limit of .4, although a quarter of it is left; one crop of the same pixels removes it. Which labels an image keeps depends on how a crop is written.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check albumentations==2.0.8 opencv-python-headless==4.13.0.90 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import albumentations
import numpy as np
from albumentations import BboxParams, Compose, Crop

image = np.zeros((80, 100, 3), np.uint8)
rules = BboxParams(format="pascal_voc", label_fields=["labels"], min_visibility=0.4)
ways = {
    "one crop": [Crop(25, 0, 50, 80, p=1)],
    "two crops": [Crop(0, 0, 50, 80, p=1), Crop(25, 0, 50, 80, p=1)],
}
seen, sizes = {}, {}
for way, crops in ways.items():
    out = Compose(crops, bbox_params=rules)(image=image, bboxes=[[0, 0, 100, 80]], labels=["bus"])
    seen[way], sizes[way] = list(out["labels"]), out["image"].shape
print(f"albumentations {albumentations.__version__}: a quarter of an object is left, min_visibility is .4")
print("expected: it is removed in both ways")
print(f"seen: {seen}, of images of the shapes {sizes}")
assert seen == {"one crop": [], "two crops": ["bus"]} and sizes["one crop"] == sizes["two crops"]
PYTHON
