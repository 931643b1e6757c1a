#!/usr/bin/env bash
# safetensors 0.6.2 (numpy 2.2.6): `safe_open(...).get_slice(name)[lo:hi]` maps the file, so that reading a checkpoint slice by
# slice leaves all of it in the resident memory of the process; `os.pread` of the same bytes takes a few megabytes.
# Why it matters for boxes: an exporter that streams a detector from file to file by slices is stopped by the memory limit of a
# container as if it had loaded the model.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check safetensors==0.6.2 numpy==2.2.6
cat >read.py <<'PY'
import json, os, struct, sys
import numpy as np
from safetensors import safe_open

def peak_mb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024

before, total = peak_mb(), 0.0
if sys.argv[1] == "get_slice":
    with safe_open("model.safetensors", "np") as file:
        for name in file.keys():
            part = file.get_slice(name)
            for lo in range(0, 4096, 64):
                total += float(part[lo : lo + 64].sum())
else:
    fd = os.open("model.safetensors", os.O_RDONLY)
    (length,) = struct.unpack("<Q", os.pread(fd, 8, 0))
    for name, entry in json.loads(os.pread(fd, length, 8)).items():
        if name != "__metadata__":
            for at in range(8 + length + entry["data_offsets"][0], 8 + length + entry["data_offsets"][1], 64 * 4096):
                total += float(np.frombuffer(os.pread(fd, 64 * 4096, at), np.float32).sum())
print(peak_mb() - before, round(total))
PY
venv/bin/python - <<'PY'
import numpy as np
from safetensors.numpy import save_file
save_file({f"t{i}": np.full((4096, 1024), i, np.float32) for i in range(32)}, "model.safetensors")
PY
read -r mapped one < <(venv/bin/python read.py get_slice)
read -r plain other < <(venv/bin/python read.py pread)
echo "safetensors 0.6.2: a file of $(($(stat -c %s model.safetensors) >> 20)) MB, read in slices of a quarter megabyte"
echo "resident memory: get_slice ${mapped} MB, os.pread ${plain} MB (expected: about the same; sums ${one} and ${other})"
[ "$one" = "$other" ] && [ "$mapped" -gt 400 ] && [ "$plain" -lt 50 ]
