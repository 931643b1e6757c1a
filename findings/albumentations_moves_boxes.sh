#!/usr/bin/env bash
# albumentations 2.0.8: boxes go through float32 fractions, so that a transform that does nothing returns 10.000000149 for 10. A box whose IoU with
# another is exactly .5 or .75 falls on either side of COCO's threshold afterwards, and an object of 32 x 32 is no longer of that size.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check albumentations==2.0.8 opencv-python-headless==4.13.0.90 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import albumentations
import numpy as np

same = albumentations.Compose(
    [albumentations.NoOp(p=1)], bbox_params=albumentations.BboxParams(format="coco", label_fields=["labels"])
)
image = np.zeros((480, 640, 3), np.uint8)
stated = [[49, 10, 32, 32], [100, 100, 96, 96]]
returned = np.asarray(same(image=image, bboxes=stated, labels=["a", "b"])["bboxes"], float)
print(f"expected: {stated}")
print(f"seen: {returned.tolist()}")
assert 0 < np.abs(returned - stated).max() < 1e-3
PYTHON
