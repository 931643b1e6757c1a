"""DIoU and CIoU: intersection over union minus penalties for centre distance and aspect ratio difference."""

import math

import torch
from torch import Tensor

from coord_losses.terms.box import overlap, ratio
from coord_losses.terms.loss_term import at_least_float32


def distance_iou(a_M4: Tensor, b_M4: Tensor) -> Tensor:
    """Compute DIoU = IoU - d² / c², d the distance of the centres, c the hull's diagonal (Zheng et al., AAAI 2020).

    Corners are not sorted, see `generalized_iou`: inverted extents are added to d² and to the hull, so that
    `1 - DIoU` decreases when swapped corners move towards each other. Otherwise it is the published DIoU.

    Args:
        a_M4: boxes (x1, y1, x2, y2), any unit
        b_M4: boxes in the same unit

    Returns:
        DIoU per pair [M], in [-1, 1]; finite for boxes of zero area.

    Example:
        >>> import torch
        >>> distance_iou(torch.tensor([[0, 0, 1.0, 1]]), torch.tensor([[2, 0, 3.0, 1]]))  # 0 - 4 / 10
        tensor([-0.4000])
    """
    a_M4, b_M4 = at_least_float32(a_M4), at_least_float32(b_M4)
    intersection_M, union_M, hull_M2, inverted_M2 = overlap(a_M4, b_M4)
    centres_M2 = (a_M4[:, :2] + a_M4[:, 2:] - b_M4[:, :2] - b_M4[:, 2:]) / 2
    distance_M = centres_M2.square().sum(dim=1) + inverted_M2.square().sum(dim=1)
    diagonal_M = (hull_M2.clamp(min=0) + inverted_M2).square().sum(dim=1)
    return ratio(intersection_M, union_M) - ratio(distance_M, diagonal_M)


def complete_iou(a_M4: Tensor, b_M4: Tensor) -> Tensor:
    """Compute CIoU = DIoU - αv, v the squared difference in aspect ratio (Zheng et al., AAAI 2020).

    `v = 4/π² · (atan(w_a / h_a) - atan(w_b / h_b))²`, and `α = v / (1 - IoU + v)`, which gets no gradient. Swapped
    corners are treated as in `distance_iou`; an inverted side has length 0.

    Args:
        a_M4: boxes (x1, y1, x2, y2), any unit
        b_M4: boxes in the same unit

    Returns:
        CIoU per pair [M], at most 1; finite for boxes of zero area.

    Example:
        >>> import torch
        >>> box = torch.tensor([[0.1, 0.1, 0.3, 0.5]])
        >>> complete_iou(box, box)
        tensor([1.])
    """
    a_M4, b_M4 = at_least_float32(a_M4), at_least_float32(b_M4)
    intersection_M, union_M, _, _ = overlap(a_M4, b_M4)
    v_M = (_aspect(a_M4) - _aspect(b_M4)).square() * (4 / math.pi**2)
    with torch.no_grad():
        alpha_M = ratio(v_M, 1 - ratio(intersection_M, union_M) + v_M)
    return distance_iou(a_M4, b_M4) - alpha_M * v_M


def _aspect(box_M4: Tensor) -> Tensor:
    # The ratio of sides of length 0 is undefined; the smallest length that can be squared keeps the gradient finite.
    smallest = torch.finfo(box_M4.dtype).tiny ** 0.25
    width_M, height_M = (box_M4[:, 2:] - box_M4[:, :2]).clamp(min=smallest).unbind(dim=1)
    return torch.atan2(width_M, height_M)
