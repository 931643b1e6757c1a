"""Applies the linear head of a model for the fused objective.

Shapes: R, G, C rows, H hidden, V vocabulary, K rows of the offset table, J coordinate tokens.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch.utils.weak import WeakTensorKeyDictionary

from coord_losses.fused.autograd import ApplyFrozenHead, ApplyTrainedHead
from coord_losses.fused.blocks import Columns, HeadSpec, SortedColumns, shared_columns
from coord_losses.terms.loss_term import at_least_float32

_MEAN_BLOCK = 1 << 21
"""Number of logits per block when the mean of capped logits is computed."""


class LinearHead:
    """`logits = hidden · weightᵀ`, plus `hidden · offsetsᵀ` at the ids of the offsets, plus a bias, optionally capped.

    Args:
        coord: ids of the coordinate tokens; an empty slice if there are none
        weight_VH: the weight, frozen or trained
        offsets_KH: offsets added to some rows of the weight, or None
        offset_ids_K: the ids of those rows; None for the coordinate tokens
        chunk_rows: see `HeadSpec`
        chunk_vocab: see `HeadSpec`
        bias_V: the bias, frozen or trained, or None
        cap: logits become `cap · tanh(logits / cap)`; None for no cap

    Raises:
        ValueError: if shapes disagree, or an id is repeated or outside the vocabulary
    """

    def __init__(
        self,
        coord: slice,
        weight_VH: Tensor,
        offsets_KH: Tensor | None = None,
        offset_ids_K: Tensor | Iterable[int] | None = None,
        chunk_rows: int | None = None,
        chunk_vocab: int | None = None,
        bias_V: Tensor | None = None,
        cap: float | None = None,
    ) -> None:
        if bias_V is not None and bias_V.shape != weight_VH.shape[:1]:
            raise ValueError(f"bias_V must be [{len(weight_VH)}], one per row of the weight, got {list(bias_V.shape)}")
        if cap is not None and not cap > 0:
            raise ValueError(f"softcap must be positive, got {cap}")
        for name, size in (("chunk_rows", chunk_rows), ("chunk_vocab", chunk_vocab)):
            if size is not None and size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        columns: Columns = coord
        order: list[int] | None = None
        if offset_ids_K is not None:
            columns, order = _columns(offset_ids_K, weight_VH)
        if offsets_KH is not None:
            offset_ids = columns.host if isinstance(columns, SortedColumns) else range(columns.start, columns.stop)
            expected = [len(offset_ids), weight_VH.shape[1]]
            if list(offsets_KH.shape) != expected:
                raise ValueError(
                    f"offsets_KH must be {expected}, one row per offset id, got "
                    f"{list(offsets_KH.shape)}; pass offset_ids_K if their ids are not exactly the coordinate tokens"
                )
            if order is not None:  # autograd restores the order of the table in the gradient
                offsets_KH = offsets_KH[torch.tensor(order, device=offsets_KH.device)]
        self.weight_VH, self.offsets_KH, self.bias_V = weight_VH, offsets_KH, bias_V
        self.spec = HeadSpec(coord, columns, weight_VH.dtype, chunk_rows, chunk_vocab, cap=cap)

    @property
    def trained(self) -> bool:
        """Whether the weight or the bias needs a gradient."""
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (self.weight_VH, self.bias_V))

    def apply(
        self,
        ce_hidden_RH: Tensor,
        targets_R: Tensor,
        gate_hidden_GH: Tensor,
        coord_hidden_CH: Tensor,
        gate_temperature: float = 1.0,
        factors_R: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the differentiable inputs of the losses, in float32 or better.

        Like the model's own head, it computes products in the dtype of the weight, or of autocast if enabled.

        Args:
            ce_hidden_RH: rows whose cross-entropy is needed
            targets_R: targets of those rows
            gate_hidden_GH: rows whose gate is needed
            coord_hidden_CH: rows whose coordinate logits are needed
            gate_temperature: temperature of the gate
            factors_R: the upstream gradients of cross-entropies and gates up to a common factor, which save a trained
                head one product; None if they are unknown

        Returns:
            Cross-entropy [R], gate [G] and coordinate logits [C, J].

        Raises:
            ValueError: if a sharded weight has been released in the meantime
        """
        if len(self.weight_VH) < self.spec.coord.stop:
            raise ValueError("the head's weight has been released since; call diagnostics while it is gathered")
        device, dtype = self.weight_VH.device.type, self.weight_VH.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        spec = replace(self.spec, dtype=dtype, grad=torch.is_grad_enabled(), gate_temperature=gate_temperature)
        function = ApplyTrainedHead if self.trained else ApplyFrozenHead
        nll_R, gate_G, coord_logits_CJ = function.apply(
            self.weight_VH,
            self.offsets_KH,
            self.bias_V,
            ce_hidden_RH,
            gate_hidden_GH / gate_temperature,
            coord_hidden_CH,
            targets_R,
            spec,
            factors_R,
        )
        return nll_R, gate_G, self._final(coord_logits_CJ, spec.coord)

    def target_logits(self, hidden_RH: Tensor, targets_R: Tensor) -> Tensor:
        """Return the logit of each row's target [R], float32 or better."""
        wide_RH = at_least_float32(hidden_RH)
        weight_RH = self.weight_VH[targets_R].to(wide_RH.dtype)
        if self.offsets_KH is not None:
            ids_K = _ids(self.spec.offset_columns, targets_R)
            index_R = torch.searchsorted(ids_K, targets_R).clamp(max=len(ids_K) - 1)
            added_R1 = (ids_K[index_R] == targets_R)[:, None]
            weight_RH = weight_RH + added_R1 * self.offsets_KH[index_R].to(wide_RH.dtype)
        return self._final((wide_RH * weight_RH).sum(dim=1), targets_R)

    def mean_logits(self, hidden_RH: Tensor) -> Tensor:
        """Return the mean of each row's logits [R], float32 or better; with a cap this takes a separate pass."""
        wide_RH, size = at_least_float32(hidden_RH), len(self.weight_VH)
        if self.spec.cap is None:
            total_H = self.weight_VH.sum(dim=0, dtype=wide_RH.dtype)
            if self.offsets_KH is not None:
                total_H = total_H + self.offsets_KH.sum(dim=0).to(wide_RH.dtype)
            bias = 0 if self.bias_V is None else self.bias_V.sum(dtype=wide_RH.dtype)
            return (wide_RH @ total_H + bias) / size
        total_R = wide_RH.new_zeros(len(wide_RH))
        columns = self.spec.chunk_vocab or max(1024, _MEAN_BLOCK // max(1, len(wide_RH)))
        for start in range(0, size, columns):
            block = slice(start, min(start + columns, size))
            # The backward pass recomputes the block's logits.
            total_R = total_R + checkpoint(self._sum_of_block, wide_RH, block, use_reentrant=False)
        return total_R / size

    def _sum_of_block(self, wide_RH: Tensor, block: slice) -> Tensor:
        logits_RC = wide_RH @ self.weight_VH[block].to(wide_RH.dtype).T
        if self.offsets_KH is not None:
            chosen, local_columns = shared_columns(self.spec.offset_columns, block)
            logits_RC = logits_RC.index_add(
                1, _ids(local_columns, logits_RC), wide_RH @ self.offsets_KH[chosen].to(wide_RH.dtype).T
            )
        return self._final(logits_RC, block).sum(dim=1)

    def _final(self, logits: Tensor, columns: slice | Tensor) -> Tensor:
        """Add the bias of these columns, the last dimension of the logits, and apply the cap."""
        if self.bias_V is not None:
            logits = logits + self.bias_V[columns].to(logits.dtype)
        cap = self.spec.cap
        return logits if cap is None else cap * torch.tanh(logits / cap)


def _ids(columns: Columns, like: Tensor) -> Tensor:
    if isinstance(columns, SortedColumns):
        return columns.ids_K
    return torch.arange(columns.start, columns.stop, device=like.device)


_HOST_IDS = WeakTensorKeyDictionary()


def _on_host(ids_K: Tensor) -> list[int]:
    """Return the ids of a tensor, which is read again only if it was changed: it may be on a device."""
    version = 0 if ids_K.is_inference() else ids_K._version
    if ids_K not in _HOST_IDS or _HOST_IDS[ids_K][0] != version:
        _HOST_IDS[ids_K] = version, ids_K.tolist()
    ids: list[int] = _HOST_IDS[ids_K][1]
    return ids


def _columns(ids_K: Tensor | Iterable[int], weight_VH: Tensor) -> tuple[Columns, list[int] | None]:
    """Return the columns in ascending order, and the permutation that sorts the table; None if it is sorted."""
    ids = _on_host(ids_K) if isinstance(ids_K, Tensor) else list(ids_K)
    if ids and not 0 <= min(ids) <= max(ids) < len(weight_VH):
        raise ValueError(f"offset_ids_K must lie in 0..{len(weight_VH) - 1}, got {min(ids)}..{max(ids)}")
    if len(set(ids)) != len(ids):
        raise ValueError("offset_ids_K contains an id twice")
    if ids and ids == list(range(ids[0], ids[0] + len(ids))):
        return slice(ids[0], ids[0] + len(ids)), None
    order = sorted(range(len(ids)), key=ids.__getitem__)
    host = tuple(ids[i] for i in order)
    ids_K = torch.tensor(host, dtype=torch.long, device=weight_VH.device)
    return SortedColumns(ids_K, host), None if list(host) == ids else order
