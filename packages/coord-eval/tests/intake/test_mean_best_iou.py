"""The fit of boxes to the objects of their images, against plain loops."""

import numpy as np
import pytest
from coco_builder import coco

from coord_eval import load_ground_truth
from coord_eval.intake.interpretations import mean_best_iou


def plain_iou(one, other):
    """IoU of two boxes x1, y1, x2, y2."""
    across, down = (min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in (0, 1))
    common = max(across, 0) * max(down, 0)
    return common / (sum((b[2] - b[0]) * (b[3] - b[1]) for b in (one, other)) - common)


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
            (
                plain_iou(box, (x / 100, y / 50, (x + w) / 100, (y + h) / 50))
                for at, (x, y, w, h) in regular
                if at == image
            ),
            default=0.0,
        )
        for image, box in zip(image_B.tolist(), boxes_B4.tolist(), strict=True)
    ]
    assert mean_best_iou(truth, image_B, boxes_B4) == pytest.approx(np.mean(best))
