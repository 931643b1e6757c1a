import os
import random
from pathlib import Path

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
