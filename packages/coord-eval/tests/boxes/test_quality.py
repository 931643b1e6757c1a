"""Expected IoU against brute force: a million draws of the true box."""

import numpy as np
import pytest

from coord_eval.boxes.quality import expected_iou, hit_probability


def by_drawing(box, mean, spread, draws=400_000):
    draw = np.random.default_rng(0)
    mean, spread = np.array(mean), np.array(spread)
    true = np.clip(mean + spread * draw.standard_normal((draws, 4)), 0, 1)
    side = np.maximum(np.minimum(true[:, 2:], box[2:]) - np.maximum(true[:, :2], box[:2]), 0)
    common = side.prod(axis=1)
    union = (box[2] - box[0]) * (box[3] - box[1]) + np.maximum(true[:, 2:] - true[:, :2], 0).prod(axis=1) - common
    return (common / union).mean(), (common / union > 0.5).mean()


CASES = [
    ((0.2, 0.2, 0.6, 0.6), (0.2, 0.2, 0.6, 0.6), (0.02, 0.02, 0.02, 0.02)),
    ((0.2, 0.2, 0.6, 0.6), (0.2, 0.2, 0.6, 0.6), (0.1, 0.1, 0.1, 0.1)),
    ((0.2, 0.2, 0.6, 0.6), (0.25, 0.15, 0.66, 0.58), (0.05, 0.01, 0.2, 0.03)),
    ((0.0, 0.0, 0.1, 1.0), (0.02, 0.03, 0.12, 0.97), (0.02, 0.05, 0.02, 0.05)),
    ((0.4, 0.4, 0.45, 0.47), (0.4, 0.4, 0.45, 0.47), (0.01, 0.01, 0.01, 0.01)),
    ((0.1, 0.1, 0.3, 0.3), (0.5, 0.5, 0.9, 0.9), (0.05, 0.05, 0.05, 0.05)),
    # The border of the image holds much of a side, or a side is wide in a small box.
    ((0.49, 0.31, 0.98, 0.78), (0.49, 0.43, 1.0, 0.78), (0.001, 0.105, 0.12, 0.006)),
    ((0.93, 0.02, 0.97, 0.86), (0.96, 0.0, 0.97, 0.61), (0.27, 0.22, 0.001, 0.25)),
    ((0.09, 0.4, 0.75, 0.43), (0.09, 0.25, 0.75, 0.43), (0.001, 0.19, 0.001, 0.001)),
    ((0.27, 0.02, 0.64, 0.04), (0.23, 0.0, 0.63, 0.04), (0.07, 0.16, 0.013, 0.036)),
]


@pytest.mark.slow
def test_box_quality_equals_brute_force():
    columns = [list(column) for column in zip(*CASES, strict=True)]
    drawn = np.array([by_drawing(*case) for case in CASES])
    assert expected_iou(*columns) == pytest.approx(drawn[:, 0], abs=0.004)
    assert hit_probability(*columns) == pytest.approx(drawn[:, 1], abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("quality", [expected_iou, hit_probability])
def test_box_quality_is_the_same_alone_and_among_many(quality):
    many = quality(*(list(column) * 100 for column in zip(*CASES, strict=True)))
    alone = [float(quality(*([part] for part in case))[0]) for case in CASES]
    assert many.reshape(100, -1).tolist() == [alone] * 100


def test_box_quality_of_swapped_means_and_of_nothing():
    (a,) = expected_iou([(0.2, 0.2, 0.6, 0.6)], [(0.6, 0.2, 0.2, 0.6)], [(0.1, 0.0, 0.2, 0.0)])
    (b,) = expected_iou([(0.2, 0.2, 0.6, 0.6)], [(0.2, 0.2, 0.6, 0.6)], [(0.2, 0.0, 0.1, 0.0)])
    assert a == b
    assert len(expected_iou([], [], [])) == len(hit_probability([], [], [])) == 0
