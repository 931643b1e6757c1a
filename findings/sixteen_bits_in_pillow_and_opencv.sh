#!/usr/bin/env bash
# pillow 13.0.0, opencv-python-headless 4.12.0.88: of a 16-bit PNG, Image.convert("RGB") clips every value above 255 to white, and cv2.imread divides by 256.
# A detector that was trained through one and asked through the other sees a white image or a nearly black one, and boxes nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pillow==13.0.0 opencv-python-headless==4.12.0.88 "numpy==2.2.6"
venv/bin/python - <<'PYTHON'
import cv2
import numpy as np
from PIL import Image, __version__

values = np.array([[0, 255, 1000, 4095, 65535]], np.uint16)  # 4095 is the largest value of a 12-bit sensor
Image.fromarray(values).save("a.png")
with Image.open("a.png") as image:
    pillow = np.asarray(image.convert("RGB"))[0, :, 0].tolist()
opencv = cv2.imread("a.png")[0, :, 0].tolist()
print("pillow", __version__, "opencv", cv2.__version__)
print("expected of both, scaled to 8 bits: [0, 1, 4, 16, 255]")
print(f"seen of {values[0].tolist()}: pillow {pillow}, opencv {opencv}")
assert pillow == [0, 255, 255, 255, 255]
assert opencv == [0, 0, 3, 15, 255]
PYTHON
