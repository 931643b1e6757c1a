#!/usr/bin/env bash
# pycocotools 2.0.11: where results of masks state `bbox` as well, as many detectors write them, `loadRes` takes width x height of the box for the area of
# the mask, also in an evaluation of masks. A thin object is then large: a false mask of 540 pixels is no longer counted among the small ones, and the AP of
# small objects rises from .5 to 1 by a field that the evaluation of masks has no use for.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pycocotools==2.0.11 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import contextlib
import io
from importlib.metadata import version

import numpy as np
from pycocotools import mask as masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def bar(offset):
    """Return the mask of a thin slanting object, 540 pixels in a box of 95 x 90."""
    pixels = np.zeros((200, 200), np.uint8)
    for step in range(90):
        pixels[offset + step, offset + step : offset + step + 6] = 1
    return {"image_id": 1, "category_id": 1, "segmentation": masks.encode(np.asfortranarray(pixels))}


def boxed(row):
    """Return a row with the box around its mask."""
    return {**row, "bbox": masks.toBbox(row["segmentation"]).tolist()}


def of_small_objects(found):
    """Return the AP of small masks and the areas of the found ones."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": 1, "width": 200, "height": 200}],
            "categories": [{"id": 1, "name": "pole"}],
            "annotations": [{**boxed(bar(0)), "id": 1, "area": 540, "iscrowd": 0}],
        }
        truth.createIndex()
        results = truth.loadRes(found)
        scores = COCOeval(truth, results, "segm")
        for step in (scores.evaluate, scores.accumulate, scores.summarize):
            step()
    return round(float(scores.stats[3]), 3), [int(row["area"]) for row in results.anns.values()]


found = [{**bar(0), "score": 0.5}, {**bar(100), "score": 0.9}]  # the second one is false
plain, with_boxes = of_small_objects(found), of_small_objects([boxed(row) for row in found])
print("pycocotools", version("pycocotools"))
print(f"masks alone: AP of small objects {plain[0]}, areas {plain[1]} (expected also where their boxes stand beside them)")
print(f"with boxes beside them: AP of small objects {with_boxes[0]}, areas {with_boxes[1]}")
assert plain == (0.5, [540, 540]) and with_boxes == (1, [8550, 8550])
PYTHON
