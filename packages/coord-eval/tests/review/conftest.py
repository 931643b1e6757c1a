"""A set whose labels are simulated, and a model that answers the truth with noise."""

import copy

import numpy as np
import pytest
from coco_builder import coco

NAMES = ("cat", "dog", "cow")


def simulated(images=120, seed=0):
    """Six objects an image on a grid, so that none overlaps another; sides of 40 to 90 pixels."""
    rng = np.random.default_rng(seed)
    objects = []
    for image in range(images):
        for cell in range(6):
            w, h = rng.uniform(40, 90, 2)
            x, y = 200 * (cell % 3) + rng.uniform(0, 200 - w), 200 * (cell // 3) + rng.uniform(0, 200 - h)
            objects.append((image, int(rng.integers(1, 4)), [float(v) for v in (x, y, w, h)]))
    truth = coco(*objects, names=NAMES, images={i: f"{i}.png" for i in range(images)}, size=(600, 400))
    for row in truth["annotations"]:
        row |= {"iscrowd": 0, "area": row["bbox"][2] * row["bbox"][3]}
    return truth


def answers(truth, seed=1, missed=0.03):
    """Noise of 2 % of a side; a few objects missed, a few false boxes of low score."""
    rng = np.random.default_rng(seed)
    results = []
    for row in truth["annotations"]:
        if rng.random() < missed:
            continue
        box = np.array(row["bbox"]) + rng.normal(0, 0.02, 4) * np.tile(row["bbox"][2:], 2)
        score = float(rng.uniform(0.7, 1))
        results.append(
            {"image_id": row["image_id"], "category_id": row["category_id"], "bbox": box.tolist(), "score": score}
        )
    for image in rng.integers(0, len(truth["images"]), 30).tolist():
        box = [*rng.uniform(0, 300, 2), *rng.uniform(30, 60, 2)]
        results.append(
            {"image_id": image, "category_id": 1, "bbox": list(map(float, box)), "score": float(rng.uniform(0.05, 0.4))}
        )
    return results


def spoil(truth, every=20, seed=2):
    """Plant a fault in every so many labels, kinds in turn; return labels, {annotation id: kind} and removed rows."""
    rng = np.random.default_rng(seed)
    spoilt, planted, removed = copy.deepcopy(truth), {}, []
    kinds = ("renamed", "moved", "missing", "spurious", "duplicate", "mixed")
    rows = []
    for place, row in enumerate(spoilt["annotations"]):
        kind = kinds[(place // every) % 6] if place % every == 7 else None
        box = np.array(row["bbox"])
        if kind == "missing":
            removed.append(row)
            continue
        rows.append(row)
        if kind in ("renamed", "mixed"):
            row["category_id"] = row["category_id"] % 3 + 1
        if kind in ("moved", "mixed"):
            axis = rng.integers(2)
            box[axis] += rng.choice([-1, 1]) * rng.uniform(0.3, 0.4) * box[2 + axis]
            row["bbox"] = box.tolist()
        if kind == "spurious":
            side = rng.uniform(40, 90, 2)
            rows.append(
                row | {"id": 10_000 + place, "bbox": [*(rng.random(2) * ([600, 400] - side)).tolist(), *side.tolist()]}
            )
        if kind == "duplicate":
            corner = box[:2] + rng.choice([-0.05, 0.05], 2) * box[2:]
            rows.append(row | {"id": 10_000 + place, "bbox": [*corner.tolist(), *box[2:].tolist()]})
        if kind:
            planted[rows[-1]["id"]] = kind
    spoilt["annotations"] = rows
    return spoilt, planted, removed


@pytest.fixture(scope="session")
def clean():
    return simulated()


@pytest.fixture(scope="session")
def said(clean):
    return answers(clean)


@pytest.fixture(scope="session")
def spoilt(clean):
    return spoil(clean)
