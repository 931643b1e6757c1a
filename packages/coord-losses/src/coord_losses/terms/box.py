"""Box loss: L1 plus generalised intersection over union (GIoU), also defined for boxes with swapped corners."""

import torch
from torch import Tensor

from coord_losses.terms.loss_term import LossTerm, at_least_float32

__all__ = ["box_loss", "generalized_iou", "overlap", "ratio"]


def box_loss(pred_M4: Tensor, target_M4: Tensor, alpha_l1: float = 1.0, beta_giou: float = 1.0) -> LossTerm:
    """Sum `α · Σ_sides |pred - target| + β · (1 - GIoU)` over the boxes (as in DETR, Carion et al., ECCV 2020).

    Args:
        pred_M4: predicted boxes (x1, y1, x2, y2) in [0, 1]; swapped corners get a gradient that restores their order
        target_M4: ground-truth boxes in the same unit; they get no gradient
        alpha_l1: weight of L1, summed over the four sides
        beta_giou: weight of `1 - GIoU`

    Returns:
        The sum over the M boxes.

    Example:
        >>> import torch
        >>> box_loss(torch.tensor([[0.0, 0, 0.5, 1]]), torch.tensor([[0.0, 0, 1, 1]]))  # L1 0.5, GIoU 0.5
        LossTerm(sum=tensor(1.), count=tensor(1))
    """
    return LossTerm.of(box_loss_per_object(pred_M4, target_M4, alpha_l1, beta_giou))


def box_loss_per_object(pred_M4: Tensor, target_M4: Tensor, alpha_l1: float, beta_giou: float) -> Tensor:
    """Return `box_loss` of each object [M]."""
    pred_M4 = at_least_float32(pred_M4)
    target_M4 = target_M4.detach().to(pred_M4.dtype)
    l1_M = (pred_M4 - target_M4).abs().sum(dim=1)
    return alpha_l1 * l1_M + beta_giou * (1 - generalized_iou(pred_M4, target_M4))


def generalized_iou(a_M4: Tensor, b_M4: Tensor) -> Tensor:
    """Compute GIoU = IoU - (|C| - |A ∪ B|) / |C|, C the smallest enclosing box (Rezatofighi et al., CVPR 2019).

    Corners are not sorted: sorting would make the swapped box as good an optimum as the correct one, so that a model
    could learn x1 > x2. Instead a side of negative extent has length zero, hence no area, and C grows by the inverted
    extent. So the loss `1 - GIoU` always decreases when swapped corners move towards each other, even inside the other
    box, where it would be constant otherwise. For boxes without swapped corners this is the published GIoU.

    Args:
        a_M4: boxes (x1, y1, x2, y2), any unit
        b_M4: boxes in the same unit

    Returns:
        GIoU per pair [M], in [-1, 1]; finite for boxes of zero area.

    Example:
        >>> import torch
        >>> generalized_iou(torch.tensor([[0, 0, 1.0, 1]]), torch.tensor([[2, 0, 3.0, 1]]))  # a third of C is empty
        tensor([-0.3333])
    """
    intersection_M, union_M, hull_M2, inverted_M2 = overlap(at_least_float32(a_M4), at_least_float32(b_M4))
    enclosing_M = _product(hull_M2 + inverted_M2)
    return ratio(intersection_M, union_M) - ratio(enclosing_M - union_M, enclosing_M)


def overlap(a_M4: Tensor, b_M4: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compare boxes whose corners may be swapped, see `generalized_iou`.

    Args:
        a_M4: boxes (x1, y1, x2, y2), any unit
        b_M4: boxes in the same unit

    Returns:
        Areas of intersection and union [M], sides of the hull and inverted extents [M, 2].
    """
    a_min_M2, a_max_M2 = a_M4[:, :2], a_M4[:, 2:]
    b_min_M2, b_max_M2 = b_M4[:, :2], b_M4[:, 2:]
    overlap_M2 = (torch.minimum(a_max_M2, b_max_M2) - torch.maximum(a_min_M2, b_min_M2)).clamp(min=0)
    intersection_M = _product(overlap_M2)
    union_M = _area(a_min_M2, a_max_M2) + _area(b_min_M2, b_max_M2) - intersection_M

    hull_M2 = torch.maximum(a_max_M2, b_max_M2) - torch.minimum(a_min_M2, b_min_M2)
    inverted_M2 = (a_min_M2 - a_max_M2).relu() + (b_min_M2 - b_max_M2).relu()
    return intersection_M, union_M, hull_M2, inverted_M2


def ratio(numerator_M: Tensor, denominator_M: Tensor) -> Tensor:
    """Return `numerator_M / denominator_M` [M], 0 where the denominator is no normal number above 0.

    A fixed epsilon could be larger than small boxes.
    """
    positive_M = denominator_M > torch.finfo(denominator_M.dtype).tiny
    return torch.where(positive_M, numerator_M, 0) / torch.where(positive_M, denominator_M, 1)


def _area(min_M2: Tensor, max_M2: Tensor) -> Tensor:
    return _product((max_M2 - min_M2).clamp(min=0))


def _product(sides_M2: Tensor) -> Tensor:
    # Not `prod`, whose derivative asks the device how many factors are 0.
    return sides_M2[:, 0] * sides_M2[:, 1]
