import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from coord_codec import Instance, encode_target
from coord_eval import COCO_KEYS

sys.path.insert(0, str(Path(__file__).parent))
from by_pycocotools import by_pycocotools
from coco_builder import coco, generated_set


@pytest.fixture
def coco_set() -> dict:
    """A generated set of 20 images: all that most tests need, and each of them scores it."""
    return generated_set(20)


@pytest.fixture(scope="session")
def noisy_results():
    """A function that makes a results list of jittered, doubled, mislabelled and missing boxes."""

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

    return make_results


@pytest.fixture(scope="session")
def shrunk():
    """A function that halves a set and its results, so that all of COCO's sizes occur."""

    def make_shrunk(truth, results):
        def half(row):
            area = {"area": row["area"] / 4} if "area" in row else {}
            return {**row, **area, "bbox": [side / 2 for side in row["bbox"]]}

        annotations = [half(a) for a in truth["annotations"]]
        areas = [a["area"] for a in annotations]
        assert min(areas) < 32**2 < 96**2 < max(areas)
        images = [{**i, "width": i["width"] // 2 + 1, "height": i["height"] // 2 + 1} for i in truth["images"]]
        return {**truth, "images": images, "annotations": annotations}, [half(r) for r in results]

    return make_shrunk


@pytest.fixture(scope="session")
def copied():
    """A function that copies each image as often as its weight says, for real and under ids of their own."""

    def make_copies(truth, results, weights):
        copied, boxes = {**truth, "images": [], "annotations": []}, []
        for image, weight in zip(truth["images"], weights, strict=True):
            for copy in range(weight):
                new = 1000 * image["id"] + copy
                copied["images"].append({**image, "id": new})
                for source, target in ((truth["annotations"], copied["annotations"]), (results, boxes)):
                    target += [{**row, "image_id": new} for row in source if row["image_id"] == image["id"]]
        return copied, boxes

    return make_copies


@pytest.fixture
def one_cat() -> dict:
    """A COCO set of one object in one image."""
    return coco((1, 1, [1, 2, 30, 40]), size=(100, 80))


@pytest.fixture
def instance():
    """A function that makes an instance from an image id and pairs of description and box."""

    def make(image_id, *objects, image=None, size=(100, 100)):
        objects = [{"desc": desc, "bbox": box} for desc, box in objects]
        name = image or f"{image_id}.jpg"
        return Instance(image=name, image_id=image_id, width=size[0], height=size[1], objects=objects)

    return make


@pytest.fixture
def answer(instance):
    """A function that makes the record of an answer in our own markers."""

    def make(image_id, *objects, **more):
        text = encode_target(instance(image_id, *objects), markers="obj", order="given")
        return {"image_id": image_id, "text": text, "finish_reason": "stop", **more}

    return make


@pytest.fixture
def by_hand():
    """A function that returns the twelve numbers of pycocotools."""

    def run(truth, results, use_categories=True):
        evaluator = by_pycocotools(truth, results, useCats=int(use_categories))
        with contextlib.redirect_stdout(io.StringIO()):
            evaluator.summarize()
        return dict(zip(COCO_KEYS, evaluator.stats.tolist(), strict=True))

    return run


@pytest.fixture
def naive_iou():
    """IoU of two boxes `xywh`, written out; with a crowd region the share of the first box that lies in it."""

    def iou(a, b, crowd=False):
        width = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
        height = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
        shared = max(width, 0) * max(height, 0)
        union = a[2] * a[3] if crowd else a[2] * a[3] + b[2] * b[3] - shared
        return shared / union if union else 0.0

    return iou


@pytest.fixture(scope="session")
def real_detectors(shared_dir):
    """A function that returns truth and results list of a real detector, by its name."""

    def load(name):
        truth = json.loads((shared_dir / "coco_permissive33" / "instances.json").read_text())
        return truth, json.loads((shared_dir / "real_detectors" / f"{name}_33.json").read_text())

    return load
