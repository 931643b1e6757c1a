#!/usr/bin/env bash
# datasets 4.8.4: `Dataset.to_parquet` writes an image that was named by its path as that path, without its bytes, although `Image()` documents both
# and `push_to_hub` embeds them; an image given as PIL is embedded. The Parquet file of boxes that one sends to somebody else has no pixels.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check datasets==4.8.4 pillow==12.2.0 pyarrow==26.0.1 numpy==2.4.6
export HF_HUB_OFFLINE=1 HF_HOME="$folder/hf"
venv/bin/python - <<'PYTHON'
import datasets
import pyarrow.parquet
from PIL import Image

datasets.disable_progress_bars()
pixels = Image.new("RGB", (64, 48), (200, 30, 30))
pixels.save("street.png")
print(f"datasets {datasets.__version__}")
for kind, image in (("a path", "street.png"), ("a PIL image", pixels)):
    rows = {"image": [image], "objects": [{"bbox": [[10.0, 10.0, 20.0, 20.0]], "category": [0]}]}
    boxes = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    boxes.to_parquet("boxes.parquet")
    (stored,) = pyarrow.parquet.read_table("boxes.parquet")["image"].to_pylist()
    print(f"{kind}: expected bytes in the file; seen: path {stored['path']}, {len(stored['bytes'] or b'')} bytes")
    assert (stored["bytes"] is None) == (kind == "a path")
PYTHON
