#!/usr/bin/env bash
# json-repair 0.64.5: an answer that was cut off inside a number becomes a whole box with the digits that were there. Answers of models stop at a
# token limit often, and a coordinate of 120 that becomes 12 is a wrong box, not a missing one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check json-repair==0.64.5
venv/bin/python - <<'PYTHON'
import json_repair

cut = '[{"label": "cat", "bbox_2d": [10, 20, 110, 12'  # the model was about to write 120
boxes = [item["bbox_2d"] for item in json_repair.loads(cut)]
print("expected: no box, or a mark that the last one is not whole")
print(f"seen: {boxes} of {cut!r}")
assert boxes == [[10, 20, 110, 12]]
PYTHON
