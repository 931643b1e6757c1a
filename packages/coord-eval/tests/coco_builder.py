"""The builders of COCO documents for these tests, and IoU written out."""

import random


def coco(*objects, names=("cat",), images=(1,), size=(100, 100)) -> dict:
    """Make a document of objects: id of the image, id of the category, box.

    `names` are those of the categories 1, 2, ... or by id; `images` are ids, or files by id.
    """
    files = images if isinstance(images, dict) else {i: f"{i}.jpg" for i in images}
    labels = names if isinstance(names, dict) else dict(enumerate(names, 1))
    return {
        "images": [{"id": i, "file_name": name, "width": size[0], "height": size[1]} for i, name in files.items()],
        "categories": [{"id": k, "name": name} for k, name in labels.items()],
        "annotations": [
            {"id": n, "image_id": i, "category_id": k, "bbox": box} for n, (i, k, box) in enumerate(objects, 1)
        ],
    }


def iou(a, b) -> float:
    """IoU of two boxes `x1, y1, x2, y2`."""
    width, height = (min(a[k + 2], b[k + 2]) - max(a[k], b[k]) for k in (0, 1))
    inner = max(width, 0) * max(height, 0)
    return inner / (sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)) - inner)


def generated_set(images) -> dict:
    """Make a set of images of odd sizes: 6 labels, sub-pixel boxes, crowds, empty images."""
    draw = random.Random(7)
    names = ["cat", "dog", "red car", "person", "T-shirt", "traffic light"]
    data = {
        "images": [],
        "annotations": [],
        "categories": [{"id": 10 * i, "name": name} for i, name in enumerate(names)],
    }
    for image_id in range(images):
        width, height = draw.randint(200, 900), draw.randint(200, 900)
        data["images"].append({"id": image_id, "file_name": f"{image_id:04}.jpg", "width": width, "height": height})
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
