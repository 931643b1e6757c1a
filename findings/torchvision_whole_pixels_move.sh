#!/usr/bin/env bash
# torchvision 0.29.2: its v2 transforms cut boxes of whole pixels off after each step where `BoundingBoxes` was made of integers, as COCO's files mostly have
# them: 10, 10, 21, 21 to a centre and back is 9, 9, 20, 20. `torchvision.ops.box_convert` of the same integers returns fractions, and the box comes back.
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
from torchvision.ops import box_convert
from torchvision.transforms.v2.functional import convert_bounding_box_format, resize
from torchvision.tv_tensors import BoundingBoxes

corners = torch.tensor([[10, 10, 21, 21]])
boxes = BoundingBoxes(corners, format="XYXY", canvas_size=(80, 100))
centred = convert_bounding_box_format(boxes, new_format="CXCYWH")
by_v2 = convert_bounding_box_format(centred, new_format="XYXY").tolist()
by_ops = box_convert(box_convert(corners, "xyxy", "cxcywh"), "cxcywh", "xyxy").tolist()
twice = resize(resize(boxes, [40, 50]), [80, 100]).tolist()
print(f"torchvision {torchvision.__version__}")
print(f"expected of a centre and back: {corners.tolist()}; torchvision.ops has {by_ops}")
print(f"seen with v2: {by_v2}; resized to half and back: {twice}")
assert by_ops == corners.tolist()
assert by_v2 == [[9, 9, 20, 20]] and twice == [[10, 10, 20, 20]]
PYTHON
