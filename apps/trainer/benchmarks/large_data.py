"""Measures the time before the first step that many records need.

    uv run python apps/trainer/benchmarks/large_data.py --records 100000 [--format coco]

Writes the records of `packages/coord-data/benchmarks/large_data.py`, which measures the loading alone, and trains one
step of the tiny model with them by the command line, twice: prints the wall time until the first line about the data
and until the step is done.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DATA = Path(__file__).parents[3] / "packages" / "coord-data" / "benchmarks" / "large_data.py"


def train(path, folder, environment):
    """Train one step by the command line; prints the seconds until its first line about data, and until the step."""
    words = [
        str(Path(__file__).parents[1]),
        "train",
        f"data.annotations={path}",
        f"run.dir={folder}",
        "evaluation.images=none",
    ]
    words += ["training.max_steps=1", "training.per_device_train_batch_size=8", "training.report_to=[]"]
    words += ["custom.coord_objective.use_coord_ce=true"]
    started, told = time.monotonic(), {}
    process = subprocess.Popen(
        [sys.executable, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in process.stdout:
        for name, begin in (("first data line", "train: "), ("first step", "trained 1 steps")):
            if begin in line:
                told.setdefault(name, round(time.monotonic() - started, 1))
    if process.wait():
        sys.exit(line)
    print(json.dumps(told | {"load": os.getloadavg()[0]}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--again", type=int, default=1, help="times that the same data are loaded anew")
    parser.add_argument("--format", choices=["jsonl", "coco"], default="jsonl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        write = runpy.run_path(str(DATA))["write"]
        path = write(Path(scratch) / "data", options.records, coco=options.format == "coco")
        environment = os.environ | {"XDG_CACHE_HOME": f"{scratch}/cache"}
        for n in range(options.again + 1):
            train(path, Path(scratch) / f"run{n}", environment)


if __name__ == "__main__":
    main()
