"""Before the first step of a training the annotations and each image are opened at most twice."""

import json
from collections import Counter

import numpy as np
import pytest
from coco_document import IMAGE, coco_document
from PIL import Image
from tiny_run import HELPERS, TINY


@pytest.fixture
def photographs(tmp_path):
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for n in range(4):
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(folder / "images" / f"{n}.png")
    images = [IMAGE | {"id": n, "file_name": f"{n}.png"} for n in range(4)]
    boxes = [{"image_id": n, "bbox": [10 + n, 12, 30, 40]} for n in range(4)]
    (folder / "a.json").write_text(json.dumps(coco_document(boxes, images)))
    return folder


@pytest.mark.slow
def test_annotations_and_images_are_opened_at_most_twice(photographs, tmp_path, forked):
    sizes = [f"model.tiny.{name}={value}" for name, value in TINY.items()]
    words = [f"data.annotations={photographs / 'a.json'}", f"data.images={photographs / 'images'}"]
    words += [f"run.dir={tmp_path / 'run'}", "evaluation.images=train", "custom.coord_soft_ce_w1.enabled=true"]
    words += ["data.markers=obj", "training.max_steps=1"]
    done = forked(HELPERS / "opened.py", photographs, tmp_path / "opened.txt", *words, *sizes, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    opened = Counter((tmp_path / "opened.txt").read_text().splitlines())
    files = {str(photographs / "a.json"), *map(str, (photographs / "images").glob("*.png"))}
    assert set(opened) & files == files and max(opened[file] for file in files) <= 2, opened
    assert (tmp_path / "run" / "findings.json").is_file()
