"""Vocabulary gate: penalises probability mass on non-coordinate tokens at coordinate positions."""

from collections.abc import Iterable

import torch
from torch import Tensor

from coord_losses.terms.loss_term import LossTerm, at_least_float32


def vocab_gate(logits_NV: Tensor, coord_ids_K: Tensor | Iterable[int], temperature: float = 1.0) -> LossTerm:
    """Sum `logsumexp(all / T) - logsumexp(coord / T)`, the negative log probability of all coordinate tokens.

    Losses over the coordinate tokens depend only on the ratios of their probabilities; without this term (or
    cross-entropy over the full vocabulary) nothing teaches the model to generate a coordinate token at all.

    Args:
        logits_NV: full-vocabulary logits at positions whose target is a coordinate
        coord_ids_K: ids of the coordinate tokens
        temperature: T

    Returns:
        The sum over the N rows, in nats; 0 if all probability is on coordinate tokens.

    Example:
        >>> import torch
        >>> vocab_gate(torch.zeros(1, 8), [6, 7]).sum  # log(8 / 2)
        tensor(1.3863)
    """
    return LossTerm.of(vocab_gate_per_row(logits_NV, coord_ids_K, temperature))


def vocab_gate_per_row(logits_NV: Tensor, coord_ids_K: Tensor | Iterable[int], temperature: float) -> Tensor:
    """Return `vocab_gate` of each row [N]."""
    if isinstance(coord_ids_K, range):  # a copy of a list from the host would wait for the device
        coord_ids_K = torch.arange(coord_ids_K.start, coord_ids_K.stop, device=logits_NV.device)
    elif not isinstance(coord_ids_K, Tensor):
        coord_ids_K = torch.tensor(list(coord_ids_K), device=logits_NV.device)
    # Softplus of the difference over disjoint sets avoids the cancellation in `all - coord`.
    wide_NV = at_least_float32(logits_NV)
    scaled_NV = (wide_NV - wide_NV.detach().amax(dim=1, keepdim=True)) / temperature
    lowest = torch.finfo(scaled_NV.dtype).min  # finite, so that the gradient is zero if there are no other tokens
    others_N = scaled_NV.index_fill(1, coord_ids_K, lowest).logsumexp(dim=1)
    difference_N = others_N - scaled_NV[:, coord_ids_K].logsumexp(dim=1)
    return torch.nn.functional.softplus(difference_N, threshold=40)
