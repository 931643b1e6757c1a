#!/usr/bin/env bash
# pycocotools 2.0.11: an annotation whose id is 0 cannot be found: the evaluation stores the id of the matched object and takes 0 for "no match".
# Who numbers objects from 0, as enumerate does, gets a lower AP without a word: one object of each file counts as missed and its box as false.
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
from pycocotools.cocoeval import COCOeval


def ap_of_perfect_boxes(first_id):
    boxes = [{"image_id": n, "category_id": 1, "bbox": [10, 10, 20, 20]} for n in (1, 2)]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": n, "width": 100, "height": 100} for n in (1, 2)],
            "categories": [{"id": 1, "name": "bird"}],
            "annotations": [box | {"id": first_id + n, "area": 400, "iscrowd": 0} for n, box in enumerate(boxes)],
        }
        truth.createIndex()
        found = COCOeval(truth, truth.loadRes([box | {"score": 0.9} for box in boxes]), "bbox")
        for step in (found.evaluate, found.accumulate, found.summarize):
            step()
    return found.stats[0]


from_1, from_0 = ap_of_perfect_boxes(1), ap_of_perfect_boxes(0)
print("expected: two perfect boxes have AP 1, whatever the ids of the objects are")
print(f"seen: ids from 1: AP {from_1:.3f}; ids from 0: AP {from_0:.3f}")
assert round(from_1, 6) == 1 and from_0 < 0.6
PYTHON
