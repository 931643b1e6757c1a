#!/usr/bin/env bash
# albumentations 2.0.8: boxes go through float32 fractions, so that a transform that does nothing returns 10.000000149 for 10. Of boxes whose
# IoU with an object is exactly .5 or .75, as whole pixels give, some fall below COCO's threshold, and objects of 32 x 32 are no longer of that size.
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


def iou(a, b):
    """Return the intersection over union of two boxes x, y, width, height."""
    sides = [min(a[i] + a[i + 2], b[i] + b[i + 2]) - max(a[i], b[i]) for i in (0, 1)]
    shared = max(sides[0], 0) * max(sides[1], 0)
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


image = np.zeros((480, 640, 3), np.uint8)
crossed = {"lost an IoU of .5": 0, "lost an IoU of .75": 0, "no longer 32 x 32": 0}
largest = 0.0
for x in range(0, 500, 7):
    truth, half, most = [x, 10, 32, 32], [x, 10, 64, 32], [x, 10, 32, 24]
    moved = np.asarray(same(image=image, bboxes=[half, most, truth], labels=["a", "b", "c"])["bboxes"], float)
    largest = max(largest, np.abs(moved - [half, most, truth]).max())
    assert iou(truth, half) == 0.5 and iou(truth, most) == 0.75
    crossed["lost an IoU of .5"] += iou(truth, moved[0]) < 0.5
    crossed["lost an IoU of .75"] += iou(truth, moved[1]) < 0.75
    crossed["no longer 32 x 32"] += moved[2][2] * moved[2][3] != 1024
print("expected: boxes as they were given, and every count 0")
print(f"seen: moved by up to {largest:.1e}; of 72 boxes each: { {k: int(v) for k, v in crossed.items()} }")
assert 0 < largest < 1e-3 and all(crossed.values())
PYTHON
