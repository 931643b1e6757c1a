"""The fit of boxes to the objects of their images, against plain loops."""

import numpy as np
import pytest
from coco_builder import coco, iou

from coord_eval import load_ground_truth
from coord_eval.intake.interpretations import BestIou


def test_mean_best_iou_is_that_of_plain_loops_without_crowds():
    draw = np.random.default_rng(0)
    objects = [(int(draw.integers(6)), 1, draw.uniform(0, 25, 4).tolist()) for _ in range(30)]
    document = coco(*objects, images=range(6), size=(100, 50))
    for row in document["annotations"][::3]:
        row["iscrowd"] = 1
    truth = load_ground_truth(document)
    image_B = draw.integers(0, 6, 40)
    boxes_B4 = np.sort(draw.uniform(0, 0.5, (40, 2, 2)), axis=1).reshape(40, 4)
    regular = [(image, box) for n, (image, _, box) in enumerate(objects) if n % 3]
    best = [
        max(
            (iou(box, (x / 100, y / 50, (x + w) / 100, (y + h) / 50)) for at, (x, y, w, h) in regular if at == image),
            default=0.0,
        )
        for image, box in zip(image_B.tolist(), boxes_B4.tolist(), strict=True)
    ]
    assert BestIou(truth, image_B)(boxes_B4) == pytest.approx(np.mean(best))
