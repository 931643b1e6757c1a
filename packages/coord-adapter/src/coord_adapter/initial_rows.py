"""Initial rows for new tokens and patch positions: smooth functions of the bin, or the mean of a table plus noise.

Smooth rows are sines and cosines of the position (Vaswani et al. 2017, "Attention is all you need", section 3.5) with
geometrically increasing frequencies, from a quarter of a half-period over the unit interval, so that rows of
neighbouring bins are similar. The mean plus noise follows Hewitt 2021, "Initializing new word embeddings for
pretrained language models". Importing this module does not import torch.

Shapes: N positions, P frequencies, H width of a row, I new tokens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

INITS = ("mean", "smooth")
"""Values of `init` in `new_token_rows`."""

NOISE = 0.1
"""Standard deviation of the noise, relative to that of the table."""

_MIN_FREQUENCY, _MAX_FREQUENCY = 0.25, 64.0  # half-periods over the unit interval


def smooth_rows(count: int, width: int, std: float, max_frequency: float = _MAX_FREQUENCY) -> torch.Tensor:
    """Return rows for `count` equally spaced positions.

    Args:
        count: number of positions, N; row k has position k/N
        width: width of a row, H
        std: root mean square of the entries
        max_frequency: highest frequency, in half-periods over the unit interval

    Returns:
        float32 [N, H].

    Example:
        >>> rows = smooth_rows(1000, 64, std=0.02)
        >>> rows.shape, round(rows.square().mean().sqrt().item(), 3)
        (torch.Size([1000, 64]), 0.02)
        >>> bool((rows[500] @ rows[501] > rows[500] @ rows[540]).item())
        True
    """
    import torch

    return std * _features(torch.arange(count) / count, width, max_frequency)


def smooth_rows_2d(side: int, width: int, std: float) -> torch.Tensor:
    """Return rows for the cells of a square grid in raster order; each half of a row encodes the cell's line or column.

    Args:
        side: number of cells on a side; the grid has N = side * side cells
        width: width of a row, H
        std: root mean square of the entries

    Returns:
        float32 [N, H].
    """
    import torch

    down, across = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    half = width // 2
    parts = [
        _features(down.flatten() / side, half, float(side)),
        _features(across.flatten() / side, width - half, float(side)),
    ]
    return std * torch.cat(parts, dim=1)


def new_token_rows(
    mean_H: torch.Tensor, std_H: torch.Tensor, ids: range, *, coords: range, init: str, seed: int
) -> torch.Tensor:
    """Return rows for new tokens with the mean and scale of an existing table.

    Args:
        mean_H: mean of the table's trained rows, float32
        std_H: standard deviation of these rows in each dimension, float32
        ids: ids of the I tokens that need a row
        coords: ids of the coordinates, bin 0 first; they may overlap `ids`
        init: "mean" for the mean plus noise; "smooth" for sines and cosines of the bin around the mean, with the
            table's standard deviation in each dimension, for coordinates, and as "mean" for all other tokens
        seed: seed of the noise

    Returns:
        float32 [I, H].
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    rows_IH = mean_H + NOISE * std_H * torch.randn(len(ids), len(mean_H), generator=generator)
    if init == "smooth":
        coord_tokens = [token for token in ids if token in coords]
        x_N = torch.tensor([token - coords[0] for token in coord_tokens], dtype=torch.float64) / len(coords)
        frequency_P = _frequencies(len(mean_H), _MAX_FREQUENCY, torch.float64)
        features_NH = _sines_and_cosines(math.pi * x_N[:, None] * frequency_P, len(mean_H)).float()
        rows_IH[[token - ids[0] for token in coord_tokens]] = mean_H + std_H * features_NH
    return rows_IH


def _features(x_N: torch.Tensor, width: int, max_frequency: float) -> torch.Tensor:
    # The order of multiplication matters in float32: it keeps the rows bit-identical to those of existing models.
    angular_P = _frequencies(width, max_frequency, x_N.dtype) * math.pi
    return _sines_and_cosines(x_N[:, None] * angular_P, width)


def _frequencies(width: int, max_frequency: float, dtype: torch.dtype) -> torch.Tensor:
    import torch

    pairs = -(-width // 2)
    return torch.exp(torch.linspace(math.log(_MIN_FREQUENCY), math.log(max_frequency), pairs, dtype=dtype))


def _sines_and_cosines(angle_NP: torch.Tensor, width: int) -> torch.Tensor:
    """Return sines, then cosines, [N, width], with root mean square 1."""
    import torch

    return (math.sqrt(2) * torch.cat([angle_NP.sin(), angle_NP.cos()], dim=1))[:, :width]
