#!/usr/bin/env bash
# label-studio-sdk 2.0.19: the COCO export turns a rotated rectangle in percent of the image, not in pixels, so that on any image that is not square
# the box is not the one around it; the SDK's own YOLO OBB export turns it in pixels. A box of 30 x 20 turned by 30 degrees is 3 pixels off on 100 x 80.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps appdirs==1.4.4 attrs==26.1.0 certifi==2026.10.19.post1 charset-normalizer==3.5.3 cloudpickle==3.1.3 defusedxml==0.7.1 idna==3.20 ijson==3.6.0 joblib==1.6.0 label-studio-sdk==2.0.19 lxml==6.1.3 narwhals==2.29.0 nltk==3.10.4 numpy==2.4.6 pandas==2.3.3 pillow==12.3.0 pyarrow==25.0.1 pyjwt==2.15.1 python-dateutil==4.0.0 pytz==2026.6 regex==2026.11.19 requests==2.34.2 rich==13.9.4 scikit-learn==1.9.1 scipy==1.17.1 threadpoolctl==3.8.0 ujson==6.1.0 urllib3==2.8.0 pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-extensions==4.16.0 typing-inspection==0.4.5 httpx==0.28.1 httpcore==1.0.9 anyio==4.16.0 h11==0.16.0 six==1.17.0 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1 jsf==0.11.2 faker==40.63.0 rstr==3.2.2 smart-open==9.0.2 wrapt==2.5.2 xmljson==0.2.1
venv/bin/python - <<'PYTHON'
from importlib.metadata import version

from label_studio_sdk.converter import Converter
from label_studio_sdk.converter.utils import convert_annotation_to_yolo_obb

width, height = 100, 80
label = {"x": 50, "y": 25, "width": 30, "height": 25, "rotation": 30, "original_width": width, "original_height": height}
corners = convert_annotation_to_yolo_obb(label, normalize=False)
xs, ys = zip(*corners)
around = [round(value, 2) for value in (min(xs), min(ys), max(xs), max(ys))]
x, y, w, h = Converter.rotated_rectangle(label)
coco = [round(value, 2) for value in (x * width / 100, y * height / 100, (x + w) * width / 100, (y + h) * height / 100)]
print(f"label-studio-sdk {version('label-studio-sdk')}")
print(f"expected of COCO: the box around the corners that YOLO OBB gets: {around}")
print(f"seen: {coco}")
assert around == [40.0, 20.0, 75.98, 52.32]
assert coco == [37.5, 20.0, 75.98, 49.32]
PYTHON
