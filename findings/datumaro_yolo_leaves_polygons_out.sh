#!/usr/bin/env bash
# datumaro 1.13.12: its export to YOLO writes boxes alone and leaves polygons out without an error or a warning. An image with polygons alone gets an
# empty label file, which says that nothing is in it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps attrs==26.1.0 datumaro==1.13.12 defusedxml==0.7.1 imagesize==2.0.1 json-stream-rs-tokenizer==0.5.4 json-stream==2.5.1 lxml==6.1.3 numpy==2.4.6 opencv-python-headless==4.14.0.94 orjson==3.13.0 pandas==2.3.3 pillow==12.3.0 pycocotools==2.0.11 pyyaml==6.0.4 shapely==2.2.0 tqdm==4.70.1 typing-extensions==4.16.0 python-dateutil==4.0.0 pytz==2026.6 tzdata==2026.6 six==1.17.0 scipy==1.17.1 pyarrow==25.0.1 networkx==3.6.1 ruamel-yaml==0.19.1 portalocker==3.2.0
venv/bin/python - <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

from datumaro import Bbox, Dataset, DatasetItem, Image, Polygon
from PIL import Image as Pillow

Pillow.new("RGB", (100, 80)).save("a.jpg")
Pillow.new("RGB", (100, 80)).save("b.jpg")
shapes = {"a": [Polygon([10, 20, 40, 20, 40, 60, 10, 60], label=0), Bbox(70, 60, 30, 20, label=0)], "b": [Polygon([10, 20, 40, 20, 40, 60], label=0)]}
items = [DatasetItem(name, subset="train", media=Image.from_file(f"{name}.jpg"), annotations=rows) for name, rows in shapes.items()]
Dataset.from_iterable(items, categories=["cat"]).export("yolo", "yolo", save_media=True)
seen = {path.stem: len(path.read_text().splitlines()) for path in sorted(Path("yolo").rglob("obj_train_data/*.txt"))}
print(f"datumaro {version('datumaro')}")
print("expected: rows of all objects, {'a': 2, 'b': 1}, or an error")
print(f"seen: {seen}")
assert seen == {"a": 1, "b": 0}
PYTHON
