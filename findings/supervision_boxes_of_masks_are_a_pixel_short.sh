#!/usr/bin/env bash
# supervision 0.31.2: `mask_to_xyxy` returns the index of the last pixel as the right and lower side, so that a mask of 30 x 40 pixels has a box of
# 29 x 39, and one of a single column has no width; pycocotools' `toBbox` of the same mask is 30 x 40. IoU of a 5 x 5 object with itself is .64.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps certifi==2026.10.19.post1 charset-normalizer==3.5.3 defusedxml==0.7.1 idna==3.20 numpy==2.4.6 opencv-python-headless==4.14.0.94 pillow==12.3.0 pydeprecate==0.13.0 pyyaml==6.0.4 requests==2.34.2 scipy==1.17.1 supervision==0.31.2 tqdm==4.70.1 urllib3==2.8.0 matplotlib==3.11.2 contourpy==1.3.3 cycler==0.12.1 fonttools==4.68.0 kiwisolver==1.5.1 packaging==26.4 pyparsing==3.3.3 python-dateutil==4.0.0 six==1.17.0 pycocotools==2.0.11
venv/bin/python - <<'PYTHON'
import numpy as np
import supervision
from pycocotools import mask as coco

mask = np.zeros((80, 100), bool)
mask[20:60, 10:40] = True
x, y, width, height = coco.toBbox(coco.encode(np.asfortranarray(mask.astype(np.uint8)))).tolist()
expected, seen = [x, y, x + width, y + height], supervision.mask_to_xyxy(mask[None])[0].tolist()
small = np.zeros((10, 10), bool)
small[2:7, 2:7] = True
iou = supervision.box_iou_batch(supervision.mask_to_xyxy(small[None]), np.array([[2.0, 2, 7, 7]]))[0, 0]
print(f"supervision {supervision.__version__}")
print(f"expected, as pycocotools has it: {expected}")
print(f"seen: {seen}; IoU of a mask of 5 x 5 with its own square: {iou:.2f}")
assert expected == [10, 20, 40, 60] and seen == [10, 20, 39, 59] and round(float(iou), 2) == 0.64
PYTHON
