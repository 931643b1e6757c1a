"""The box of the highest expected IoU against a search over all boxes."""

from itertools import product

import numpy as np
import pytest

from coord_eval.intake.box_sources import best_boxes


def iou(one, other):
    sides = [max(min(one[i + 2], other[i + 2]) - max(one[i], other[i]), 0) for i in (0, 1)]
    areas = [max(box[2] - box[0], 0) * max(box[3] - box[1], 0) for box in (one, other)]
    return sides[0] * sides[1] / (sum(areas) - sides[0] * sides[1] or 1)


def expected_iou(box, quantiles):
    true = [(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)) for x1, y1, x2, y2 in product(*quantiles)]
    return sum(iou(box, one) for one in true) / len(true)


def random_sides(seed):
    draw = np.random.default_rng(seed)
    middle = np.array([0.2, 0.3, 0.6, 0.8])[:, None]
    # Every third side has two peaks, which no mean and spread describe.
    jump = (draw.random((4, 5)) < 0.4) * (draw.random((4, 1)) < 0.33) * 0.15
    return np.sort(np.clip(middle + draw.normal(0, 0.12, (4, 5)) + jump, 0, 1), axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_box_of_those_quantiles_is_expected_to_be_better(seed):
    sides = random_sides(seed)
    found = expected_iou(best_boxes([sides])[0], sides)
    every = max(expected_iou(box, sides) for box in product(*sides) if box[0] < box[2] and box[1] < box[3])
    assert found == pytest.approx(every, abs=1e-3)
    assert found >= expected_iou(sides[:, 2], sides)


def test_boxes_are_the_same_alone_and_among_many():
    many = np.array([random_sides(seed) for seed in range(150)])
    assert best_boxes(many).tolist() == [best_boxes([each])[0].tolist() for each in many]


def test_certain_sides_swapped_corners_and_nothing():
    assert best_boxes([[[0.6] * 3, [0.2] * 3, [0.2] * 3, [0.6] * 3]]).tolist() == [[0.2, 0.2, 0.6, 0.6]]
    assert best_boxes(np.zeros((0, 4, 3))).shape == (0, 4)
    assert best_boxes([]).shape == (0, 4)
