"""How long many records take before the first step, and how much memory they need.

    uv run python apps/trainer/benchmarks/large_data.py --records 100000

Writes instance JSONL of that many records over one small image each (hard links of a few files), then loads them in a
new process as training does: seconds until the data are loaded and samples can be encoded, and resident memory. Seconds
are of processor time, which depends less on what else the machine does.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

NAMES = [f"thing {n}" for n in range(80)]
IMAGES = 64


def write(folder, records, objects=7, seed=0):
    """Write records with `objects` boxes on average; the images are links of a few files."""
    draw = random.Random(seed)
    (folder / "images").mkdir(parents=True)
    for n in range(IMAGES):
        Image.effect_noise((64, 64), 40).convert("RGB").save(folder / "images" / f"s{n}.jpg")
    with (folder / "a.jsonl").open("w") as file:
        for n in range(records):
            name = f"images/{n:07d}.jpg"
            os.link(folder / "images" / f"s{n % IMAGES}.jpg", folder / name)
            boxes = []
            for _ in range(draw.randint(1, 2 * objects - 1)):
                x, y = draw.uniform(0, 0.7), draw.uniform(0, 0.7)
                box = [x, y, x + draw.uniform(0.05, 0.3), y + draw.uniform(0.05, 0.3)]
                boxes.append({"desc": draw.choice(NAMES), "bbox": [round(v, 5) for v in box]})
            record = {"image": name, "width": 64, "height": 64, "image_id": n, "objects": boxes}
            file.write(json.dumps(record) + "\n")
    return folder / "a.jsonl"


def load(path):
    """Load as training does, in this process; prints seconds and resident megabytes."""
    from coord_trainer.config.sections import DataSection
    from coord_trainer.data.image_set import load_annotated
    from coord_trainer.data.samples import SampleSet, TargetWriter

    imported = time.process_time()
    data = DataSection(preload=False)
    found = load_annotated(Path(path), None, "train", False, data)
    loaded = time.process_time()
    SampleSet(found, lambda *_, **__: {"labels": []}, TargetWriter(data, True, 0, None), None)
    ready = time.process_time()
    status = Path("/proc/self/status").read_text()
    resident = next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmRSS"))
    figures = {"loaded": loaded - imported, "samples": ready - loaded, "resident MB": resident}
    print(json.dumps({"records": len(found)} | {k: round(v, 2) for k, v in figures.items()}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--again", type=int, default=1, help="times that the same data are loaded anew")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        load(options.load)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = write(Path(scratch) / "data", options.records)
        environment = os.environ | {"XDG_CACHE_HOME": f"{scratch}/cache"}
        for _ in range(options.again + 1):
            subprocess.run([sys.executable, __file__, "--load", str(path)], env=environment, check=True)


if __name__ == "__main__":
    main()
