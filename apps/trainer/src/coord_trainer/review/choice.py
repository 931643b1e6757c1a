"""Which images to label next: those whose labels would teach most, and that differ from each other.

Shapes: N images, H features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from coord_trainer.answers.finish import FUSED

_LEAST_GAIN = 0.05
"""Gain of an image about which the model has no doubt, so that among such images variety still decides."""


@dataclass(frozen=True)
class Doubt:
    """How much of the answer to an image is in doubt, in objects.

    Attributes:
        boxes: sum over its boxes of the entropy of right or wrong, in bits, by their scores
        names: sum over the boxes as generated of the probability of another name
        views: number of objects that only one of the image and its further views shows
    """

    boxes: float
    names: float
    views: int

    @property
    def gain(self) -> float:
        """The sum, with a least value."""
        return max(self.boxes + self.names + self.views, _LEAST_GAIN)


def doubt(record: Mapping[str, Any]) -> Doubt:
    """Return the doubt about an answered record of predictions.jsonl.

    Example:
        >>> box = {"desc": "cat", "bbox_xyxy": [0, 0, 9, 9], "score": 0.5}
        >>> doubt({"objects": [box], "desc_token_counts": [2], "desc_logprobs": [0.0, -0.5]}).boxes
        1.0
    """
    logs = iter(record.get("desc_logprobs") or ())
    names = sum(1 - math.exp(sum(islice(logs, count))) for count in record.get("desc_token_counts") or ())
    views = sum(row["alone"] for row in record.get(FUSED, {}).get("views", {}).values())
    return Doubt(float(sum(_entropy(one["score"]) for one in record["objects"])), names, views)


def _entropy(p: float) -> float:
    return 0.0 if p <= 0 or p >= 1 else -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def choose(gain_N: np.ndarray, features_NH: np.ndarray, count: int) -> list[int]:
    """Return the places of images in the order in which to label them.

    Greedy k-centre, weighted: the first is the image of highest gain, and each next one has the highest product of its
    gain and its distance to the nearest of those chosen (Sener and Savarese 2018, https://arxiv.org/abs/1708.00489,
    without the gain). Equal images follow last, by gain.

    Args:
        gain_N: expected gain of each image, above 0
        features_NH: features of each image
        count: number of images to choose

    Example:
        >>> choose(np.array([3.0, 2.9, 1.0]), np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 3)
        [0, 2, 1]
    """
    left_N = np.ones(len(gain_N), bool)
    nearest_N = np.ones(len(gain_N))
    chosen: list[int] = []
    for _ in range(min(count, len(gain_N))):
        product_N = np.where(left_N, gain_N * nearest_N, -1.0)
        highest = product_N.max()
        best = int(np.where(left_N, gain_N, -1.0).argmax() if highest <= 0 else product_N.argmax())
        chosen.append(best)
        left_N[best] = False
        distance_N = np.linalg.norm(features_NH - features_NH[best], axis=1)
        nearest_N = distance_N if len(chosen) == 1 else np.minimum(nearest_N, distance_N)
    return chosen
