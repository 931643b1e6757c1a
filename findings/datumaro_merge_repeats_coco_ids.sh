#!/usr/bin/env bash
# datumaro 1.13.12: two COCO sets that are merged and exported as COCO keep the ids of their images and annotations, so that a file has each id
# twice, without an error or a warning. pycocotools then gives every image of an id the boxes of the last one: what is right scores as wrong.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps attrs==26.1.0 datumaro==1.13.12 defusedxml==0.7.1 imagesize==2.0.1 json-stream-rs-tokenizer==0.5.4 json-stream==2.5.1 lxml==6.1.3 numpy==2.4.6 opencv-python-headless==4.14.0.94 orjson==3.13.0 pandas==2.3.3 pillow==12.3.0 pycocotools==2.0.11 pyyaml==6.0.4 shapely==2.2.0 tqdm==4.70.1 typing-extensions==4.16.0 python-dateutil==4.0.0 pytz==2026.6 tzdata==2026.6 six==1.17.0 scipy==1.17.1 pyarrow==25.0.1 networkx==3.6.1 ruamel-yaml==0.19.1 portalocker==3.2.0
venv/bin/python - <<'PYTHON'
import contextlib
import io
import json
from importlib.metadata import version
from pathlib import Path

from datumaro import Dataset, HLOps
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

boxes = {"a": [10, 20, 30, 40], "b": [50, 50, 20, 20]}
for name, box in boxes.items():
    images = Path(name, "images", "train")
    images.mkdir(parents=True)
    Path(name, "annotations").mkdir()
    Image.new("RGB", (100, 80)).save(images / f"{name}.jpg")
    row = {"id": 1, "image_id": 1, "category_id": 1, "bbox": box, "area": box[2] * box[3], "iscrowd": 0, "segmentation": []}
    image = {"id": 1, "file_name": f"{name}.jpg", "width": 100, "height": 80}
    document = {"images": [image], "categories": [{"id": 1, "name": "cat"}], "annotations": [row]}
    Path(name, "annotations", "instances_train.json").write_text(json.dumps(document))
sets = [Dataset.import_from(name, "coco_instances") for name in boxes]
HLOps.merge(*sets, merge_policy="union").export("both", "coco_instances")
file = "both/annotations/instances_train.json"
document = json.loads(Path(file).read_text())
ids = {key: [row["id"] for row in document[key]] for key in ("images", "annotations")}
with contextlib.redirect_stdout(io.StringIO()):
    truth = COCO(file)
    read = [row["bbox"] for row in truth.loadAnns(truth.getAnnIds())]
    found = [{"image_id": r["image_id"], "category_id": 1, "bbox": r["bbox"], "score": 0.9} for r in document["annotations"]]
    scores = COCOeval(truth, truth.loadRes(found), "bbox")
    scores.evaluate()
    scores.accumulate()
    scores.summarize()

print("datumaro", version("datumaro"), "and pycocotools", version("pycocotools"))
print("ids after the merge:", ids, "(expected: each once)")
print("boxes written:", [row["bbox"] for row in document["annotations"]], "; boxes that pycocotools reads:", read)
print(f"AP of the boxes of the file themselves: {scores.stats[0]:.3f} (expected 1)")
raise SystemExit(not (ids == {"images": [1, 1], "annotations": [1, 1]} and read == [boxes["b"]] * 2 and scores.stats[0] < 0.9))
PYTHON
