"""Judges interpretations of the numbers by images: whether boxes fit the objects of their own image, and how surely.

A real detector answers many boxes of low score beside few objects, so that even the mean best IoU of a right list is
small: an interpretation is judged by the best-scored answers of each image, as many as it has objects, and compared
with what chance gives, the fit of the same boxes to the objects of other images, and with other interpretations.

Shapes: D detections, j those that are judged, I images.
"""

from __future__ import annotations

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.interpretations import BestIou

_SURE = 5.0
"""Standard errors from which on a mean difference is no chance, although more than a hundred readings are tried."""
_PERHAPS = 2.0
"""Standard errors from which on a mean difference may be more than chance."""
_ABOVE_CHANCE, _COINCIDING = 1.5, 0.75
"""Ratio to the fit with other images from which on, and mean best IoU from which on, boxes are those of the objects."""
_FEWEST_IMAGES, _PLAUSIBLE = 8, 0.4
"""Number of images below which chance cannot be told, and mean best IoU that is then asked for."""
_CLEARLY, _SLIGHTLY = 1.25, 1.15
"""Ratios of mean best IoU from which on a fit is clearly better, the lower one if it surely is by images."""
_OTHERS = 3
TOLD_APART = 3.0
"""Standard errors from which on of two interpretations that both fit the worse one is not named."""


def best_scored(truth: GroundTruth, detections: Detections, most: int | None = None) -> np.ndarray:
    """Return which detections [D] are among the best-scored of their image, as many as it has objects, ties included.

    `most` limits their number by image.

    Example:
        >>> from coord_codec import Instance
        >>> from coord_eval.intake.ground_truth import load_ground_truth
        >>> cat = {"desc": "cat", "bbox": [0, 0, 0.5, 0.5]}
        >>> truth = load_ground_truth([Instance(image="a.jpg", width=10, height=10, objects=[cat])])
        >>> none = np.zeros(3, int)
        >>> boxes = Detections.of(truth, none, none, np.ones((3, 4)), np.array([0.2, 0.9, 0.9]), np.arange(3))
        >>> best_scored(truth, boxes).tolist()
        [False, True, True]
    """
    count_I = np.bincount(truth.image_N[~truth.crowd_N], minlength=len(truth))
    if most is not None:
        count_I = np.minimum(count_I, most)
    order = np.lexsort((-detections.scores_D, detections.image_D))
    image_d, score_d = detections.image_D[order], detections.scores_D[order]
    first_d, stop_d = (np.searchsorted(image_d, image_d, side=side) for side in ("left", "right"))
    last_d = np.minimum(first_d + count_I[image_d], stop_d) - 1
    is_best_D = np.zeros(len(detections), bool)
    is_best_D[order] = (count_I[image_d] > 0) & (score_d >= score_d[last_d])
    return is_best_D


class ImageFits:
    """The mean best IoU of boxes by image, with the objects of that image and with those of others.

    Attributes:
        own_I: with the objects of the same image, 0 for one without boxes
        other_I: with the objects of other images, 0 if there are none
    """

    def __init__(self, truth: GroundTruth, images: np.ndarray, image_j: np.ndarray, unit_j4: np.ndarray) -> None:
        """Take boxes in [0, 1] with the index of their image, which is one of the ascending `images`."""
        place_j = np.searchsorted(images, image_j)
        count_I = np.maximum(np.bincount(place_j, minlength=len(images)), 1)

        def with_objects_of(other_I: np.ndarray) -> np.ndarray:
            best_j = BestIou(truth, other_I[place_j]).of_each(unit_j4)
            return np.bincount(place_j, best_j, len(images)) / count_I

        self.own_I = with_objects_of(images)
        others = [with_objects_of(np.roll(images, shift)) for shift in range(1, min(len(images), _OTHERS + 1))]
        self.other_I = np.mean(others, axis=0) if others else np.zeros(len(images))

    def are_of_objects(self, errors: float = _SURE) -> bool:
        """Return whether boxes are those of the objects, rather than any boxes of such images; `is_sure` has errors."""
        own = float(self.own_I.mean()) if len(self.own_I) else 0.0
        if len(self.own_I) < _FEWEST_IMAGES:
            return own >= _PLAUSIBLE
        is_above_chance = own >= _ABOVE_CHANCE * self.other_I.mean() and is_sure(self.own_I - self.other_I, errors)
        return is_above_chance or own >= _COINCIDING

    def may_be_of_objects(self) -> bool:
        """Return whether boxes fit their own objects better than others', in too few images to be sure of it."""
        return self.are_of_objects(_PERHAPS) and not self.are_of_objects()

    def is_clearly_better(self, than: ImageFits) -> bool:
        """Return whether boxes fit far better than others, or a little better and surely so."""
        ratio = float(self.own_I.mean() / max(than.own_I.mean(), 1e-9))
        return ratio >= _CLEARLY or (ratio >= _SLIGHTLY and is_sure(self.own_I - than.own_I))

    def text(self, than: ImageFits | None = None) -> str:
        """Return how sure it is that boxes are those of the objects, and in how many images they fit better so."""
        told = f"by image {self.own_I.mean():.3f} with its own objects and {self.other_I.mean():.3f} with another's"
        if than is not None:
            told += f", better than as read in {int((self.own_I > than.own_I).sum())} of {len(self.own_I)} images"
        return told


def is_sure(difference_I: np.ndarray, errors: float = _SURE) -> bool:
    """Return whether the mean of at least eight differences is above 0 by more than so many standard errors.

    Example:
        >>> is_sure(np.full(20, 0.1)), is_sure(np.array([0.5, -0.4] * 10)), is_sure(np.full(3, 0.1))
        (True, False, False)
    """
    count = len(difference_I)
    if count < _FEWEST_IMAGES:
        return False
    return bool(difference_I.mean() > errors * difference_I.std(ddof=1) / np.sqrt(count))
