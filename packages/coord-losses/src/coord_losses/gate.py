"""The vocabulary gate: speak coordinates where coordinates are due."""

from collections.abc import Iterable

import torch
from torch import Tensor

from coord_losses.precision import at_least_float32
from coord_losses.terms import LossTerm


def vocab_gate(logits_NV: Tensor, coord_ids_K: Tensor | Iterable[int], temperature: float = 1.0) -> LossTerm:
    """`logsumexp(all / T) - logsumexp(coord / T)`: minus the log of the mass on coordinate tokens.

    Losses on the sub-vocabulary see only ratios between coordinates; without this term (or a cross-entropy
    over the full vocabulary) nothing teaches the model to choose a coordinate token at all.

    Args:
        logits_NV: full-vocabulary logits at positions whose target is a coordinate.
        coord_ids_K: ids of the coordinate tokens.
        temperature: T.

    Returns:
        The sum over the N rows, in nats; 0 when all the mass is on coordinates.
    """
    if not isinstance(coord_ids_K, Tensor):
        coord_ids_K = torch.tensor(list(coord_ids_K), device=logits_NV.device)
    scaled_NV = at_least_float32(logits_NV) / temperature
    return LossTerm.of(scaled_NV.logsumexp(dim=1) - scaled_NV[:, coord_ids_K].logsumexp(dim=1))
