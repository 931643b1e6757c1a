"""Weights of objects by their size or their number, which depend on nothing but the image they are in."""

from typing import Literal

from torch import Tensor

ObjectWeights = Literal["none", "inverse_size", "inverse_count"]
"""How objects are weighted, see `inverse_size` and `inverse_count`."""


def inverse_size(boxes_M4: Tensor, reference: float = 0.2, limit: float = 4.0) -> Tensor:
    """Return `reference / √area` of each box, within [1/limit, limit] [M].

    A coordinate that is off by one bin costs a small box more of its IoU than a large one. The weights are not
    normalised over the batch: the loss of an object must not depend on what else a micro-batch holds.

    Args:
        boxes_M4: true boxes (x1, y1, x2, y2) in [0, 1]
        reference: side of the box whose weight is 1, as a fraction of the image
        limit: largest weight
    """
    area_M = (boxes_M4[:, 2:] - boxes_M4[:, :2]).clamp(min=0).prod(dim=1)
    smallest = (reference / limit) ** 2
    return (reference / area_M.clamp(min=smallest).sqrt()).clamp(min=1 / limit)


def inverse_count(image_M: Tensor) -> Tensor:
    """Return 1 / the number of objects in the same image [M]: crowded images then count as much as others.

    Args:
        image_M: the image each object belongs to
    """
    return 1 / (image_M[:, None] == image_M).sum(dim=1)
