"""Similarities of shapes against areas known by hand, random points inside, and pycocotools' own keypoint scores."""

import math

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from coord_eval.shapes.similarity import COCO_SIGMAS, keypoint_similarity, mask_iou, nearness, outline_iou


def rectangle(x1, y1, x2, y2):
    return [(x1, y1), (x2, y1), (x2, y2), (x1, y2)]


def turned(cx, cy, width, height, angle):
    sin, cos = math.sin(angle), math.cos(angle)
    corners = [(-width / 2, -height / 2), (width / 2, -height / 2), (width / 2, height / 2), (-width / 2, height / 2)]
    return [(cx + x * cos - y * sin, cy + x * sin + y * cos) for x, y in corners]


def inside(points, xy):
    """Which of the points xy [N, 2] lie inside an outline, by counting crossings to the right."""
    odd = np.zeros(len(xy), bool)
    for (x1, y1), (x2, y2) in zip(points, [*points[1:], points[0]], strict=True):
        if y1 == y2:
            continue
        between = (xy[:, 1] >= min(y1, y2)) & (xy[:, 1] < max(y1, y2))
        odd ^= between & (xy[:, 0] < x1 + (xy[:, 1] - y1) * (x2 - x1) / (y2 - y1))
    return odd


def sampled_iou(one, other, size):
    xy = np.random.default_rng(0).uniform((0, 0), size, (200_000, 2))
    a, b = inside(one, xy), inside(other, xy)
    return (a & b).sum() / (a | b).sum()


CASES = [
    (turned(30, 30, 30, 15, 0.4), turned(33, 28, 25, 20, -0.2)),
    (turned(20, 40, 10, 30, 1.0), turned(20, 40, 30, 10, 1.0)),
]


@pytest.mark.parametrize(("one", "other"), CASES)
def test_iou_is_the_share_of_random_points(one, other):
    expected = sampled_iou(one, other, (64, 64))
    assert outline_iou([one], [other])[0, 0] == pytest.approx(expected, abs=0.01)
    assert mask_iou([one], [other], (64, 64))[0, 0] == pytest.approx(expected, abs=0.01)


def test_iou_of_boxes_that_are_not_turned():
    found = outline_iou([rectangle(0, 0, 2, 2), rectangle(5, 5, 6, 6)], [rectangle(1, 0, 3, 2), rectangle(0, 0, 2, 2)])
    assert found.tolist() == [[pytest.approx(1 / 3), 1], [0, 0]]


def test_oriented_box_that_crosses_itself_has_no_iou():
    crossed = [(0, 0), (2, 2), (2, 0), (0, 2)]
    assert outline_iou([crossed], [rectangle(0, 0, 2, 2)]).tolist() == [[0]]


def test_nothing_is_compared_with_nothing():
    square = rectangle(0, 0, 1, 1)
    assert mask_iou([], [square], (9, 9)).shape == outline_iou([], [square]).shape == (0, 1)


def test_nearness_of_points():
    found = nearness([[(0, 0)], [(3, 4)]], [[(3, 4)], [(0, 0)], [(6, 8)]], (6, 8))
    assert found.tolist() == [[0.5, 1, 0], [1, 0.5, 0.5]]


def test_keypoint_similarity_is_that_of_pycocotools():
    rng = np.random.default_rng(3)
    true = rng.uniform(0, 100, (4, 17, 2))
    seen = rng.integers(0, 3, (4, 17))
    seen[:, 0] = 2
    area = rng.uniform(500, 5000, 4)
    found = true[[1, 0, 3]] + rng.normal(0, 6, (3, 17, 2))
    truth, answers = COCO(), COCO()
    head = {"images": [{"id": 1}], "categories": [{"id": 1}]}
    box = {"bbox": [0, 0, 100, 100], "image_id": 1, "category_id": 1, "iscrowd": 0}
    truth.dataset = head | {
        "annotations": [
            {
                **box,
                "id": i + 1,
                "area": a,
                "num_keypoints": int((v > 0).sum()),
                "keypoints": np.concatenate([xy, v[:, None]], axis=1).flatten().tolist(),
            }
            for i, (xy, v, a) in enumerate(zip(true, seen, area, strict=True))
        ]
    }
    answers.dataset = head | {
        "annotations": [
            {
                **box,
                "id": i + 1,
                "area": 1,
                "score": 1 - i / 10,
                "keypoints": np.concatenate([xy, np.ones((17, 1))], axis=1).flatten().tolist(),
            }
            for i, xy in enumerate(found)
        ]
    }
    truth.createIndex()
    answers.createIndex()
    evaluator = COCOeval(truth, answers, "keypoints")
    evaluator._prepare()
    expected = evaluator.computeOks(1, 1)
    ours = keypoint_similarity(
        [list(map(tuple, f)) for f in found], [list(map(tuple, t)) for t in true], seen > 0, area
    )
    assert len(COCO_SIGMAS) == 17
    assert ours == pytest.approx(expected)
