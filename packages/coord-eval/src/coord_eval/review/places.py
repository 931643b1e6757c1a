"""The index of a label within its image, by which a review, its likelihoods and its decisions name it."""

from __future__ import annotations

from collections import Counter

import numpy as np


def places_in_images(image_N: np.ndarray) -> np.ndarray:
    """Return the index of each label among those of its image.

    Example:
        >>> places_in_images(np.array([0, 0, 2, 0])).tolist()
        [0, 1, 0, 2]
    """
    seen: Counter[int] = Counter()
    places = []
    for image in image_N.tolist():
        places.append(seen[image])
        seen[image] += 1
    return np.array(places, np.int64)
