"""How long the codec takes: import in a fresh process, parsing of long sequences, encoding of full images.

python packages/coord-codec/benchmarks/bench_codec.py
"""

import random
import subprocess
import sys
import time

import typer

from coord_codec import CoordVocab, Instance, encode_target, find_layout

VOCAB = CoordVocab(151_670)
MARKERS = (1, 2, 3, 4)


def best_of(repeats, work):
    def once():
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(once() for _ in range(repeats))


def import_seconds(statement):
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def sequence(objects):
    bins = random.Random(0)
    rows = [[1, 50, 51, 2, 3, *(VOCAB.bin_to_id(bins.randrange(1000)) for _ in range(4)), 4] for _ in range(objects)]
    return [i for row in rows for i in row]


def main() -> None:
    """Time the import, find_layout on long sequences and encode_target on full images."""
    for statement in ("import coord_codec", "from coord_codec import Instance"):
        print(f"{statement:36} {import_seconds(statement):.3f} s")
    for objects in (1_000, 10_000, 100_000):  # time per token must not grow
        ids = sequence(objects)
        for markers in (MARKERS, None):
            seconds = best_of(3, lambda ids=ids, markers=markers: find_layout(ids, VOCAB, markers))
            print(f"find_layout, {len(ids):>9,} ids, {'json' if markers is None else 'four'}", end="  ")
            print(f"{seconds:8.3f} s  {seconds / len(ids) * 1e6:.2f} us a token")
    box = {"desc": "red car", "bbox": [0.1, 0.2, 0.3, 0.4]}
    instance = Instance(image="a.jpg", objects=[box] * 30)
    print(f"encode_target, 30 objects            {best_of(20, lambda: encode_target(instance)) * 1e3:.2f} ms")


if __name__ == "__main__":
    typer.run(main)
