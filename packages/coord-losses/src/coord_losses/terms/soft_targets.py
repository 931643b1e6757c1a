"""Soft targets: a truncated Gaussian around the target bin."""

import torch
from torch import Tensor


def soft_targets(
    bins_N: Tensor, num_bins: int = 1000, sigma: float = 2.0, truncate: int = 16, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Build target distributions that penalise small errors less than large ones.

    `q_i ∝ exp(-(i - t)² / 2σ²)` for `|i - t| ≤ truncate`, zero elsewhere, normalised to sum to one, also at the
    ends of the range, where part of the window lies outside.

    Args:
        bins_N: target bins `t`, integers in `0..num_bins-1`
        num_bins: number of bins K
        sigma: standard deviation, in bins
        truncate: half width of the window, in bins; 0 gives one-hot targets
        dtype: dtype of the result

    Returns:
        Probabilities [N, num_bins] on the device of `bins_N`.

    Raises:
        ValueError: if a bin lies outside the range, `sigma` is not positive or `truncate` is negative

    Example:
        >>> import torch
        >>> soft_targets(torch.tensor([0, 2]), num_bins=5, sigma=1.0, truncate=1)
        tensor([[0.6225, 0.3775, 0.0000, 0.0000, 0.0000],
                [0.0000, 0.2741, 0.4519, 0.2741, 0.0000]])
    """
    if not sigma > 0:
        raise ValueError(f"sigma must be positive, got {sigma}")
    if truncate < 0:
        raise ValueError(f"truncate must not be negative, got {truncate}")
    if bins_N.numel() and not 0 <= int(bins_N.min()) <= int(bins_N.max()) < num_bins:
        raise ValueError(
            f"bins_N must lie in 0..{num_bins - 1}, got {int(bins_N.min())}..{int(bins_N.max())}; "
            "were token ids passed instead of bins?"
        )
    return checked_soft_targets(bins_N, num_bins, sigma, truncate, dtype)


def checked_soft_targets(bins_N: Tensor, num_bins: int, sigma: float, truncate: int, dtype: torch.dtype) -> Tensor:
    """Return `soft_targets` without checking the bins, which would wait for the device."""
    # Only the window is computed: K exponentials per row would take longer than the loss itself.
    reach = min(truncate, num_bins - 1)
    offset_W = torch.arange(-reach, reach + 1, device=bins_N.device)
    bin_NW = bins_N[:, None] + offset_W
    # Squaring the quotient instead of sigma gives a one-hot row for a tiny sigma instead of 0/0.
    q_W = torch.exp(-0.5 * (offset_W.to(dtype) / sigma).square())
    q_NW = torch.where((bin_NW >= 0) & (bin_NW < num_bins), q_W, 0.0)
    q_NW = q_NW / q_NW.sum(dim=1, keepdim=True)
    # Bins outside the range have probability 0, so that adding them to a clamped index has no effect.
    q_NK = torch.zeros(len(bins_N), num_bins, dtype=dtype, device=bins_N.device)
    return q_NK.scatter_add(1, bin_NW.clamp(0, num_bins - 1), q_NW)
