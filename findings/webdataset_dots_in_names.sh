#!/usr/bin/env bash
# webdataset 1.0.2: the key of a sample ends at the first dot of a name, so street.v1.jpg and street.v2.jpg become one sample "street" with the keys
# v1.jpg, v1.json, v2.jpg, v2.json and no key "jpg". Frames and versions are named so; the boxes of both images are then in one record.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check webdataset==1.0.2
venv/bin/python - <<'PYTHON'
import io
import tarfile

import webdataset

with tarfile.open("boxes.tar", "w") as tar:
    for name, content in {
        "street.v1.jpg": b"one image",
        "street.v1.json": b'{"boxes": [[1, 1, 2, 2]]}',
        "street.v2.jpg": b"another image",
        "street.v2.json": b'{"boxes": [[3, 3, 4, 4]]}',
    }.items():
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
samples = list(webdataset.WebDataset("boxes.tar", shardshuffle=False))
keys = [sorted(key for key in sample if not key.startswith("__")) for sample in samples]
print("expected: two samples, each with jpg and json")
print(f"seen: {keys}")
assert keys == [["v1.jpg", "v1.json", "v2.jpg", "v2.json"]]
PYTHON
