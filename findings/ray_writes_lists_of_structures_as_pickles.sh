#!/usr/bin/env bash
# ray 2.51.1: rows whose objects are lists of structures keep them through read_parquet and write_parquet, but after a map_batches with the default NumPy
# batches the column is written as `ray.data.arrow_pickled_object`: Python pickles in a binary column, which no other reader of Parquet can open.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "ray[data]==2.51.1" pyarrow==21.0.0 "numpy==2.2.6" "pandas==2.3.3"
RAY_DATA_DISABLE_PROGRESS_BARS=1 venv/bin/python - <<'PYTHON'
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import ray

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
objects = [[{"bbox": [1.0, 2.0, 3.0, 4.0], "category": "cat"}], [{"bbox": [5.0, 6.0, 7.0, 8.0], "category": "dog"}] * 2]
pq.write_table(pa.table({"id": [1, 2], "objects": objects}), "a.parquet")
rows = ray.data.read_parquet("a.parquet")
rows.write_parquet("plain")
rows.map_batches(lambda batch: batch).write_parquet("mapped")
seen = {}
for name in ("plain", "mapped"):
    file = next(Path(name).glob("*.parquet"))
    seen[name] = str(pq.read_schema(file).field("objects").type), file.name
print("ray", ray.__version__)
print("expected of both: a list of structures")
print("seen:", seen)
assert seen["plain"][0].startswith("list<"), seen
assert "list<" not in seen["mapped"][0], seen
PYTHON
