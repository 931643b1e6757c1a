"""The box loss: L1 plus GIoU."""

from torch import Tensor

from coord_losses.giou import generalized_iou
from coord_losses.precision import at_least_float32
from coord_losses.terms import LossTerm


def box_loss(pred_M4: Tensor, target_M4: Tensor, alpha_l1: float = 1.0, beta_giou: float = 1.0) -> LossTerm:
    """`α · Σ_sides |pred - target| + β · (1 - GIoU)` per box (as in DETR, Carion et al., ECCV 2020).

    Args:
        pred_M4: predicted boxes (x1, y1, x2, y2) in [0, 1]; swapped corners get a gradient that brings them
            back.
        target_M4: true boxes, the same unit; no gradient flows into them.
        alpha_l1: weight of L1, which is the sum over the four sides.
        beta_giou: weight of `1 - GIoU`.

    Returns:
        The sum over the M boxes.
    """
    pred_M4 = at_least_float32(pred_M4)
    target_M4 = target_M4.detach().to(pred_M4.dtype)
    l1_M = (pred_M4 - target_M4).abs().sum(dim=1)
    return LossTerm.of(alpha_l1 * l1_M + beta_giou * (1 - generalized_iou(pred_M4, target_M4)))
