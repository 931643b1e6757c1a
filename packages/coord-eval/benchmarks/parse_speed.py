"""Processor time to parse 600 answers of 40 objects in each format, beside an older commit of this repository.

The two versions parse the same texts in turn, several rounds each, in processes of their own; the fastest round counts.

python packages/coord-eval/benchmarks/parse_speed.py --against e4df0d7
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from coord_codec import Instance, encode_target

ANSWERS, OBJECTS = 600, 40
ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("packages/coord-eval/src", "packages/coord-codec/src")
ROUND = """
import json, sys, time
from coord_eval import parse_answer
texts = json.load(open(sys.argv[1]))
for name in map(str.strip, sys.stdin):
    start = time.process_time()
    objects = sum(len(parse_answer(text)) for text in texts[name])
    print(json.dumps([time.process_time() - start, objects]), flush=True)
"""


def texts() -> dict[str, list[str]]:
    """Return the answers of each format."""
    draw = random.Random(0)
    instances = []
    for _ in range(ANSWERS):
        boxes = []
        for _ in range(OBJECTS):
            x, y = draw.uniform(0, 0.7), draw.uniform(0, 0.7)
            label = draw.choice(["person", "traffic light", "red car"])
            boxes.append({"desc": label, "bbox": [x, y, x + 0.2, y + 0.3]})
        instances.append(Instance(image="a.jpg", objects=boxes))
    written = {
        f"{style} {markers} {form}": [
            encode_target(instance, markers=markers, style=style, form=form) for instance in instances
        ]
        for style, markers, form in [
            ("markers", "obj", "tokens"),
            ("markers", "qwen", "tokens"),
            ("markers", "qwen", "numbers"),
            ("json", "obj", "tokens"),
            ("json", "obj", "numbers"),
        ]
    }
    written["paligemma"] = [" ; ".join(["<loc0100><loc0200><loc0300><loc0400> person"] * OBJECTS)] * ANSWERS
    written["florence2"] = ["person<loc_100><loc_200><loc_300><loc_400>" * OBJECTS] * ANSWERS
    written["internvl"] = ["<ref>person</ref><box>[[100, 200, 300, 400]]</box>" * OBJECTS] * ANSWERS
    lists = "\n".join(f"{i + 1}. traffic light: [100, 200, 300, 400]" for i in range(OBJECTS))
    written["lists"] = [lists] * ANSWERS
    written["lists of one line"] = ["person[0.120,0.240,0.560,0.680]; " * OBJECTS] * ANSWERS
    return written


def start(root: Path, file: Path) -> subprocess.Popen[str]:
    """Start a process that parses with the packages below a folder."""
    path = os.pathsep.join(str(root / package) for package in PACKAGES)
    command = [sys.executable, "-c", ROUND, str(file)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def ask(process: subprocess.Popen[str], name: str, whole: bool = True) -> float:
    """Let a process parse the answers of one format, `whole` if it reads all; return its processor time in seconds."""
    assert process.stdin and process.stdout
    process.stdin.write(f"{name}\n")
    process.stdin.flush()
    seconds, objects = json.loads(process.stdout.readline())
    assert not whole or objects == ANSWERS * OBJECTS, f"{name}: {objects} objects"
    return float(seconds)


def main(
    against: Annotated[str, typer.Option(help="the older commit")] = "e4df0d7",
    rounds: Annotated[int, typer.Option(help="rounds of each version")] = 7,
) -> None:
    """Print microseconds an object now and at the older commit, and their ratio."""
    archive = subprocess.run(["git", "archive", against, *PACKAGES], cwd=ROOT, check=True, capture_output=True).stdout
    written = texts()
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        file = Path(folder, "texts.json")
        file.write_text(json.dumps(written))
        old, new = start(Path(folder), file), start(ROOT, file)
        for name in written:
            seconds = [(ask(old, name, False), ask(new, name)) for _ in range(rounds)]
            before, now = (1e6 * min(times) / ANSWERS / OBJECTS for times in zip(*seconds, strict=True))
            print(f"{name:24} {before:6.2f} us an object at {against}, {now:6.2f} now: {now / before:.2f} times")
        for process in (old, new):
            process.terminate()


if __name__ == "__main__":
    typer.run(main)
