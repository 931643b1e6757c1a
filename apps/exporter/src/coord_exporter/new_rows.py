"""Initial rows for new tokens, fitted to the table they join.

`mean`: the mean of the trained rows plus seeded noise (Hewitt 2021, "Initializing new word embeddings for
pretrained language models"). `smooth`: coordinates as sines and cosines of the bin around that mean, with the
table's own spread in each dimension, so that neighbouring bins start as neighbours (Vaswani et al. 2017,
section 3.5); other tokens as with `mean`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .checkpoint import TensorInfo
from .recipe import RowFunction, opened, read_rows
from .workspace import Workspace

if TYPE_CHECKING:
    import torch

INITS = ("mean", "smooth")
NOISE = 0.1  # standard deviation of the noise, in standard deviations of the table
_MIN_FREQUENCY, _MAX_FREQUENCY = 0.25, 64.0  # half-periods over the range of bins
_CHUNK_ROWS = 2048


@dataclass(frozen=True, eq=False)
class NewRowsStep:
    """Put rows in the place of rows `first`, `first + 1`, ...

    Attributes:
        first: the first row that is replaced.
        rows: the new rows [n, H], float32.
    """

    first: int
    rows: torch.Tensor
    whole: bool = False

    def touches(self, lo: int, hi: int) -> bool:
        """Whether rows lo..hi-1 overlap the new ones."""
        return lo < self.first + len(self.rows) and self.first < hi

    def open(self, workspace: Workspace) -> RowFunction:
        """Nothing to load."""

        def change(rows: torch.Tensor, lo: int, hi: int) -> torch.Tensor:
            start, end = max(lo, self.first), min(hi, self.first + len(self.rows))
            if start < end:
                rows[start - lo : end - lo] = self.rows[start - self.first : end - self.first]
            return rows

        return change


def make_rows(
    table: TensorInfo, trained: int, ids: range, *, coords: range, init: str, seed: int
) -> torch.Tensor:
    """Rows for the tokens `ids` of a table.

    Args:
        table: the table [V, H] they join.
        trained: how many of its first rows belong to tokens.
        ids: the tokens to make rows for.
        coords: ids of the coordinates, bin 0 first; they may overlap `ids`.
        init: "mean" or "smooth".
        seed: of the noise.

    Returns:
        float32 [len(ids), H].
    """
    import torch

    mean_H, std_H = _moments(table, trained)
    generator = torch.Generator().manual_seed(seed)
    rows = mean_H + NOISE * std_H * torch.randn(len(ids), len(mean_H), generator=generator)
    if init == "smooth":
        inside = [i for i in ids if i in coords]
        bins = torch.tensor([i - coords[0] for i in inside], dtype=torch.float64)
        rows[[i - ids[0] for i in inside]] = mean_H + std_H * _waves(bins / len(coords), len(mean_H))
    return rows


def _waves(x_N: torch.Tensor, width: int) -> torch.Tensor:
    """Sines and cosines [N, width] of x in [0, 1), root mean square 1, frequencies in geometric steps."""
    import torch

    pairs = -(-width // 2)
    limits = math.log(_MIN_FREQUENCY), math.log(_MAX_FREQUENCY)
    angle = math.pi * x_N[:, None] * torch.exp(torch.linspace(*limits, pairs, dtype=torch.float64))
    return (math.sqrt(2) * torch.cat([angle.sin(), angle.cos()], dim=1))[:, :width].float()


def _moments(table: TensorInfo, trained: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation [H] of the first rows of a table, in two passes in float64."""
    mean = sum(chunk.sum(0) for chunk in _chunks(table, trained)) / trained
    variance = sum(((chunk - mean) ** 2).sum(0) for chunk in _chunks(table, trained)) / trained
    return mean.float(), variance.sqrt().float()


def _chunks(table: TensorInfo, rows: int) -> Iterable[torch.Tensor]:
    with opened(table) as fd:
        for lo in range(0, rows, _CHUNK_ROWS):
            yield read_rows(table, fd, lo, min(lo + _CHUNK_ROWS, rows)).double()
