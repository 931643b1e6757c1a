#!/usr/bin/env bash
# lvis 0.5.3: the evaluation of a perfect box ends in an AttributeError under NumPy 1.24 and later (it uses `np.float`), although its metadata
# allows any NumPy. Loading works, so this is seen after the predictions have been made. It imports pycocotools without requiring it, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check lvis==0.5.3 numpy==2.4.6 opencv-python-headless==5.0.0.93 pycocotools==2.0.11
venv/bin/python - <<'PYTHON'
import json

import numpy
from lvis import LVISEval

box = {"image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20]}
outline = [[10, 10, 30, 10, 30, 30, 10, 30]]
truth = {
    "images": [{"id": 1, "width": 100, "height": 100, "neg_category_ids": [], "not_exhaustive_category_ids": []}],
    "categories": [{"id": 1, "name": "bird", "frequency": "f"}],
    "annotations": [box | {"id": 1, "area": 400, "segmentation": outline}],
}
for name, content in {"truth.json": truth, "found.json": [box | {"score": 0.9}]}.items():
    with open(name, "w") as file:
        json.dump(content, file)
print(f"expected under NumPy {numpy.__version__}: AP 1")
try:
    LVISEval("truth.json", "found.json", "bbox").run()
except AttributeError as error:
    print(f"seen: AttributeError: {str(error).splitlines()[0]}")
else:
    raise SystemExit("seen: no error any more")
PYTHON
