#!/usr/bin/env bash
# pillow 13.0.0, tifffile 2026.3.3: of an uncompressed TIFF with 16-bit colours stored by plane (as tifffile writes an array of 3 x H x W) Pillow makes
# an RGB image of 8 bits by taking every byte of a plane for a pixel: the upper half of each plane fills the image, low and high bytes side by side. No
# error is raised. The same file with compression, or through libtiff, is decoded as it is. Boxes then lie on noise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pillow==13.0.0 tifffile==2026.3.3 "numpy==2.2.6"
venv/bin/python - <<'PYTHON'
import numpy as np
import tifffile
from PIL import Image, __version__

colour = (1000, 30000, 60000)
planes = np.zeros((3, 100, 200), np.uint16) + np.array(colour, np.uint16)[:, None, None]
tifffile.imwrite("plain.tif", planes, photometric="rgb", planarconfig="separate")
tifffile.imwrite("packed.tif", planes, photometric="rgb", planarconfig="separate", compression="zlib")
seen = {}
for name in ("plain.tif", "packed.tif"):
    with Image.open(name) as image:
        seen[name] = image.mode, image.getpixel((0, 0)), image.getpixel((1, 0))
print("pillow", __version__)
print("expected of both: one colour, (3, 117, 234), the higher bytes of", colour)
print("seen:", seen)
assert seen["packed.tif"] == ("RGB", (3, 117, 234), (3, 117, 234))
assert seen["plain.tif"] == ("RGB", (232, 48, 96), (3, 117, 234))
PYTHON
