"""A linear head, applied to a block of the vocabulary at a time.

Shapes: R rows, H hidden, V vocabulary, C columns of a block, K rows of the offset table.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

# The logits of a block should stay in a processor's cache, and fill a GPU. Blocks of fewer columns cost more than
# they save: every one of them adds to the gradient of all rows.
_BLOCK_BYTES = {"cpu": 1 << 23}
_OTHER_BLOCK_BYTES = 1 << 26
_FEWEST_COLUMNS = 1024
# Logits that would have to be computed again if they were not kept are worth more memory.
_KEPT_BYTES = 1 << 26


@dataclass(frozen=True)
class HeadSpec:
    """How to read a head; nothing here is differentiated.

    Attributes:
        coord: columns of the coordinate tokens.
        offset_columns: columns the offsets are added to, each once: a slice where they are contiguous
            (a view, no copies), else int64 ids [K].
        dtype: of the large products.
        chunk_rows: rows that are read together; None for as many as the device does well with.
        chunk_vocab: columns whose logits exist at a time; None likewise.
        grad: whether gradients will be asked for.
    """

    coord: slice
    offset_columns: slice | Tensor
    dtype: torch.dtype
    chunk_rows: int | None
    chunk_vocab: int | None
    grad: bool


class Block(NamedTuple):
    """A part of the vocabulary.

    Attributes:
        columns: which part.
        weight_CH: its rows of the weight.
        logits_RC: its logits, float32 or better, to be computed with in place.
        narrow_RC: the same place, or another one of the products' dtype.
    """

    columns: slice
    weight_CH: Tensor
    logits_RC: Tensor
    narrow_RC: Tensor

    def rounded(self) -> Tensor:
        """What has become of the logits, ready for a product."""
        same = self.narrow_RC.dtype == self.logits_RC.dtype
        return self.narrow_RC if same else self.narrow_RC.copy_(self.logits_RC)


class Head:
    """`logits = hidden · weightᵀ`, plus `hidden · offsetsᵀ` in the offset columns.

    The large products are computed in the dtype of the spec, as the model's own head does; offsets and
    everything that follows in float32 or better.

    Args:
        weight_VH: the head's weight.
        offsets_KH: what is added to some of its rows, or None.
        columns: those rows, see `HeadSpec.offset_columns`.
        dtype: of the large products.
    """

    def __init__(
        self, weight_VH: Tensor, offsets_KH: Tensor | None, columns: slice | Tensor, dtype: torch.dtype
    ) -> None:
        self.dtype = dtype
        self.wide = torch.promote_types(dtype, torch.float32)
        self.weight_VH = weight_VH.to(dtype)
        self.offsets_KH = None if offsets_KH is None else offsets_KH.to(self.wide)
        self.columns = columns

    def part(self, rows: slice) -> "Head":
        """The head of a contiguous part of the vocabulary, with copies of its own of those rows."""
        chosen, columns = shared_columns(self.columns, rows)
        offsets_KH = None if self.offsets_KH is None else self.offsets_KH[chosen].clone()
        return Head(self.weight_VH[rows].clone(), offsets_KH, columns, self.dtype)

    def offset_logits(self, hidden_RH: Tensor) -> Tensor | None:
        """What the offsets add in their columns [R, K], float32 or better."""
        return None if self.offsets_KH is None else hidden_RH.to(self.wide) @ self.offsets_KH.T

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """All logits [R, V], float32 or better."""
        logits_RV = (hidden_RH.to(self.dtype) @ self.weight_VH.T).to(self.wide)
        added_RK = self.offset_logits(hidden_RH)
        if added_RK is not None:
            logits_RV[:, self.columns] += added_RK
        return logits_RV

    def hidden_gradient(self, grad_RV: Tensor) -> Tensor:
        """Gradient of the hidden states [R, H] from that of all logits, both float32 or better."""
        grad_RH = (grad_RV.to(self.dtype) @ self.weight_VH).to(self.wide)
        if self.offsets_KH is not None:
            grad_RH += grad_RV[:, self.columns] @ self.offsets_KH
        return grad_RH

    def block_columns(self, hidden_RH: Tensor, chunk_vocab: int | None, keep: bool = False) -> int:
        """How many columns a block has, the last one apart.

        Args:
            hidden_RH: what the head is applied to.
            chunk_vocab: see `HeadSpec`.
            keep: whether one block would spare a second walk, if it held all of them.
        """
        if chunk_vocab is not None:
            return min(len(self.weight_VH), chunk_vocab)
        column_bytes = self.dtype.itemsize * max(1, len(hidden_RH))
        if keep and column_bytes * len(self.weight_VH) <= _KEPT_BYTES:
            return len(self.weight_VH)
        block_bytes = _BLOCK_BYTES.get(hidden_RH.device.type, _OTHER_BLOCK_BYTES)
        return min(len(self.weight_VH), max(_FEWEST_COLUMNS, block_bytes // column_bytes))

    def blocks(self, hidden_RH: Tensor, added_RK: Tensor | None, size: int) -> Iterator[Block]:
        """Walks over the vocabulary; each block is written over the one before.

        Args:
            hidden_RH: what the head is applied to.
            added_RK: see `offset_logits`.
            size: see `block_columns`.
        """
        num_rows, vocab_size = len(hidden_RH), len(self.weight_VH)
        narrow_RH = hidden_RH.to(self.dtype)
        room = self.weight_VH.new_empty(num_rows * size)
        wide_room = room if self.dtype == self.wide else room.to(self.wide)
        for start in range(0, vocab_size, size):
            columns = slice(start, min(start + size, vocab_size))
            weight_CH = self.weight_VH[columns]
            shape = num_rows, len(weight_CH)
            narrow_RC, logits_RC = (x[: shape[0] * shape[1]].view(shape) for x in (room, wide_room))
            torch.mm(narrow_RH, weight_CH.T, out=narrow_RC)
            if self.dtype != self.wide:
                logits_RC.copy_(narrow_RC)
            if added_RK is not None:
                chosen, here = shared_columns(self.columns, columns)
                logits_RC[:, here] += added_RK[:, chosen]
            yield Block(columns, weight_CH, logits_RC, narrow_RC)


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds `left · right`, computed in the dtype of `right`, to a total that is float32 or better."""
    left = left.to(right.dtype)
    if total.dtype == right.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def shared_columns(columns: slice | Tensor, part: slice) -> tuple[slice | Tensor, slice | Tensor]:
    """Which of the columns lie in a part of the vocabulary, and where in that part."""
    if isinstance(columns, Tensor):
        chosen = ((columns >= part.start) & (columns < part.stop)).nonzero()[:, 0]
        return chosen, columns[chosen] - part.start
    start = max(columns.start, part.start)
    stop = max(start, min(columns.stop, part.stop))
    return slice(start - columns.start, stop - columns.start), slice(start - part.start, stop - part.start)
