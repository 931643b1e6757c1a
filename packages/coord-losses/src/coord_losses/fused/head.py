"""A linear head in the dtype of its products, and what the fused objective computes from its logits beside the losses.

Shapes: R, C rows, H hidden, V vocabulary, K rows of the offset table, J coordinate tokens.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch.utils.weak import WeakTensorKeyDictionary

from coord_losses.terms.loss_term import at_least_float32

_LOGIT_BYTES = {"cpu": 1 << 26}
_OTHER_LOGIT_BYTES = 1 << 28
"""Size of the logits of rows processed together: on a GPU about 880 rows of 150,000 tokens in 16 bits."""

Index = slice | Tensor
_Ids = tuple[int, Index, Index, tuple[Index, Index]]
"""The number of ids, and `LinearHead`'s `ids`, `apart` and `of_coord`."""


@dataclass(frozen=True)
class LinearHead:
    """`logits = hidden · weightᵀ`, plus `hidden · offsetsᵀ` at the ids of the offsets, plus a bias, optionally capped.

    Attributes:
        coord: ids of the coordinate tokens; an empty slice if there are none
        weight_VH: the weight, frozen or trained
        offsets_KH: offsets added to some rows of the weight, or None
        ids: those rows, a slice (of the coordinate tokens) or int64 ids [K]
        apart: the same, and after them the coordinate tokens that have no offsets
        of_coord: which of the offsets belong to coordinate tokens, and which coordinate tokens these are
        bias_V: the bias, frozen or trained, or None
        cap: logits become `cap · tanh(logits / cap)` (Gemma 2); None for no cap
        chunk_rows: number of rows processed together; None for 64 MiB of logits on a CPU, 256 MiB on a GPU
    """

    coord: slice
    weight_VH: Tensor
    offsets_KH: Tensor | None
    ids: Index
    apart: Index
    of_coord: tuple[Index, Index]
    bias_V: Tensor | None
    cap: float | None
    chunk_rows: int | None

    @classmethod
    def of(
        cls,
        coord: slice,
        weight_VH: Tensor,
        offsets_KH: Tensor | None = None,
        offset_ids_K: Tensor | Iterable[int] | None = None,
        chunk_rows: int | None = None,
        bias_V: Tensor | None = None,
        cap: float | None = None,
    ) -> "LinearHead":
        """Validate the parts of a head; `offset_ids_K` is None for offsets of the coordinate tokens.

        Raises:
            ValueError: if shapes disagree, or an id is repeated or outside the vocabulary
        """
        if bias_V is not None and bias_V.shape != weight_VH.shape[:1]:
            raise ValueError(f"bias_V must be [{len(weight_VH)}], one per row of the weight, got {list(bias_V.shape)}")
        if cap is not None and not cap > 0:
            raise ValueError(f"softcap must be positive, got {cap}")
        if chunk_rows is not None and chunk_rows < 1:
            raise ValueError(f"chunk_rows must be at least 1, got {chunk_rows}")
        count = coord.stop - coord.start
        found: _Ids = count, coord, coord, (slice(0, count), slice(0, count))
        if offset_ids_K is not None:
            found = _read_ids(offset_ids_K, coord, weight_VH)
        count, ids, apart, of_coord = found
        if offsets_KH is not None and offsets_KH.shape != (count, weight_VH.shape[1]):
            raise ValueError(
                f"offsets_KH must be {[count, weight_VH.shape[1]]}, one row per offset id, got "
                f"{list(offsets_KH.shape)}; pass offset_ids_K if their ids are not exactly the coordinate tokens"
            )
        return cls(coord, weight_VH, offsets_KH, ids, apart, of_coord, bias_V, cap, chunk_rows)

    @property
    def trained(self) -> bool:
        """Whether the weight or the bias needs a gradient."""
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (self.weight_VH, self.bias_V))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the products: that of the weight, or of autocast if enabled, as in the model's own head."""
        device = self.weight_VH.device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.weight_VH.dtype

    def chunks(self, num_rows: int, itemsize: int, trained: bool = False) -> Iterator[slice]:
        """Yield chunks of rows of nearly equal size; with a trained weight the logits may take as much as its gradient.

        Each chunk is added to that gradient, which is read and written as a whole.
        """
        most = _LOGIT_BYTES.get(self.weight_VH.device.type, _OTHER_LOGIT_BYTES)
        least = self.weight_VH.shape[1] if trained else 1
        limit = self.chunk_rows or max(least, most // (itemsize * len(self.weight_VH)))
        size = -(-num_rows // max(1, -(-num_rows // limit)))
        for start in range(0, num_rows, max(1, size)):
            yield slice(start, min(start + size, num_rows))

    def finish(self, logits: Tensor, columns: Index) -> Tensor:
        """Add the bias of these columns, the last dimension of the logits, and apply the cap."""
        if self.bias_V is not None:
            logits = logits + self.bias_V[columns].to(logits.dtype)
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def target_logits(self, hidden_RH: Tensor, targets_R: Tensor) -> Tensor:
        """Return the logit of each row's target [R], float32 or better."""
        wide_RH = at_least_float32(hidden_RH)
        weight_RH = self.weight_VH[targets_R].to(wide_RH.dtype)
        if self.offsets_KH is not None:
            every_V = torch.arange(len(self.weight_VH), device=targets_R.device)
            place_V = torch.full_like(every_V, -1)
            place_V[self.ids] = every_V[: len(self.offsets_KH)]
            place_R = place_V[targets_R]
            added_R1 = (place_R >= 0)[:, None]
            weight_RH = weight_RH + added_R1 * self.offsets_KH[place_R.clamp(min=0)].to(wide_RH.dtype)
        return self.finish((wide_RH * weight_RH).sum(dim=1), targets_R)

    def mean_logits(self, hidden_RH: Tensor) -> Tensor:
        """Return the mean of each row's logits [R], float32 or better; with a cap this takes a separate pass."""
        wide_RH, size = at_least_float32(hidden_RH), len(self.weight_VH)
        if self.cap is None:
            total_H = self.weight_VH.sum(dim=0, dtype=wide_RH.dtype)
            if self.offsets_KH is not None:
                total_H = total_H + self.offsets_KH.sum(dim=0).to(wide_RH.dtype)
            bias = 0 if self.bias_V is None else self.bias_V.sum(dtype=wide_RH.dtype)
            return (wide_RH @ total_H + bias) / size
        # The backward pass recomputes the logits of each chunk.
        means = [
            checkpoint(self._mean, wide_RH[rows], use_reentrant=False)
            for rows in self.chunks(len(wide_RH), wide_RH.itemsize)
        ]
        return torch.cat(means) if means else wide_RH.new_zeros(0)

    def _mean(self, wide_RH: Tensor) -> Tensor:
        logits_RV = wide_RH @ self.weight_VH.to(wide_RH.dtype).T
        if self.offsets_KH is not None:
            ids_K = torch.arange(len(self.weight_VH), device=wide_RH.device)[self.ids]
            logits_RV = logits_RV.index_add(1, ids_K, wide_RH @ self.offsets_KH.to(wide_RH.dtype).T)
        return self.finish(logits_RV, slice(None)).mean(dim=1)


_READ = WeakTensorKeyDictionary()


def _read_ids(ids_K: Tensor | Iterable[int], coord: slice, weight_VH: Tensor) -> _Ids:
    """Read the ids of offsets, a tensor again only if it was changed."""
    if not isinstance(ids_K, Tensor):
        ids = list(ids_K)
        return _validated(ids, torch.tensor(ids, dtype=torch.long, device=weight_VH.device), coord, weight_VH)
    key = (0 if ids_K.is_inference() else ids_K._version), coord.start, coord.stop, len(weight_VH)
    if ids_K not in _READ or _READ[ids_K][0] != key:
        _READ[ids_K] = key, _validated(ids_K.tolist(), ids_K.to(weight_VH.device, copy=True), coord, weight_VH)
    found: _Ids = _READ[ids_K][1]
    return found


def _validated(ids: list[int], ids_K: Tensor, coord: slice, weight_VH: Tensor) -> _Ids:
    if ids and not 0 <= min(ids) <= max(ids) < len(weight_VH):
        raise ValueError(f"offset_ids_K must lie in 0..{len(weight_VH) - 1}, got {min(ids)}..{max(ids)}")
    if len(set(ids)) != len(ids):
        raise ValueError("offset_ids_K contains an id twice")
    which = torch.tensor([k for k, i in enumerate(ids) if coord.start <= i < coord.stop], device=ids_K.device).long()
    others = torch.tensor(sorted({*range(coord.start, coord.stop)} - {*ids}), device=ids_K.device).long()
    return len(ids), ids_K, torch.cat([ids_K.long(), others]), (which, ids_K[which] - coord.start)
