"""The expected coordinate: a differentiable readout without argmax."""

import torch
from torch import Tensor

from coord_codec import CoordGrid
from coord_losses.precision import at_least_float32


def expectation(coord_logits_NK: Tensor, grid: CoordGrid = CoordGrid(), temperature: float = 1.0) -> Tensor:
    """`Σ_k p_k · dequantize(k)` with `p = softmax(logits / T)` over the coordinate sub-vocabulary.

    Args:
        coord_logits_NK: logits of the K coordinate tokens only, in the order of their bins.
        grid: what a bin is worth; the default grid has 1000 bins of 1/1000.
        temperature: T.

    Returns:
        Coordinates [N] in [0, dequantize(K - 1)], fractions of the image side.

    Raises:
        ValueError: K is not the number of bins of the grid.
    """
    if coord_logits_NK.shape[1] != grid.bins:
        raise ValueError(
            f"coord_logits_NK has {coord_logits_NK.shape[1]} columns, the grid {grid.bins} bins; "
            "pass the coordinate tokens' logits only"
        )
    p_NK = (at_least_float32(coord_logits_NK) / temperature).softmax(dim=1)
    # Not a matrix product: autocast would round the bins to bfloat16.
    return (p_NK * bin_values(grid, p_NK)).sum(dim=1)


def bin_values(grid: CoordGrid, like: Tensor) -> Tensor:
    """`dequantize(k)` for every bin [K], in the dtype and on the device of `like`."""
    values_K: Tensor = grid.dequantize(torch.arange(grid.bins, dtype=like.dtype, device=like.device))
    return values_K
