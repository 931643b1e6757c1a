#!/usr/bin/env bash
# pycocotools 2.0.11: with `params.maxDets = [1, 10, 300]` `summarize` prints AP = -1.000, although the arrays hold the right value: the first
# line asks for a limit of 100, which is not in the list. Who raises the limit for crowded images believes that nothing was found.
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


def evaluate(limits):
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        box = {"image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20]}
        truth.dataset = {
            "images": [{"id": 1, "width": 100, "height": 100}],
            "categories": [{"id": 1, "name": "bird"}],
            "annotations": [box | {"id": 1, "area": 400, "iscrowd": 0}],
        }
        truth.createIndex()
        found = COCOeval(truth, truth.loadRes([box | {"score": 0.9}]), "bbox")
        found.params.maxDets = limits
        found.evaluate()
        found.accumulate()
        found.summarize()
    return found.stats[0], found.eval["precision"][..., 0, -1].mean()


usual, other = evaluate([1, 10, 100]), evaluate([1, 10, 300])
print("expected: one perfect box has AP 1 whatever the limit")
print(f"seen: limits 1, 10, 100: AP {usual[0]:g}; limits 1, 10, 300: AP {other[0]:g}, mean of its precision array {other[1]:g}")
assert [round(value, 6) for value in (*usual, *other)] == [1, 1, -1, 1]
PYTHON
