#!/usr/bin/env bash
# datasets 4.4.1: the WebDataset builder infers the types of JSON members from the first five samples of a tar. Boxes whose numbers are whole in these
# are int64, and the fractions of all later samples are cut to whole numbers without a warning: a box from 20.7 becomes one from 20.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check datasets==4.4.1 pillow==12.0.0
HF_HOME="$folder/hf" venv/bin/python - <<'PYTHON'
import io
import json
import tarfile

import datasets
from PIL import Image

pixels = io.BytesIO()
Image.new("RGB", (64, 48)).save(pixels, "JPEG")
with tarfile.open("boxes.tar", "w") as tar:
    for n in range(8):
        box = [20, 10, 30, 20] if n < 5 else [20.7, 10.2, 30.9, 20.6]
        for suffix, content in (("jpg", pixels.getvalue()), ("json", json.dumps({"bbox": box}).encode())):
            member = tarfile.TarInfo(f"{n}.{suffix}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
rows = datasets.load_dataset("webdataset", data_files="boxes.tar", split="train")
print("datasets", datasets.__version__)
print("expected of the last sample: [20.7, 10.2, 30.9, 20.6]")
print("seen:", rows[7]["json"]["bbox"], rows.features["json"])
assert rows[7]["json"]["bbox"] == [20, 10, 30, 20]
PYTHON
