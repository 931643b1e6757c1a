"""A linear head in the dtype of its products, applied to one block of the vocabulary at a time.

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
"""The logits of a block should stay in a CPU's cache, and fill a GPU."""
_FEWEST_COLUMNS = 1024
"""Blocks of fewer columns cost more than they save: each of them adds to the gradient of all rows."""
_KEPT_BYTES = 1 << 26
"""All logits together are kept up to this size, where that spares computing them a second time."""


@dataclass(frozen=True)
class SortedColumns:
    """Columns that are not contiguous, ascending, known to the host as well: it never has to ask the device.

    Attributes:
        ids_K: int64
        host: the same ids
    """

    ids_K: Tensor
    host: tuple[int, ...]


Columns = slice | SortedColumns


@dataclass(frozen=True)
class HeadSpec:
    """How to apply a head; nothing here is differentiated.

    Attributes:
        coord: columns of the coordinate tokens
        offset_columns: columns the offsets are added to, each once: a slice where they are contiguous
            (a view, no copies)
        dtype: of the large products
        chunk_rows: rows that are processed together; None for 4,096 on a CPU, 16,384 on a GPU
        chunk_vocab: columns whose logits exist at a time; None for 8 MiB of them, 64 on a GPU
        grad: whether gradients will be needed
        cap: logits become `cap · tanh(logits / cap)` (Gemma 2); None for no cap
        gate_temperature: what logits of the gate are divided by, after the cap; their hidden states are already
        kernel: what passes over the vocabulary, "torch" or "triton"
        gradient_filter: see `triton_walk`
    """

    coord: slice
    offset_columns: Columns
    dtype: torch.dtype
    chunk_rows: int | None
    chunk_vocab: int | None
    grad: bool
    cap: float | None = None
    gate_temperature: float = 1.0
    kernel: str = "torch"
    gradient_filter: float = 0.0


class Block(NamedTuple):
    """A block of the vocabulary.

    Attributes:
        columns: which columns
        weight_CH: their rows of the weight
        logits_RC: their logits, float32 or better, to be overwritten
        narrow_RC: a buffer of the products' dtype; the same tensor as `logits_RC` if that has this dtype
    """

    columns: slice
    weight_CH: Tensor
    logits_RC: Tensor
    narrow_RC: Tensor

    def rounded(self) -> Tensor:
        """Return the present content of `logits_RC` in the dtype of the products."""
        same = self.narrow_RC.dtype == self.logits_RC.dtype
        return self.narrow_RC if same else self.narrow_RC.copy_(self.logits_RC)


