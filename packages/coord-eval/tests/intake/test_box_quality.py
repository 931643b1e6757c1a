"""Expected IoU against brute force: a million draws of the true box."""

import numpy as np
import pytest

from coord_eval.intake.box_quality import box_quality


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
]


def test_box_quality_equals_brute_force():
    expected, hit = box_quality(*map(list, zip(*CASES, strict=True)))
    drawn = np.array([by_drawing(*case) for case in CASES])
    assert expected == pytest.approx(drawn[:, 0], abs=0.003)
    assert hit == pytest.approx(drawn[:, 1], abs=0.01)


def test_box_quality_is_the_same_alone_and_among_many():
    many = box_quality(*(list(column) * 100 for column in zip(*CASES, strict=True)))
    alone = [box_quality(*([part] for part in case)) for case in CASES]
    for found, index in zip(many, (0, 1), strict=True):
        assert found.reshape(100, -1).tolist() == [[float(pair[index][0]) for pair in alone]] * 100


def test_box_quality_of_swapped_means_and_of_nothing():
    (a,), _ = box_quality([(0.2, 0.2, 0.6, 0.6)], [(0.6, 0.2, 0.2, 0.6)], [(0.1, 0.0, 0.2, 0.0)])
    (b,), _ = box_quality([(0.2, 0.2, 0.6, 0.6)], [(0.2, 0.2, 0.6, 0.6)], [(0.2, 0.0, 0.1, 0.0)])
    assert a == b
    assert [len(found) for found in box_quality([], [], [])] == [0, 0]
