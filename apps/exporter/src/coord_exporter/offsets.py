"""Offset tables of the coordinate adapter as changes of the embedding's and the head's rows."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .checkpoint import TensorInfo
from .recipe import RowFunction, read_float
from .workspace import Workspace

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class OffsetStep:
    """Add row k of a table [K, H] to row `ids[k]`.

    Attributes:
        ids: the token ids in the order of the table's rows, distinct.
        table: the offsets.
    """

    ids: tuple[int, ...]
    table: TensorInfo
    whole: bool = False

    def touches(self, lo: int, hi: int) -> bool:
        """Whether an id lies in lo..hi-1."""
        ids = sorted(self.ids)
        at = bisect_left(ids, lo)
        return at < len(ids) and ids[at] < hi

    def open(self, workspace: Workspace) -> RowFunction:
        """Load the table."""
        import torch

        table = read_float(self.table)
        ids = torch.tensor(self.ids)

        def change(rows: torch.Tensor, lo: int, hi: int) -> torch.Tensor:
            inside = (ids >= lo) & (ids < hi)
            rows[ids[inside] - lo] += table[inside]
            return rows

        return change


@dataclass(frozen=True)
class TokenRowsStep:
    """Put rows in the place of others: PEFT's `trainable_token_indices`, whose rows are absolute.

    Attributes:
        ids: the token ids in the order of the table's rows, distinct.
        table: the rows [K, H].
    """

    ids: tuple[int, ...]
    table: TensorInfo
    whole: bool = False

    def touches(self, lo: int, hi: int) -> bool:
        """Whether an id lies in lo..hi-1."""
        return any(lo <= token_id < hi for token_id in self.ids)

    def open(self, workspace: Workspace) -> RowFunction:
        """Load the rows."""
        import torch

        table = read_float(self.table)
        ids = torch.tensor(self.ids)

        def change(rows: torch.Tensor, lo: int, hi: int) -> torch.Tensor:
            inside = (ids >= lo) & (ids < hi)
            rows[ids[inside] - lo] = table[inside]
            return rows

        return change
