#!/usr/bin/env bash
# supervision 0.26.1: Detections.from_vlm of a Gemini 2.5 answer without `classes` numbers the labels of each answer anew, so that "dog" is 1 in
# one image and 0 in the next; the readers of Qwen and PaliGemma answers give no class_id at all. What joins frames by class_id, such as a tracker
# or a metric, then mixes classes: give `classes`, the same list for all images.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check supervision==0.26.1 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import supervision as sv

print(f"supervision {sv.__version__}")
both = '```json\n[{"box_2d": [10, 20, 300, 400], "label": "cat"}, {"box_2d": [5, 5, 200, 200], "label": "dog"}]\n```'
dog = '```json\n[{"box_2d": [5, 5, 200, 200], "label": "dog"}]\n```'
found = [sv.Detections.from_vlm(sv.VLM.GOOGLE_GEMINI_2_5, text, resolution_wh=(100, 100)) for text in (both, dog)]
ids = [dict(zip(one["class_name"].tolist(), one.class_id.tolist())) for one in found]
print("expected: one number of dog in both images")
print(f"seen: {ids}")
assert ids == [{"cat": 0, "dog": 1}, {"dog": 0}]
merged = sv.Detections.merge(found)
print(f"merged: {merged.class_id.tolist()} for {merged['class_name'].tolist()}")
assert merged.class_id.tolist() == [0, 1, 0]
qwen = '```json\n[{"bbox_2d": [1, 2, 30, 40], "label": "dog"}]\n```'
of_qwen = sv.Detections.from_vlm(sv.VLM.QWEN_2_5_VL, qwen, input_wh=(100, 100), resolution_wh=(100, 100))
print(f"of a Qwen answer: {of_qwen.class_id}")
assert of_qwen.class_id is None
PYTHON
