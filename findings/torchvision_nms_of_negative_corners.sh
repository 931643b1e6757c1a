#!/usr/bin/env bash
# torchvision 0.29.2: `batched_nms` sets classes apart by adding class x (largest coordinate + 1) to their boxes, which fails for negative corners, as many
# detectors state at the left border: the box of class 1 falls onto one of class 0, and is removed although neither class nor place is the same. Above 1,000
# boxes (on a CPU) it goes class by class instead, and the same box stays: what an image keeps depends on how many boxes it has.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import torch
import torchvision
from torchvision.ops import batched_nms, box_iou

boxes = torch.tensor([[0.0, 0, 100, 100], [-101, -101, -1, -1]])
scores, labels = torch.tensor([0.9, 0.8]), torch.tensor([0, 1])
few = batched_nms(boxes, scores, labels, 0.5).tolist()
corners = 200 + 20 * torch.arange(1000.0)[:, None]
further = torch.cat([corners, corners, corners + 10, corners + 10], dim=1)
many = batched_nms(
    torch.cat([boxes, further]), torch.cat([scores, torch.full((1000,), 0.1)]), torch.cat([labels, torch.full((1000,), 2)]), 0.5
)
print(f"torchvision {torchvision.__version__}: IoU of the two boxes {float(box_iou(boxes[:1], boxes[1:])):g}, classes 0 and 1")
print("expected: both are kept, [0, 1]")
print(f"seen: {few}; beside 1,000 others: {[row for row in sorted(many.tolist()) if row < 2]}")
assert few == [0] and len(many) == 1002
PYTHON
