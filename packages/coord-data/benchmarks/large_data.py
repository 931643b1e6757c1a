"""Measures the time and memory that many records need until they are loaded.

    uv run python packages/coord-data/benchmarks/large_data.py --records 100000 [--format coco] [--scored]
    uv run python packages/coord-data/benchmarks/large_data.py --inspect 10000 --inspect 100000 --columns 1000000

Writes instance JSONL or one COCO file of that many records with a small image each (hard links to a few files), and
loads them in new processes: the first checks and caches them, each further one maps the cache. Prints the time until
the data are loaded, as processor time of all processes (which depends less on the load of the machine) and as wall
time; the resident memory then and at its peak; and how much of the mapped records is resident while a second process
reads them, with the share of this process.

With `--inspect`, prints for so many images of 256 x 256 (links to at most 10,000 files of noise, six boxes each) the
processor time of decoding each once by Pillow, and of `coord-data inspect` with one worker and with two, its wall time
and its peak of memory. With `--columns`, examines so many records with drawn columns in place of looks at images.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = [f"thing {n}" for n in range(80)]
LINKS = 100_000
"""Number of different image names; further records reuse them."""


def write(folder, records, objects=(1, 13), coco=False, side=64, files=64, names=LINKS):
    """Write records with `objects` boxes, of `names` images at most, which are links to `files` images of noise."""
    draw = random.Random(0)
    (folder / "images").mkdir(parents=True)
    images, annotations = [], []
    path = folder / ("a.json" if coco else "a.jsonl")
    with path.open("w") as file:
        for n in range(records):
            name = f"images/{n % names:07d}.jpg"
            if n < files:
                Image.effect_noise((side, side), 40).convert("RGB").save(folder / name)
            elif files and n < names:
                os.link(folder / f"images/{n % files:07d}.jpg", folder / name)
            boxes = []
            for _ in range(draw.randint(*objects)):
                x, y = draw.uniform(0, 0.7), draw.uniform(0, 0.7)
                box = [x, y, x + draw.uniform(0.05, 0.3), y + draw.uniform(0.05, 0.3)]
                boxes.append({"desc": draw.choice(NAMES), "bbox": [round(v, 5) for v in box]})
            if coco:
                images.append({"id": n, "file_name": name, "width": side, "height": side})
                annotations += [coco_row(len(annotations) + k, n, side, **box) for k, box in enumerate(boxes)]
                continue
            record = {"image": name, "width": side, "height": side, "image_id": n, "objects": boxes}
            file.write(json.dumps(record) + "\n")
        if coco:
            categories = [{"id": k, "name": name} for k, name in enumerate(NAMES)]
            draw.shuffle(annotations)  # as in COCO's own files, those of an image do not stand together
            json.dump({"images": images, "annotations": annotations, "categories": categories}, file)
    return path


def coco_row(number, image, side, desc, bbox):
    """Return a COCO annotation."""
    x1, y1, x2, y2 = (side * value for value in bbox)
    row = {"id": number, "image_id": image, "category_id": NAMES.index(desc), "bbox": [x1, y1, x2 - x1, y2 - y1]}
    return row | {"area": (x2 - x1) * (y2 - y1), "iscrowd": 0}


def spent():
    """Return the processor time of this process and its children, and the wall time."""
    times = os.times()
    return np.array([sum(times[:4]), time.monotonic()])


def load(path, scored):
    """Load as training does, in this process; prints seconds and resident megabytes."""
    from coord_data.reading.image_set import load_annotated

    imported = spent()
    found = load_annotated(Path(path), scored=scored)
    figures = dict(zip(("loaded", "loaded, clock"), spent() - imported, strict=True)) | memory()
    if not scored and hasattr(found.instances, "path"):
        figures |= shared(found.instances)
    print(json.dumps({"records": len(found)} | {k: round(v, 2) for k, v in figures.items()}), flush=True)


def beside_parsing(path, what):
    """Measure in this process one of: parsing a COCO file by orjson, reading its table, preparing it."""
    import orjson

    from coord_codec import read_annotations
    from coord_data.preparing.preparation import prepare
    from coord_data.reading.rules import ReadingRules

    content = Path(path).read_bytes() if what == "orjson" else b""
    before = spent()
    if what == "orjson":
        orjson.loads(content)
    elif what == "table":
        assert len(read_annotations(path).table)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            prepare([Path(path)], Path(scratch) / "out", ReadingRules())
    seconds = float((spent() - before)[0])
    print(json.dumps({"what": what, "seconds": round(seconds, 2)} | memory()), flush=True)


SIDE, FILES, BOXES = 256, 10_000, 6
"""Side of the images that are inspected, number of different files, and boxes of each."""


def write_inspected(folder, count, files):
    """Write instance JSONL of noise, with links to `files` images; none are written for 0."""
    return write(folder, count, (BOXES, BOXES), side=SIDE, files=files, names=count)


def inspect_rows(path, workers):
    """Measure in this process: decoding all images (0 workers), or inspecting them; prints a row."""
    before = spent()
    if not workers:
        for file in sorted((path.parent / "images").iterdir()):
            with Image.open(file) as image:
                image.convert("RGB")
    else:
        from coord_data.cli import main as command

        out = path.parent / f"out-{workers}"
        sys.argv = ["coord-data", "inspect", str(path), "--out", str(out), "--workers", str(workers)]
        with suppress(SystemExit):
            command()
    processor, wall = (round(float(value), 2) for value in spent() - before)
    what = f"inspect, workers {workers}" if workers else "decode"
    print(json.dumps({"what": what, "processor s": processor, "wall s": wall} | memory()), flush=True)


def examine_columns(path):
    """Examine records with drawn columns in place of looks at their images, and print a row."""
    from dataclasses import replace

    from coord_data.inspection.examine import examination_of
    from coord_data.looking.looks import FIELDS, ImageFile, Looks, merge
    from coord_data.reading.read import read_by
    from coord_data.reading.rules import ReadingRules

    before = spent()
    evidence = read_by(path, ReadingRules())
    compared, rng = set(evidence.raw.compared_images()), np.random.default_rng(0)

    def looked_at(row):
        small = Image.effect_noise((SIDE, SIDE), 40).convert("RGB") if row in compared else None
        grey = rng.integers(0, 256, (FIELDS, FIELDS), np.uint8)
        of_file = {"digest": rng.bytes(32).hex(), "look": int(rng.integers(1 << 63)), "grey": grey, "small": small}
        return row, ImageFile((SIDE, SIDE), stored_size=(SIDE, SIDE), stamp=(30_000, row), **of_file)

    count = len(evidence.raw.files)
    parts = (Looks.of(map(looked_at, range(k, min(k + 128, count)))) for k in range(0, count, 128))
    found = examination_of(replace(evidence, files=merge(parts)))
    processor, wall = (round(float(value), 2) for value in spent() - before)
    row = {"what": "columns", "images": count, "findings": [finding.code for finding in found.findings]}
    print(json.dumps(row | {"processor s": processor, "wall s": wall} | memory()), flush=True)


def measured(*words):
    """Run this program in a new process, and return the rows that it printed."""
    done = subprocess.run([sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def inspect(counts, columns):
    """Print a table of the inspection of so many images, and of so many columns."""
    print(
        "| images | what | processor s | x decoding | wall s | x one worker | peak MB |\n|---|---|---|---|---|---|---|"
    )
    for count in counts:
        with tempfile.TemporaryDirectory() as scratch:
            path = str(write_inspected(Path(scratch) / "data", count, min(count, FILES)))
            rows = [row for n in (0, 1, 2, 0) for row in measured("--load", path, "--workers", str(n))]
        decode = (rows[0]["processor s"] + rows[3]["processor s"]) / 2
        for row in rows:
            times, one = row["processor s"] / decode, row["wall s"] / rows[1]["wall s"]
            figures = f"{row['processor s']} | {times:.2f} | {row['wall s']} | {one:.2f} | {row['peak MB']}"
            print(f"| {count:,} | {row['what']} | {figures} |", flush=True)
    for count in columns:
        with tempfile.TemporaryDirectory() as scratch:
            path = str(write_inspected(Path(scratch) / "data", count, 0))
            (row,) = measured("--load", path, "--measure", "columns")
        print(
            f"| {count:,} | columns alone | {row['processor s']} | | {row['wall s']} | | {row['peak MB']} |", flush=True
        )


def memory():
    """Return the resident megabytes of this process, now and at its peak."""
    status = Path("/proc/self/status").read_text()
    found = {line.split(":")[0]: int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("Vm")}
    return {"resident MB": found["VmRSS"], "peak MB": found["VmHWM"]}


def shared(records):
    """Return the resident megabytes of the mapped records, and this process's share while another one reads them."""
    read = "import sys; from coord_data.records import Records; r = Records.open(sys.argv[1]); list(map(id, r))"
    words = [sys.executable, "-c", f"{read}; print(flush=True); input()", str(records.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        other.stdout.readline()
        for _ in records:
            pass
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        sizes = {"Rss": 0.0, "Pss": 0.0}
        for line in lines:
            if line.endswith(".arrow"):
                for found in (next(lines).split(":") for _ in range(5)):
                    if found[0] in sizes:
                        sizes[found[0]] += int(found[1].split()[0]) / 1024
        other.communicate("\n")
    return {"mapped MB": sizes["Rss"], "own share MB": sizes["Pss"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--again", type=int, default=1, help="times that the same data are loaded anew")
    parser.add_argument("--format", choices=["jsonl", "coco"], default="jsonl")
    parser.add_argument(
        "--scored", action="store_true", help="keep the pixel boxes of a COCO file in memory, as where it is scored"
    )
    parser.add_argument("--beside-orjson", action="store_true", help="read and prepare a COCO file beside orjson.loads")
    parser.add_argument("--inspect", type=int, action="append", default=[], help="inspect so many images; repeatable")
    parser.add_argument("--columns", type=int, action="append", default=[], help="examine so many columns; repeatable")
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure == "columns":
        examine_columns(Path(options.load))
        return
    if options.workers is not None:
        inspect_rows(Path(options.load), options.workers)
        return
    if options.inspect or options.columns:
        inspect(options.inspect, options.columns)
        return
    if options.measure:
        beside_parsing(options.load, options.measure)
        return
    if options.load:
        load(options.load, options.scored)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = write(Path(scratch) / "data", options.records, coco=options.format == "coco" or options.beside_orjson)
        environment = os.environ | {"XDG_CACHE_HOME": f"{scratch}/cache"}
        for what in ("orjson", "table", "prepare") if options.beside_orjson else ():
            words = [sys.executable, __file__, "--load", str(path), "--measure", what]
            subprocess.run(words, env=environment, check=True)
        if options.beside_orjson:
            return
        for _ in range(options.again + 1):
            words = [sys.executable, __file__, "--load", str(path), *["--scored"] * options.scored]
            subprocess.run(words, env=environment, check=True)


if __name__ == "__main__":
    main()
