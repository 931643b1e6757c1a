"""Distribution focal loss: cross-entropy of the two bins around the ground-truth coordinate."""

import torch
from torch import Tensor

from coord_losses.terms.loss_term import LossTerm, at_least_float32


def distribution_focal_loss(coord_logits_NK: Tensor, true_bins_N: Tensor, temperature: float = 1.0) -> LossTerm:
    """Sum `-((l + 1 - y) · log p_l + (y - l) · log p_(l+1))` with `l = ⌊y⌋` (Li et al., NeurIPS 2020).

    At its minimum all probability is on the two bins next to `y`, with expectation `y`. It is the only loss over bins
    in this package whose target is not rounded to a bin.

    Args:
        coord_logits_NK: logits of the K coordinate tokens only, in the order of their bins
        true_bins_N: ground-truth coordinates `y` in bins, not rounded; clamped to 0..K-1
        temperature: softmax temperature

    Returns:
        The sum over the N rows, in nats.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 3.0, 1.0, 0.0]]).log()  # p = 0, 3/4, 1/4, 0
        >>> distribution_focal_loss(logits, torch.tensor([1.25])).sum
        tensor(0.5623)
    """
    return LossTerm.of(distribution_focal_per_row(coord_logits_NK, true_bins_N, temperature))


def distribution_focal_per_row(coord_logits_NK: Tensor, true_bins_N: Tensor, temperature: float) -> Tensor:
    """Return `distribution_focal_loss` of each row [N]."""
    logits_NK = at_least_float32(coord_logits_NK)
    last = logits_NK.shape[1] - 1
    y_N1 = true_bins_N.detach().to(logits_NK.dtype).clamp(0, last)[:, None]
    left_N1 = y_N1.floor().clamp(max=max(last - 1, 0))
    bins_N2 = torch.cat([left_N1, left_N1 + 1], dim=1).long().clamp(max=last)
    q_N2 = torch.cat([left_N1 + 1 - y_N1, y_N1 - left_N1], dim=1)
    log_p_N2 = torch.log_softmax(logits_NK / temperature, dim=1).gather(1, bins_N2)
    return -(q_N2 * log_p_N2.masked_fill(q_N2 == 0, 0)).sum(dim=1)