class BlockwiseHead:
    """`logits = hidden · weightᵀ`, plus `hidden · offsetsᵀ` in the offset columns.

    The large products are computed in the dtype of the spec, as the model's own head does; offsets and
    everything that follows in float32 or better.

    Args:
        weight_VH: the head's weight; where its dtype is another one (autocast), it is cast block by block
        offsets_KH: what is added to some of its rows, or None
        columns: those rows, see `HeadSpec.offset_columns`
        dtype: of the large products
        bias_V: added to the logits, or None
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
        """Return the head of a contiguous part of the vocabulary, with copies of those rows; without bias and cap."""
        chosen, columns = shared_columns(self.columns, rows)
        offsets_KH = None if self.offsets_KH is None else self.offsets_KH[chosen].clone()
        weight_JH = self.weight_VH[rows].to(self.dtype, copy=True)
        return BlockwiseHead(weight_JH, offsets_KH, columns, self.dtype)

    def offset_logits(self, hidden_RH: Tensor) -> Tensor | None:
        """Return what the offsets add in their columns [R, K], float32 or better."""
        return None if self.offsets_KH is None else hidden_RH.to(self.wide) @ self.offsets_KH.T

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """Return all logits [R, V], float32 or better, before bias and cap."""
        logits_RV = (hidden_RH.to(self.dtype) @ self.weight_VH.to(self.dtype).T).to(self.wide)
        added_RK = self.offset_logits(hidden_RH)
        if added_RK is not None:
            logits_RV[:, index_of(self.columns)] += added_RK
        return logits_RV

    def hidden_gradient(self, grad_RV: Tensor) -> Tensor:
        """Return the gradient of the hidden states [R, H] from that of all logits, both float32 or better."""
        grad_RH = (grad_RV.to(self.dtype) @ self.weight_VH.to(self.dtype)).to(self.wide)
        if self.offsets_KH is not None:
            grad_RH += grad_RV[:, index_of(self.columns)] @ self.offsets_KH
        return grad_RH

    def final_logits(self, hidden_RH: Tensor, factor_R1: Tensor, columns: Columns) -> Tensor:
        """Return the logits in a part of the vocabulary or in the columns of the offsets, after bias and cap."""
        logits_RC = (hidden_RH.to(self.dtype) @ self.weight_VH[index_of(columns)].to(self.dtype).T).to(self.wide)
        added_RK = self.offset_logits(hidden_RH)
        if added_RK is not None and columns is self.columns:
            logits_RC += added_RK
        elif added_RK is not None and isinstance(columns, slice):
            chosen, here = shared_columns(self.columns, columns)
            logits_RC[:, index_of(here)] += added_RK[:, chosen]
        if self.bias_V is not None:
            logits_RC.addcmul_(factor_R1, self.bias_V[index_of(columns)])
        if self.cap is not None:
            cap_R1 = self.cap * factor_R1
            logits_RC.div_(cap_R1).tanh_().mul_(cap_R1)
        return logits_RC

    def block_columns(self, hidden_RH: Tensor, chunk_vocab: int | None, keep: bool = False) -> int:
        """Return how many columns each block has, except the last one.

        Args:
            hidden_RH: what the head is applied to
            chunk_vocab: see `HeadSpec`
            keep: whether holding all logits in one block would spare computing them again
        """
        if chunk_vocab is not None:
            return min(len(self.weight_VH), chunk_vocab)
        column_bytes = self.dtype.itemsize * max(1, len(hidden_RH))
        if self.weight_VH.dtype != self.dtype:  # a block's weight is a copy, and should fit as its logits do
            column_bytes = max(column_bytes, self.dtype.itemsize * hidden_RH.shape[1])
        elif keep and column_bytes * len(self.weight_VH) <= _KEPT_BYTES:
            return len(self.weight_VH)
        block_bytes = _BLOCK_BYTES.get(hidden_RH.device.type, _OTHER_BLOCK_BYTES)
        return min(len(self.weight_VH), max(_FEWEST_COLUMNS, block_bytes // column_bytes))

    def slope(self, capped_RC: Tensor, factor_R1: Tensor) -> Tensor | None:
        """Return the derivative of capped logits by what they were before the cap; None without a cap."""
        return None if self.cap is None else 1 - (capped_RC / (self.cap * factor_R1)) ** 2

    def blocks(self, hidden_RH: Tensor, factor_R1: Tensor, added_RK: Tensor | None, size: int) -> Iterator[Block]:
        """Iterate over the vocabulary; each block overwrites the previous one.

        Args:
            hidden_RH: what the head is applied to
            factor_R1: what each row was multiplied by beforehand: its bias and cap are too
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
                chosen, here = shared_columns(self.columns, columns)
                logits_RC[:, index_of(here)] += added_RK[:, chosen]
            if self.bias_V is not None:
                logits_RC.addcmul_(factor_R1, self.bias_V[columns])
            if self.cap is not None:
                cap_R1 = self.cap * factor_R1
                logits_RC.div_(cap_R1).tanh_().mul_(cap_R1)
            yield Block(columns, weight_CH, logits_RC, narrow_RC)


def add_product(total: Tensor, left: Tensor, right: Tensor, factor_R1: Tensor | None = None) -> None:
    """Add `left · right`, computed in the dtype of `right`, to a total that is float32 or better.

    Args:
        total: overwritten by `factor · total + left · right`
        left: cast to the dtype of `right`
        right: decides the dtype of the product
        factor_R1: of each row of the total; None for 1
    """
    left = left.to(right.dtype)
    if total.dtype == right.dtype:
        if factor_R1 is not None:
            total *= factor_R1
        total.addmm_(left, right)
    elif factor_R1 is None:
        total += left @ right
    else:  # in one pass over the total
        torch.addcmul((left @ right).to(total.dtype), total, factor_R1, out=total)


def index_of(columns: Columns) -> slice | Tensor:
    """Return what indexes these columns of a tensor."""
    return columns.ids_K if isinstance(columns, SortedColumns) else columns


def shared_columns(columns: Columns, part: slice) -> tuple[slice, Columns]:
    """Return which of the columns lie in a part of the vocabulary, and where in that part."""
    if isinstance(columns, SortedColumns):
        chosen = slice(bisect_left(columns.host, part.start), bisect_left(columns.host, part.stop))
        return chosen, SortedColumns(
            columns.ids_K[chosen] - part.start, tuple(i - part.start for i in columns.host[chosen])
        )
    start = max(columns.start, part.start)
    stop = max(start, min(columns.stop, part.stop))
    return slice(start - columns.start, stop - columns.start), slice(start - part.start, stop - part.start)
