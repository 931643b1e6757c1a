#!/usr/bin/env bash
# label-studio-sdk 2.0.19: `LabelInterface.validate_task` raises a TypeError for every task with predictions, right or wrong, since it calls
# `validate_prediction` without one. Who writes pre-annotations of a detector has to validate each prediction alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps appdirs==1.4.4 attrs==26.1.0 certifi==2026.10.19.post1 charset-normalizer==3.5.3 cloudpickle==3.1.3 defusedxml==0.7.1 idna==3.20 ijson==3.6.0 joblib==1.6.0 label-studio-sdk==2.0.19 lxml==6.1.3 narwhals==2.29.0 nltk==3.10.4 numpy==2.4.6 pandas==2.3.3 pillow==12.3.0 pyarrow==25.0.1 pyjwt==2.15.1 python-dateutil==4.0.0 pytz==2026.6 regex==2026.11.19 requests==2.34.2 rich==13.9.4 scikit-learn==1.9.1 scipy==1.17.1 threadpoolctl==3.8.0 ujson==6.1.0 urllib3==2.8.0 pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-extensions==4.16.0 typing-inspection==0.4.5 httpx==0.28.1 httpcore==1.0.9 anyio==4.16.0 h11==0.16.0 six==1.17.0 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1 jsf==0.11.2 faker==40.63.0 rstr==3.2.2 smart-open==9.0.2 wrapt==2.5.2 xmljson==0.2.1
venv/bin/python - <<'PYTHON'
from importlib.metadata import version

from label_studio_sdk.label_interface import LabelInterface

interface = LabelInterface(
    '<View><Image name="image" value="$image"/><RectangleLabels name="label" toName="image"><Label value="cat"/></RectangleLabels></View>'
)
value = {"x": 10, "y": 10, "width": 20, "height": 20, "rotation": 0, "rectanglelabels": ["cat"]}
region = {"id": "1", "type": "rectanglelabels", "from_name": "label", "to_name": "image", "value": value}
region |= {"original_width": 100, "original_height": 80, "image_rotation": 0}
prediction = {"model_version": "1", "score": 0.9, "result": [region]}
print(f"label-studio-sdk {version('label-studio-sdk')}")
print("expected: a task with a prediction that is valid is valid")
assert interface.validate_prediction(prediction)
assert interface.validate_task({"data": {"image": "a.jpg"}})
try:
    seen = interface.validate_task({"data": {"image": "a.jpg"}, "predictions": [prediction]})
except TypeError as error:
    seen = f"TypeError: {error}"
print(f"seen: {seen}")
assert "validate_prediction() missing 1 required positional argument" in str(seen)
PYTHON
