#!/usr/bin/env bash
# pyarrow 26.0.1: the first `pyarrow.array` of a plain list imports pandas where it is installed (3.1.1 here), although no data frame is involved;
# `import pyarrow` alone does not, and `from_pandas=False` does not help. A command that keeps a few boxes in Arrow columns starts a second later
# as soon as pandas, which it never uses, stands beside it in the environment.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6
cat > boxes.py <<'PYTHON'
import sys
import time

import pyarrow

print(f"pyarrow {pyarrow.__version__}")
after_import = "pandas" in sys.modules
begin = time.process_time()
boxes = pyarrow.array([[10.0, 20.0, 30.0, 40.0]], pyarrow.list_(pyarrow.float64()), from_pandas=False)
seconds = time.process_time() - begin
print(f"expected: an array of {len(boxes)} box, and no pandas")
print(f"seen: pandas imported by `import pyarrow`: {after_import}; by `pyarrow.array`: {'pandas' in sys.modules} ({seconds:.2f} s)")
assert not after_import
assert "pandas" in sys.modules
PYTHON
venv/bin/python boxes.py
