#!/usr/bin/env bash
# ensemble-boxes 1.0.9: weighted boxes fusion of models with different weights returns scores above 1 where one model states an object twice.
# The mean of the weighted scores is divided as if each box came from another model; thresholds, calibration and a COCO file of such "confidences" are then off.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check ensemble-boxes==1.0.9 numpy==2.4.6 numba==0.68.1 pandas==3.1.1
venv/bin/python - <<'PYTHON'
from importlib.metadata import version

from ensemble_boxes import weighted_boxes_fusion

twice, once = [[0.1, 0.1, 0.5, 0.5], [0.11, 0.1, 0.5, 0.5]], [[0.1, 0.1, 0.5, 0.5]]
scores, labels = [[0.9, 0.9], [0.9]], [[0, 0], [0]]
seen = {}
for weights in ([1, 1], [3, 1]):
    _, fused, _ = weighted_boxes_fusion([twice, once], scores, labels, weights=weights, iou_thr=0.55)
    seen[tuple(weights)] = float(fused[0])
print(f"ensemble-boxes {version('ensemble-boxes')}")
print("expected: three boxes of score .9 on one object are an object of score .9, or at least of no more than 1")
print(f"seen: weights 1, 1: {seen[1, 1]:.3f}; weights 3, 1: {seen[3, 1]:.3f}")
assert round(seen[1, 1], 3) == 0.9 and seen[3, 1] > 1.04
PYTHON
