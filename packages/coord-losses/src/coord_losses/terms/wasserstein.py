"""Wasserstein-1 distance between predicted and target bins."""

from torch import Tensor

from coord_losses.terms.loss_term import LossTerm, at_least_float32


def wasserstein1(coord_logits_NK: Tensor, targets_NK: Tensor, temperature: float = 1.0) -> LossTerm:
    """Sum `Σ_i |CDF_p(i) - CDF_q(i)| / (K - 1)` over the rows, with `p = softmax(logits / T)`.

    In one dimension the Wasserstein-1 distance is the area between the two CDFs (Vallender, 1974). Divided by
    `K - 1` it is at most 1, which it reaches if all probability is at the wrong end.

    Args:
        coord_logits_NK: logits of the K coordinate tokens only, in the order of their bins
        targets_NK: distributions `q`, see `soft_targets`; they get no gradient
        temperature: T

    Returns:
        The sum over the N rows, each in [0, 1].

    Example:
        >>> import torch
        >>> q = torch.tensor([[1.0, 0, 0, 0, 0]])
        >>> wasserstein1(torch.tensor([[0.0, 99, 0, 0, 0]]), q).sum  # one bin of four
        tensor(0.2500)
    """
    return LossTerm.of(wasserstein1_per_row(coord_logits_NK, targets_NK, temperature))


def wasserstein1_per_row(coord_logits_NK: Tensor, targets_NK: Tensor, temperature: float) -> Tensor:
    """Return `wasserstein1` of each row [N]."""
    logits_NK = at_least_float32(coord_logits_NK)
    p_NK = (logits_NK / temperature).softmax(dim=1)
    # The cumulative sum of the difference has smaller rounding errors than the difference of two cumulative sums.
    cdf_difference_NK = (p_NK - targets_NK.detach().to(p_NK.dtype)).cumsum(dim=1)
    return cdf_difference_NK.abs().sum(dim=1) / max(p_NK.shape[1] - 1, 1)
