"""The builder of COCO documents for these tests."""


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
