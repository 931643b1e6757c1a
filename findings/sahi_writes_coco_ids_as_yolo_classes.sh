#!/usr/bin/env bash
# sahi 0.12.8: `export_as_yolo` writes the category ids of COCO as class numbers, but lists the names in data.yml from 0. Of COCO files whose ids
# begin with 1, as the official ones do, every label names the next class, and the last class has no name.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps numpy==2.4.6 sahi==0.12.8 shapely==2.2.0 tqdm==4.70.1 pillow==12.3.0 pyyaml==6.0.4 opencv-python-headless==4.14.0.94 requests==2.34.2 urllib3==2.8.0 idna==3.20 certifi==2026.10.19.post1 charset-normalizer==3.5.3 click==8.5.1 fire==0.7.1 termcolor==3.3.0
venv/bin/python - <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

import yaml
from PIL import Image
from sahi.utils.coco import Coco

Image.new("RGB", (100, 80)).save("a.jpg")
document = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 80}],
    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 20, 30, 40], "area": 1200, "iscrowd": 0, "segmentation": []}],
}
Coco.from_coco_dict_or_path(document, image_dir=".").export_as_yolo(output_dir="yolo", train_split_rate=1.0)
number = int(Path("yolo/train/a.txt").read_text().split()[0])
names = yaml.safe_load(Path("yolo/data.yml").read_text())["names"]
print(f"sahi {version('sahi')}")
print("expected: the cat has the number of cat in names")
print(f"seen: the cat has the number {number}, and names are {names}, so it is a {names[number]}")
assert number == 1 and names == ["cat", "dog"]
PYTHON
