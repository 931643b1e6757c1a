#!/usr/bin/env bash
# rasterio 1.4.3 (GDAL 3.9.3): of a GeoTIFF of four uint8 bands about which the writer says nothing, the fourth is tagged as unassociated alpha, although
# it may hold infrared; with photometric="RGB" it is not. Pillow opens it as RGBA, and whatever lays images over
# white shows a pale one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check rasterio==1.4.3 pillow==12.0.0 "numpy==2.2.6"
venv/bin/python - <<'PYTHON'
import warnings

import numpy as np
import rasterio
from PIL import Image

warnings.simplefilter("ignore")
bands = np.zeros((4, 8, 8), np.uint8) + np.array([30, 90, 200, 60], np.uint8)[:, None, None]
seen = {}
for options in ({}, {"photometric": "RGB"}):
    with rasterio.open("a.tif", "w", driver="GTiff", width=8, height=8, count=4, dtype="uint8", **options) as file:
        file.write(bands)
    with rasterio.open("a.tif") as file:
        last = file.colorinterp[3].name
    with Image.open("a.tif") as image:
        seen[str(options)] = last, image.mode, image.tag_v2.get(338)
print("rasterio", rasterio.__version__, "with GDAL", rasterio.__gdal_version__)
print("expected: a fourth band of no stated meaning")
print("seen:", seen)
assert list(seen.values()) == [("alpha", "RGBA", (2,)), ("undefined", "RGB", (0,))], seen
PYTHON
