#!/usr/bin/env bash
# supervision 0.31.2, labelformat 0.1.17 and globox 2.9.0 read the same Pascal VOC file: xmin 1, ymin 1, xmax 100, ymax 80, the whole image of 100 x 80,
# since the files of VOC itself count pixels from 1 (labelImg and most other tools write its XML from 0). supervision has the whole image, the other two lose its first column and row: sets change with each reader.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps certifi==2026.10.19.post1 charset-normalizer==3.5.3 defusedxml==0.7.1 idna==3.20 numpy==2.4.6 opencv-python-headless==4.14.0.94 pillow==12.3.0 pydeprecate==0.13.0 pyyaml==6.0.4 requests==2.34.2 scipy==1.17.1 supervision==0.31.2 tqdm==4.70.1 urllib3==2.8.0 matplotlib==3.11.2 contourpy==1.3.3 cycler==0.12.1 fonttools==4.68.0 kiwisolver==1.5.1 packaging==26.4 pyparsing==3.3.3 python-dateutil==4.0.0 six==1.17.0 labelformat==0.1.17 globox==2.9.0 lxml==6.1.3 pydantic-core==2.50.5 pydantic-xml==2.22.0 pydantic==2.14.4 annotated-types==0.8.0 typing-extensions==4.16.0 typing-inspection==0.4.5 fsspec==2026.9.0
venv/bin/python - <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

import supervision
from globox import AnnotationSet
from labelformat.formats import PascalVOCObjectDetectionInput
from PIL import Image

for name in ("images", "voc"):
    Path(name).mkdir()
Image.new("RGB", (100, 80)).save("images/a.jpg")
Path("voc/a.xml").write_text(
    "<annotation><folder>images</folder><filename>a.jpg</filename><size><width>100</width><height>80</height><depth>3</depth></size>"
    "<object><name>cat</name><difficult>0</difficult>"
    "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>100</xmax><ymax>80</ymax></bndbox></object></annotation>"
)
(_, _, boxes), = supervision.DetectionDataset.from_pascal_voc("images", "voc")
(label,) = PascalVOCObjectDetectionInput(Path("voc"), "cat").get_labels()
box = label.objects[0].box
(annotation,) = AnnotationSet.from_pascal_voc("voc")
other = annotation.boxes[0]
seen = {
    "supervision": boxes.xyxy[0].tolist(),
    "labelformat": [box.xmin, box.ymin, box.xmax, box.ymax],
    "globox": [other.xmin, other.ymin, other.xmax, other.ymax],
}
print("expected: one box, [0, 0, 100, 80], of all three")
for name, corners in seen.items():
    print(f"seen by {name} {version(name)}: {corners}")
assert seen["supervision"] == [0, 0, 100, 80]
assert seen["labelformat"] == seen["globox"] == [1, 1, 100, 80]
PYTHON
