"""Probabilities from faults that are planted into the labels themselves."""

import numpy as np
import pytest
from coco_builder import coco

from coord_eval.intake.ground_truth import load_ground_truth
from coord_eval.review.planted import calibrated_on_planted_faults


@pytest.mark.parametrize(("labels", "are_enough"), [(199, False), (200, True)])
def test_faults_are_planted_only_into_200_labels_or_more_that_are_no_crowd_regions(labels, are_enough):
    objects = [(n % 20, 1 + n % 2, [n, n, 20, 20]) for n in range(labels + 40)]
    truth = coco(*objects, names=("cat", "dog"), images=range(20), size=(600, 600))
    for row in truth["annotations"][labels:]:
        row["iscrowd"] = 1
    truth = load_ground_truth(truth)
    of_area = lambda labels: labels.boxes_N4[:, 2] / 20 - 1  # noqa: E731
    found = calibrated_on_planted_faults(truth, of_area(truth), of_area)
    assert (found is not None) == are_enough
    if found is not None:
        probability_N, planted = found
        assert planted == 50 and ((probability_N > 0) <= ~truth.crowd_N).all() and np.isfinite(probability_N).all()
