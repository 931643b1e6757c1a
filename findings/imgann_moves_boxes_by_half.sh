#!/usr/bin/env bash
# imgann 0.8.1: `Convertor.coco2voc`, `coco2csv` and others take x and y of a COCO box for its centre (`center=True` is the default), though COCO has the
# first corner there. Every box moves left and up by half of its size, also out of the image; the files look valid.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps attrs==26.1.0 scikit-learn==1.9.1 cloudpickle==3.1.3 scipy==1.17.1 joblib==1.6.0 threadpoolctl==3.8.0 narwhals==2.29.0 cycler==0.12.1 contourpy==1.3.3 fonttools==4.68.0 imgann==0.8.1 kiwisolver==1.5.1 matplotlib==3.11.2 numpy==2.4.6 opencv-python-headless==4.14.0.94 packaging==26.4 pandas==2.3.3 pillow==12.3.0 pyparsing==3.3.3 python-dateutil==4.0.0 pytz==2026.6 tzdata==2026.6 six==1.17.0
venv/bin/python - <<'PYTHON'
import json
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import imgann
from PIL import Image

for name in ("images", "voc"):
    Path(name).mkdir()
Image.new("RGB", (100, 80)).save("images/a.jpg")
document = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 80}],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [40, 40, 30, 20], "area": 600, "iscrowd": 0, "segmentation": []}],
}
Path("a.json").write_text(json.dumps(document))
imgann.Convertor.coco2voc("images", "a.json", "voc")
(path,) = Path("voc").rglob("a.xml")
box = ElementTree.parse(path).find("object/bndbox")
seen = [int(float(box.findtext(side))) for side in ("xmin", "ymin", "xmax", "ymax")]
print(f"imgann {version('imgann')}")
print("expected: 40, 40 to 70, 60 (or 41, 41, counted from 1)")
print(f"seen: {seen}")
assert seen == [25, 30, 55, 50]
PYTHON
