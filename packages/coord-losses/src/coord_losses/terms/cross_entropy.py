"""Cross-entropy with a target token, and with a target distribution over bins."""

import torch
from torch import Tensor

from coord_losses.terms.loss_term import LossTerm, at_least_float32


def token_nll(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Return `-log softmax(logits)[target]` of each row over the full vocabulary [N].

    Args:
        logits_NV: logits of the rows that predict the targets (shifted)
        targets_N: target token ids; none is ignored
    """
    return torch.nn.functional.cross_entropy(at_least_float32(logits_NV), targets_N, reduction="none")


def small_nll(logits_NK: Tensor, targets_N: Tensor) -> Tensor:
    """Return the same as `token_nll`, with all digits of values and gradients near zero, for a copy of the logits.

    It is the softplus of `logsumexp(others) - logits[target]`, which subtracts no nearly equal numbers.

    Args:
        logits_NK: logits of the rows
        targets_N: targets
    """
    wide_NK = at_least_float32(logits_NK)
    others_N = wide_NK.scatter(1, targets_N[:, None], -torch.inf).logsumexp(dim=1)
    return torch.nn.functional.softplus(others_N - wide_NK.gather(1, targets_N[:, None])[:, 0], threshold=40)


def soft_cross_entropy(coord_logits_NK: Tensor, targets_NK: Tensor, temperature: float = 1.0) -> LossTerm:
    """Sum `-Σ_i q_i log p_i` over the rows, with `p = softmax(logits / T)` over the coordinate tokens.

    Args:
        coord_logits_NK: logits of the K coordinate tokens only, in the order of their bins
        targets_NK: distributions `q`, see `soft_targets`; they get no gradient
        temperature: T

    Returns:
        The sum over the N rows, in nats.

    Example:
        >>> import torch
        >>> logits = torch.zeros(1, 4)
        >>> soft_cross_entropy(logits, torch.full((1, 4), 0.25)).sum  # log 4
        tensor(1.3863)
    """
    return LossTerm.of(soft_cross_entropy_per_row(coord_logits_NK, targets_NK, temperature))


def soft_cross_entropy_per_row(coord_logits_NK: Tensor, targets_NK: Tensor, temperature: float) -> Tensor:
    """Return `soft_cross_entropy` of each row [N]."""
    logits_NK = at_least_float32(coord_logits_NK)
    targets_NK = targets_NK.detach().to(logits_NK.dtype)
    # 0 · log 0 is 0: a logit of -inf outside the window of a soft target adds no loss.
    log_p_NK = torch.log_softmax(logits_NK / temperature, dim=1).masked_fill(targets_NK == 0, 0)
    return -(targets_NK * log_p_NK).sum(dim=1)
