"""The distribution of a coordinate: a few statistics of the logits at the position that predicts it.

Shapes: N positions, V vocabulary, K coordinate tokens, Q quantiles.
"""

from __future__ import annotations

from functools import cache

import torch

from coord_codec import CoordVocab
from coord_detect.settings.decoding import QUANTILE_LEVELS


def coordinate_statistics(logits_NV: torch.Tensor, vocab: CoordVocab) -> dict[str, torch.Tensor]:
    """Return the statistics of `StepRecorder` at positions that predict a coordinate.

    Args:
        logits_NV: in float32, before any grammar
        vocab: the coordinate tokens

    Returns:
        `expected` [N] and `spread` [N] in [0, 1], `quantiles` [N, Q] in [0, 1], `mass` [N].

    Example:
        >>> from coord_codec import CoordGrid
        >>> vocab = CoordVocab(first_id=2, grid=CoordGrid(bins=3, scale=4))
        >>> logits_NV = torch.tensor([[0.0, 0.0, -9e9, 0.0, 0.0]])  # bins 1 and 2 are as likely as two words
        >>> found = coordinate_statistics(logits_NV, vocab)
        >>> round(float(found["expected"]), 4), round(float(found["mass"]), 4)
        (0.375, 0.5)
    """
    coord_NK = logits_NV[:, vocab.first_id : vocab.first_id + len(vocab.ids)]
    p_NK = coord_NK.softmax(dim=1)
    bins_K = torch.arange(p_NK.shape[1], device=p_NK.device, dtype=p_NK.dtype)
    mean_N = p_NK @ bins_K
    variance_N = (p_NK * (bins_K - mean_N[:, None]) ** 2).sum(dim=1)
    levels_NQ = _levels(p_NK.device).repeat(len(p_NK), 1)
    bin_NQ = torch.searchsorted(p_NK.cumsum(dim=1), levels_NQ).clamp(max=p_NK.shape[1] - 1)
    return {
        "expected": mean_N / vocab.grid.scale,
        "spread": variance_N.sqrt() / vocab.grid.scale,
        "quantiles": bin_NQ / vocab.grid.scale,
        "mass": (coord_NK.logsumexp(dim=1) - logits_NV.logsumexp(dim=1)).exp(),
    }


@cache
def _levels(device: torch.device) -> torch.Tensor:
    """Return the probabilities [Q] of the quantiles, copied to the device once."""
    return torch.tensor(QUANTILE_LEVELS, device=device)
