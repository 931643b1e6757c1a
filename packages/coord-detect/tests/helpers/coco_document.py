"""COCO documents of a few images."""

IMAGE = {"id": 1, "file_name": "a.png", "width": 64, "height": 64}


def coco_document(annotations, images=(IMAGE,), names=("cat",)):
    """The document of annotations that state what differs: each is of the first image and the first name if not."""
    rows = [{"id": n, "image_id": images[0]["id"], "category_id": 1, **row} for n, row in enumerate(annotations, 1)]
    categories = [{"id": n, "name": name} for n, name in enumerate(names, 1)]
    return {"images": list(images), "annotations": rows, "categories": categories}
