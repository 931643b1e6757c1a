"""The box of the highest expected IoU against a search over all boxes."""

from itertools import product

import numpy as np
import pytest

from coord_eval.intake.box_sources import best_boxes


def expected_iou(boxes_N4, quantiles):
    """The mean IoU of each box with all boxes of these sides."""
    a, b, c, d = np.array([*product(*quantiles)]).T
    left, top, right, bottom = np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d)
    x1, y1, x2, y2 = np.array(boxes_N4).T[..., None]
    shared = np.clip(np.minimum(x2, right) - np.maximum(x1, left), 0, None)
    shared *= np.clip(np.minimum(y2, bottom) - np.maximum(y1, top), 0, None)
    union = (x2 - x1) * (y2 - y1) + (right - left) * (bottom - top) - shared
    return (shared / np.where(union, union, 1)).mean(1)


def random_sides(seed):
    draw = np.random.default_rng(seed)
    middle = np.array([0.2, 0.3, 0.6, 0.8])[:, None]
    # Every third side has two peaks, which no mean and spread describe.
    jump = (draw.random((4, 5)) < 0.4) * (draw.random((4, 1)) < 0.33) * 0.15
    return np.sort(np.clip(middle + draw.normal(0, 0.12, (4, 5)) + jump, 0, 1), axis=1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_box_of_those_quantiles_is_expected_to_be_better(seed):
    sides = random_sides(seed)
    found, medians = expected_iou([best_boxes([sides])[0], sides[:, 2]], sides)
    every = expected_iou([box for box in product(*sides) if box[0] < box[2] and box[1] < box[3]], sides)
    assert found == pytest.approx(every.max(), abs=1e-3)
    assert found >= medians


@pytest.mark.slow
def test_boxes_are_the_same_alone_and_among_many():
    many = np.array([random_sides(seed) for seed in range(150)])
    assert best_boxes(many).tolist() == [best_boxes([each])[0].tolist() for each in many]


def test_certain_sides_swapped_corners_and_nothing():
    assert best_boxes([[[0.6] * 3, [0.2] * 3, [0.2] * 3, [0.6] * 3]]).tolist() == [[0.2, 0.2, 0.6, 0.6]]
    assert best_boxes(np.zeros((0, 4, 3))).shape == (0, 4)
    assert best_boxes([]).shape == (0, 4)
