"""An image of 64 x 48 pixels, and annotations of one with a cat, `a.png`: as COCO JSON and as Pascal VOC XML."""

import json

import numpy as np
from PIL import Image

COCO = {
    "images": [{"id": 1, "file_name": "a.png", "width": 64, "height": 48}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [4, 4, 32, 32]}],
    "categories": [{"id": 1, "name": "cat"}],
}

VOC = (
    "<annotation><filename>a.png</filename><size><width>64</width><height>48</height></size><object><name>cat</name>"
    "<bndbox><xmin>5</xmin><ymin>5</ymin><xmax>36</xmax><ymax>36</ymax></bndbox></object></annotation>"
)


def coco(changed=None, **tables):
    document = {key: [dict(row) for row in rows] for key, rows in COCO.items()} | tables
    document["annotations"][0] |= changed or {}
    return json.dumps(document)


def picture(seed, size=(64, 48)):
    coarse = np.random.default_rng(seed).integers(0, 255, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
