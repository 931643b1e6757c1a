#!/usr/bin/env bash
# labelImg 1.8.6 counts pixels from 0 in its Pascal VOC XML, unlike the files of VOC itself, but a first corner at 0 is written as 1, and in its
# YOLO labels too, which hold fractions: a box of the whole image loses a column and a row, so that 1 is two places, and no reader knows which.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps labelimg==1.8.6 lxml==6.1.3 pyqt5==5.15.11 pyqt5-qt5==5.15.18 pyqt5-sip==12.17.1
venv/bin/python - <<'PYTHON'
import re
from importlib.metadata import version
from pathlib import Path

from libs.labelFile import LabelFile
from PyQt5.QtGui import QImage

image = QImage(200, 100, QImage.Format_RGB32)
boxes = [(20, 10, 60, 50), (0, 0, 200, 100)]
shapes = [
    {"label": "car", "difficult": False, "points": [(x1, y1), (x2, y1), (x2, y2), (x1, y2)]} for x1, y1, x2, y2 in boxes
]
LabelFile().save_pascal_voc_format("a.xml", shapes, "a.jpg", image)
LabelFile().save_yolo_format("a.txt", shapes, "a.jpg", image, ["car"])
sides = list(map(int, re.findall(r"<[xy]m(?:in|ax)>(\d+)<", Path("a.xml").read_text())))
voc = [tuple(sides[:4]), tuple(sides[4:])]
yolo = [list(map(float, line.split()[1:])) for line in Path("a.txt").read_text().splitlines()]
print(f"expected of labelImg {version('labelimg')}, from 1 as in VOC: [(21, 11, 60, 50), (1, 1, 200, 100)], or from 0: {boxes}")
print(f"seen in the XML: {voc}")
print(f"expected in YOLO: [0.2, 0.3, 0.2, 0.4] and [0.5, 0.5, 1, 1]; seen: {yolo}")
assert voc == [(20, 10, 60, 50), (1, 1, 200, 100)]
assert yolo == [[0.2, 0.3, 0.2, 0.4], [0.5025, 0.505, 0.995, 0.99]]
PYTHON
