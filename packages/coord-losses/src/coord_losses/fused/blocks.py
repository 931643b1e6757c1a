"""Applies a linear head to one block of the vocabulary at a time, with products in a given dtype.

Shapes: R rows, H hidden, V vocabulary, C columns of a block, K rows of the offset table.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_BLOCK_BYTES = {"cpu": 1 << 23}
_OTHER_BLOCK_BYTES = 1 << 26
"""Size of a block's logits: they should fit into a CPU's cache, or keep a GPU busy."""
_FEWEST_COLUMNS = 1024
"""Smaller blocks are slower, since each block is added to the gradient of all rows."""
_KEPT_BYTES = 1 << 26
"""Logits of the full vocabulary up to this size are kept if that avoids computing them twice."""


@dataclass(frozen=True)
class SortedColumns:
    """Ascending columns that are not contiguous, also stored on the host to avoid synchronisation with the device.

    Attributes:
        ids_K: int64 ids on the device
        host: the same ids on the host
    """

    ids_K: Tensor
    host: tuple[int, ...]


Columns = slice | SortedColumns


@dataclass(frozen=True)
class HeadSpec:
    """Non-differentiable options for applying a head.

    Attributes:
        coord: columns of the coordinate tokens
        offset_columns: columns that the offsets are added to; a slice if they are contiguous (a view, no copies)
        dtype: dtype of the large products
        chunk_rows: number of rows processed together; None for 4,096 on a CPU, 16,384 on a GPU
        chunk_vocab: number of columns whose logits exist at a time; None for 8 MiB of logits, 64 on a GPU
        grad: whether gradients will be needed
        cap: logits become `cap · tanh(logits / cap)` (Gemma 2); None for no cap
        gate_temperature: temperature of the gate, applied after the cap; its hidden states are divided beforehand
    """

    coord: slice
    offset_columns: Columns
    dtype: torch.dtype
    chunk_rows: int | None
    chunk_vocab: int | None
    grad: bool = False
    cap: float | None = None
    gate_temperature: float = 1.0


class Block(NamedTuple):
    """A block of the vocabulary.

    Attributes:
        columns: the columns of the block
        weight_CH: the block's rows of the weight
        logits_RC: the block's logits, float32 or better; may be overwritten
        narrow_RC: a buffer in the dtype of the products; the same tensor as `logits_RC` if the dtypes are equal
    """

    columns: slice
    weight_CH: Tensor
    logits_RC: Tensor
    narrow_RC: Tensor

    def rounded(self) -> Tensor:
        """Return the current content of `logits_RC` in the dtype of the products."""
        same = self.narrow_RC.dtype == self.logits_RC.dtype
        return self.narrow_RC if same else self.narrow_RC.copy_(self.logits_RC)


class BlockwiseHead:
    """`logits = hidden · weightᵀ`, plus `hidden · offsetsᵀ` in the offset columns.

    The large products are computed in the given dtype, as in the model's own head; everything else in float32 or
    better.

    Args:
        weight_VH: the head's weight; if its dtype differs (autocast), it is cast block by block
        offsets_KH: offsets added to some of its rows, or None
        columns: those rows, see `HeadSpec.offset_columns`
        dtype: dtype of the large products
        bias_V: the bias, or None
        cap: see `HeadSpec`
    """

    def __init__(
        self,
        weight_VH: Tensor,
        offsets_KH: Tensor | None,
        columns: Columns,
        dtype: torch.dtype,
        bias_V: Tensor | None = None,
        cap: float | None = None,
    ) -> None:
        self.dtype = dtype
        self.wide = torch.promote_types(dtype, torch.float32)
        self.weight_VH = weight_VH
        self.offsets_KH = None if offsets_KH is None else offsets_KH.to(self.wide)
        self.columns = columns
        self.bias_V = None if bias_V is None else bias_V.to(self.wide)
        self.cap = cap

    def part(self, rows: slice) -> "BlockwiseHead":
        """Return a head for a contiguous part of the vocabulary with a copy of its rows, without bias and cap."""
        chosen, columns = shared_columns(self.columns, rows)
        offsets_KH = None if self.offsets_KH is None else self.offsets_KH[chosen].clone()
        weight_JH = self.weight_VH[rows].to(self.dtype, copy=True)
        return BlockwiseHead(weight_JH, offsets_KH, columns, self.dtype)

    def offset_logits(self, hidden_RH: Tensor) -> Tensor | None:
        """Return the logits that the offsets add in their columns [R, K], float32 or better."""
        return None if self.offsets_KH is None else hidden_RH.to(self.wide) @ self.offsets_KH.T

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """Return all logits [R, V], float32 or better, before bias and cap."""
        logits_RV = (hidden_RH.to(self.dtype) @ self.weight_VH.to(self.dtype).T).to(self.wide)
        offset_logits_RK = self.offset_logits(hidden_RH)
        if offset_logits_RK is not None:
            logits_RV[:, index_of(self.columns)] += offset_logits_RK
        return logits_RV

    def hidden_gradient(self, grad_RV: Tensor) -> Tensor:
        """Return the gradient of the hidden states [R, H] given that of all logits, both float32 or better."""
        grad_RH = (grad_RV.to(self.dtype) @ self.weight_VH.to(self.dtype)).to(self.wide)
        if self.offsets_KH is not None:
            grad_RH += grad_RV[:, index_of(self.columns)] @ self.offsets_KH
        return grad_RH

    def _add_bias_and_cap_(self, logits_RC: Tensor, factor_R1: Tensor, columns: Columns) -> Tensor:
        """Add the bias of these columns and apply the cap, in place."""
        if self.bias_V is not None:
            logits_RC.addcmul_(factor_R1, self.bias_V[index_of(columns)])
        if self.cap is not None:
            cap_R1 = self.cap * factor_R1
            logits_RC.div_(cap_R1).tanh_().mul_(cap_R1)
        return logits_RC

    def block_columns(self, hidden_RH: Tensor, chunk_vocab: int | None, keep: bool = False) -> int:
        """Return the number of columns of each block except the last.

        Args:
            hidden_RH: input of the head
            chunk_vocab: see `HeadSpec`
            keep: whether keeping all logits in one block would avoid computing them again
        """
        if chunk_vocab is not None:
            return min(len(self.weight_VH), chunk_vocab)
        column_bytes = self.dtype.itemsize * max(1, len(hidden_RH))
        if self.weight_VH.dtype != self.dtype:  # the cast copy of the block's weight should fit as well
            column_bytes = max(column_bytes, self.dtype.itemsize * hidden_RH.shape[1])
        elif keep and column_bytes * len(self.weight_VH) <= _KEPT_BYTES:
            return len(self.weight_VH)
        block_bytes = _BLOCK_BYTES.get(hidden_RH.device.type, _OTHER_BLOCK_BYTES)
        return min(len(self.weight_VH), max(_FEWEST_COLUMNS, block_bytes // column_bytes))

    def slope(self, capped_RC: Tensor, factor_R1: Tensor) -> Tensor | None:
        """Return the derivative of capped logits with respect to uncapped logits; None without a cap."""
        return None if self.cap is None else 1 - (capped_RC / (self.cap * factor_R1)) ** 2

    def blocks(self, hidden_RH: Tensor, factor_R1: Tensor, added_RK: Tensor | None, size: int) -> Iterator[Block]:
        """Iterate over the vocabulary; each block overwrites the previous one.

        Args:
            hidden_RH: input of the head
            factor_R1: factor that each row was multiplied by beforehand; applied to its bias and cap as well
            added_RK: see `offset_logits`
            size: see `block_columns`
        """
        num_rows, vocab_size = len(hidden_RH), len(self.weight_VH)
        narrow_RH = hidden_RH.to(self.dtype)
        narrow = self.weight_VH.new_empty(num_rows * size, dtype=self.dtype)
        wide = narrow if self.dtype == self.wide else narrow.to(self.wide)
        for start in range(0, vocab_size, size):
            columns = slice(start, min(start + size, vocab_size))
            weight_CH = self.weight_VH[columns].to(self.dtype)
            shape = num_rows, len(weight_CH)
            narrow_RC, logits_RC = (x[: shape[0] * shape[1]].view(shape) for x in (narrow, wide))
            torch.mm(narrow_RH, weight_CH.T, out=narrow_RC)
            if self.dtype != self.wide:
                logits_RC.copy_(narrow_RC)
            if added_RK is not None:
                chosen, local_columns = shared_columns(self.columns, columns)
                logits_RC[:, index_of(local_columns)] += added_RK[:, chosen]
            self._add_bias_and_cap_(logits_RC, factor_R1, columns)
            yield Block(columns, weight_CH, logits_RC, narrow_RC)


def add_product(total: Tensor, left: Tensor, right: Tensor, factor_R1: Tensor | None = None) -> None:
    """Add `left · right`, computed in the dtype of `right`, to a total in float32 or better.

    Args:
        total: overwritten with `factor · total + left · right`
        left: left factor, cast to the dtype of `right`
        right: right factor, whose dtype the product has
        factor_R1: factor of each row of the total; None for 1
    """
    left = left.to(right.dtype)
    if total.dtype == right.dtype:
        if factor_R1 is not None:
            total *= factor_R1
        total.addmm_(left, right)
    elif factor_R1 is None:
        total += left @ right
    else:  # a single pass over the total
        torch.addcmul((left @ right).to(total.dtype), total, factor_R1, out=total)


def index_of(columns: Columns) -> slice | Tensor:
    """Return an index that selects these columns of a tensor."""
    return columns.ids_K if isinstance(columns, SortedColumns) else columns


def shared_columns(columns: Columns, part: slice) -> tuple[slice, Columns]:
    """Return which of the columns lie in a part of the vocabulary, and their positions relative to that part."""
    if isinstance(columns, SortedColumns):
        chosen = slice(bisect_left(columns.host, part.start), bisect_left(columns.host, part.stop))
        return chosen, SortedColumns(
            columns.ids_K[chosen] - part.start, tuple(i - part.start for i in columns.host[chosen])
        )
    start = max(columns.start, part.start)
    stop = max(start, min(columns.stop, part.stop))
    return slice(start - columns.start, stop - columns.start), slice(start - part.start, stop - part.start)
