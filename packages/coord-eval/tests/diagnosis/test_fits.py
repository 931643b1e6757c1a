"""How sure it is by images that boxes are those of the objects, at the borders."""

import numpy as np
import pytest

from coord_codec import Instance
from coord_eval import Detections, load_ground_truth
from coord_eval.diagnosis.fits import ImageFits, best_scored, is_sure


def fits(own, other=0.0, images=8, spread=0.0):
    """The fit of some images, of which every second one is better than the mean by so much."""
    made = ImageFits.__new__(ImageFits)
    made.own_I = own + spread * np.where(np.arange(images) % 2, 1, -1)
    made.other_I = np.full(images, other)
    return made


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"own": 0.4, "other": 0.4, "images": 4}, True),  # too few for chance: plausible or not
        ({"own": 0.39, "images": 4}, False),
        ({"own": 0.45, "other": 0.3}, True),  # half more than with other objects
        ({"own": 0.44, "other": 0.3}, False),
        ({"own": 0.45, "other": 0.3, "spread": 0.2}, False),  # by chance
        ({"own": 0.75, "other": 0.75}, True),  # as of objects at one place in all images
        ({"own": 0.74, "other": 0.74}, False),
    ],
)
def test_boxes_are_of_objects_if_they_fit_them_better_than_chance(given, expected):
    assert fits(**given).are_of_objects() == expected


@pytest.mark.parametrize(
    ("own", "spread", "expected"),
    [(0.5, 0.3, True), (0.48, 0.0, True), (0.48, 0.3, False), (0.46, 0.0, True), (0.45, 0.0, False)],
)
def test_fit_is_clearly_better_by_a_quarter_or_surely_by_15_per_cent(own, spread, expected):
    assert fits(own, spread=spread).is_clearly_better(fits(0.4)) == expected


@pytest.mark.parametrize(("images", "expected"), [(7, False), (8, True)])
def test_nothing_is_sure_of_fewer_than_eight_images(images, expected):
    assert is_sure(np.full(images, 0.1)) == expected


def test_boxes_of_an_image_without_objects_are_not_among_the_best_and_crowds_are_none():
    cat = {"desc": "cat", "bbox": [0, 0, 0.5, 0.5]}
    sets = [("a.jpg", []), ("b.jpg", [cat, {**cat, "iscrowd": 1}]), ("c.jpg", [{**cat, "iscrowd": 1}])]
    truth = load_ground_truth([Instance(image=name, width=10, height=10, objects=found) for name, found in sets])
    image_D, scores_D = np.array([0, 0, 1, 1, 2, 2]), np.array([0.9, 0.8, 0.3, 0.2, 0.9, 0.8])
    boxes = Detections.of(truth, image_D, np.zeros(6, int), np.ones((6, 4)), scores_D, np.arange(6))
    assert best_scored(truth, boxes).tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("most", "expected"), [(None, [0, 1, 2, 4, 5]), (3, [0, 1, 2, 4, 5]), (2, [0, 1, 4, 5]), (1, [1, 4, 5])]
)
def test_the_best_of_an_image_are_so_many_and_as_many_as_its_objects(most, expected):
    cat = {"desc": "cat", "bbox": [0, 0, 0.5, 0.5]}
    sets = [("a.jpg", [cat] * 3), ("b.jpg", [cat])]
    truth = load_ground_truth([Instance(image=name, width=10, height=10, objects=found) for name, found in sets])
    image_D, scores_D = np.array([0, 0, 0, 0, 1, 1]), np.array([0.8, 0.9, 0.7, 0.6, 0.5, 0.5])
    boxes = Detections.of(truth, image_D, np.zeros(6, int), np.ones((6, 4)), scores_D, np.arange(6))
    assert np.flatnonzero(best_scored(truth, boxes, most)).tolist() == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"own": 0.45, "other": 0.3, "spread": 0.1}, True),  # above chance by more than two errors, and no five
        ({"own": 0.45, "other": 0.3, "spread": 0.2}, False),
        ({"own": 0.45, "other": 0.3}, False),  # sure
        ({"own": 0.44, "other": 0.3, "spread": 0.1}, False),
    ],
)
def test_boxes_may_be_of_the_objects_by_more_than_two_errors_and_no_five(given, expected):
    assert fits(**given).may_be_of_objects() == expected


def test_text_of_a_fit_counts_the_images_that_are_better_so():
    told = fits(0.5, 0.25, images=4, spread=0.1).text(fits(0.45, images=4))
    assert told == "by image 0.500 with its own objects and 0.250 with another's, better than as read in 2 of 4 images"
