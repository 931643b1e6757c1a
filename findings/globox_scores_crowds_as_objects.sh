#!/usr/bin/env bash
# globox 2.9.0: `AnnotationSet.from_coco` reads crowd regions (`iscrowd` 1) as ordinary objects, and `COCOEvaluator` counts each as an object that was
# missed; pycocotools ignores them. A detector that finds every object of COCO has an AP below 1, and files of two tools cannot be compared.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps globox==2.9.0 numpy==2.4.6 tqdm==4.70.1 rich==15.0.0 markdown-it-py==4.3.0 mdurl==0.1.2 pygments==2.21.0 pycocotools==2.0.11
venv/bin/python - <<'PYTHON'
import contextlib
import io
import json
from importlib.metadata import version
from pathlib import Path

from globox import AnnotationSet, COCOEvaluator
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

one = {"image_id": 1, "category_id": 1, "bbox": [10, 10, 40, 40]}
crowd = {"image_id": 1, "category_id": 1, "bbox": [100, 10, 60, 60], "iscrowd": 1}
document = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 200, "height": 100}],
    "categories": [{"id": 1, "name": "person"}],
    "annotations": [{**one, "id": 1, "area": 1600, "iscrowd": 0}, {**crowd, "id": 2, "area": 3600}],
}
Path("truth.json").write_text(json.dumps(document))
Path("found.json").write_text(json.dumps([{**one, "score": 0.9}]))
truth = AnnotationSet.from_coco(Path("truth.json"))
by_globox = COCOEvaluator(ground_truths=truth, predictions=truth.from_results(Path("found.json"))).ap()
with contextlib.redirect_stdout(io.StringIO()):
    reference = COCO("truth.json")
    scores = COCOeval(reference, reference.loadRes("found.json"), "bbox")
    for step in (scores.evaluate, scores.accumulate, scores.summarize):
        step()
print("globox", version("globox"), "and pycocotools", version("pycocotools"))
print(f"expected, as pycocotools has it: AP {scores.stats[0]:.3f}")
print(f"seen by globox: AP {by_globox:.3f}")
assert round(float(scores.stats[0]), 6) == 1 and by_globox < 0.6
PYTHON
