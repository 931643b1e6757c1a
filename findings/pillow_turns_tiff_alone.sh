#!/usr/bin/env bash
# pillow 13.0.0: an image with EXIF orientation 6 opens as it is stored if it is a JPEG, PNG or WebP file, and turned upright, with width and height
# exchanged and the tag gone, if it is a TIFF file. Boxes that fit the opened image of one format lie on their side in the other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pillow==13.0.0
venv/bin/python - <<'PYTHON'
from PIL import Image, __version__

stored = Image.new("RGB", (40, 20))
turned = Image.Exif()
turned[0x0112] = 6
sizes = {}
for suffix in ("jpg", "png", "webp", "tiff"):
    stored.save(f"a.{suffix}", exif=turned)
    with Image.open(f"a.{suffix}") as opened:
        opened.load()
        sizes[suffix] = opened.size, opened.getexif().get(0x0112)
print("pillow", __version__)
print("expected: one size for one image stored in four formats with the same tag")
print(f"seen, size and tag: {sizes}")
assert {sizes[suffix] for suffix in ("jpg", "png", "webp")} == {((40, 20), 6)}
assert sizes["tiff"] == ((20, 40), None)
PYTHON
