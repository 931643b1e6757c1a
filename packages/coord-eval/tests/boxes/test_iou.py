"""Intersection over union."""

import numpy as np
import pytest

from coord_eval.boxes.iou import box_iou


def test_box_iou_of_all_pairs_equals_a_naive_loop(naive_iou):
    draw = np.random.default_rng(0)
    a, b = draw.uniform(0, 10, (20, 4)), draw.uniform(0, 10, (30, 4))
    a[0, 2:] = b[0, 2:] = 0  # no area
    crowd = draw.random(30) < 0.3
    found = box_iou(a[:, None], b, crowd)
    expected = [[naive_iou(p, q, c) for q, c in zip(b, crowd, strict=True)] for p in a]
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert found[0, 0] == 0


def test_box_iou_of_single_boxes():
    assert box_iou(np.array([0.0, 0, 4, 4]), np.array([0.0, 0, 4, 2])) == pytest.approx(0.5)
