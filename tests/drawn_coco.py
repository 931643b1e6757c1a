"""Generated shapes as a COCO file and its images."""

import json

from coord_trainer.config.sections import ShapesConfig
from coord_trainer.data.shapes import CATEGORIES, draw_shapes


def write_coco(images, file, split, count):
    """Write the images into a folder and the annotations into a file; return the instances."""
    instances, rows, annotations = [], [], []
    for instance, image in draw_shapes(ShapesConfig(), split, count):
        name = instance.image.replace("/", "-")
        image.save(images / name)
        instances.append(instance)
        rows.append({"id": instance.image_id, "file_name": name, "width": 96, "height": 96})
        for found in instance.objects:
            x1, y1, x2, y2 = (96 * side for side in found.bbox)
            annotation = {"id": len(annotations) + 1, "image_id": instance.image_id, "bbox": [x1, y1, x2 - x1, y2 - y1]}
            annotation |= {"category_id": CATEGORIES.index(found.desc) + 1, "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
            annotations.append(annotation)
    categories = [{"id": n, "name": name} for n, name in enumerate(CATEGORIES, start=1)]
    file.write_text(json.dumps({"images": rows, "annotations": annotations, "categories": categories}))
    return instances
