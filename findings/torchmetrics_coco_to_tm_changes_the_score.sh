#!/usr/bin/env bash
# torchmetrics 1.9.0: what `tm_to_coco` writes and `coco_to_tm` reads has another score than what was written. The boxes come back as x, y,
# width, height, which the metric takes for corners unless it is told; images without a true box are gone with the false boxes on them. And
# the file names one category, "0", whatever the labels are, so that other readers know no class of its boxes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 torchmetrics==1.9.0 pycocotools==2.0.11 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import json

import torchmetrics
from torch import tensor, zeros
from torchmetrics.detection import MeanAveragePrecision

truth = [
    {"boxes": tensor([[10.0, 20, 40, 60], [70, 60, 100, 80]]), "labels": tensor([3, 7])},
    {"boxes": zeros(0, 4), "labels": zeros(0).long()},
]
found = [
    {**truth[0], "scores": tensor([0.9, 0.8])},
    {"boxes": tensor([[1.0, 1, 30, 30]]), "labels": tensor([7]), "scores": tensor([0.95])},  # on the image without a true box
]
metric = MeanAveragePrecision()
metric.update(found, truth)
as_given = float(metric.compute()["map"])
metric.tm_to_coco("written")
again_found, again_truth = metric.coco_to_tm("written_preds.json", "written_target.json")
scores = {}
for box_format in ("xyxy", "xywh"):
    again = MeanAveragePrecision(box_format=box_format)
    again.update(again_found, again_truth)
    scores[box_format] = float(again.compute()["map"])
categories = json.load(open("written_target.json"))["categories"]
box = again_truth[0]["boxes"][0].tolist()

print("torchmetrics", torchmetrics.__version__)
print("labels given: 3, 7; categories written:", categories)
print("box given: [10, 20, 40, 60]; box read:", box)
print("images given: 2; images read:", len(again_truth))
print(f"map of what was given: {as_given:.3f}; of what was read: {scores['xyxy']:.3f}, with box_format='xywh' {scores['xywh']:.3f}")
expected = categories == [{"id": 0, "name": "0"}] and box == [10, 20, 30, 40] and len(again_truth) == 1
raise SystemExit(not (expected and as_given < 0.99 and scores["xywh"] > 0.99))
PYTHON
