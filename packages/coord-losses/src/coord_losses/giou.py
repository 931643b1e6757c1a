"""Generalised intersection over union that also holds for boxes with swapped corners."""

import torch
from torch import Tensor

from coord_losses.precision import at_least_float32


def generalized_iou(a_M4: Tensor, b_M4: Tensor) -> Tensor:
    """GIoU = IoU - (|C| - |A ∪ B|) / |C|, C the smallest box around both (Rezatofighi et al., CVPR 2019).

    Corners are not sorted. Sorting would make the swapped box as good an optimum as the right one, and a
    model then learns x1 > x2. Instead a side of negative extent has length zero, hence no area, and C grows
    by what is inverted. So the loss `1 - GIoU` falls wherever swapped corners move towards each other, even
    inside the other box, where it would be flat otherwise. For proper boxes this is GIoU to the letter.

    Args:
        a_M4: boxes (x1, y1, x2, y2), any unit.
        b_M4: boxes, the same unit.

    Returns:
        GIoU per pair [M], in [-1, 1]; finite for boxes without area.
    """
    a_M4, b_M4 = at_least_float32(a_M4), at_least_float32(b_M4)
    a_min_M2, a_max_M2 = a_M4[:, :2], a_M4[:, 2:]
    b_min_M2, b_max_M2 = b_M4[:, :2], b_M4[:, 2:]
    overlap_M2 = (torch.minimum(a_max_M2, b_max_M2) - torch.maximum(a_min_M2, b_min_M2)).clamp(min=0)
    intersection_M = overlap_M2.prod(dim=1)
    union_M = _area(a_min_M2, a_max_M2) + _area(b_min_M2, b_max_M2) - intersection_M

    hull_M2 = torch.maximum(a_max_M2, b_max_M2) - torch.minimum(a_min_M2, b_min_M2)
    inverted_M2 = (a_min_M2 - a_max_M2).relu() + (b_min_M2 - b_max_M2).relu()
    enclosing_M = (hull_M2 + inverted_M2).prod(dim=1)

    eps = torch.finfo(union_M.dtype).eps
    iou_M = intersection_M / union_M.clamp(min=eps)
    return iou_M - (enclosing_M - union_M) / enclosing_M.clamp(min=eps)


def _area(min_M2: Tensor, max_M2: Tensor) -> Tensor:
    return (max_M2 - min_M2).clamp(min=0).prod(dim=1)
