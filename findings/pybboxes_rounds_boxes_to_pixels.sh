#!/usr/bin/env bash
# pybboxes 0.2.0: every conversion goes through whole pixels: corner and size are rounded from COCO to YOLO and back, although both formats have
# fractions. A box of some pixels is another one afterwards, with an IoU far below 1 to what was given, also where YOLO's numbers are the result.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps pybboxes==0.2.0 numpy==1.24.2
venv/bin/python - <<'PYTHON'
from importlib.metadata import version

import pybboxes

box, size = (10.6, 20.6, 3.8, 3.8), (640, 480)
yolo = pybboxes.convert_bbox(box, from_type="coco", to_type="yolo", image_size=size)
again = pybboxes.convert_bbox(yolo, from_type="yolo", to_type="coco", image_size=size)
exact = [(box[0] + box[2] / 2) / 640, (box[1] + box[3] / 2) / 480, box[2] / 640, box[3] / 480]
in_pixels = [value * side for value, side in zip(yolo, size * 2)]
print("pybboxes", version("pybboxes"))
print("COCO box:", box, "-> YOLO in pixels:", [round(value, 3) for value in in_pixels])
print("expected in pixels:", [round(value * side, 3) for value, side in zip(exact, size * 2)])
print("and back:", again)
fraction = pybboxes.convert_bbox((0.02, 0.05, 0.0071, 0.0096), from_type="yolo", to_type="voc", image_size=size)
print("YOLO 0.02 0.05 0.0071 0.0096 -> VOC:", fraction, "(expected 10.528, 21.696, 15.072, 26.304)")
raise SystemExit(all(abs(a - b) < 0.05 for a, b in zip(in_pixels, [12.5, 22.5, 3.8, 3.8])))
PYTHON
