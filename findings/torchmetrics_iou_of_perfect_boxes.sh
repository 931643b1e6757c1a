#!/usr/bin/env bash
# torchmetrics 1.9.0: `IntersectionOverUnion` (and its GIoU, DIoU and CIoU) is the mean of all pairs of boxes of a class, not of matched ones: two perfect boxes
# of one class have an IoU of .5, of four .25. An object that nobody found lowers nothing where its class has no box. With `iou_threshold` the pairs
# below leave the mean, and the two are 1 again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 torchmetrics==1.9.0 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import torch
import torchmetrics
from torchmetrics.detection import IntersectionOverUnion


def iou(found, truth, **settings):
    """Return the metric of rows of a label and a first corner."""
    sides = [
        {"boxes": torch.tensor([[x, 10, x + 20, 30] for _, x in rows]).float(), "labels": torch.tensor([label for label, _ in rows])}
        for rows in (found, truth)
    ]
    metric = IntersectionOverUnion(**settings)
    metric.update([{**sides[0], "scores": torch.ones(len(found))}], [sides[1]])
    return float(metric.compute()["iou"])


one_class = [(0, 30 * n) for n in range(4)]
other_classes = [(n, 30 * n) for n in range(4)]
seen = {
    "one perfect box": iou(one_class[:1], one_class[:1]),
    "two of one class": iou(one_class[:2], one_class[:2]),
    "four of one class": iou(one_class, one_class),
    "four of four classes": iou(other_classes, other_classes),
    "two of one class, iou_threshold .5": iou(one_class[:2], one_class[:2], iou_threshold=0.5),
    "one of four classes found": iou(other_classes[:1], other_classes),
}
print("torchmetrics", torchmetrics.__version__)
print("expected: 1 for perfect boxes, less than 1 where objects are missed")
for case, value in seen.items():
    print(f"seen: {case}: {value:g}")
assert list(seen.values()) == [1, 0.5, 0.25, 1, 1, 1]
PYTHON
