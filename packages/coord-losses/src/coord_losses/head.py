"""A linear head, applied to a chunk of rows at a time.

Shapes: c rows of a chunk, H hidden, V vocabulary, K rows of the offset table.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class HeadSpec:
    """How to read a head; nothing here is differentiated.

    Attributes:
        coord: columns of the coordinate tokens.
        offset_columns: columns the offsets are added to, each once: a slice where they are contiguous
            (a view, no copies), else int64 ids [K].
        dtype: of the large products.
        chunk_rows: rows whose logits exist at a time; None for a quarter GiB of them.
        grad: whether gradients will be asked for.
    """

    coord: slice
    offset_columns: slice | Tensor
    dtype: torch.dtype
    chunk_rows: int | None
    grad: bool


class Head:
    """`logits = hidden · weightᵀ`, plus `hidden · offsetsᵀ` in the offset columns, and the way back.

    The large products are computed in `dtype`, as the model's own head does; offsets and everything that
    follows in float32 or better.

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

    def products(self, hidden_cH: Tensor, out_cV: Tensor) -> Tensor:
        """The logits without offsets, written over `out_cV`, which has the dtype of the products."""
        return torch.mm(hidden_cH.to(self.dtype), self.weight_VH.T, out=out_cV)

    def offset_logits(self, hidden_cH: Tensor) -> Tensor | None:
        """What the offsets add in their columns [c, K], float32 or better."""
        return None if self.offsets_KH is None else hidden_cH.to(self.wide) @ self.offsets_KH.T

    def logits(self, hidden_cH: Tensor) -> Tensor:
        """Logits [c, V], float32 or better."""
        room_cV = self.weight_VH.new_empty(len(hidden_cH), len(self.weight_VH))
        logits_cV = self.products(hidden_cH, room_cV).to(self.wide)
        added_cK = self.offset_logits(hidden_cH)
        if added_cK is not None:
            logits_cV[:, self.columns] += added_cK
        return logits_cV

    def hidden_gradient(self, grad_cV: Tensor, offset_grad_cK: Tensor | None) -> Tensor:
        """Gradient of the hidden states [c, H].

        Args:
            grad_cV: gradient of the logits, in the dtype of the products.
            offset_grad_cK: its columns of the offsets, float32 or better; None without offsets.
        """
        grad_cH = (grad_cV @ self.weight_VH).to(self.wide)
        if self.offsets_KH is not None and offset_grad_cK is not None:
            grad_cH += offset_grad_cK @ self.offsets_KH
        return grad_cH


def add_product(total_VH: Tensor, grad_cV: Tensor, hidden_cH: Tensor) -> None:
    """Adds `gradᵀ · hidden` of one chunk to the gradient of a head's rows, which is float32 or better."""
    hidden_cH = hidden_cH.to(grad_cV.dtype)
    if total_VH.dtype == grad_cV.dtype:
        total_VH.addmm_(grad_cV.T, hidden_cH)
    else:
        total_VH += grad_cV.T @ hidden_cH


def shared_columns(columns: slice | Tensor, part: slice) -> tuple[slice | Tensor, slice | Tensor]:
    """Which of the columns lie in a part of the vocabulary, and where in that part."""
    if isinstance(columns, Tensor):
        chosen = ((columns >= part.start) & (columns < part.stop)).nonzero()[:, 0]
        return chosen, columns[chosen] - part.start
    start = max(columns.start, part.start)
    stop = max(start, min(columns.stop, part.stop))
    return slice(start - columns.start, stop - columns.start), slice(start - part.start, stop - part.start)
