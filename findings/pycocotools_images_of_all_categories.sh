#!/usr/bin/env bash
# pycocotools 2.0.11: `getImgIds(catIds=[cat, dog])` returns the images that have both, while `getAnnIds(catIds=[cat, dog])` returns the objects of either.
# Who takes a subset of classes out of COCO so loses most of its images without a word: of all 80 classes none is left.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pycocotools==2.0.11 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import contextlib
import io
from importlib.metadata import version

from pycocotools.coco import COCO

objects = ((1, "cat"), (2, "dog"), (3, "cat"), (3, "dog"))
numbers = {"cat": 1, "dog": 2}
box = {"bbox": [10, 10, 20, 20], "area": 400, "iscrowd": 0}
truth = COCO()
truth.dataset = {
    "images": [{"id": image, "width": 100, "height": 80} for image in (1, 2, 3)],
    "categories": [{"id": number, "name": name} for name, number in numbers.items()],
    "annotations": [
        {**box, "id": row, "image_id": image, "category_id": numbers[name]} for row, (image, name) in enumerate(objects, 1)
    ],
}
with contextlib.redirect_stdout(io.StringIO()):
    truth.createIndex()
of_objects = sorted({row["image_id"] for row in truth.loadAnns(truth.getAnnIds(catIds=[1, 2]))})
of_images = sorted(truth.getImgIds(catIds=[1, 2]))
print("pycocotools", version("pycocotools"))
print(f"expected: the images of the objects that the same list of categories chooses, {of_objects}")
print(f"seen: {of_images}")
assert of_objects == [1, 2, 3] and of_images == [3]
PYTHON
