#!/usr/bin/env bash
# supervision 0.31.2: `as_coco` writes one object whose mask has a hole (a cup's handle, a ring) as a crowd region, `iscrowd` 1; without the hole it
# is 0. COCO's crowds are groups that cannot be counted: trainers leave them out and evaluation ignores them, so such objects vanish in silence.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps certifi==2026.10.19.post1 charset-normalizer==3.5.3 defusedxml==0.7.1 idna==3.20 numpy==2.4.6 opencv-python-headless==4.14.0.94 pillow==12.3.0 pydeprecate==0.13.0 pyyaml==6.0.4 requests==2.34.2 scipy==1.17.1 supervision==0.31.2 tqdm==4.70.1 urllib3==2.8.0 matplotlib==3.11.2 contourpy==1.3.3 cycler==0.12.1 fonttools==4.68.0 kiwisolver==1.5.1 packaging==26.4 pyparsing==3.3.3 python-dateutil==4.0.0 six==1.17.0
venv/bin/python - <<'PYTHON'
import json
from pathlib import Path

import numpy as np
import supervision
from PIL import Image

print(f"supervision {supervision.__version__}")
Image.new("RGB", (100, 80)).save("a.jpg")
seen = []
for has_hole in (False, True):
    mask = np.zeros((80, 100), bool)
    mask[20:60, 10:40] = True
    mask[30:50, 20:30] = not has_hole
    boxes = supervision.Detections(np.array([[10.0, 20, 40, 60]]), mask=mask[None], class_id=np.array([0]))
    supervision.DetectionDataset(["cup"], ["a.jpg"], {"a.jpg": boxes}).as_coco(annotations_path="a.json")
    (row,) = json.loads(Path("a.json").read_text())["annotations"]
    seen.append(row["iscrowd"])
print("expected: iscrowd 0 for one object, with a hole or without")
print(f"seen: without a hole {seen[0]}, with a hole {seen[1]}")
assert seen == [0, 1]
PYTHON
