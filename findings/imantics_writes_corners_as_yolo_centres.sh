#!/usr/bin/env bash
# imantics 0.1.12: `Image.yolo()` writes the left upper corner of a box where YOLO has its centre, and class numbers that count from 1, where
# YOLO's count from 0. Every box lies half its size too far left and above, and no error tells it: the numbers are all between 0 and 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps imantics==0.1.12 numpy==2.4.6 opencv-python-headless==4.14.0.94 lxml==6.1.3 xmljson==0.2.1
venv/bin/python - <<'PYTHON'
from importlib.metadata import version

import imantics
import numpy as np

image = imantics.Image(np.zeros((80, 100, 3), np.uint8))
image.add(imantics.BBox((10, 20, 40, 60)), imantics.Category("cat"))
(row,) = image.yolo()
x1, y1, x2, y2 = 10 / 100, 20 / 80, 40 / 100, 60 / 80
print("imantics", version("imantics"))
print("written:", row)
print(f"expected: 0 {(x1 + x2) / 2:.5f} {(y1 + y2) / 2:.5f} {x2 - x1:.5f} {y2 - y1:.5f}")
raise SystemExit(row.split() != ["1", f"{x1:.5f}", f"{y1:.5f}", f"{x2 - x1:.5f}", f"{y2 - y1:.5f}"])
PYTHON
