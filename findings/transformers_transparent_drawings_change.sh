#!/usr/bin/env bash
# transformers 5.19.0 and 5.24.0: what a processor shows of a transparent image depends on the release. Until 5.20 those of Qwen2-VL, Gemma 3 and Pixtral drop
# alpha, so that black lines on a transparent ground are one even black; from 5.21 on the ground is white, and white lines, as icons for dark pages have
# them, are one even white. A detector that was trained before an upgrade sees other images after it, and each release has drawings that it cannot see.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >seen.py <<'PYTHON'
import transformers
from PIL import Image, ImageDraw

print(f"transformers {transformers.__version__}: a rectangle on a transparent ground, as each processor hands it to its model")
print("expected: lines and ground differ")
even = {}
for colour, value in (("black", 0), ("white", 255)):
    drawing = Image.new("RGBA", (112, 112), (value, value, value, 0))
    ImageDraw.Draw(drawing).rectangle((20, 20, 90, 90), outline=(value, value, value, 255), width=6)
    for family in ("Qwen2VL", "Gemma3", "Pixtral"):
        processor = getattr(transformers, f"{family}ImageProcessorPil")()
        pixels = processor(images=[drawing], do_normalize=False, return_tensors="np")["pixel_values"]
        even[colour, family] = bool(pixels.min() == pixels.max())
        print(f"seen by {family}, {colour} lines: pixels from {float(pixels.min())} to {float(pixels.max())}")
old = transformers.__version__ == "5.19.0"
assert all(is_even == (old or colour == "white") for (colour, _), is_even in even.items()), even
PYTHON
for version in 5.19.0 5.24.0; do
  python3 -m venv "venv-$version"
  "venv-$version/bin/pip" install --quiet --disable-pip-version-check "transformers==$version" pillow==13.0.0 numpy==2.4.6
  "venv-$version/bin/python" -W ignore seen.py
done
