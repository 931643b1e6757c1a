"""Object weights by size or by number of objects, computed from a single image."""

from typing import Literal

import torch
from torch import Tensor

ObjectWeights = Literal["none", "inverse_size", "inverse_count"]
"""How objects are weighted, see `inverse_size` and `inverse_count`."""


def inverse_size(boxes_M4: Tensor, reference: float = 0.2, limit: float = 4.0) -> Tensor:
    """Return `reference / √area` of each box, within [1/limit, limit] [M].

    An error of one bin reduces the IoU of a small box more than that of a large one. The weights are not normalised
    over the batch: the loss of an object must not depend on the other objects of a micro-batch.

    Args:
        boxes_M4: ground-truth boxes (x1, y1, x2, y2) in [0, 1]
        reference: side of a square box of weight 1, as a fraction of the image
        limit: maximum weight
    """
    area_M = (boxes_M4[:, 2:] - boxes_M4[:, :2]).clamp(min=0).prod(dim=1)
    smallest = (reference / limit) ** 2
    return (reference / area_M.clamp(min=smallest).sqrt()).clamp(min=1 / limit)


def inverse_count(image_M: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 1 / the number of objects in the same image [M], so that all images have the same total weight.

    Args:
        image_M: the image of each object
        dtype: dtype of the result
    """
    return 1 / (image_M[:, None] == image_M).sum(dim=1).to(dtype)
