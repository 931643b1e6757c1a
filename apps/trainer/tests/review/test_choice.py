"""Which images to label next: the doubt about an answer, and the variety among the chosen."""

import math

import numpy as np
import pytest

from coord_trainer.review.choice import choose, doubt


def test_doubt_adds_up_boxes_names_and_views():
    boxes = [{"desc": "cat", "score": score} for score in (0.5, 0.25, 1.0)]
    record = {"objects": boxes, "desc_token_counts": [1, 2], "desc_logprobs": [math.log(0.75), 0.0, math.log(0.5)]}
    record["fused"] = {"views": {"image": {"alone": 1}, "mirror": {"alone": 2}}}
    found = doubt(record)
    assert found.boxes == pytest.approx(1 - 0.25 * math.log2(0.25) - 0.75 * math.log2(0.75))
    assert (found.names, found.views) == (pytest.approx(0.25 + 0.5), 3)
    assert found.gain == pytest.approx(found.boxes + found.names + found.views)
    assert doubt({"objects": []}).gain > 0


def test_choice_is_the_highest_product_of_gain_and_distance_to_the_chosen():
    rng = np.random.default_rng(0)
    gain_N, features_NH = rng.uniform(0.1, 3, 40), rng.normal(size=(40, 5))
    chosen = choose(gain_N, features_NH, 12)
    assert chosen[0] == int(gain_N.argmax())
    for count in range(1, 12):
        products = {
            place: gain_N[place] * min(math.dist(features_NH[place], features_NH[other]) for other in chosen[:count])
            for place in set(range(40)) - set(chosen[:count])
        }
        assert chosen[count] == max(products, key=products.get)


def test_equal_images_come_last_and_none_comes_twice():
    features_NH = np.array([[0.0, 1.0]] * 3 + [[1.0, 0.0]])
    assert choose(np.array([1.0, 3.0, 2.0, 0.1]), features_NH, 9) == [1, 3, 2, 0]
