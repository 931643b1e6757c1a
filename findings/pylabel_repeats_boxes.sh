#!/usr/bin/env bash
# pylabel 0.1.55: `ExportToCoco` gives an image without objects no row of its own, but writes the last object before it once more, into the image
# before. A set with negative images gets one repeated box for each of them, which COCO evaluation counts as a second object that nobody can find.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps pylabel==0.1.55 numpy==2.4.6 pandas==2.3.3 python-dateutil==4.0.0 pytz==2026.6 tzdata==2026.6 six==1.17.0 pillow==12.3.0 pyyaml==6.0.4 tqdm==4.70.1 opencv-python-headless==4.14.0.94 matplotlib==3.11.2 contourpy==1.3.3 cycler==0.12.1 fonttools==4.68.0 kiwisolver==1.5.1 packaging==26.4 pyparsing==3.3.3 scikit-learn==1.9.1 cloudpickle==3.1.3 scipy==1.17.1 joblib==1.6.0 threadpoolctl==3.8.0 narwhals==2.29.0 bbox-visualizer==1.0.1
venv/bin/python -W ignore - <<'PYTHON'
import json
import sys
from importlib.metadata import version
from pathlib import Path
from unittest.mock import MagicMock

for name in ("ipywidgets", "jupyter_bbox_widget", "IPython", "IPython.display"):
    sys.modules[name] = MagicMock()  # of its notebook page, which is not used
from PIL import Image
from pylabel import importer

seen = []
for names in (["a.jpg"], ["a.jpg", "b.jpg"]):
    for name in names:
        Image.new("RGB", (100, 80)).save(name)
    document = {
        "images": [{"id": n, "file_name": name, "width": 100, "height": 80} for n, name in enumerate(names, 1)],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 20, 30, 40], "area": 1200, "iscrowd": 0, "segmentation": []}],
    }
    Path("in.json").write_text(json.dumps(document))
    importer.ImportCoco("in.json", path_to_images=".").export.ExportToCoco("out.json")
    seen.append([(row["image_id"], row["bbox"]) for row in json.loads(Path("out.json").read_text())["annotations"]])
print(f"pylabel {version('pylabel')}")
print("expected: one box in image 1, with a second image without objects or without it")
print(f"seen: alone {seen[0]}, with the second image {seen[1]}")
assert len(seen[0]) == 1
assert seen[1] == [(1, [10, 20, 30, 40])] * 2
PYTHON
