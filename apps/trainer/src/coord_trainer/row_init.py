"""Smooth initial rows for coordinate tokens and patch positions (Fourier features of the position).

Vaswani et al., "Attention is all you need" (2017), section 3.5, with frequencies from a quarter of a
period to `max_frequency` half-periods over the unit interval, so that rows of neighbouring bins are alike.
"""

import math

import torch


def smooth_rows(count: int, width: int, std: float, max_frequency: float = 64.0) -> torch.Tensor:
    """Rows [count, width] whose entries are sines and cosines of k/count, root mean square `std`."""
    return std * _fourier(torch.arange(count) / count, width, max_frequency)


def smooth_rows_2d(side: int, width: int, std: float) -> torch.Tensor:
    """Rows [side*side, width] in raster order: half of each row codes the row index, half the column."""
    down, across = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    half = width // 2
    parts = [
        _fourier(down.flatten() / side, half, float(side)),
        _fourier(across.flatten() / side, width - half, float(side)),
    ]
    return std * torch.cat(parts, dim=1)


def _fourier(x_N: torch.Tensor, width: int, max_frequency: float) -> torch.Tensor:
    pairs = -(-width // 2)
    frequency = torch.exp(torch.linspace(math.log(0.25), math.log(max_frequency), pairs)) * math.pi
    angle = x_N[:, None] * frequency
    return (math.sqrt(2) * torch.cat([angle.sin(), angle.cos()], dim=1))[:, :width]
