#!/usr/bin/env bash
# pycocotools 2.0.11: `loadRes([])` raises IndexError: a detector that found nothing has no AP of 0 but ends the evaluation.
# In a training that scores early checkpoints the first evaluation fails exactly where the score should be 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pycocotools==2.0.11 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import contextlib
import io

from pycocotools.coco import COCO

with contextlib.redirect_stdout(io.StringIO()):
    truth = COCO()
    truth.dataset = {
        "images": [{"id": 1, "width": 100, "height": 100}],
        "categories": [{"id": 1, "name": "bird"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20], "area": 400, "iscrowd": 0}],
    }
    truth.createIndex()
    try:
        truth.loadRes([])
        seen = "results without boxes"
    except IndexError as error:
        seen = f"IndexError ({error})"
print("expected: an empty list of boxes is loaded, and has AP 0")
print(f"seen: {seen}")
assert seen.startswith("IndexError")
PYTHON
