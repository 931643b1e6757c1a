#!/usr/bin/env bash
# labelme 6.3.1: its converter labelme2coco.py takes `bbox` from a mask that Pillow draws with the pixels of both corners, so that a rectangle of
# 30 x 40 has a box of 31 x 41 beside a `segmentation` of 30 x 40; labelme2voc.py writes the rectangle itself. A detector that learns from one export
# and is scored by the other is a pixel off: IoU of an 8 x 8 object with itself is .79.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps annotated-types==0.8.0 beautifulsoup4==4.15.0 certifi==2026.10.19.post1 charset-normalizer==3.5.3 click==8.5.1 cmap==0.8.0 contourpy==1.3.3 cycler==0.12.1 filelock==4.3.1 flatbuffers==25.12.19 fonttools==4.68.0 gdown==6.5.1 idna==3.20 imageio==2.38.1 imgviz==2.1.0 kiwisolver==1.5.1 labelme==6.3.1 lazy-loader==0.6 loguru==0.7.3 lxml==6.1.3 matplotlib==3.11.2 natsort==8.4.0 networkx==3.6.1 numpy==2.4.6 onnxruntime==1.32.0 osam==0.8.1 packaging==26.4 pillow==13.0.0 protobuf==7.36.2 pycocotools==2.0.11 pydantic==2.14.4 pydantic-core==2.50.5 pyparsing==3.3.3 pyqt5==5.15.11 pyqt5-qt5==5.15.19 pyqt5-sip==12.20.0 pysocks==1.7.1 python-dateutil==4.0.0 pyyaml==6.0.4 requests==2.34.2 scikit-image==0.26.0 scipy==1.17.1 soupsieve==4.1.3 tifffile==2026.3.3 tqdm==4.70.1 typing-extensions==4.16.0 typing-inspection==0.4.5 tzdata==2026.6 urllib3==2.8.0 
venv/bin/pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: labelme==6.3.1
tar xzf labelme-6.3.1.tar.gz
venv/bin/python - <<'PYTHON'
import json
import subprocess
import sys
from pathlib import Path

from PIL import Image

Path("set").mkdir()
Image.new("RGB", (100, 80)).save("set/a.jpg")
shape = {"label": "cat", "points": [[10.0, 20.0], [40.0, 60.0]], "shape_type": "rectangle", "group_id": None, "flags": {}}
document = {"version": "6.3.1", "flags": {}, "shapes": [shape], "imagePath": "a.jpg", "imageData": None}
Path("set/a.json").write_text(json.dumps(document | {"imageHeight": 80, "imageWidth": 100}))
Path("labels.txt").write_text("__ignore__\n_background_\ncat\n")


def convert(script, out):
    words = [sys.executable, f"labelme-6.3.1/examples/{script}", "set", out, "--labels", "labels.txt", "--noviz"]
    subprocess.run(words, check=True, capture_output=True)
    return Path(out)


(row,) = json.loads((convert("instance_segmentation/labelme2coco.py", "coco") / "annotations.json").read_text())["annotations"]
xml = (convert("bbox_detection/labelme2voc.py", "voc") / "Annotations" / "a.xml").read_text()
sides = [float(xml.split(f"<{side}>")[1].split("<")[0]) for side in ("xmin", "ymin", "xmax", "ymax")]
outline = row["segmentation"][0]
print(f"expected, as its segmentation {outline} and labelme2voc.py {sides} have it: [10, 20, 30, 40]")
print(f"seen: {row['bbox']}")
assert outline == [10, 20, 40, 20, 40, 60, 10, 60] and sides == [10, 20, 40, 60] and row["bbox"] == [10, 20, 31, 41]
PYTHON
