#!/usr/bin/env bash
# mean-average-precision 2024.1.5.0: its IoU adds 1 to every width and height, as Pascal VOC did for whole pixels. Boxes in fractions of the
# image, which it takes without an error, nearly all overlap: one beside the true box is right at an IoU of .5. Small boxes in pixels gain too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps mean-average-precision==2024.1.5.0 numpy==2.4.6 pandas==2.3.3 python-dateutil==2.9.0.post0 pytz==2026.6 tzdata==2026.6 six==1.17.0
venv/bin/python - <<'PYTHON'
import warnings
from importlib.metadata import version

import numpy as np
from mean_average_precision import MetricBuilder

warnings.simplefilter("ignore")


def average_precision(truth, found):
    """Return the AP at an IoU of .5 of one box."""
    metric = MetricBuilder.build_evaluation_metric("map_2d", async_mode=False, num_classes=1)
    metric.add(np.array([[*found, 0, 0.9]]), np.array([[*truth, 0, 0, 0]]))
    return float(metric.value(iou_thresholds=[0.5])["mAP"])


beside = average_precision((0.1, 0.1, 0.2, 0.2), (0.3, 0.1, 0.4, 0.2))
close = average_precision((0, 0, 4, 4), (1.5, 0, 5.5, 4))
print("mean-average-precision", version("mean-average-precision"))
print("AP at IoU .5 of a box in fractions that does not touch the true one:", beside, "(expected 0)")
print("AP at IoU .5 of a box of 4 pixels with an IoU of .455:", close, "(expected 0)")
raise SystemExit(not (beside == 1 and close == 1))
PYTHON
