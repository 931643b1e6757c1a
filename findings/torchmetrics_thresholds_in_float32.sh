#!/usr/bin/env bash
# torchmetrics 1.9.0: the thresholds of `MeanAveragePrecision` are float32, so that .6 is .6000000238: a box with an IoU of exactly .6 fails there, and so
# does a recall of exactly .6. pycocotools, which it calls, has them in float64: AP .3 and .604 for what torchmetrics gives .2 and .594.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 torchmetrics==1.9.0 pycocotools==2.0.11 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import contextlib
import io

import numpy as np
import torchmetrics
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import float64, tensor, zeros
from torchmetrics.detection import MeanAveragePrecision


def ap_of_pycocotools(truth, found, scores):
    rows = [{"image_id": 1, "category_id": 0, "bbox": [x, y, right - x, low - y]} for x, y, right, low in truth]
    results = [{"image_id": 1, "category_id": 0, "bbox": [x, y, right - x, low - y]} for x, y, right, low in found]
    with contextlib.redirect_stdout(io.StringIO()):
        objects = COCO()
        objects.dataset = {
            "images": [{"id": 1, "width": 1000, "height": 100}],
            "categories": [{"id": 0, "name": "cat"}],
            "annotations": [{**row, "id": n, "area": 1600, "iscrowd": 0} for n, row in enumerate(rows, 1)],
        }
        objects.createIndex()
        loaded = objects.loadRes([{**row, "score": score} for row, score in zip(results, scores)])
        coco = COCOeval(objects, loaded, "bbox")
        for step in (coco.evaluate, coco.accumulate, coco.summarize):
            step()
    return round(float(coco.stats[0]), 3)


def ap_of_torchmetrics(truth, found, scores, **thresholds):
    metric = MeanAveragePrecision(**thresholds)
    boxes = {"boxes": tensor(found, dtype=float64), "labels": zeros(len(found)).long(), "scores": tensor(scores, dtype=float64)}
    metric.update([boxes], [{"boxes": tensor(truth, dtype=float64), "labels": zeros(len(truth)).long()}])
    return round(float(metric.compute()["map"]), 3)


objects = [[60 * n, 10, 60 * n + 40, 50] for n in range(10)]
cases = {
    "one box with an IoU of .6": (objects[:1], [[0, 10, 24, 50]], [0.9]),
    "6 of 10 objects": (objects, objects[:6], [0.9 - 0.05 * n for n in range(6)]),
}
exact = {"iou_thresholds": np.linspace(0.5, 0.95, 10).tolist(), "rec_thresholds": np.linspace(0, 1, 101).tolist()}
print("torchmetrics", torchmetrics.__version__)
seen = []
for case, boxes in cases.items():
    expected, of_torchmetrics, mended = ap_of_pycocotools(*boxes), ap_of_torchmetrics(*boxes), ap_of_torchmetrics(*boxes, **exact)
    print(f"{case}: expected, as pycocotools has it: {expected}; seen: {of_torchmetrics}; with its thresholds given in float64: {mended}")
    seen.append((expected, of_torchmetrics, mended))
assert seen == [(0.3, 0.2, 0.3), (0.604, 0.594, 0.604)]
PYTHON
