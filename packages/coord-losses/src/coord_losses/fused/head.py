"""The linear head of a model, as the fused objective applies it.

Shapes: R, G, C rows, H hidden, V vocabulary, K rows of the offset table, J coordinate tokens.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from coord_losses.fused.autograd import ApplyFrozenHead, ApplyTrainedHead
from coord_losses.fused.blocks import Columns, HeadSpec, SortedColumns


class LinearHead:
    """`logits = hidden · weightᵀ`, plus `hidden · offsetsᵀ` at the ids of the offsets; no bias.

    Args:
        coord: ids of the coordinate tokens; empty for none
        weight_VH: frozen or trained
        offsets_KH: what is added to some rows of the weight, or None
        offset_ids_K: those rows; None for the coordinate tokens
        chunk_rows: see `HeadSpec`
        chunk_vocab: see `HeadSpec`

    Raises:
        ValueError: shapes disagree, or an id is repeated or outside the vocabulary
    """

    def __init__(
        self,
        coord: slice,
        weight_VH: Tensor,
        offsets_KH: Tensor | None = None,
        offset_ids_K: Tensor | Iterable[int] | None = None,
        chunk_rows: int | None = None,
        chunk_vocab: int | None = None,
    ) -> None:
        for name, size in (("chunk_rows", chunk_rows), ("chunk_vocab", chunk_vocab)):
            if size is not None and size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        self.coord = coord
        self.weight_VH = weight_VH
        self.offset_columns: Columns = coord
        order: list[int] | None = None
        if offset_ids_K is not None:
            self.offset_columns, order = _columns(offset_ids_K, weight_VH)
        self.chunk_rows, self.chunk_vocab = chunk_rows, chunk_vocab
        if offsets_KH is not None:
            columns = self.offset_columns
            known = columns.host if isinstance(columns, SortedColumns) else range(columns.start, columns.stop)
            expected = [len(known), weight_VH.shape[1]]
            if list(offsets_KH.shape) != expected:
                raise ValueError(
                    f"offsets_KH must be {expected}, one row per offset id, got "
                    f"{list(offsets_KH.shape)}; pass offset_ids_K if they are not the coordinate tokens alone"
                )
            if order is not None:  # the gradient finds its way back to the order of the table
                offsets_KH = offsets_KH[torch.tensor(order, device=offsets_KH.device)]
        self.offsets_KH = offsets_KH

    def apply(
        self, ce_hidden_RH: Tensor, targets_R: Tensor, gate_hidden_GH: Tensor, coord_hidden_CH: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the head and return what the losses need, all of it differentiable, float32 or better.

        The products are computed in the dtype of the weight, or in that of autocast where it is on, as the
        model's own head would compute them.

        Args:
            ce_hidden_RH: rows whose cross-entropy is needed
            targets_R: their targets
            gate_hidden_GH: rows whose gate is needed, divided by the temperature
            coord_hidden_CH: rows whose coordinate logits are needed

        Returns:
            Cross-entropy [R], gate [G] and coordinate logits [C, J].

        Raises:
            ValueError: a sharded weight has been released in the meantime
        """
        if len(self.weight_VH) < self.coord.stop:
            raise ValueError("the head's weight has been released since; ask for diagnostics where it is gathered")
        device, dtype = self.weight_VH.device.type, self.weight_VH.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        grad = torch.is_grad_enabled()
        spec = HeadSpec(self.coord, self.offset_columns, dtype, self.chunk_rows, self.chunk_vocab, grad)
        function = ApplyTrainedHead if grad and self.weight_VH.requires_grad else ApplyFrozenHead
        applied: tuple[Tensor, Tensor, Tensor] = function.apply(
            self.weight_VH, self.offsets_KH, ce_hidden_RH, gate_hidden_GH, coord_hidden_CH, targets_R, spec
        )
        return applied


def _columns(ids_K: Tensor | Iterable[int], weight_VH: Tensor) -> tuple[Columns, list[int] | None]:
    """Return the columns in ascending order, and the order that sorts the table; None where it is sorted."""
    ids = ids_K.tolist() if isinstance(ids_K, Tensor) else list(ids_K)
    if ids and not 0 <= min(ids) <= max(ids) < len(weight_VH):
        raise ValueError(f"offset_ids_K must lie in 0..{len(weight_VH) - 1}, got {min(ids)}..{max(ids)}")
    if len(set(ids)) != len(ids):
        raise ValueError("offset_ids_K names an id twice")
    if ids and ids == list(range(ids[0], ids[0] + len(ids))):
        return slice(ids[0], ids[0] + len(ids)), None
    order = sorted(range(len(ids)), key=ids.__getitem__)
    host = tuple(ids[i] for i in order)
    ids_K = torch.tensor(host, dtype=torch.long, device=weight_VH.device)
    return SortedColumns(ids_K, host), None if list(host) == ids else order
