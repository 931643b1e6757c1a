import os
import random
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real data; beside the repository or where COORDEXP_SHARED says."""
    here = Path(__file__).resolve()
    candidates = [Path(value) for value in [os.environ.get("COORDEXP_SHARED", "")] if value]
    candidates += [parent.parent / "shared" for parent in here.parents if (parent / ".git").exists()]
    for candidate in candidates:
        if (candidate / "data").is_dir():
            return candidate / "data"
    pytest.skip("no real data: put it in ../shared or set COORDEXP_SHARED")


@pytest.fixture
def coco_set() -> dict:
    """A generated COCO set: 40 pictures of odd sizes, 6 labels, sub-pixel boxes, crowds, empty pictures."""
    return make_coco(seed=7, images=40)


def make_coco(seed: int, images: int) -> dict:
    draw = random.Random(seed)
    names = ["cat", "dog", "red car", "person", "T-shirt", "traffic light"]
    data = {
        "images": [],
        "annotations": [],
        "categories": [{"id": 10 * i, "name": name} for i, name in enumerate(names)],
    }
    for image_id in range(images):
        width, height = draw.randint(200, 900), draw.randint(200, 900)
        data["images"].append(
            {"id": image_id, "file_name": f"{image_id:04}.jpg", "width": width, "height": height}
        )
        for _ in range(draw.randint(0, 9)):
            w, h = draw.uniform(0.02, 0.6) * width, draw.uniform(0.02, 0.6) * height
            x, y = draw.uniform(0, width - w), draw.uniform(0, height - h)
            data["annotations"].append(
                {
                    "id": len(data["annotations"]),
                    "image_id": image_id,
                    "category_id": 10 * draw.randrange(len(names)),
                    "bbox": [x, y, w, h],
                    "area": w * h * draw.uniform(0.5, 1),
                    "iscrowd": int(draw.random() < 0.05),
                }
            )
    return data


@pytest.fixture
def noisy_results():
    """A function that makes a results list of jittered, doubled, mislabelled and missing boxes."""
    return make_results


def make_results(truth, seed):
    draw = np.random.default_rng(seed)
    categories = [c["id"] for c in truth["categories"]]
    results = []
    for a in truth["annotations"]:
        for _ in range(draw.integers(0, 3)):
            x, y, w, h = a["bbox"] * (1 + draw.normal(0, 0.08, 4))
            label = a["category_id"] if draw.random() < 0.8 else int(draw.choice(categories))
            box = [float(x), float(y), float(abs(w)), float(abs(h))]
            score_ = round(float(draw.random()), 1)  # coarse, so that ties occur
            results.append({"image_id": a["image_id"], "category_id": label, "bbox": box, "score": score_})
    return results


@pytest.fixture
def shrunk():
    """A function that halves a set and its results, so that all of COCO's sizes occur."""
    return make_shrunk


def make_shrunk(truth, results):
    def half(row):
        area = {"area": row["area"] / 4} if "area" in row else {}
        return {**row, **area, "bbox": [side / 2 for side in row["bbox"]]}

    annotations = [half(a) for a in truth["annotations"]]
    areas = [a["area"] for a in annotations]
    assert min(areas) < 32**2 < 96**2 < max(areas)
    images = [{**i, "width": i["width"] / 2, "height": i["height"] / 2} for i in truth["images"]]
    return {**truth, "images": images, "annotations": annotations}, [half(r) for r in results]


@pytest.fixture
def copied():
    """A function that copies each picture as often as its weight says, for real and under ids of their own."""
    return make_copies


def make_copies(truth, results, weights):
    copied, boxes = {**truth, "images": [], "annotations": []}, []
    for image, weight in zip(truth["images"], weights, strict=True):
        for copy in range(weight):
            new = 1000 * image["id"] + copy
            copied["images"].append({**image, "id": new})
            for source, target in ((truth["annotations"], copied["annotations"]), (results, boxes)):
                target += [{**row, "image_id": new} for row in source if row["image_id"] == image["id"]]
    return copied, boxes
