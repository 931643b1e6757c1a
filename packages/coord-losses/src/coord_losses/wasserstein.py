"""Wasserstein-1 distance between predicted and target bins."""

from torch import Tensor

from coord_losses.precision import at_least_float32
from coord_losses.terms import LossTerm


def wasserstein1(coord_logits_NK: Tensor, targets_NK: Tensor, temperature: float = 1.0) -> LossTerm:
    """`Σ_i |CDF_p(i) - CDF_q(i)| / (K - 1)` with `p = softmax(logits / T)`.

    In one dimension the earth mover's distance is the area between the two CDFs (Vallender, 1974). Divided by
    `K - 1` it is 1 when all the mass sits at the wrong end.

    Args:
        coord_logits_NK: logits of the K coordinate tokens only, in the order of their bins.
        targets_NK: distributions `q`, see `soft_targets`; no gradient flows into them.
        temperature: T.

    Returns:
        The sum over the N rows, each in [0, 1].
    """
    logits_NK = at_least_float32(coord_logits_NK)
    p_NK = (logits_NK / temperature).softmax(dim=1)
    # One running sum of the difference rounds less than the difference of two.
    cdf_gap_NK = (p_NK - targets_NK.detach().to(p_NK.dtype)).cumsum(dim=1)
    return LossTerm.of(cdf_gap_NK.abs().sum(dim=1) / max(p_NK.shape[1] - 1, 1))
