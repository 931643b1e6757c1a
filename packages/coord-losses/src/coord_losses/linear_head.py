"""The head that an objective reads hidden states with.

Shapes: R, G, C rows, H hidden, V vocabulary, K rows of the offset table, J coordinate tokens.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from coord_codec import CoordVocab
from coord_losses.coordexp import coord_range
from coord_losses.frozen_head import ReadFrozenHead
from coord_losses.head import HeadSpec
from coord_losses.trained_head import ReadTrainedHead


class LinearHead:
    """`logits = hidden · weightᵀ`, plus `hidden · offsetsᵀ` at the ids of the offsets; no bias.

    Args:
        vocab: the coordinate tokens; None for none.
        weight_VH: frozen or trained.
        offsets_KH: what is added to some rows of the weight, or None.
        offset_ids_K: those rows; None for the coordinate tokens.
        chunk_rows: rows that are read together; None for 4,096 on a processor, 16,384 on a GPU.
        chunk_vocab: columns whose logits exist at a time; None for 8 MiB of them, 64 on a GPU.

    Raises:
        ValueError: shapes disagree, or an id is repeated or outside the vocabulary.
    """

    def __init__(
        self,
        vocab: CoordVocab | None,
        weight_VH: Tensor,
        offsets_KH: Tensor | None = None,
        offset_ids_K: Tensor | Iterable[int] | None = None,
        chunk_rows: int | None = None,
        chunk_vocab: int | None = None,
    ) -> None:
        for name, size in (("chunk_rows", chunk_rows), ("chunk_vocab", chunk_vocab)):
            if size is not None and size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        self.vocab = vocab
        self.weight_VH = weight_VH
        self.offsets_KH = offsets_KH
        self.coord = slice(0, 0) if vocab is None else coord_range(vocab, len(weight_VH))
        self.offset_columns: slice | Tensor = self.coord
        if offset_ids_K is not None:
            self.offset_columns = _columns(offset_ids_K, weight_VH)
        self.chunk_rows, self.chunk_vocab = chunk_rows, chunk_vocab
        if offsets_KH is not None:
            expected = (_length(self.offset_columns), weight_VH.shape[1])
            if tuple(offsets_KH.shape) != expected:
                raise ValueError(
                    f"offsets_KH must be {list(expected)}, one row per offset id, got "
                    f"{list(offsets_KH.shape)}; pass offset_ids_K if they are not the coordinate tokens alone"
                )

    def read(
        self, ce_hidden_RH: Tensor, targets_R: Tensor, gate_hidden_GH: Tensor, coord_hidden_CH: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Applies the head and keeps what losses need, all of it differentiable, float32 or better.

        The products are computed in the dtype of the weight, or in that of autocast where it is on: as the
        model's own head would.

        Args:
            ce_hidden_RH: rows whose cross-entropy is wanted.
            targets_R: their targets.
            gate_hidden_GH: rows whose gate is wanted, divided by the temperature.
            coord_hidden_CH: rows whose coordinate logits are wanted.

        Returns:
            Cross-entropy [R], gate [G] and coordinate logits [C, J].

        Raises:
            ValueError: a sharded weight has been released in the meantime.
        """
        if len(self.weight_VH) < self.coord.stop:
            raise ValueError(
                "the head's weight has been released since; ask for diagnostics where it is gathered"
            )
        device, dtype = self.weight_VH.device.type, self.weight_VH.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        grad = torch.is_grad_enabled()
        spec = HeadSpec(self.coord, self.offset_columns, dtype, self.chunk_rows, self.chunk_vocab, grad)
        function = ReadTrainedHead if grad and self.weight_VH.requires_grad else ReadFrozenHead
        read: tuple[Tensor, Tensor, Tensor] = function.apply(
            self.weight_VH, self.offsets_KH, ce_hidden_RH, gate_hidden_GH, coord_hidden_CH, targets_R, spec
        )
        return read


def _columns(ids_K: Tensor | Iterable[int], weight_VH: Tensor) -> slice | Tensor:
    ids = ids_K.tolist() if isinstance(ids_K, Tensor) else list(ids_K)
    if ids and not 0 <= min(ids) <= max(ids) < len(weight_VH):
        raise ValueError(f"offset_ids_K must lie in 0..{len(weight_VH) - 1}, got {min(ids)}..{max(ids)}")
    if len(set(ids)) != len(ids):
        raise ValueError("offset_ids_K names an id twice")
    if ids and ids == list(range(ids[0], ids[0] + len(ids))):
        return slice(ids[0], ids[0] + len(ids))
    return torch.tensor(ids, dtype=torch.long, device=weight_VH.device)


def _length(columns: slice | Tensor) -> int:
    return len(columns) if isinstance(columns, Tensor) else columns.stop - columns.start
