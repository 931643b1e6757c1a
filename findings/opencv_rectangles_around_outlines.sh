#!/usr/bin/env bash
# OpenCV 5.0.0 (4.13 too): `boundingRect` of corners 0 and 10 is 11 wide, one more than the outline, and `minAreaRect` of an upright rectangle of
# 20 x 10 says width 10, height 20 and an angle of -90. Boxes of polygons are a pixel too large, and widths of upright objects swapped.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check opencv-python-headless==5.0.0.93 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import cv2
import numpy as np

outline = np.array([[0, 0], [20, 0], [20, 10], [0, 10]])
x, y, width, height = cv2.boundingRect(outline)
_, sides, angle = cv2.minAreaRect(outline)
print(f"OpenCV {cv2.__version__}")
print("expected: 20 x 10 at (0, 0); sides (20, 10) at an angle of 0")
print(f"seen: {width} x {height} at ({x}, {y}); sides {sides} at an angle of {angle}")
assert (x, y, width, height) == (0, 0, 21, 11)
assert sides == (10, 20) and angle == -90
PYTHON
