"""Probabilities from faults that are planted into the labels themselves."""

import numpy as np
import pytest
from coco_builder import coco

from coord_eval.review import review
from coord_eval.review.planted import LEAST_LABELS


@pytest.mark.parametrize("few", [1, 0])
def test_faults_are_planted_only_into_enough_labels_that_are_no_crowd_regions(few):
    labels = LEAST_LABELS - few
    objects = [(n % 20, 1 + n % 2, [n, n, 20, 20]) for n in range(labels + 40)]
    truth = coco(*objects, names=("cat", "dog"), images=range(20), size=(600, 600))
    for row in truth["annotations"][labels:]:
        row["iscrowd"] = 1
    said = [
        {"image_id": row["image_id"], "category_id": row["category_id"], "bbox": row["bbox"], "score": 0.9}
        for row in truth["annotations"][:labels:2]
    ]
    found = review(truth, said, least=0.0)
    assert found.rests_on["planted_faults"] == (0 if few else 5 * labels)
    assert len(found.judged) == labels
    assert all(0 <= item.probability <= 1 for item in found.judged + found.findings)
    assert np.isfinite([item.probability for item in found.judged]).all()
