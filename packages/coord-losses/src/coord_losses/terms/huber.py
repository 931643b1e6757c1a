"""Huber loss of the expected coordinate."""

import torch
from torch import Tensor

from coord_losses.terms.loss_term import LossTerm, at_least_float32


def expectation_huber(expected_N: Tensor, true_N: Tensor, delta: float = 0.01) -> LossTerm:
    """Sum `d² / 2δ` for `d < δ`, else `d - δ/2`, with `d = |expected - true|` (Huber, 1964, divided by δ).

    Far from the ground-truth coordinate it approximates L1 for any δ, and near it the gradient goes to zero smoothly.

    Args:
        expected_N: expected coordinates, see `expectation`
        true_N: ground-truth coordinates in the same unit; they get no gradient
        delta: distance below which the loss is quadratic; ten bins of 1/1000 by default

    Returns:
        The sum over the N coordinates, in their unit.

    Raises:
        ValueError: if `delta` is not positive

    Example:
        >>> import torch
        >>> expectation_huber(torch.tensor([0.5, 0.5]), torch.tensor([0.51, 0.6])).sum  # 0.005 + 0.095
        tensor(0.1000)
    """
    return LossTerm.of(huber_per_row(expected_N, true_N, delta))


def huber_per_row(expected_N: Tensor, true_N: Tensor, delta: float = 0.01) -> Tensor:
    """Return `expectation_huber` of each coordinate [N]."""
    if not delta > 0:
        raise ValueError(f"delta must be positive, got {delta}")
    expected_N = at_least_float32(expected_N)
    true_N = true_N.detach().to(expected_N.dtype)
    return torch.nn.functional.smooth_l1_loss(expected_N, true_N, reduction="none", beta=delta)
