"""Each annotation file and image is opened once by a set that is loaded, examined and prepared; shown images twice."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

SCRIPT = """
import contextlib
import json
import sys
from collections import Counter
from pathlib import Path

import coord_data.reading.image_set, coord_data.inspection.examine, coord_data.preparing.preparation
from coord_data import ReadingRules, cli, examine, load_annotated, open_source, prepare

place, images = Path(sys.argv[1]), Path(sys.argv[1]) / "images"
opened = Counter()
sys.addaudithook(lambda event, args: opened.update([str(args[0])]) if event == "open" else None)
counts = {}
for number, (what, name) in enumerate(json.loads(sys.argv[2])):
    opened.clear()
    out = place / f"out-{number}"
    if what == "inspect":
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
            cli.app(["inspect", str(place / name), "--images", str(images), "--out", str(out)])
    else:
        rules = ReadingRules() if what == "yolo" else ReadingRules(images=images)
        source = open_source(place / name)
        if what == "prepare":
            prepare([source], out, rules, split=0.5)
        else:
            loaded = load_annotated(source, rules)
            assert len(loaded) == 4 and isinstance(examine(loaded), list)
    counts[f"{what} {name}"] = dict(opened)
print(json.dumps(counts))
"""
CASES = [
    ("load", "a.json"),
    ("load", "a.jsonl"),
    ("load", "a.csv"),
    ("yolo", "data.yaml"),
    ("prepare", "a.json"),
    ("inspect", "a.json"),
    ("inspect", "a.jsonl"),
]


def box(n):
    return [10 + n, 12, 60, 40]


@pytest.fixture
def data(tmp_path):
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    for n in range(4):
        Image.fromarray(rng.integers(0, 255, (96, 128, 3), dtype=np.uint8)).save(tmp_path / "images" / f"{n}.png")
    coco = {
        "images": [{"id": n, "file_name": f"{n}.png"} for n in range(4)],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": n, "image_id": n, "category_id": 1, "bbox": box(n)} for n in range(4)],
    }
    (tmp_path / "a.json").write_text(json.dumps(coco, indent=1))
    records = [{"image": f"{n}.png", "objects": [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.7]}]} for n in range(4)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    rows = [f"{n}.png,cat,{','.join(map(str, (x, y, x + w, y + h)))}\n" for n in range(4) for x, y, w, h in [box(n)]]
    (tmp_path / "a.csv").write_text("image,label,xmin,ymin,xmax,ymax\n" + "".join(rows))
    (tmp_path / "labels").mkdir()
    for n in range(4):
        (tmp_path / "labels" / f"{n}.txt").write_text("0 0.4 0.5 0.2 0.3\n")
    (tmp_path / "data.yaml").write_text("train: images\nnames: [cat]\n")
    return tmp_path


@pytest.mark.slow
def test_each_file_is_opened_once(data):
    words = [sys.executable, "-c", SCRIPT, data, json.dumps(CASES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    images = {str(data / "images" / f"{n}.png") for n in range(4)}
    for (what, name), counted in zip(CASES, json.loads(done.stdout).values(), strict=True):
        opened = {path: count for path, count in counted.items() if path.startswith(str(data))}
        assert {path for path in opened if path.endswith(".png")} == images, (what, name)
        assert opened[str(data / name)] == 1, (what, name)
        written = str(data / "out"), str(data / ".out")
        images_shown = 1 if what == "inspect" else 0  # on the page
        limits = {path: 1 + images_shown * path.endswith(".png") for path in opened if not path.startswith(written)}
        assert {path: opened[path] for path, limit in limits.items() if opened[path] > limit} == {}, (what, name)
