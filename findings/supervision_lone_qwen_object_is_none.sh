#!/usr/bin/env bash
# supervision 0.31.2: `Detections.from_vlm` of Qwen answers finds nothing where the model states a single object without a list around it, or writes a
# bracket in the sentence before its list: the first "[" is taken for the list. No error tells it; the image counts as one without objects.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps certifi==2026.10.19.post1 charset-normalizer==3.5.3 defusedxml==0.7.1 idna==3.20 numpy==2.4.6 opencv-python-headless==4.14.0.94 pillow==12.3.0 pydeprecate==0.13.0 pyyaml==6.0.4 requests==2.34.2 scipy==1.17.1 supervision==0.31.2 tqdm==4.70.1 urllib3==2.8.0 matplotlib==3.11.2 contourpy==1.3.3 cycler==0.12.1 fonttools==4.68.0 kiwisolver==1.5.1 packaging==26.4 pyparsing==3.3.3 python-dateutil==4.0.0 six==1.17.0
venv/bin/python - <<'PYTHON'
import supervision
from supervision import VLM, Detections

lone = '{"bbox_2d": [100, 200, 500, 600], "label": "cat"}'
answers = {
    "a list": f"[{lone}]",
    "a list after a sentence": f"I see one object: [{lone}]",
    "a single object": lone,
    "a list after a sentence with a bracket": f"I see one object [a cat]: [{lone}]",
}
print(f"supervision {supervision.__version__}")
print("expected: one box of each answer")
seen = {}
for kind, answer in answers.items():
    seen[kind] = [
        len(Detections.from_vlm(VLM.QWEN_3_VL, answer, resolution_wh=(640, 480))),
        len(Detections.from_vlm(VLM.QWEN_2_5_VL, answer, input_wh=(1000, 1000), resolution_wh=(640, 480))),
    ]
    print(f"seen: {kind}: {seen[kind]} boxes (Qwen3-VL, Qwen2.5-VL)")
assert list(seen.values()) == [[1, 1], [1, 1], [0, 0], [0, 0]]
PYTHON
