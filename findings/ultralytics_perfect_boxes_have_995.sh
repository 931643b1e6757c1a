#!/usr/bin/env bash
# ultralytics 8.4.190: its AP is no COCO AP: the area under 101 points by trapezoids, behind a last point that falls to 0. Perfect boxes have .995, half of the
# objects .495 where pycocotools has .505, and one of ten .095 for .109. What its `val` prints cannot stand beside numbers of tools for COCO.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 ultralytics==8.4.190 pycocotools==2.0.11 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import contextlib
import io
import os
from importlib.metadata import version

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

os.environ["YOLO_CONFIG_DIR"] = os.getcwd()  # its settings stay in this folder
with contextlib.redirect_stdout(io.StringIO()):
    from ultralytics.utils.metrics import ap_per_class


def ap_of_pycocotools(found):
    """Return the AP of the first boxes of ten, all of them right."""
    rows = [{"image_id": 1, "category_id": 0, "bbox": [60 * n, 10, 40, 40]} for n in range(10)]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": 1, "width": 640, "height": 100}],
            "categories": [{"id": 0, "name": "cat"}],
            "annotations": [{**row, "id": n, "area": 1600, "iscrowd": 0} for n, row in enumerate(rows, 1)],
        }
        truth.createIndex()
        scores = COCOeval(truth, truth.loadRes([{**row, "score": 0.9 - 0.05 * n} for n, row in enumerate(rows[:found])]), "bbox")
        for step in (scores.evaluate, scores.accumulate, scores.summarize):
            step()
    return round(float(scores.stats[0]), 3)


def ap_of_ultralytics(found):
    """Return the same by the function behind `val`."""
    confidences = 0.9 - 0.05 * np.arange(found)
    return round(float(ap_per_class(np.ones((found, 10), bool), confidences, np.zeros(found), np.zeros(10))[5].mean()), 3)


seen = {found: (ap_of_pycocotools(found), ap_of_ultralytics(found)) for found in (10, 5, 1)}
print("ultralytics", version("ultralytics"))
for found, (expected, value) in seen.items():
    print(f"{found} of 10 objects found: expected, as pycocotools has it: {expected}; seen: {value}")
assert seen == {10: (1, 0.995), 5: (0.505, 0.495), 1: (0.109, 0.095)}
PYTHON
