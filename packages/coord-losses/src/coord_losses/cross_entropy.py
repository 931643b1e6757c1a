"""Cross-entropies: against one token, and against a distribution over bins."""

import torch
from torch import Tensor

from coord_losses.precision import at_least_float32
from coord_losses.terms import LossTerm


def token_cross_entropy(logits_NV: Tensor, targets_N: Tensor) -> LossTerm:
    """`-log softmax(logits)[target]` over the full vocabulary, summed.

    Args:
        logits_NV: rows that predict the targets (already shifted).
        targets_N: token ids; none of them is ignored.
    """
    return LossTerm.of(
        torch.nn.functional.cross_entropy(at_least_float32(logits_NV), targets_N, reduction="none")
    )


def soft_cross_entropy(coord_logits_NK: Tensor, targets_NK: Tensor, temperature: float = 1.0) -> LossTerm:
    """`-Σ_i q_i log p_i` with `p = softmax(logits / T)` over the coordinate sub-vocabulary, in nats.

    Args:
        coord_logits_NK: logits of the K coordinate tokens only, in the order of their bins.
        targets_NK: distributions `q`, see `soft_targets`; no gradient flows into them.
        temperature: T.

    Returns:
        The sum over the N rows.
    """
    logits_NK = at_least_float32(coord_logits_NK)
    log_p_NK = torch.log_softmax(logits_NK / temperature, dim=1)
    return LossTerm.of(-(targets_NK.detach().to(logits_NK.dtype) * log_p_NK).sum(dim=1))
